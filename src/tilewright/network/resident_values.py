"""Values that stay on the chip from the kernel that writes them to those that read them.

A machine says of a memory that it ``holds`` values. Such a value is stored to main memory by no
kernel and loaded by none; it lies at the end of that memory, and the kernels that run while it
lives are planned for what is left. Each value is tried in the order of the network and kept where
the planner expects the kernels of its life to be faster together.

Before::

    k0: load x, compute, store y        k1: load y, compute, store z

After, with y held::

    k0: load x, compute                 k1: compute, store z

Where kernels are short, their biases are held as well, from the start of the network on: all come
with one load then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tilewright.errors import TilewrightError
from tilewright.graph.dialect import GraphOperation, KernelOp, NetworkOp, OutputOp, WeightOp
from tilewright.graph.kernels import operand_values
from tilewright.graph.passes.addresses import Addresses
from tilewright.graph.passes.memory_plan import MemoryPlan, PlannedBuffer, memory_plan_of
from tilewright.graph.placement import ACTIVATIONS, placement_of
from tilewright.graph.values import value_names
from tilewright.ir import BlockArgument, SSAValue
from tilewright.ir.types import layout_of, shape_of
from tilewright.machine import Machine, Memory
from tilewright.memory import align_up, lowest_gap
from tilewright.planning import Plan, Planner, Timer
from tilewright.planning.domain import Kernel
from tilewright.planning.layout import Layout
from tilewright.planning.space.held import holding
from tilewright.tile.tensors import Placement

WORTH = 0.01
"""Share of the network's cycles that holding biases must save: each costs room in all kernels."""

MOST = 16
"""One part in so many of the memory's room that biases may take."""

LARGEST = 0.75
"""Share of the memory's room up to which a value is tried: its kernels need buffers, too."""


TimerOf = Callable[[Machine], Timer | None]
"""A target's timer for a machine, if it has one."""


@dataclass(frozen=True)
class HeldKernel:
    """A kernel some of whose operands, or neighbours' values, are held."""

    kernel: Kernel
    machine: Machine
    """With the memory that is left."""
    plan: Plan
    memory: str
    addresses: Mapping[str, int]
    """Of its held operands in that memory."""
    keeps: str = ""
    """The operand whose weights stay in the memory that the machine lacks (resident_weights.py)."""

    def placed(self, placements: Mapping[str, Placement]) -> dict[str, Placement]:
        """Where its operands lie, those that are held in their memory."""
        held = {
            name: (self.memory, address, placements[name][2])
            for name, address in self.addresses.items()
        }
        return {**placements, **held}


def placements_of(
    op: KernelOp, names: Mapping[SSAValue, str], kernel: Kernel
) -> dict[str, Placement]:
    """Where the operands of a network's kernel lie in main memory, as the tile level takes it.

    Constants are dense as planning's kernel has them: it may see them in another shape
    (targets/cambricon/planning/channel_blocks.py).
    """
    placements: dict[str, Placement] = {}
    shapes = {argument.name: argument for argument in kernel.operands}
    for name, value in operand_values(op, names).items():
        place, operand = placement_of(value), shapes.get(name)
        strides = place.strides
        if operand is not None and isinstance(value.owner, WeightOp):
            strides = Layout.parse(operand.layout, len(operand.shape)).strides(operand.shape)
        placements[name] = place.arena, place.offset, strides
    return placements


def hold_values(
    network: NetworkOp,
    machine: Machine,
    kernels: Mapping[str, Kernel],
    plans: Mapping[str, Plan],
    timer: TimerOf | None = None,
    exact_memory: bool = False,
) -> dict[str, HeldKernel]:
    """The kernels that run while values are held, by their symbols.

    ``kernels`` are those of the accelerator and ``plans`` their plans where nothing is held.
    """
    return Holding(network, machine, kernels, plans, timer, exact_memory).run()


@dataclass(frozen=True)
class _Value:
    """A run of bytes that is held."""

    first: int
    last: int
    start: int
    """From the end of the memory; so is ``end``."""
    end: int
    buffer: PlannedBuffer


