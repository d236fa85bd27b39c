"""The planner's timers: cycles of a kernel's words, or of several kernels', no values computed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate

import numpy as np

from tilewright.codegen.program.interface import CompiledKernel, RunTimer
from tilewright.graph.placement import ACTIVATIONS, WEIGHTS
from tilewright.machine import Machine
from tilewright.planning import Timer
from tilewright.planning.domain import Kernel
from tilewright.planning.schedule import Schedule
from tilewright.targets.cambricon.lowering.network import (
    CONSTANTS,
    Lowering,
    Variants,
    shared_weights,
)
from tilewright.targets.cambricon.simulate.simulator import Simulator
from tilewright.tile.decisions import Decision
from tilewright.tile.lower import tile
from tilewright.tile.tensors import Placement, separate_arenas

HONOURS: frozenset[Decision] = frozenset()
"""Decisions of a tile program that the lowering takes over: none. Hardware interlocks order its
accesses, and the lowering decides the rest."""


def timer(machine: Machine, *, prefetched: bool = True) -> Timer:
    """Simulated cycles of a kernel that runs alone, its operands as they lie in main memory.

    The words are those that a package would hold where a kernel before has loaded the first
    weights (lowering/prefetch.py), or that load them themselves: the first kernel, and all if not
    ``prefetched``.
    """

    beside: Variants = {}

    def cycles(kernel: Kernel, schedule: Schedule) -> float:
        placements, sizes = _placed(kernel)
        bases = {WEIGHTS: 0, ACTIVATIONS: sizes[WEIGHTS], CONSTANTS: sum(sizes.values())}
        program = tile(kernel, schedule, machine, placements, check=False, honours=HONOURS)
        begins = prefetched and not kernel.first
        lowering = Lowering(machine, bases, Counter(), prefetched=begins, beside=beside)
        lowering.kernel(program, kernel.nodes)
        return _simulated(lowering, machine)

    return cycles


def run_timer(machine: Machine, arenas: Mapping[str, int]) -> RunTimer:
    """Simulated cycles of kernels in a row, as a package would hold them."""
    ends = accumulate(arenas.values(), initial=0)
    bases = dict(zip((*arenas, CONSTANTS), ends, strict=True))
    beside: Variants = {}

    def cycles(kernels: Sequence[CompiledKernel]) -> float:
        programs = [program for kernel in kernels for program in kernel.programs]
        lowering = Lowering(machine, bases, shared_weights(programs), beside=beside)
        lowering.hold(programs)
        for kernel in kernels:
            for program in kernel.programs:
                lowering.kernel(program, kernel.kernel.nodes, kernel.predicted_cycles)
        return _simulated(lowering, machine)

    return cycles


def _simulated(lowering: Lowering, machine: Machine) -> float:
    """The cycles of all kernels in the simulator, which computes no values."""
    main = np.zeros(lowering.bases[CONSTANTS] + len(lowering.image), np.uint8)
    simulator = Simulator(lowering.words(), machine, main, values=False)
    simulator.run()
    return float(simulator.result().cycles)


def _placed(kernel: Kernel) -> tuple[dict[str, Placement], dict[str, int]]:
    """A place for every operand, and the bytes of each arena."""
    placements, sizes = separate_arenas(kernel)
    if kernel.anchor.operation == "matmul":
        # Plain products alone take weights that the network computes, as they lie.
        computed = [each.name for each in kernel.operands if each.computed]
        moved = {name: placements[name] for name in computed if placements[name][0] == WEIGHTS}
        end = sizes[ACTIVATIONS]
        placements |= {n: (ACTIVATIONS, end + at, steps) for n, (_, at, steps) in moved.items()}
        sizes[ACTIVATIONS] += sizes[WEIGHTS] * bool(moved)
    return placements, sizes
