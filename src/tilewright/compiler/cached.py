"""Keys of compilations: two compilations with one key give the same package, which the cache
holds."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from tilewright import frontends
from tilewright.codegen.program.interface import Form
from tilewright.compiler.request import Request
from tilewright.compiler.state import Model
from tilewright.errors import TilewrightError, refuse
from tilewright.machine import Machine
from tilewright.numerics.formats import Numbers
from tilewright.runtime.cache import Cache
from tilewright.runtime.digest import compiler_digest
from tilewright.runtime.executable import Executable, Progress, placed
from tilewright.runtime.manifest import PROGRAM, digest_of_file
from tilewright.shapes.forms import Shapes
from tilewright.targets.base import Target

CAFFEMODEL = "caffemodel"
"""The file of weights that a caller names beside the model."""


def files_of(model: Model, caffemodel: str | Path | None) -> Mapping[str, Path] | None:
    """The files that a model is made of, by the names under which it knows them.

    None for a model that lies in memory, as modules of PyTorch do, which is compiled each time, and
    for files that are missing, which its front-end refuses.
    """
    if isinstance(model, frontends.Opened):
        return model.files() if model.on_disk else None
    if not isinstance(model, str | Path) or not Path(model).is_file():
        return None
    paths = {"model": Path(model)}
    if caffemodel is not None:
        if not Path(caffemodel).is_file():
            return None
        paths[CAFFEMODEL] = Path(caffemodel)
    return paths


def beside(files: Mapping[str, Path]) -> Mapping[str, Path]:
    """Return the files that a model names itself; the caller names the others."""
    return {name: path for name, path in list(files.items())[1:] if name != CAFFEMODEL}


def digests_of(
    files: Mapping[str, Path], known: Mapping[Path, str] | None = None
) -> Mapping[str, str]:
    """Return the digests of files, of which some are ``known``. Raises OSError."""
    known = known or {}
    return {
        name: known[path] if path in known else digest_of_file(path).sha256
        for name, path in files.items()
    }


def key_of(
    digests: Mapping[str, str],
    target: Target,
    machine: Machine,
    shapes: Shapes | None,
    **options: object,
) -> str | None:
    """A digest of all that a package depends on: equal keys, equal bytes.

    None for a target that is not of this installation: its code may change unseen.
    """
    if not type(target).__module__.startswith("tilewright."):
        return None
    content: dict[str, Any] = {
        "files": dict(digests),
        "target": target.name,
        "machine": machine.model_dump(mode="json"),
        "host": [target.options(), target.built()],
        "shapes": dict(shapes or {}),
        "options": {name: repr(value) for name, value in options.items()},
        "compiler": compiler_digest(),
    }
    return sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def obtained(
    cache: Cache,
    model: Model,
    caffemodel: str | Path | None,
    target: Target,
    machine: Machine,
    shapes: Shapes | None,
    *,
    numbers: Numbers | None,
    exact_memory: bool,
    name: str,
    form: Form,
    directory: str | Path | None,
    write: Callable[[Path], None],
    progress: Progress,
    request: Request | None = None,
) -> Executable | None:
    """The package of a model: the one in the cache, or the one that ``write`` makes now.

    It is copied to ``directory``; without one it is made to be run here, so what its target builds
    once, as the library of C sources, is kept too. None where the cache cannot tell models apart.
    The answer is remembered for a ``request`` (request.py).
    """
    files = files_of(model, caffemodel)
    if files is None:
        return None
    digests = digests_of(files, None if request is None else request.files)
    path = next(iter(files.values()))
    key = key_of(
        digests, target, machine, shapes,
        file=path.name, numbers=numbers, exact_memory=exact_memory, name=name, form=form,
        built=directory is None,
    )  # fmt: skip
    if key is None:
        return None

    def build(place: Path) -> None:
        write(place)
        if digests_of(files) != digests:
            raise refuse(
                "model-changed", "the file has been written to since it was read",
                repr(str(path)), "write models to a new file and rename it",
            )  # fmt: skip
        if directory is None:
            progress("build the program", 0, 0)
            # A package for another processor, or without a C compiler: its run will say so.
            with suppress(TilewrightError):
                target.runner(place / PROGRAM).prepare()

    executable = cache.obtain(key, build, lambda activity: progress(activity, 0, 0))
    if request is not None and request.unchanged(known=files.values()):
        cache.remember(request.digest, executable, beside(files))
    return placed(executable, directory)
