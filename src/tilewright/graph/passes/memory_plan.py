"""The plan of a network's memory: which values share bytes, from when to when, and where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tilewright.errors import refuse
from tilewright.graph.dialect import (
    KernelOp,
    NetworkOp,
    OutputOp,
    ScratchOp,
    WeightOp,
    network_of,
)
from tilewright.graph.operations import Operation
from tilewright.graph.operations.pointwise import PointwiseOperation
from tilewright.graph.passes.addresses import Address, Addresses
from tilewright.graph.passes.strides import size
from tilewright.graph.placement import ACTIVATIONS, WEIGHTS, Placement
from tilewright.graph.values import value_names
from tilewright.ir import BlockArgument, SSAValue
from tilewright.ir import Operation as AnyOperation
from tilewright.ir.types import element_size, layout_of, shape_of, tensor_type
from tilewright.memory import (
    ALIGNMENT,
    Allocation,
    Buffer,
    Problem,
    align_up,
    allocate,
    allocate_exactly,
)

REPRESENTATION = frozenset(("requantise", "convert_layout"))
"""Further operations that read and write element by element."""


@dataclass(frozen=True)
class PlannedBuffer:
    """A run of bytes of the activations arena."""

    name: str
    """Name of the value that owns the memory."""
    values: tuple[str, ...]
    """Names of all values that lie in it, in program order."""
    offset: int
    bytes: int
    first: int
    """The first step at which it is live; steps count the network's operations from 1."""
    last: int


@dataclass(frozen=True)
class MemoryPlan:
    """The offset of every buffer in main memory, and how close the peak is to its bound."""

    buffers: tuple[PlannedBuffer, ...]
    peak: int
    """Bytes of the activations arena."""
    lower_bound: int
    """Greatest sum of live bytes at one step (after values were let share their bytes)."""
    heuristic: str
    """The name of the heuristic that chose the offsets."""
    optimal: bool
    """True if it is known that no offsets need less."""
    busiest: str
    """The kernel during which the lower bound is live."""
    alive: tuple[tuple[str, int], ...]
    """Name and bytes of what is live then, the largest first."""
    weight_bytes: int
    """Bytes of the weights arena."""
    kernels: tuple[tuple[int, str], ...]
    """Step and symbol of every kernel, in order."""
    placements: Mapping[SSAValue, Placement] = field(repr=False, compare=False)
    temporary: int | None = None
    """The offset of the temporary space, which ends the arena; None if no layer needs any."""

    def __str__(self) -> str:
        share = 100 * self.peak / self.lower_bound - 100 if self.lower_bound else 0
        lines = [
            f"activations {self.peak} bytes, {share:.1f} % above the lower bound "
            f"{self.lower_bound} ({self.heuristic}); weights {self.weight_bytes} bytes",
            f"most is live during {self.busiest}:",
            *(f"  {count:>10} {name}" for name, count in self.alive),
        ]
        return "\n".join(lines)


def memory_plan_of(
    module: AnyOperation,
    *,
    alignment: int = ALIGNMENT,
    in_place: bool = True,
    exact: bool = False,
    temporary: bool = False,
) -> MemoryPlan:
    """Plan the memory of the network in ``module``; the same module always gives the same plan.

    ``exact`` searches for the least peak where no heuristic reaches the bound (bounded work).
    ``temporary`` keeps what one layer alone needs in a space after all else.
    Refuses (``memory-view``) if a view is no address: run eliminate-views first.
    """
    network = module if isinstance(module, NetworkOp) else network_of(module)
    return _Planner(network, alignment, in_place, exact).plan(temporary=temporary)


def activation_bound(network: NetworkOp) -> int:
    """The lower bound of ``memory_plan_of``, in bytes, without a plan."""
    planner = _Planner(network, ALIGNMENT, True, False)
    return planner.problem(planner.shared_groups()).bound[0]


@dataclass
class _Group:
    """Roots that share one run of bytes."""

    roots: list[SSAValue]
    bytes: int
    first: int
    last: int
    lasting: bool = False
    """True if what is in it stays from run to run."""


