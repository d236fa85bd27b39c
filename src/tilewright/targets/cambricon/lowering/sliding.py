"""The windows that slide over an image along one axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.errors import refuse
from tilewright.planning.domain import Affine
from tilewright.targets.cambricon.lowering.boxes import Axis, Box
from tilewright.targets.cambricon.lowering.context import Context
from tilewright.targets.cambricon.lowering.emitter import Value
from tilewright.targets.cambricon.lowering.operands import Operand


@dataclass(frozen=True)
class Sliding:
    """The windows of a kernel along one axis of the image."""

    kernel: int
    stride: int
    dilation: int
    axis: int | None
    """The input's axis; None for an operation without it."""
    out: str
    """The dim along which the window slides."""
    cut: tuple[int, ...] = ()
    """Numbers of the kernel's positions that meet the image where some do not; ascending."""
    apart: int | None = None
    """The input's axis of the kernel's positions, where that is another one."""

    def stride_in(self, box: Box) -> Value:
        """Bytes from one index to the next."""
        return 0 if self.axis is None else box.strides[self.axis]

    def step_in(self, box: Box) -> Value:
        """Bytes from one position of the kernel to the next."""
        return self.stride_in(box) if self.apart is None else box.strides[self.apart]

    @property
    def span(self) -> int:
        """Indices from a window's first to its last, both included."""
        return (self.kernel - 1) * self.dilation + 1

    def along(self, box: Box) -> Axis:
        """The interval that is in the buffer."""
        return Axis(0, 1, 0, True, False) if self.axis is None else box.axes[self.axis]


def windows_box(box: Box, *axes: Sliding) -> Box:
    """Return a box with only the axes along which windows slide."""
    kept = {axis for slide in axes for axis in (slide.axis, slide.apart)}
    nothing = Axis(0, 1, 0, True, False)
    return Box(
        tuple(axis if number in kept else nothing for number, axis in enumerate(box.axes)),
        tuple(step if number in kept else 0 for number, step in enumerate(box.strides)),
        0,
    )


def sliding(
    c: Context, access: Sequence[Affine], operand: Operand, out: str, kernel: str
) -> Sliding:
    """The window along the axis over which dim ``out`` moves it."""
    for number, axis in enumerate(access):
        terms = dict(axis.terms)
        if out not in terms and kernel not in terms:
            continue
        if out not in terms and (slide := _apart(c, access, number, out, kernel)) is not None:
            return slide
        slide = Sliding(c.nest.extent(kernel), terms.get(out, 1), terms.get(kernel, 1), number, out)
        extent = operand.buffer.tensor_shape[number]
        span = slide.span
        last = axis.offset + (c.nest.extent(out) - 1) * slide.stride
        if axis.offset + span <= 0 or last >= extent:
            raise refuse("lower-window", "a window lies wholly in the padding", c.where)
        inside, step = axis.offset >= 0 and last + span <= extent, c.nest.tile_size(out)
        if kernel in c.nest.looped and not (
            kernel == "kh" and (inside or c.nest.tile_size(kernel) == 1)
        ):
            raise refuse("lower-window", f"a tile holds a part of {kernel}", c.where)
        starts = range(axis.offset, last + 1, slide.stride)
        met = {len(range(*positions_met(start, extent, slide))) for start in starts}
        # The row that the first tile's last window begins with, the last one's with the last row.
        above = axis.offset + (step - 1) * slide.stride + 1
        below = axis.offset + (c.nest.extent(out) - 1) // step * step * slide.stride + span - 1
        if kernel in c.nest.looped and not inside and (above < 0 or below > extent):
            raise refuse("lower-window", "rows of a kernel lie far from the image", c.where)
        return replace(slide, cut=tuple(sorted(met - {slide.kernel})))
    return Sliding(1, 1, 1, None, out)


def _apart(
    c: Context, access: Sequence[Affine], number: int, out: str, kernel: str
) -> Sliding | None:
    """The window where its positions are indices of an axis of their own, such as blocks of
    channels (targets/cambricon/planning/channel_blocks.py)."""
    for other, axis in enumerate(access):
        if axis.terms and axis.terms[0][0] == out and len(axis.terms) == 1 and not axis.offset:
            return Sliding(c.nest.extent(kernel), axis.terms[0][1], 1, other, out, apart=number)
    return None


def positions_met(start: int, extent: int, slide: Sliding) -> tuple[int, int]:
    """The first position of a window's kernel that is in the image, and the first after it."""
    d = slide.dilation
    first = (max(-start, 0) + d - 1) // d
    return first, max(min((extent - start + d - 1) // d, slide.kernel), first)
