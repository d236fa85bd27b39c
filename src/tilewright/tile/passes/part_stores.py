"""Store a result that has one slot part by part, while its other parts are computed."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tilewright.ir import Block, Operation
from tilewright.ir.types import element_size
from tilewright.machine import Machine
from tilewright.machine.expression import parse_expression
from tilewright.memory.alignment import ceil_div
from tilewright.planning.cost.part_stores import faster_in_parts
from tilewright.tile.dialect import ComputeOp, LoopOp, MoveOp, ProgramOp, enclosing_loops
from tilewright.tile.implied import visits
from tilewright.tile.passes.allocate import largest_box
from tilewright.tile.passes.base import TilePass
from tilewright.tile.queues import users_of


@dataclass(frozen=True)
class PartStores(TilePass):
    """Puts stores into loops of their own, like those in which the result's parts are computed.

    A result of one slot has to leave before the next tile's first compute. Where a tile is computed
    in parts, each part can leave when it is complete, and the next tile's first part be computed
    when the first part has left; nothing need stand still while the other parts are computed. It
    is left whole where transfers take so long, and computes so short a time, that it is faster, and
    where the stores' queue cannot hold all parts, before which the next loads cannot be issued.

    Before::

        %y_nbout = tile.buffer "y" of %y [n, co, oh, ow] in "nbout" slots 1 accumulates
        tile.loop "ci" 0 to 512 step 112 {
          tile.loop "ow" 0 to 28 step 14 {
            tile.compute "conv" on "compute" to %y_nbout ...
          }
        }
        tile.move %y_nbout to %y on "store"

    After::

        tile.loop "ow" 0 to 28 step 14 {
          tile.move %y_nbout to %y on "store"
        }
    """

    name = "part-stores"

    def run(self, program: ProgramOp, machine: Machine) -> None:
        """Wrap the stores of one program."""
        stores = [op for op in program.walk() if isinstance(op, MoveOp) and not op.loads]
        for store in stores:
            buffer = store.buffer
            if buffer.slot_count > 1 or visits(buffer) == 1:
                continue
            others = [op for op in users_of(buffer) if op is not store]
            if len(others) != 1 or not isinstance(others[0], ComputeOp):
                continue
            within = enclosing_loops(others[0])[len(enclosing_loops(buffer)) :]
            loops = [loop for loop in within if loop.dim.data in buffer.window.dims]
            if loops and _is_faster(store, others[0], loops, program, machine):
                _wrap(store, loops)


def _is_faster(
    store: MoveOp, compute: ComputeOp, loops: list[LoopOp], program: ProgramOp, machine: Machine
) -> bool:
    """Return True if partial stores shorten the time between two full tiles."""
    buffer = store.buffer
    sizes = dict(program.extents)
    for loop in enclosing_loops(compute):
        sizes[loop.dim.data] = min(sizes[loop.dim.data], loop.step_size)
    cycles = parse_expression(machine.primitive(compute.primitive.data).cycles).evaluate(sizes)
    move = machine.move(buffer.memory, machine.main)
    elements = prod(largest_box(buffer, program.extents))
    size = element_size(buffer.result.type.of.element_type, elements)
    parts = prod(ceil_div(loop.upper_bound - loop.lower_bound, loop.step_size) for loop in loops)
    return bool(faster_in_parts(machine, move, size, cycles, parts))


def _wrap(store: MoveOp, loops: list[LoopOp]) -> None:
    """Put a store into loops like those given."""
    block = store.parent_block()
    assert block is not None
    behind = store.next_op
    store.detach()
    inner: Operation = store
    for loop in reversed(loops):
        memory = "" if loop.memory is None else loop.memory.data
        bounds = loop.lower_bound, loop.upper_bound, loop.step_size
        inner = LoopOp.of(loop.dim.data, *bounds, Block([inner]), memory)
    if behind is None:
        block.add_op(inner)
    else:
        block.insert_op_before(inner, behind)
