"""The order in which a chain's instructions are dispatched.

The dispatcher hands out instructions in the program's order and stops at one whose engine's queue
is full. In the order of the tile program all of one compute stand in front of the next one's, so
that the second engine would get its work only when the first has nearly finished. Here they stand
in the order in which they could begin if queues had no end: every engine keeps its order, and what
waits for another instruction stands behind it, so the program means the same.

Before (queues of 2)::   conv conv conv conv pool pool   pools wait for the third conv's dispatch
After::                  conv conv pool conv conv pool
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.codegen.words import Statement, decode, encode
from tilewright.simulate import simulate
from tilewright.targets.dpu.build import synchronised
from tilewright.targets.dpu.core import Core
from tilewright.targets.dpu.isa import REVISIONS
from tilewright.targets.dpu.machine import machine_of
from tilewright.targets.dpu.operations import operations_of
from tilewright.targets.dpu.timing import commands_of


def dispatch_order(core: Core, statements: Sequence[Statement]) -> list[Statement]:
    """A kernel's instructions, tokens not yet set, in the order in which they could begin."""
    instructions = REVISIONS[core.isa]
    whole = synchronised(core, [*statements, Statement("end", {})])
    operations = operations_of(decode(instructions, encode(instructions, whole)))
    machine = machine_of(core)
    endless = machine.model_copy(
        update={
            "issue_cycles": 0,
            "engines": tuple(
                engine.model_copy(update={"queue": len(whole)}) for engine in machine.engines
            ),
        }
    )
    start = simulate(commands_of(core, operations), endless).start[:-1]
    return [statements[number] for number in np.argsort(start, kind="stable")]
