"""A tile program as Tern's instructions: of each operation, all of its executions at once.

Loops, addresses, slots and flags are the tile program's; a compute becomes Tern's nest.
"""

from collections.abc import Mapping

import numpy as np

from tern_target.isa import ENGINES, SLOTS, STEPS
from tern_target.machine import MACHINE
from tilewright.codegen.program.commands import Commands
from tilewright.codegen.program.nests import nest_fields
from tilewright.codegen.program.operands import Fields
from tilewright.codegen.program.word_files import Part
from tilewright.tile.dialect import ComputeOp, ProgramOp
from tilewright.tile.operations import BarrierOp, SignalOp


def lowered(program: ProgramOp, bases: Mapping[str, int]) -> list[Part]:
    """A kernel, after a barrier that ends the one before."""
    parts: list[Part] = [("barrier", {}, np.array([-1]))]
    commands = Commands(program, MACHINE, bases)
    for op in commands.all:
        if isinstance(op, ComputeOp):
            name, fields = op.primitive.data, _compute(commands, op)
        else:
            name, fields = commands.move(op).name, commands.moved(op)
        parts.append((name, fields, commands.order.rows(op).key))
    for op in commands.queues.orderings:
        name, fields = "barrier", {}
        if not isinstance(op, BarrierOp):
            name = "set" if isinstance(op, SignalOp) else "await"
            ends = {"signal": op.source_engine, "wait": op.target_engine}
            fields = {end: ENGINES.index(engine) for end, engine in ends.items()}
            fields["flag"] = commands.ids[op]
        parts.append((name, fields, commands.order.rows(op).key))
    return parts


def _compute(commands: Commands, op: ComputeOp) -> Fields:
    maps = op.primitive.data in ("map", "soft")
    fields, steps = nest_fields(commands.computed(op), SLOTS, reduces=not maps)
    for number, step in enumerate(steps):
        fields[f"f{number}"] = STEPS.index(step.operation)
        fields |= {f"p{number}": step.first, f"q{number}": step.second}
    return fields
