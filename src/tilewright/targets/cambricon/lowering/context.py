"""What the lowering of a compute works with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tilewright.errors import refuse
from tilewright.ir import SSAValue
from tilewright.machine import Machine
from tilewright.planning.domain import Affine
from tilewright.targets.cambricon.lowering.boxes import Box
from tilewright.targets.cambricon.lowering.emitter import Emitter, Value
from tilewright.targets.cambricon.lowering.operands import Operand
from tilewright.targets.cambricon.lowering.temporaries import Temporaries
from tilewright.targets.cambricon.lowering.walk import Tile
from tilewright.tile.dialect import BufferOp, ComputeOp, ProgramOp, StageOp, TensorOp, windows_of


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
    temporaries: Temporaries
    table: Callable[[bytes], int]
    segmented: frozenset[TensorOp]
    """Weights laid out by segment."""
    hook: Callable[[], None]
    """Stands where other operands may move on between the instructions of a tile."""
    widen: Callable[[TensorOp, int, int], bool]
    """Lays weights out for bands of so many pixels at a stride, if that fits."""

    @property
    def where(self) -> str:
        """The kernel, for messages."""
        return self.program.symbol.data

    @property
    def anchor(self) -> StageOp:
        """The first stage."""
        return self.compute.stages[0]

    @property
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
        """The result's operand."""
        value: SSAValue = self.compute.output
        assert isinstance(value.owner, BufferOp)
        return self.operands[value.owner]

    def box(self, operand: Operand, tile: Tile) -> Box:
        """The box of an operand in the tile that is computed."""
        return operand.box(self.e, tile.spans, self.extents)

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
