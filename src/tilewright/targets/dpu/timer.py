"""Simulated cycles of one kernel under one schedule: its words are made and timed."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.codegen.program.interface import CompiledKernel, RunTimer
from tilewright.machine import Machine
from tilewright.planning import Timer
from tilewright.planning.domain import Kernel
from tilewright.planning.schedule import Schedule
from tilewright.simulate import simulate
from tilewright.targets.dpu.core import Core
from tilewright.targets.dpu.lowering.network import Lowering
from tilewright.tile.dialect import ProgramOp
from tilewright.tile.lower import tile
from tilewright.tile.tensors import separate_placements


def timer(core: Core, machine: Machine) -> Timer:
    """Cycles of a kernel that runs alone, its operands dense in main memory, its biases zeros."""

    def cycles(kernel: Kernel, schedule: Schedule) -> float:
        placements = separate_placements(kernel)
        program = tile(kernel, schedule, machine, placements, check=False)
        return _cycles(core, machine, [program])

    return cycles


def run_timer(core: Core, machine: Machine) -> RunTimer:
    """Cycles of kernels that run one after the other in one program, their biases zeros."""

    def cycles(kernels: Sequence[CompiledKernel]) -> float:
        return _cycles(core, machine, [each for kernel in kernels for each in kernel.programs])

    return cycles


def _cycles(core: Core, machine: Machine, programs: Sequence[ProgramOp]) -> float:
    lowering = Lowering(core)
    for program in programs:
        lowering.kernel(program)
    (whole,) = lowering.programs
    return float(simulate(whole.commands(), machine).cycles)
