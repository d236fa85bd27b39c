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

import numpy as np
from numpy.typing import NDArray

from tilewright.simulate import simulate
from tilewright.targets.dpu.lowering.instructions import Instructions
from tilewright.targets.dpu.lowering.program import commands_of
from tilewright.targets.dpu.machine import machine_of


def dispatch_order(kernel: Instructions) -> NDArray[np.int64]:
    """A kernel's instructions in the order in which they could begin."""
    start, machine = kernel.dependences.start, machine_of(kernel.core)
    waits = np.maximum(np.array(kernel.dependences.waits[start:]) - start, -1).tolist()
    endless = machine.model_copy(
        update={
            "issue_cycles": 0,
            "engines": tuple(
                engine.model_copy(update={"queue": len(waits)}) for engine in machine.engines
            ),
        }
    )
    begin = simulate(commands_of(kernel.core, kernel.statements, waits), endless).start
    return np.argsort(begin, kind="stable")
