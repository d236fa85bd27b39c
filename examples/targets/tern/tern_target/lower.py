"""A tile program as columns of fields: of each operation, all of its executions at once.

Loops, addresses, slots and flags are the tile program's. What is Tern's own is its nest.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tern_target.isa import ENGINES, SLOTS, STEPS
from tern_target.machine import MACHINE
from tilewright.codegen.program.elements import elements, fraction, is_wide
from tilewright.codegen.program.locations import BufferPlace, TensorPlace
from tilewright.codegen.program.operands import Computed, Fields
from tilewright.codegen.program.transfers import transfer_columns
from tilewright.errors import refuse
from tilewright.numerics.pointwise import bound
from tilewright.tile.dialect import BufferOp, ComputeOp, MoveOp, ProgramOp, StageOp
from tilewright.tile.iteration import Order
from tilewright.tile.operations import BarrierOp, SignalOp
from tilewright.tile.queues import Queues

Part = tuple[str, Fields, Any]
"""Mnemonic, fields, and the keys that sort the instructions of a kernel."""


class KernelLowering:
    """One kernel; ``bases`` has the addresses of the arenas in main memory."""

    def __init__(self, program: ProgramOp, bases: Mapping[str, int]) -> None:
        self.bases = bases
        self.order = Order(program)
        self.queues = Queues(self.order)
        self._places: dict[BufferOp, BufferPlace] = {}

    def parts(self) -> list[Part]:
        """The kernel's instructions; raises TilewrightError for what no instruction says."""
        parts: list[Part] = []
        for op in self.queues.commands:
            if isinstance(op, ComputeOp):
                parts.append((op.primitive.data, self._compute(op), self.order.rows(op).key))
            elif not self.place(op.buffer).resident:  # else its tensor lies there already
                parts.append((*self._move(op), self.order.rows(op).key))
        events = self.queues.events
        flags = events.column(events.table["id"].astype(np.int64))
        for op in self.queues.orderings:
            if isinstance(op, BarrierOp):
                parts.append(("barrier", {}, self.order.rows(op).key))
                continue
            signal, wait = (ENGINES.index(e) for e in (op.source_engine, op.target_engine))
            columns = {"signal": signal, "wait": wait, "flag": flags[op]}
            name = "set" if isinstance(op, SignalOp) else "await"
            parts.append((name, columns, self.order.rows(op).key))
        return parts

    def place(self, op: BufferOp) -> BufferPlace:
        """Where a buffer lies; sums take four bytes."""
        if op not in self._places:
            self._places[op] = BufferPlace(op, self.order, 4)
        return self._places[op]

    def _move(self, op: MoveOp) -> tuple[str, Fields]:
        outer = op.buffer.outer_buffer
        tensor = None if outer else TensorPlace.of(op.buffer.tensor_op, self.bases)
        ends = (MACHINE.main if outer is None else outer.memory, op.buffer.memory)
        far = tensor or self.place(outer)
        columns = transfer_columns(op, self.order, self.place(op.buffer), far, None)
        fields = {k.replace("size", "n").replace("stride", ""): v for k, v in columns.items()}
        return MACHINE.move(*(ends if op.loads else ends[::-1])).name, fields

    def _compute(self, op: ComputeOp) -> Fields:
        nest = Computed(op, self.order, self.place)
        anchor, windowed = nest.anchor, "oh" in nest.extents
        if not SLOTS.keys() >= nest.extents.keys():
            raise refuse("lower-rank", f"no loop for one of {', '.join(nest.extents)}", nest.where)
        loops = {str(SLOTS[dim]): dim for dim in nest.extents}
        fields: Fields = {f"n{loop}": nest.size(dim) for loop, dim in loops.items()}
        x = nest.operand(anchor, 0)
        fields |= x.fields("x", {n: d for n, d in loops.items() if not windowed or int(n) > 3})
        fields |= x.window_fields("x") if windowed else {}
        for index, name in zip(range(1, len(anchor.inputs)), "wb", strict=False):
            fields |= nest.operand(anchor, index).fields(name, loops)
        for kind in elements(anchor)[0][:2]:
            if is_wide(kind):
                raise refuse("lower-element", "operands have 16 bits", nest.where)
        fields["bias"] = int(len(anchor.inputs) == 3)
        fields |= nest.output.fields("y", loops)
        first, last = self.order.reduction(op)
        fields |= {"first": first.astype(np.int64), "last": last.astype(np.int64)}
        maps = op.primitive.data in ("map", "soft")
        for number, stage in enumerate(op.stages if maps else op.stages[1:]):
            fields |= _step(number, stage)
            for index, value in enumerate(stage.inputs if stage is not anchor else ()):
                if isinstance(value.owner, BufferOp):
                    fields |= nest.operand(stage, index).fields("r", loops)
        return fields


def _step(number: int, stage: StageOp) -> Fields:
    """A function and its two numbers: binary points, or the bounds of a clip."""
    name, (kinds, result) = stage.operation.data, elements(stage)
    p, q = fraction(kinds[0]), fraction((*kinds, result)[1])
    if name == "clip":
        ends = (("minimum", -(2.0**15)), ("maximum", 2.0**15))
        limits = [float(stage.parameters.get(end, default)) for end, default in ends]
        p, q = (bound(limit, p, np.dtype(np.int16)) for limit in limits)
    return {f"f{number}": STEPS.index(name), f"p{number}": p, f"q{number}": q}


def placed(parts: list[Part]) -> tuple[list[Part], int]:
    """The parts after a barrier, which ends the kernel before, with the places of instructions
    among those of all in place of keys; and the number of all."""
    parts = [("barrier", {}, np.array([-1])), *parts]
    place = np.argsort(np.argsort(np.concatenate([keys for *_, keys in parts]), kind="stable"))
    ends = np.cumsum([keys.size for *_, keys in parts])[:-1]
    split = np.split(place, ends)
    return [(name, fields, rows) for (name, fields, _), rows in zip(parts, split)], place.size
