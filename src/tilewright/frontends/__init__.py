"""Front-ends: foreign model files become networks in the graph dialect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tilewright.errors import refuse
from tilewright.frontends.imported import Imported, ModelNode

__all__ = ["Imported", "ModelNode", "load"]


def load(path: str | Path, *, shapes: Mapping[str, Sequence[int]] | None = None) -> Imported:
    """Read a model file of any format that Tilewright knows (today: ONNX).

    ``shapes`` gives the shapes of inputs whose sizes the model leaves open. Raises TilewrightError
    with every reason for which the model is refused.
    """
    path = Path(path)
    if path.suffix.lower() == ".onnx":
        from tilewright.frontends.onnx import import_onnx

        return import_onnx(path, shapes=shapes)
    raise refuse(
        "model-format",
        f"no front-end reads files that end in {path.suffix!r}",
        where=repr(str(path)),
        help="ONNX models end in .onnx",
    )
