"""plan-memory: an address for every value, so that a run allocates nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from tilewright.errors import refuse
from tilewright.graph.dialect import KernelOp, ScratchOp, WeightOp, network_of
from tilewright.graph.operations import Operation
from tilewright.graph.passes.memory_plan import MemoryPlan, memory_plan_of
from tilewright.graph.placement import ACTIVATIONS, TEMPORARY, WEIGHTS, arenas_attribute
from tilewright.ir import ArrayAttr, Attribute, Context, ModuleOp, ModulePass
from tilewright.ir.passes import CompilerContext
from tilewright.machine import Machine

LISTED = 4
"""Tensors that a refusal names, the largest."""


@dataclass(frozen=True)
class PlanMemory(ModulePass):
    """Write ``placement`` on every operation, ``placements`` and ``arenas`` on the network.

    Before::

        %1 = graph.kernel "k0" (%x, %w) : ...

    After::

        %1 = graph.kernel "k0" (%x, %w) : ... attributes {placement = ["activations", 4096,
             [2304, 48, 8, 1]]}

    Offsets are in bytes and multiples of ``alignment``, strides in elements, one for each axis of
    the physical shape (graph/placement.py). Values whose lives do not overlap share bytes; views
    lie in other values' memory; a kernel writes over an operand of its result's form that dies
    with it and that it reads element by element (``in_place``). The inputs and outputs of the
    network lie in the same arena; an input's bytes are used again after its last use. ``exact``
    searches for the least peak (memory/exact.py) where the heuristics leave it open. The plan
    itself, with peak and lower bound, is ``memory_plan_of``. What does not fit a machine's main
    memory is refused (``memory-capacity``). Where a machine asks for it
    (``Machine.temporary_space``), what one layer alone needs ends the arena.
    """

    name = "plan-memory"
    alignment: int = 64
    in_place: bool = True
    exact: bool = False

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Annotate the module in place."""
        network = network_of(op)
        machine = ctx.described if isinstance(ctx, CompilerContext) else None
        plan = memory_plan_of(
            network,
            alignment=self.alignment,
            in_place=self.in_place,
            exact=self.exact,
            temporary=machine is not None and machine.temporary_space,
        )
        if machine is not None:
            check_room(plan, machine)
        for step in network.block.ops:
            if isinstance(step, KernelOp | Operation | WeightOp | ScratchOp):
                step.placement = plan.placements[step.result].to_attribute()
        inputs = [plan.placements[value].to_attribute() for value in network.block.args]
        network.placements = cast("ArrayAttr[Attribute]", ArrayAttr(inputs))
        arenas = {ACTIVATIONS: plan.peak, WEIGHTS: plan.weight_bytes}
        if plan.temporary is not None:
            arenas |= {ACTIVATIONS: plan.temporary, TEMPORARY: plan.peak - plan.temporary}
        network.arenas = arenas_attribute(arenas)


def check_room(plan: MemoryPlan, machine: Machine) -> None:
    """Refuse (``memory-capacity``) a network that is larger than the main memory, with the kernel
    during which most is live and the largest of that."""
    home = machine.home(constant=True)
    apart = home != machine.main
    if apart and (room := machine.memory(home).room) is not None and plan.weight_bytes > room:
        reason = (
            f"weights take {plan.weight_bytes:,} bytes, {plan.weight_bytes - room:,} more than the "
            f"{room:,} of {home}, which holds them"
        )
        help = f"a smaller model, fewer bits of weights, or memory.{home}.bytes"
        raise refuse("memory-capacity", reason, help=help)
    room = machine.memory(machine.main).room
    total = plan.peak if apart else plan.weight_bytes + plan.peak
    if room is None or total <= room:
        return
    largest = ", ".join(f"{name} {size:,}" for name, size in plan.alive[:LISTED])
    if apart:
        reason = (
            f"activations take {total:,} bytes ({largest}), {total - room:,} more than the "
            f"{room:,} of {machine.main}"
        )
    else:
        reason = (
            f"weights ({plan.weight_bytes:,} bytes) and activations ({plan.peak:,}; {largest}) "
            f"take {total:,} bytes of {machine.main}, which has {room:,}: {total - room:,} too few"
        )
    raise refuse("memory-capacity", reason, plan.busiest, "a smaller batch, or smaller images")