class _Planner:
    def __init__(self, network: NetworkOp, alignment: int, in_place: bool, exact: bool) -> None:
        self.network, self.alignment, self.in_place = network, alignment, in_place
        self.allocate = allocate_exactly if exact else allocate
        self.names = value_names(network)
        self.steps = {op: index for index, op in enumerate(network.block.ops, start=1)}
        self.addresses = Addresses(network)
        self.address: dict[SSAValue, Address] = {}
        self.groups: dict[SSAValue, _Group] = {}
        for value in self.values():
            self.enter(value)

    def values(self) -> list[SSAValue]:
        """Inputs and computed values, in program order."""
        computed = [r for op in self.network.block.ops for r in op.results]
        return [*self.network.block.args, *computed]

    def enter(self, value: SSAValue) -> None:
        """Note a value's address, and from when to when its root is live because of it."""
        address = self.addresses.of(value)
        if address is None:
            reason = "is a view that no strides describe"
            raise refuse("memory-view", reason, self.names[value], "run eliminate-views first")
        self.address[value] = address
        if isinstance(address.root.owner, WeightOp):
            return
        owner = value.owner
        born = self.steps[owner] if isinstance(owner, AnyOperation) else 0
        dies = max((self.steps[use.operation] for use in value.uses), default=born)
        lasting = isinstance(owner, ScratchOp) and owner.lasting is not None
        if lasting:
            born, dies = 0, len(self.steps)
        elif isinstance(owner, ScratchOp):
            born = dies  # it lives while its kernel runs, wherever it stands
        group = self.groups.get(address.root)
        if group is None:
            count = self.bytes_of(address.root)
            self.groups[address.root] = _Group([address.root], count, born, dies, lasting)
        else:
            group.first, group.last = min(group.first, born), max(group.last, dies)

    @staticmethod
    def bytes_of(value: SSAValue) -> int:
        """Bytes in memory, the layout's padding included."""
        return element_size(
            tensor_type(value).element_type, size(layout_of(value), shape_of(value))
        )

    def plan(self, *, temporary: bool = False) -> MemoryPlan:
        """Let kernels write over dying operands, place what is left, and tell about it."""
        groups = self.shared_groups()
        problem = self.problem(groups)
        temporaries = [group for group in groups if temporary and self.serves_one_layer(group)]
        start: int | None = None
        if temporaries:
            # The largest need of a layer: those of different layers are not live together.
            rest = [group for group in groups if group not in temporaries]
            allocation = self.allocated(rest)
            start = align_up(allocation.peak, self.alignment)
            temporary_plan = self.allocate(self.problem(temporaries))
            offsets = dict(zip(map(id, rest), allocation.offsets, strict=True))
            offsets |= {
                id(group): start + offset
                for group, offset in zip(temporaries, temporary_plan.offsets, strict=True)
            }
            bound, busiest = problem.bound
            allocation = Allocation(
                tuple(offsets[id(group)] for group in groups),
                *(start + temporary_plan.peak, bound, busiest, allocation.heuristic),
                optimal=start + temporary_plan.peak == bound,
            )
        else:
            allocation = self.allocated(groups)
        offset_of = {id(g): offset for g, offset in zip(groups, allocation.offsets, strict=True)}
        placements, weight_bytes = self.place_weights()
        for value, address in self.address.items():
            group = self.groups.get(address.root)
            if group is not None:
                placements[value] = self.placement(
                    value, ACTIVATIONS, offset_of[id(group)], address
                )
            elif not isinstance(value.owner, WeightOp):
                base = placements[address.root].offset
                placements[value] = self.placement(value, WEIGHTS, base, address)
        plan = self.report(groups, problem.buffers, allocation, placements, weight_bytes)
        return replace(plan, temporary=start)

    def allocated(self, groups: Sequence[_Group]) -> Allocation:
        """Offsets of groups: those that last one after another, in program order, the others after
        them."""
        offsets: dict[int, int] = {}
        end = 0
        for group in groups:
            if group.lasting:
                offsets[id(group)] = end
                end = align_up(end + group.bytes, self.alignment)
        others = [group for group in groups if not group.lasting]
        allocation = self.allocate(self.problem(others))
        for group, offset in zip(others, allocation.offsets, strict=True):
            offsets[id(group)] = end + offset
        return replace(
            allocation,
            offsets=tuple(offsets[id(group)] for group in groups),
            peak=end + allocation.peak,
            bound=end + allocation.bound,
        )

    def serves_one_layer(self, group: _Group) -> bool:
        """Return True if what lies there is written and read by kernels of one node of the model
        alone."""
        if group.lasting:
            return False
        kernels: list[KernelOp] = []
        for value, address in self.address.items():
            if address.root not in group.roots:
                continue
            if isinstance(value, BlockArgument):
                return False
            users = [use.operation for use in value.uses]
            owner = value.owner
            assert isinstance(owner, AnyOperation)
            if address.root is value and not isinstance(owner, ScratchOp):
                users.append(owner)
            for user in users:
                if isinstance(user, KernelOp):
                    kernels.append(user)
                elif user not in self.steps or not self.is_view(user):
                    return False
        nodes = [{op.node_name for op in kernel.operations} - {""} for kernel in kernels]
        named = [names for names in nodes if names]  # A copy may have no node of its own.
        return bool(named and frozenset.intersection(*map(frozenset, named)))

    def is_view(self, op: AnyOperation) -> bool:
        """Return True if an operation of the network gives an address in the memory of what it
        reads."""
        return len(op.results) == 1 and self.address[op.results[0]].root is not op.results[0]

    def shared_groups(self) -> list[_Group]:
        """Group the values that share bytes, once kernels write over operands that die there."""
        if self.in_place:
            for op in self.network.block.ops:
                if isinstance(op, KernelOp):
                    self.write_over(op)
        return list({id(group): group for group in self.groups.values()}.values())

    def problem(self, groups: Sequence[_Group]) -> Problem:
        """Return the allocation problem of groups of values."""
        buffers = [Buffer(self.names[g.roots[-1]], g.bytes, g.first, g.last) for g in groups]
        return Problem(tuple(buffers), self.alignment)

    def write_over(self, kernel: KernelOp) -> None:
        """Let a kernel's result take the bytes of an operand that dies there, if that is safe.

        Safe is an operand of the result's size and layout that owns its memory whole, is read by
        nothing later, and by this kernel only element by element, at the index that is written.
        """
        group = self.groups.get(kernel.result)
        address = self.address[kernel.result]
        if group is None or address.root is not kernel.result or group.first != self.steps[kernel]:
            return
        for index, value in enumerate(kernel.inputs):
            source = self.groups.get(value)
            if source is None or source is group or isinstance(value, BlockArgument):
                continue
            same = source.bytes == group.bytes and self.address[value].root is value
            alike = layout_of(value) == layout_of(kernel.result)
            alike = alike and shape_of(value) == shape_of(kernel.result)
            dying = source.last == self.steps[kernel]
            alone = all(
                self.groups.get(self.address[other].root) is not source
                for position, other in enumerate(kernel.inputs)
                if position != index
            )
            if same and alike and dying and alone and _read_in_step(kernel, index):
                source.roots += group.roots
                source.last = group.last
                for root in group.roots:
                    self.groups[root] = source
                return

    def place_weights(self) -> tuple[dict[SSAValue, Placement], int]:
        """Weights one after the other; equal symbols of one type share their bytes."""
        placements: dict[SSAValue, Placement] = {}
        known: dict[tuple[str, str], int] = {}
        end = 0
        for op in self.network.block.ops:
            if not isinstance(op, WeightOp):
                continue
            key = (op.symbol.data, str(op.result.type))
            if key not in known:
                known[key] = end
                count = self.bytes_of(op.result)
                end += align_up(count, self.alignment)
            address = self.address[op.result]
            placements[op.result] = self.placement(op.result, WEIGHTS, known[key], address)
        return placements, end

    def placement(self, value: SSAValue, arena: str, base: int, address: Address) -> Placement:
        before = element_size(tensor_type(value).element_type, address.box.offset)
        return Placement(arena, base + before, address.box.strides)

    def report(
        self,
        groups: Sequence[_Group],
        buffers: Sequence[Buffer],
        allocation: Allocation,
        placements: dict[SSAValue, Placement],
        weight_bytes: int,
    ) -> MemoryPlan:
        inside: dict[int, list[str]] = {id(group): [] for group in groups}
        for value, address in self.address.items():
            group = self.groups.get(address.root)
            if group is not None:
                inside[id(group)].append(self.names[value])
        planned = tuple(
            PlannedBuffer(b.name, tuple(inside[id(g)]), offset, b.size, b.first, b.last)
            for b, g, offset in zip(buffers, groups, allocation.offsets, strict=True)
        )
        alive = [b for b in planned if b.first <= allocation.busiest <= b.last]
        alive.sort(key=lambda b: (-b.bytes, b.offset))
        return MemoryPlan(
            planned,
            allocation.peak,
            allocation.bound,
            allocation.heuristic,
            allocation.optimal,
            self.step_name(allocation.busiest),
            tuple((b.name, b.bytes) for b in alive),
            weight_bytes,
            tuple((i, op.symbol.data) for op, i in self.steps.items() if isinstance(op, KernelOp)),
            placements,
        )

    def step_name(self, step: int) -> str:
        """The kernel (or other operation) that runs at a step."""
        op = next((op for op, index in self.steps.items() if index == step), None)
        if isinstance(op, KernelOp):
            return op.symbol.data
        if isinstance(op, OutputOp) or op is None:
            return "the outputs" if op is not None else "the inputs"
        return self.names[op.results[0]]


def _read_in_step(kernel: KernelOp, index: int) -> bool:
    """Return True if a kernel reads an operand once, element by element as it writes its result."""
    argument = kernel.body.block.args[index]
    use = next(iter(argument.uses), None)
    if use is None or not argument.has_one_use():
        return False
    op = use.operation
    if not isinstance(op, Operation):
        return False
    mapped = isinstance(op, PointwiseOperation) or op.operation in REPRESENTATION
    return mapped and shape_of(argument) == shape_of(op.result)
