"""The context in which one compute operation is lowered."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.errors import refuse
from tilewright.machine import Machine
from tilewright.planning.domain import Affine
from tilewright.targets.cambricon.lowering.emitter import Emitter
from tilewright.targets.cambricon.lowering.nest import Nest, Tile
from tilewright.targets.cambricon.lowering.operands import Operand
from tilewright.targets.cambricon.lowering.tables import KernelTables
from tilewright.targets.cambricon.lowering.temporaries import Temporaries
from tilewright.targets.cambricon.lowering.transfers import Transfers
from tilewright.tile.dialect import BufferOp, ComputeOp, StageOp, windows_of


@dataclass(frozen=True)
class Context:
    """One kernel's compute operation, and the parts of the lowering that its code uses."""

    e: Emitter
    nest: Nest
    transfers: Transfers
    addresses: int
    """The most addresses of pooled columns and results that registers may hold."""
    machine: Machine
    temporaries: Temporaries
    matrix_temporaries: Temporaries
    """The part of the matrix scratchpad that is reserved for the primitive."""
    tables: KernelTables

    @property
    def compute(self) -> ComputeOp:
        """The operation whose code is emitted."""
        return self.nest.compute

    @property
    def where(self) -> str:
        """The kernel, for messages."""
        return self.nest.program.symbol.data

    @property
    def anchor(self) -> StageOp:
        """The first stage of the compute operation."""
        return self.compute.stages[0]

    def source(self, stage: StageOp, index: int) -> tuple[Operand, tuple[Affine, ...]]:
        """An input in a buffer, and its window."""
        owner = stage.inputs[index].owner
        if not isinstance(owner, BufferOp):
            raise refuse("isa-in-place", "an operand has no buffer on the chip", self.where)
        return self.nest.operands[owner], windows_of(stage)[index].data

    @property
    def output(self) -> Operand:
        """The operand that stands for the result."""
        owner = self.compute.output.owner
        assert isinstance(owner, BufferOp)
        return self.nest.operands[owner]


class Code:
    """The code of one kind of anchor."""

    def __init__(self, context: Context) -> None:
        self.c, self.e = context, context.e

    def prologue(self) -> None:
        """Emit the code that runs before all tiles; the base class has none."""

    def emit(self, tile: Tile) -> None:
        """Emit the code of one tile."""
        raise NotImplementedError

    def stands_alone(self, message: str) -> None:
        """Refuse (``lower-epilogue``) operations after the anchor."""
        if len(self.c.compute.stages) > 1:
            raise refuse("lower-epilogue", message, self.c.where)

    def stays_whole(self, *operands: Operand) -> None:
        """Refuse (``lower-nest``) loops that step through what the buffer of an operand holds."""
        if any(self.c.nest.inside(operand) for operand in operands):
            raise refuse("lower-nest", "loops step through a resident tile", self.c.where)
