"""What planning finds on DaVinci cores beside the thesis' tiles."""

import pytest
from tests.targets.ascend.fixed_point_machine import fixed_point_machine
from tests.targets.generic.kernel_cases import KernelBuilder

from tilewright.planning import Budget, Planner
from tilewright.planning.domain import Kernel
from tilewright.planning.planners.stationary import Stationary
from tilewright.targets.ascend.machine import ASCEND_910

ROWS, DEPTH, COLUMNS = 512, 768, 768
STORED = ROWS * COLUMNS
MACHINE = fixed_point_machine(ASCEND_910)


def kernel() -> Kernel:
    build = KernelBuilder(0)
    x, weight = build.operand((ROWS, DEPTH), 8), build.operand((COLUMNS, DEPTH), 10)
    y = build.op("matmul", x, weight, transpose_b=True)
    return build.plan_only(build.op("requantise", y, result=(16, 6)))


def loads(moved_bytes: int) -> int:
    """Loaded elements of what is moved through main memory."""
    return moved_bytes // 2 - STORED


def test_the_thesis_tile() -> None:
    assert loads(Planner(MACHINE, search=Stationary("os")).plan(kernel()).moved_bytes) == 2_359_296


@pytest.mark.parametrize(("rate", "least"), [(37.5, 983_040), (64, 983_040)])
def test_two_levels_load_less(rate: float, least: int) -> None:
    """With as little of main memory as all cores leave to one, A stays in L1 and every element is
    loaded once; the thesis' best loads 2.4 times as much."""
    changes = {"memory.gm.bytes_per_cycle": rate, "move.gm-to-cbuf.bytes_per_cycle": rate}
    whole = {f"move.{a}-to-{b}.transaction": 1 for a, b in ASCEND_910.paths}
    machine = MACHINE.with_values({**changes, **whole})
    found = Planner(machine, budget=Budget(greedy=False)).plan(kernel())
    assert loads(found.moved_bytes) == least
    assert found.efficiency > 0.74
