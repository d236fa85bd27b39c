"""Windows that slide over images: the spellings of kernel, stride, pad and dilation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.frontends.caffe.limits import MAX_EXTENT
from tilewright.frontends.caffe.lowering import Lowering

Pair = tuple[int, int]
"""Along rows and along columns."""


def pair(at: Lowering, settings: Any, name: str, default: int | None, low: int = 1) -> Pair:
    """One of a window's sizes: one value for both axes, one each, or the ``_h`` and ``_w`` fields.

    Refuses what has no value and no default, two spellings at once, and sizes out of range.
    """
    stem = name.removesuffix("_size")
    fields = (f"{stem}_h", f"{stem}_w")
    both: Any = getattr(settings, name)
    values: Sequence[int] = _given(settings, name) if isinstance(both, int) else list(both)
    apart = [item for item in fields if _has(settings, item)]
    if values and apart:
        raise at.refuse(f"it has {name} and {apart[0]}; one of them is enough")
    if len(apart) == 1 and default != 0:
        raise at.refuse(f"it has {apart[0]} alone; both of {fields[0]} and {fields[1]} are needed")
    if apart:
        sizes = [getattr(settings, item) if item in apart else default for item in fields]
    elif len(values) in (1, 2):
        sizes = [values[0], values[-1]]
    elif values:
        raise at.refuse(f"{name} has {len(values)} values; images have two axes")
    elif default is None:
        raise at.refuse(f"it has no {name}")
    else:
        sizes = [default, default]
    rows, columns = sizes
    if any(size is None or not low <= size < MAX_EXTENT for size in (rows, columns)):
        raise at.refuse(f"{name} {sizes} must lie in [{low}, {MAX_EXTENT})")
    assert rows is not None and columns is not None
    return rows, columns


def _has(settings: Any, name: str) -> bool:
    return name in settings.DESCRIPTOR.fields_by_name and settings.HasField(name)


def _given(settings: Any, name: str) -> list[int]:
    return [getattr(settings, name)] if settings.HasField(name) else []
