"""Kernels of a network ready for a run timer: as planned, or under another schedule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from tilewright.codegen.program.interface import CompiledKernel
from tilewright.graph.dialect import KernelOp, NetworkOp, WeightOp
from tilewright.graph.kernels import operand_values
from tilewright.graph.placement import placement_of
from tilewright.graph.values import value_names
from tilewright.ir import ModuleOp, SSAValue
from tilewright.machine import Machine
from tilewright.planning import Plan
from tilewright.planning.chains.known import Recent, sized
from tilewright.planning.domain import Kernel
from tilewright.planning.layout import Layout
from tilewright.planning.schedule import Schedule
from tilewright.tile.lower import tile
from tilewright.tile.tensors import Placement

MOST_PROGRAMS = 1024
"""Programs that a process keeps, for machines of other bandwidths."""

_programs = Recent[ModuleOp](MOST_PROGRAMS)


@dataclass
class Trials:
    """The kernels of the accelerator, with their plans where nothing stays on the chip."""

    network: NetworkOp
    machine: Machine
    kernels: Mapping[str, Kernel]
    plans: Mapping[str, Plan]
    programs: dict[tuple[str, Schedule], ModuleOp] = field(
        default_factory=dict[tuple[str, Schedule], ModuleOp]
    )
    """Tile programs by symbol and schedule: most trials share most of them."""
    places: dict[str, dict[str, Placement]] = field(
        default_factory=dict[str, "dict[str, Placement]"]
    )
    """Places in main memory of each kernel's operands, by the kernel's symbol."""

    def __post_init__(self) -> None:
        self.names = value_names(self.network)
        kernels = self.network.kernels
        self.ops = {op.symbol.data: op for op in kernels if op.symbol.data in self.plans}

    def compiled(self, symbol: str, schedule: Schedule, cycles: float) -> CompiledKernel:
        """A kernel under a schedule, ready for the run timer."""
        kernel, key = self.kernels[symbol], (symbol, schedule)
        if key not in self.programs:
            if symbol not in self.places:
                self.places[symbol] = placements_of(self.ops[symbol], self.names, kernel)
            placements = self.places[symbol]
            form = sized(self.machine), kernel, schedule, *placements.items()
            program = partial(tile, kernel, schedule, self.machine, placements, check=False)
            self.programs[key] = _programs.get(form, lambda: ModuleOp([program()]))
        return CompiledKernel(kernel, schedule, self.programs[key], cycles)


def placements_of(
    op: KernelOp, names: Mapping[SSAValue, str], kernel: Kernel
) -> dict[str, Placement]:
    """Return the arena, offset and strides of each operand of a network's kernel in main memory.

    Constants are dense as planning's kernel has them: it may see them in another shape
    (targets/cambricon/planning/channel_blocks.py), and so is what it sees with other axes.
    """
    placements: dict[str, Placement] = {}
    shapes = {argument.name: argument for argument in kernel.operands}
    for name, value in operand_values(op, names).items():
        place, operand = placement_of(value), shapes.get(name)
        strides = place.strides
        if operand is not None:
            layout = Layout.parse(operand.layout, len(operand.shape))
            if isinstance(value.owner, WeightOp) or len(layout.factors) != len(strides):
                strides = layout.strides(operand.shape)
        placements[name] = place.arena, place.offset, strides
    return placements
