"""The order in which an interleaved kernel's instructions are dispatched.

The dispatcher hands out instructions in the program's order and stops at one whose engine's queue
is full. So they stand in the order in which they could begin if queues had no end, which the timing
core knows: every engine keeps its order, and what waits for another instruction stands behind it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tilewright.simulate import simulate
from tilewright.targets.dpu.lowering.instructions import Instructions
from tilewright.targets.dpu.lowering.program import commands_of
from tilewright.targets.dpu.machine import machine_of


def dispatch_order(kernel: Instructions) -> NDArray[np.int64]:
    """A kernel's instructions in the order in which they could begin, by number."""
    start, machine = kernel.dependences.start, machine_of(kernel.core)
    waits = np.maximum(np.array(kernel.dependences.waits[start:]) - start, -1).tolist()
    engines = tuple(e.model_copy(update={"queue": len(waits)}) for e in machine.engines)
    endless = machine.model_copy(update={"issue_cycles": 0, "engines": engines})
    begin = simulate(commands_of(kernel.core, kernel.statements, waits), endless).start
    return np.argsort(begin, kind="stable")
