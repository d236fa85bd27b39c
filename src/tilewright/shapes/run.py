"""The sizes of free dims that the arrays of a run give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.errors import refuse
from tilewright.shapes.forms import Bounds

Dims = Sequence[int | str]


def sizes_of(
    inputs: Mapping[str, Dims], free: Mapping[str, Bounds], given: Mapping[str, Sequence[int]]
) -> dict[str, int]:
    """Sizes of the free dims, in the order of ``free``, from the arrays' shapes by input name.

    Raises TilewrightError: ``input-name`` and ``input-missing``; ``input-shape`` for another rank
    or another fixed size; ``shape-conflict`` where two inputs disagree on a dim; ``shape-bounds``
    for a size outside its bounds.
    """
    listed = ", ".join(f"{name}: [{', '.join(map(str, dims))}]" for name, dims in inputs.items())
    for name in given:
        if name not in inputs:
            raise refuse("input-name", f"the model has no input {name!r}", help=listed)
    sizes: dict[str, tuple[int, str]] = {}
    for name, dims in inputs.items():
        if name not in given:
            raise refuse("input-missing", f"input {name!r} is missing", help=listed)
        shape = tuple(given[name])
        fits = len(shape) == len(dims) and all(
            isinstance(dim, str) or dim == size for dim, size in zip(dims, shape, strict=True)
        )
        if not fits:
            want = ", ".join(map(str, dims))
            raise refuse("input-shape", f"has shape {list(shape)}, the model takes [{want}]", name)
        for dim, size in zip(dims, shape, strict=True):
            if not isinstance(dim, str):
                continue
            known, other = sizes.setdefault(dim, (size, name))
            if known != size:
                raise refuse(
                    "shape-conflict",
                    f"dim {dim!r} is {size}, and {known} in input {other!r}",
                    name,
                    "inputs that share a dim have one size there",
                )
    check_sizes(free, {name: size for name, (size, _) in sizes.items()})
    return {name: sizes[name][0] for name in free}


def check_sizes(free: Mapping[str, Bounds], sizes: Mapping[str, int]) -> None:
    """Refuse (``shape-bounds``, ``shape-open``, ``shape-unknown``) sizes that do not fit."""
    for name in sizes:
        if name not in free:
            raise refuse("shape-unknown", f"{name!r} is no free dim", help=", ".join(free))
    for name, bounds in free.items():
        if name not in sizes:
            raise refuse("shape-open", "its size is not given", f"dim {name!r}")
        if sizes[name] not in bounds:
            reason = f"size {sizes[name]} is outside {bounds}"
            empty = "" if sizes[name] else f"compile it for empty inputs, too: --shape {name}=0.."
            raise refuse("shape-bounds", reason, f"dim {name!r}", empty)
