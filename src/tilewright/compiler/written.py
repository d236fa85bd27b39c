"""The model as it was written, for checks: read again when it is asked for.

Nothing is kept of it in between, so that a model is not in memory, nor on disk, beside its package.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.errors import refuse

if TYPE_CHECKING:
    from tilewright.compiler.state import Model
    from tilewright.graph.interpreter import WeightSource
    from tilewright.ir import ModuleOp
    from tilewright.shapes.forms import Shapes


def written(
    asked: Callable[[], tuple[Model, Shapes | None]],
    *files: str | Path | None,
    caffemodel: str | Path | None = None,
) -> Callable[[], tuple[ModuleOp, WeightSource]]:
    """Return a function that reads the graph before any pass, and its constants, from the model.

    ``asked`` gives the model and the shapes that it was compiled for. One of whose ``files`` has
    been written to since is refused (``model-changed``).
    """
    paths = [Path(path) for path in (*files, caffemodel) if path is not None]
    before = {path: _state(path) for path in paths}

    def load() -> tuple[ModuleOp, WeightSource]:
        from tilewright import frontends

        for path, known in before.items():
            if _state(path) != known:
                raise refuse(
                    "model-changed", "the file has been written to since it was compiled",
                    repr(str(path)),
                )  # fmt: skip
        model, shapes = asked()
        if isinstance(model, frontends.Imported):
            imported = model
        elif isinstance(model, frontends.Opened):
            imported = model.load(shapes)
        else:
            imported = frontends.load(model, shapes=shapes, caffemodel=caffemodel)
        return imported.module, imported.weights

    return load


def _state(path: Path) -> tuple[int, int] | None:
    """Return the size and time that tell whether a file was written to; None without a file."""
    try:
        known = path.stat()
    except OSError:
        return None
    return known.st_size, known.st_mtime_ns