@dataclass
class Holding:
    """The search; ``plans`` has the plans of all kernels of the accelerator without held values."""

    network: NetworkOp
    machine: Machine
    kernels: Mapping[str, Kernel]
    plans: Mapping[str, Plan]
    timer: TimerOf | None = None
    exact_memory: bool = False
    kept: dict[str, HeldKernel] = field(default_factory=dict[str, HeldKernel])
    """Kernels that run while values are held, by their symbols."""
    values: list[_Value] = field(default_factory=list[_Value])
    biases: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    """Address, from the end of the memory, of the end of a kernel's operand."""
    fixed: int = 0
    """Bytes at the end of the memory that biases take."""
    planners: dict[int, Planner] = field(default_factory=dict[int, Planner])
    """By the bytes that are left."""

    def run(self) -> dict[str, HeldKernel]:
        """What is held; empty where the machine has no memory for that."""
        memories = [
            memory for memory in self.machine.memories if memory.own.keeps_values() and memory.bytes
        ]
        if memories:
            self._search(memories[0])
        return self.kept

    def _search(self, memory: Memory) -> None:
        planned = memory_plan_of(self.network, exact=self.exact_memory)
        names = value_names(self.network)
        ops = list(self.network.block.ops)
        values = [*self.network.block.args, *(value for op in ops for value in op.results)]
        self.known = {names[value]: value for value in values}
        self.placed: MemoryPlan = planned
        self.addresses = Addresses(self.network)
        steps = dict(enumerate(ops, start=1))
        self.steps = {
            number: op.symbol.data
            for number, op in steps.items()
            if isinstance(op, KernelOp) and op.symbol.data in self.plans
        }
        self.operands = {
            op.symbol.data: operand_values(op, names)
            for op in steps.values()
            if isinstance(op, KernelOp) and op.symbol.data in self.plans
        }
        self._try_biases(memory)
        for buffer in sorted(planned.buffers, key=lambda planned_buffer: planned_buffer.first):
            if 0 < buffer.bytes <= LARGEST * (memory.room or 0) and self._eligible(buffer):
                self._try(buffer, memory)

    def _try_biases(self, memory: Memory) -> None:
        """Hold all biases where that saves enough."""
        sizes = {
            (symbol, operand.name): align_up(operand.bytes, 8)
            for symbol in self.steps.values()
            for operand in self.kernels[symbol].inputs
            if operand.role == "bias"
            and isinstance(self.operands[symbol][operand.name].owner, WeightOp)
        }
        before = sum(self.plans[symbol].cycles for symbol in self.steps.values())
        saved = len(sizes) * self.machine.move(self.machine.main, memory.name).latency
        total = align_up(sum(sizes.values()))
        if not sizes or saved < WORTH * before or total > (memory.room or 0) // MOST:
            return
        end = 0
        for key, size in sizes.items():
            end += size
            self.biases[key] = end
        self.fixed = total
        try:
            trial = {symbol: self._planned(symbol, [], memory) for symbol in self.steps.values()}
        except TilewrightError:
            trial = {}
        after = sum(held.plan.cycles for held in trial.values())
        if trial and after < before:
            self.kept = trial
        else:
            self.fixed, self.biases = 0, {}

    def _eligible(self, buffer: PlannedBuffer) -> bool:
        """Whether kernels of the accelerator alone touch a buffer's values, and all of them."""
        for name in buffer.values:
            value = self.known.get(name)
            if value is None or isinstance(value, BlockArgument):
                return False
            owner = value.owner
            kernel = isinstance(owner, KernelOp) and owner.symbol.data in self.plans
            if not kernel and not self._is_view(value):
                return False
            for use in value.uses:
                user = use.operation
                if isinstance(user, OutputOp) or not (
                    (isinstance(user, KernelOp) and user.symbol.data in self.plans)
                    or (isinstance(user, GraphOperation) and self._is_view(user.results[0]))
                ):
                    return False
            place, shape = self.placed.placements[value], shape_of(value)
            layout = Layout.parse(layout_of(value), len(shape))
            rows = zip(
                layout.physical_shape(shape), layout.strides(shape), place.strides, strict=True
            )
            if place.arena != ACTIVATIONS or any(n > 1 and a != b for n, a, b in rows):
                return False
        return True

    def _is_view(self, value: SSAValue) -> bool:
        """Whether a value is another one's bytes in another shape."""
        address = self.addresses.of(value)
        return address is not None and address.root is not value

    def _try(self, buffer: PlannedBuffer, memory: Memory) -> None:
        """Hold a buffer where that is faster."""
        beside = [
            (v.start, v.end)
            for v in self.values
            if v.first <= buffer.last and buffer.first <= v.last
        ]
        start = lowest_gap(beside, buffer.bytes, self.fixed)
        end = start + align_up(buffer.bytes)
        value = _Value(buffer.first, buffer.last, start, end, buffer)
        lives = [
            symbol for step, symbol in self.steps.items() if buffer.first <= step <= buffer.last
        ]
        trial: dict[str, HeldKernel] = {}
        before = after = 0.0
        try:
            for symbol in lives:
                trial[symbol] = self._planned(symbol, [*self.values, value], memory)
                before += self._now(symbol).cycles
                after += trial[symbol].plan.cycles
        except TilewrightError:
            return
        if after < before:
            self.kept |= trial
            self.values.append(value)

    def _now(self, symbol: str) -> Plan:
        return self.kept[symbol].plan if symbol in self.kept else self.plans[symbol]

    def _planned(self, symbol: str, values: Sequence[_Value], memory: Memory) -> HeldKernel:
        """A kernel beside some held values."""
        (step,) = (number for number, item in self.steps.items() if item == symbol)
        alive = [item for item in values if item.first <= step <= item.last]
        total = memory.bytes or 0
        left = total - max((item.end for item in alive), default=self.fixed)
        addresses = {
            name: total - end for (owner, name), end in self.biases.items() if owner == symbol
        }
        for name, value in self.operands[symbol].items():
            place = self.placed.placements[value]
            for item in alive:
                if self._lies_in(value, item.buffer):
                    addresses[name] = total - item.end + place.offset - item.buffer.offset
        kernel = holding(self.kernels[symbol], addresses, memory.name)
        machine = self.machine.with_values({f"memory.{memory.name}.bytes": left})
        if left not in self.planners:
            timer = None if self.timer is None else self.timer(machine)
            self.planners[left] = Planner(machine, timer)
        return HeldKernel(
            kernel,
            machine,
            self.planners[left].plan(kernel),
            memory.name,
            addresses,
        )

    def _lies_in(self, value: SSAValue, buffer: PlannedBuffer) -> bool:
        return any(self.known.get(name) is value for name in buffer.values)
