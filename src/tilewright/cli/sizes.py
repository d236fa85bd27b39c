"""Sizes of free dims on the command line: of ``--shape``, ``--input`` files, or, of a batch, 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.cli import console
from tilewright.cli.inputs import file_of, shapes_in, shapes_of_files
from tilewright.errors import refuse

if TYPE_CHECKING:
    from tilewright.cli.groups import ModelOptions
    from tilewright.compiler.pipeline import Model, Progress
    from tilewright.compiler.request import Request
    from tilewright.runtime import Executable
    from tilewright.shapes.forms import Bounds, Shapes
    from tilewright.shapes.settlement import Settled, Signature


def request_to_run(
    model: Path,
    target: str | None,
    shape: list[str] | None,
    files: list[str] | None,
    asked: Mapping[str, object],
) -> Request | None:
    """Return the request for a model with the sizes of options and files; None without a digest."""
    from tilewright.compiler.request import request_of

    given = [file_of(option) for option in files or ()]
    input_shapes = [(file.name, file.is_archive, shapes_in(file.path)) for file in given]
    sizes = {"shape": tuple(shape or ()), "given": input_shapes}
    return request_of(model, target or "cpu", {**asked, **sizes, "command": "run"})


def bound_model(
    model: Path, options: ModelOptions, files: list[str] | None, progress: Progress
) -> tuple[Model, Shapes]:
    """A model file and shapes that leave no dim free; reads the file where dims may be free."""
    from tilewright import frontends
    from tilewright.shapes.settlement import settle

    shapes = options.shapes
    opened = None if options.caffemodel else options.opened(model)
    if not isinstance(opened, frontends.Opened):
        return model, shapes
    shapes = {**_told(opened.signature, files), **shapes}
    settled = settle(opened.signature.inputs, shapes, computed=opened.signature.computed)
    return opened, settled.bind(_sizes(settled, settled.free, files, progress))


def _told(signature: Signature, files: Sequence[str] | None) -> dict[str, int | tuple[int, ...]]:
    """What files tell that no dim does: lengths of sequences, and shapes where there is no rank."""
    stated = [item for item in signature.inputs if item.listed or item.dims is None]
    if not stated:
        return {}
    given = shapes_of_files([item.name for item in signature.inputs if not item.listed], files)
    lengths = {item.name: length for item in stated if (length := item.length(given))}
    unranked = [t.name for item in stated for t in item.tensors(lengths) if t.dims is None]
    return {**lengths, **{name: given[name] for name in unranked if name in given}}


def bound_package(
    executable: Executable, shape: list[str] | None, files: list[str] | None, progress: Progress
) -> Executable:
    """A package's specialisation for what the options say; itself, where no dims are free."""
    from tilewright.shapes.settlement import TensorDims, settle

    if not executable.free:
        return executable
    stated = [TensorDims(info.name, info.shape, info.dtype) for info in executable.inputs]
    settled = settle(stated, console.shapes(shape))
    free = {settled.names[name]: bounds for name, bounds in executable.free.items()}
    bounds = {name: bounds for name, bounds in free.items() if isinstance(name, str)}
    sizes = _sizes(settled, bounds, files, progress)
    named = {name: settled.names[name] for name in executable.free}
    return executable.specialise(
        {name: sizes[size] if isinstance(size, str) else size for name, size in named.items()}
    )


def _sizes(
    settled: Settled,
    free: Mapping[str, Bounds],
    files: Sequence[str] | None,
    progress: Progress,
) -> dict[str, int]:
    """A size for every free dim; refuses (``shape-open``) what nothing tells."""
    from tilewright.shapes.run import sizes_of

    given = shapes_of_files(list(settled.inputs), files)
    input_shapes = {name: shape for name, shape in given.items() if name in settled.inputs}
    dims = {name: settled.inputs[name] for name in input_shapes}
    told = {dim for shape in dims.values() for dim in shape if isinstance(dim, str)}
    sizes = sizes_of(dims, {name: free[name] for name in free if name in told}, input_shapes)
    leading = settled.leading()
    for name in free:
        if name in sizes:
            continue
        if name not in leading:
            places = [key for key, shape in settled.inputs.items() if name in shape]
            raise refuse(
                "shape-open", f"its size in input {places[0]!r} is open", f"dim {name!r}",
                f"give it: --shape {name}={free[name].near(64)}, or "
                "give the inputs",
            )  # fmt: skip
        sizes[name] = max(1, free[name].low)
        progress(f"{name} is open and is taken as {sizes[name]}", 0, 0)
    return sizes
