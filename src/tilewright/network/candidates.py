"""Kernels of a network ready for a run timer: as it is now, or under another schedule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tilewright.codegen.program.interface import CompiledKernel
from tilewright.graph.dialect import KernelOp, NetworkOp
from tilewright.graph.values import value_names
from tilewright.ir import ModuleOp
from tilewright.machine import Machine
from tilewright.network.resident_values import HeldKernel, placements_of
from tilewright.planning import Plan
from tilewright.planning.domain import Kernel
from tilewright.planning.schedule import Schedule
from tilewright.tile.lower import tile

Sizes = tuple[int | None, ...]


@dataclass
class Trials:
    """The kernels of the accelerator; ``held`` has those that run while values are held."""

    network: NetworkOp
    machine: Machine
    kernels: Mapping[str, Kernel]
    plans: Mapping[str, Plan]
    held: Mapping[str, HeldKernel]
    programs: dict[tuple[str, Schedule, Sizes], ModuleOp] = field(
        default_factory=dict[tuple[str, Schedule, Sizes], ModuleOp]
    )
    """By symbol, schedule and the bytes of all memories: most trials share most of them."""

    def __post_init__(self) -> None:
        self.names = value_names(self.network)
        self.ops = {
            op.symbol.data: op
            for op in self.network.block.ops
            if isinstance(op, KernelOp) and op.symbol.data in self.plans
        }

    def now(self, symbol: str) -> Plan:
        """A kernel's plan."""
        return self.held[symbol].plan if symbol in self.held else self.plans[symbol]

    def kernel(self, symbol: str) -> Kernel:
        """A kernel, its operands held as they are."""
        return self.held[symbol].kernel if symbol in self.held else self.kernels[symbol]

    def compiled(
        self,
        symbol: str,
        schedule: Schedule,
        machine: Machine,
        keeps: str = "",
        cycles: float = 0.0,
    ) -> CompiledKernel:
        """A kernel under a schedule, ready for the run timer."""
        kernel = self.kernel(symbol)
        key = symbol, schedule, sizes_of(machine)
        if key not in self.programs:
            placements = placements_of(self.ops[symbol], self.names, kernel)
            if symbol in self.held:
                placements = self.held[symbol].placed(placements)
            program = tile(kernel, schedule, machine, placements, check=False)
            self.programs[key] = ModuleOp([program])
        return CompiledKernel(kernel, schedule, self.programs[key], cycles, machine, keeps)

    def ready(self, symbol: str, *trials: Mapping[str, HeldKernel]) -> CompiledKernel:
        """A kernel as the first trial that has it says, or as it is now."""
        held = next((trial[symbol] for trial in trials if symbol in trial), None)
        if held is None:
            return self.compiled(symbol, self.now(symbol).schedule, self.machine)
        return self.compiled(symbol, held.plan.schedule, held.machine, cycles=held.plan.cycles)


def sizes_of(machine: Machine) -> Sizes:
    """The bytes of all memories: in nothing else do a network's machines differ."""
    return tuple(memory.bytes for memory in machine.memories)
