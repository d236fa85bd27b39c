"""join-on-chip: which concatenations are written in place, and which are copied together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from tilewright.graph.dialect import KernelOp, NetworkOp, WeightOp, network_of
from tilewright.graph.kernels import kernel_of
from tilewright.graph.operations.views import JoinOperation
from tilewright.graph.passes.addresses import Addresses
from tilewright.graph.passes.constraints import objection
from tilewright.graph.passes.editing import compiler
from tilewright.graph.passes.enclosing import symbols_of
from tilewright.graph.passes.insertion import form_of, insert_kernel
from tilewright.graph.passes.strides import dense_box, slice_box
from tilewright.ir import Context, ModuleOp, ModulePass, SSAValue
from tilewright.ir.passes import CompilerContext
from tilewright.ir.types import layout_of, shape_of
from tilewright.machine import Machine
from tilewright.planning import planner_in
from tilewright.planning.cost.limits import latency_of_blocks
from tilewright.planning.domain import Kernel
from tilewright.planning.space.parts import as_planned


@dataclass(frozen=True)
class JoinOnChip(ModulePass):
    """Join tensors on the chip where writing each into its place would be many small transfers.

    Before::

        %1 = graph.kernel "k0" ... -> tensor<1x16x32x32, "NHWC">
        %2 = graph.kernel "k1" ... -> tensor<1x16x32x32, "NHWC">
        %3 = graph.concat %1, %2 {axis = 1}

    After::

        %3 = graph.kernel "k2" (%1, %2) { graph.concat {axis = 1} }

    A concatenation is an address: its operands are written where its result has them. In a layout
    where their elements lie apart there, every run of them is a block of its own, and moves may pay
    for each (``Move.prices_blocks``): the kernels that write a part, and all that read one, are
    slower. Where the machine has a primitive that concatenates, the alternative is a tensor for
    each operand, and a kernel that joins them. Of both, that is taken with which the planner
    expects the kernels around the concatenation to take fewer cycles together.
    """

    name = "join-on-chip"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrite the module in place."""
        context, network = compiler(ctx), network_of(op)
        if not any(move.prices_blocks for move in context.machine.moves):
            return
        symbols = symbols_of(network)
        joins = [step for step in network.block.ops if isinstance(step, JoinOperation)]
        # The last joins first: an operand that is joined again lies in the later join until that
        # becomes a kernel.
        for join in reversed(joins):
            if _is_worth_a_look(join, context) and is_faster_on_chip(join, network, context):
                insert_kernel(join, None, context, symbols)


def _is_worth_a_look(join: JoinOperation, context: CompilerContext) -> bool:
    """Return True if a primitive can join the operands, and any lies in several runs in the result.

    What lowering refused stays an address.
    """
    machine = context.machine
    if form_of(join) in context.refused:
        return False
    if len(set(join.inputs)) != len(join.inputs) or objection(join, machine) is not None:
        return False
    text = layout_of(join.result)
    if any(layout_of(value) != text for value in join.inputs):
        return False
    whole = dense_box(text, shape_of(join.result))
    boxes = [slice_box(whole, part) for part in join.parts()]
    return any(box is None or not box.dense for box in boxes)


def is_faster_on_chip(join: JoinOperation, network: NetworkOp, context: CompilerContext) -> bool:
    """Return True if a join takes fewer cycles as a kernel, with those around, or saves a copy.

    What only the host writes and reads is not brought onto the chip for that.
    """
    machine = context.machine
    inside, beside = Addresses(network), Addresses(network, but=frozenset((join,)))
    touching = _around(join, network, inside)
    if not touching:
        return False
    cycles = planner_in(context).cycles
    join_cycles = cycles(_join_kernel(join, beside, machine))
    if join_cycles == inf:
        return False
    if not all(inside.is_part(join, index, value) for index, value in enumerate(join.inputs)):
        return True
    around = [(_kernel(op, inside, machine), _kernel(op, beside, machine)) for op in touching]
    moved = [(apart, dense) for apart, dense in around if apart != dense]
    alone = [cycles(dense) for _, dense in moved]
    # What latencies alone take mostly decides, and saves planning all kernels once more.
    least = [latency_of_blocks(apart, machine) for apart, _ in moved]
    together = join_cycles + sum(alone)
    if together < sum(max(pair) for pair in zip(least, alone, strict=True)):
        return True
    return together < sum(cycles(apart) for apart, _ in moved)


def _around(join: JoinOperation, network: NetworkOp, addresses: Addresses) -> list[KernelOp]:
    """The accelerator's kernels that read or write any value in the memory of a join's result."""
    joined = addresses.of(join.result)

    def is_in_join(value: SSAValue) -> bool:
        address = addresses.of(value)
        return joined is not None and address is not None and address.root is joined.root

    return [
        op
        for op in network.kernels
        if not op.on_host and any(is_in_join(value) for value in (*op.inputs, op.result))
    ]


def _kernel(op: KernelOp, addresses: Addresses, machine: Machine) -> Kernel:
    """A kernel of the network as it is planned, its operands where they lie."""
    values = {f"v{number}": value for number, value in enumerate((*op.inputs, op.result))}
    names = {value: name for name, value in values.items()}
    return as_planned(kernel_of(op, names), machine, _strides(values, addresses))


def _join_kernel(join: JoinOperation, addresses: Addresses, machine: Machine) -> Kernel:
    """The kernel that a join would be."""
    values = {f"v{number}": value for number, value in enumerate((*join.inputs, join.result))}
    *inputs, result = values
    stage = join.stage(inputs, result)
    assert stage is not None  # A primitive computes it.
    return as_planned(Kernel("join", (stage,)), machine, _strides(values, addresses))


def _strides(values: Mapping[str, SSAValue], addresses: Addresses) -> dict[str, tuple[int, ...]]:
    known = {name: addresses.of(value) for name, value in values.items()}
    return {
        name: address.box.strides
        for name, address in known.items()
        if address is not None and not isinstance(address.root.owner, WeightOp)
    }
