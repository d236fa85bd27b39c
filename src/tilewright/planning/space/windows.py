"""Operands whose windows are gathered on their way (img2col): one element for each point.

A convolution's input is read through sliding windows: axis ``oh*2 + kh - 3`` of the image. Where a
move gathers windows, as the third load of DaVinci's cube does (load3d), the buffer that it fills
has an axis for every dim instead, ``[n, oh, ow, kh, kw, ci]``: each position's window as one row,
padding filled with zeros. A primitive that multiplies matrices then computes convolutions: rows are
positions, columns the taps. Before that move the operand is the image.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilewright.machine import Primitive
from tilewright.planning.domain import Affine, Operand, Stage


def slides(operand: Operand, extents: Mapping[str, int]) -> bool:
    """Return True if an operand is read through windows: if some axis is more than one dim's index,
    or windows reach beyond its end.

    Dims of one index do not count.
    """
    for axis, extent in zip(operand.access, operand.shape, strict=True):
        live = [(dim, step) for dim, step in axis.terms if extents.get(dim, 1) > 1]
        if axis.offset or len(live) > 1 or any(step != 1 for _, step in live):
            return True
        if sum((extents.get(dim, 1) - 1) * step for dim, step in live) >= extent:
            return True
    return False


def gathered(operand: Operand, stage: Stage) -> Operand:
    """The operand in the buffer of a move that gathers its windows: an axis for each dim
    of the stage that the image depends on, those of windows and then channels last."""
    alone = {axis.dims[0] for axis in operand.access if len(axis.dims) == 1}
    read = [dim for dim in stage.extents if dim in operand.dims]
    outer = [dim for dim in read if dim not in stage.reduction]
    taps = [dim for dim in read if dim in stage.reduction]
    dims = [*outer, *sorted(taps, key=lambda dim: (dim in alone or dim == "ci", taps.index(dim)))]
    return replace(
        operand,
        shape=tuple(stage.extents[dim] for dim in dims),
        access=tuple(Affine(((dim, 1),)) for dim in dims),
        layout="",
        image=operand,
    )


def beside(operand: Operand, stage: Stage, primitive: Primitive) -> Operand:
    """An operand of a stage next to the primitive: gathered where that asks for it and
    the operand is read through windows."""
    storage = primitive.operands.get(operand.role)
    if storage is None or not storage.gathered or not slides(operand, stage.extents):
        return operand
    return gathered(operand, stage)
