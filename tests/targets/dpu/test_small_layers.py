"""Small layers take what is planned: loads of a few weights each, and few rows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.planning import planning_kernels as kernels

from tilewright.planning import Planner
from tilewright.planning.domain import Kernel, Operand, with_operands
from tilewright.planning.space.parts import as_planned
from tilewright.targets.dpu.core import CORES
from tilewright.targets.dpu.machine import machine_of
from tilewright.targets.dpu.timer import timer


def on_core(kernel: Kernel) -> Kernel:
    """A kernel of the planning tests with a core's elements and layouts."""
    layouts = {"input": "NHWC", "output": "NHWC", "weight": "OHWI"}

    def operand(plain: Operand) -> Operand:
        element = "fixed8" if plain.element == "fixed16" else plain.element
        layout = layouts.get(plain.role, "") if len(plain.shape) == 4 else ""
        return replace(plain, element=element, layout=layout)

    return with_operands(kernel, operand)


def cycles(kernel: Kernel, target: str) -> tuple[float, float]:
    """What a kernel is planned to take, and takes on the simulated core."""
    core = CORES[target]
    machine = machine_of(core)
    described = as_planned(on_core(kernel), machine)
    found = Planner(machine).plan(described)
    return found.predicted_cycles, timer(core, machine)(described, found.schedule)


@pytest.mark.few(4)
@pytest.mark.parametrize("target", ["zu2", "dpu-b512"])
@pytest.mark.parametrize(
    ("ci", "co", "size"), [(17, 1024, 4), (24, 500, 2), (40, 300, 3), (13, 640, 1), (96, 400, 7)]
)
def test_many_channels_of_few_pixels(ci: int, co: int, size: int, target: str) -> None:
    planned, taken = cycles(kernels.conv(ci, co, size, 1), target)
    assert taken == pytest.approx(planned, rel=0.12)
