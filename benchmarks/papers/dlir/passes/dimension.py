"""DLIR's Dimension of a buffer: how one axis of a tensor is walked in segments (section 5.2.4.1).

A Dimension is a start, an end, a stride from one segment to the next, and the extent of a segment.
In a tile program the same is said by a loop, and by the window through which a buffer sees its
tensor: this reads one off the other. A tensor with its Dimensions is DLIR's HLTensor, a buffer's
box of one visit an LLTensor.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.planning.domain import Affine
from tilewright.tile.dialect import BufferOp, LoopOp, enclosing_loops, program_of


@dataclass(frozen=True)
class Dimension:
    """One axis, cut into segments; indices before 0 and behind the tensor are padding."""

    name: str
    """The axis' index as the buffer's window has it (``oh*2 + kh - 1``)."""
    start: int
    end: int
    """Behind the last index of the last segment."""
    stride: int
    """From the start of a segment to that of the next; 0 if there is one segment."""
    extent: int
    """Indices of a segment; the last one may have fewer."""

    def segments(self) -> Iterator[tuple[int, int]]:
        """Start and size of every segment."""
        if self.stride == 0:
            yield self.start, self.end - self.start
            return
        start = self.start
        while True:
            yield start, min(self.extent, self.end - start)
            if start + self.extent >= self.end:
                return
            start += self.stride


def dimensions_of(buffer: BufferOp) -> tuple[Dimension | None, ...]:
    """The Dimension of every axis of a buffer; None for an axis that loops over two dims cut."""
    program = program_of(buffer)
    assert program is not None
    loops = enclosing_loops(buffer)
    return tuple(_dimension(axis, loops, program.extents) for axis in buffer.window.data)


def _dimension(axis: Affine, loops: list[LoopOp], extents: dict[str, int]) -> Dimension | None:
    size = dict(extents)
    cut: dict[str, int] = {}
    """Dim -> indices of it from one iteration of its innermost loop to the next."""
    for loop in loops:
        dim = loop.dim.data
        if dim in axis.dims and loop.step_size < size[dim]:
            size[dim] = cut[dim] = loop.step_size
    if len(cut) > 1:
        return None
    start, span = axis.interval({dim: (0, extents[dim]) for dim in axis.dims})
    _, extent = axis.interval({dim: (0, size[dim]) for dim in axis.dims})
    coefficients = dict(axis.terms)
    stride = next((coefficients[dim] * step for dim, step in cut.items()), 0)
    return Dimension(str(axis), start, start + span, stride, extent)
