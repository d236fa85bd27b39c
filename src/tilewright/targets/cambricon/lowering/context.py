"""The context in which one compute operation is lowered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from tilewright.errors import refuse
from tilewright.ir import SSAValue
from tilewright.machine import Machine
from tilewright.planning.domain import Affine
from tilewright.targets.cambricon.lowering.boxes import Box
from tilewright.targets.cambricon.lowering.bridge import Bridge
from tilewright.targets.cambricon.lowering.emitter import Emitter, Value
from tilewright.targets.cambricon.lowering.operands import Operand
from tilewright.targets.cambricon.lowering.temporaries import Temporaries
from tilewright.targets.cambricon.lowering.tiles import Tile
from tilewright.tile.dialect import BufferOp, ComputeOp, ProgramOp, StageOp, TensorOp, windows_of


class Hook(Protocol):
    """Stands where other operands may move on between the instructions of a tile."""

    def __call__(self, cycles: float | None = None) -> None:
        """So many cycles behind the one before, if not as many as others."""
        ...


class Pace(Protocol):
    """Says that tiles have hooks throughout."""

    def __call__(self, interval: float, places: float | None = None) -> None:
        """They are so many cycles apart; the largest tile has so many ``places`` for them, if
        that is known."""
        ...


@dataclass
class Context:
    """One kernel's compute; ``table`` gives a number to 16-bit elements, which it loads."""

    e: Emitter
    program: ProgramOp
    compute: ComputeOp
    machine: Machine
    operands: dict[BufferOp, Operand]
    steps: Mapping[str, int]
    """Tile sizes of the dims that have a loop."""
    stepped: Callable[[BufferOp], frozenset[str]]
    """Dims whose loops step through what a buffer holds."""
    temporaries: Temporaries
    matrix_temporaries: Temporaries
    """The part of the matrix scratchpad that the primitive keeps for itself."""
    table: Callable[[bytes], int]
    segmented: frozenset[TensorOp]
    """Weights laid out by segment."""
    hook: Hook
    pressure: int
    """How far registers are saved: 0 where they suffice."""
    widen: Callable[[TensorOp, int, int], bool]
    """Lays weights out for bands of so many pixels at a stride, if that fits."""
    pace: Pace
    renew: Callable[[Operand, Callable[[Tile], None]], None]
    """Emits code whenever an operand's buffer has been filled anew."""
    replace: Callable[[Operand], None]
    """Says that results may be written where an operand lies."""
    trails: Callable[[Sequence[str]], None]
    """Says that a tile's results are finished pixel by pixel, in the order of these dims."""
    finish: Callable[[], None]
    """Stands where another one of them is finished."""
    bridge: Callable[[Operand, float], Bridge | None]
    """Lets weights come by both DMAs where they take longer than a tile's products, which take so
    many cycles (bridge.py)."""

    @property
    def where(self) -> str:
        """The kernel, for messages."""
        return self.program.symbol.data

    @property
    def anchor(self) -> StageOp:
        """The first stage of the compute operation."""
        return self.compute.stages[0]

    @cached_property
    def extents(self) -> dict[str, int]:
        """Extents of the dims."""
        return self.program.extents

    def extent(self, dim: str) -> int:
        """Extent of a dim; 1 for one that the kernel lacks."""
        return self.extents.get(dim, 1)

    def tile_size(self, dim: str) -> int:
        """Largest size of a tile along a dim."""
        return min(self.steps.get(dim, self.extent(dim)), self.extent(dim))

    @property
    def looped(self) -> frozenset[str]:
        """Dims that have a loop over tiles."""
        return frozenset(self.steps)

    def source(self, stage: StageOp, index: int) -> tuple[Operand, tuple[Affine, ...]]:
        """An input in a buffer, and its window."""
        owner = stage.inputs[index].owner
        if not isinstance(owner, BufferOp):
            raise refuse("isa-in-place", "an operand has no buffer on the chip", self.where)
        return self.operands[owner], windows_of(stage)[index].data

    @property
    def output(self) -> Operand:
        """The operand that stands for the result."""
        value: SSAValue = self.compute.output
        assert isinstance(value.owner, BufferOp)
        return self.operands[value.owner]

    def box(self, operand: Operand, tile: Tile) -> Box:
        """The box that an operand's buffer holds while a tile is computed."""
        return operand.box(self.e, tile.kept(operand.buffer), self.extents)

    def inside(self, operand: Operand) -> frozenset[str]:
        """Dims whose loops step through what an operand's buffer holds."""
        return frozenset() if operand.stays else self.stepped(operand.buffer)

    def base(self, operand: Operand, tile: Tile) -> Value:
        """Return the address at which a tile's own part of a buffer begins."""
        e, at = self.e, tile.bases[operand.buffer]
        inside = self.inside(operand)
        if not inside:
            return at
        strides, first = self.box(operand, tile).strides, tile.kept(operand.buffer).start
        for axis, stride in zip(operand.buffer.window.data, strides, strict=True):
            for dim, step in axis.terms:
                if dim in inside:
                    further = e.subtract(tile.spans.start[dim], first[dim])
                    at = e.add(at, e.multiply(e.multiply(further, step), stride))
        return at

    def stride(self, operand: Operand, tile: Tile, dim: str) -> Value:
        """Bytes in a buffer from one index of a dim to the next; 0 for one that it lacks."""
        strides = self.box(operand, tile).strides
        axes = zip(operand.buffer.window.data, strides, strict=True)
        return next((stride for axis, stride in axes if dim in axis.dims), 0)

    def reduced(self, tile: Tile) -> tuple[Value, Value]:
        """Two values that are 0 in the first tile of a reduction and in the last, else positive."""
        e = self.e
        before: Value = 0
        after: Value = 0
        for dim in self.program.reduction_dims:
            if dim not in self.looped:
                continue
            start, size = tile.spans.start[dim], tile.spans.of(dim)
            before = e.add(before, start)
            after = e.add(after, e.subtract(self.extents[dim], e.add(start, size)))
        return before, after
