"""What normalising rows behind a product's tiles costs: less than apart, the less the nearer."""

from dataclasses import replace

import pytest

from tilewright.machine import Machine
from tilewright.planning.domain import Affine, Dim, Kernel, Operand, Stage
from tilewright.planning.schedule import Level, Schedule
from tilewright.targets.cpu.machine import machine as cpu
from tilewright.targets.cpu.planning.behind_cost import BehindCost
from tilewright.targets.cpu.planning.cost import Nest
from tilewright.targets.cpu.planning.planner import plan_cached, ranked
from tilewright.targets.cpu.planning.sharing import slowest
from tilewright.targets.cpu.processors import Processor


def machine(cores: int = 1) -> Machine:
    return cpu(Processor(lanes=16, registers=32, vectors_per_cycle=2.0, cores=cores))


def one(dim: str) -> Affine:
    return Affine(((dim, 1),))


def normalised(rows: int, width: int, depth: int) -> Kernel:
    dims = (Dim("m", rows), Dim("co", width), Dim("ci", depth, "reduction"))
    x = Operand("x", (rows, depth), (one("m"), one("ci")))
    w = Operand("w", (width, depth), (one("co"), one("ci")), role="weight", layout="OI48o")
    sums = Operand("s", (rows, width), (one("m"), one("co")), role="output")
    y = replace(sums, name="y")
    scale = Operand("g", (width,), (one("co"),), role="residual")
    inner = (Dim("m", rows), Dim("co", width, "reduction"))
    norm = Stage("layer_norm", inner, (replace(sums, role="input"), scale), y)
    return Kernel("k", (Stage("matmul", dims, (x, w), sums), norm))


def nest(kernel: Kernel, order: str, **sizes: int) -> Nest:
    level = Level("registers", tuple(sorted(sizes.items())), tuple(order.split()))
    return Nest.of(kernel, Schedule("matmul_m", (level,)))


def test_what_waits_for_what() -> None:
    kernel = normalised(64, 96, 32)
    assert [stage.operation for stage in kernel.post_stages] == ["layer_norm"]
    assert kernel.awaited == {"co", "ci"} and kernel.front.output.name == "s"
    front = kernel.front
    assert not front.post_stages and not front.awaited and front.front is front


@pytest.mark.parametrize("rows", [128, 1024, 8192])
def test_behind_is_cheaper_than_apart_and_nearer_blocks_cheaper_still(rows: int) -> None:
    kernel = normalised(rows, 768, 768)
    cost = BehindCost(kernel, machine())
    far = cost.price(nest(kernel, "co m", co=48, m=8))
    near = cost.price(nest(kernel, "m co", co=48, m=8))
    assert near <= far < cost.apart()
    if rows == 8192:
        assert near < far


def test_kernels_cost_what_both_parts_cost() -> None:
    kernel = normalised(128, 768, 768)
    least, _, schedule = ranked(kernel, machine())[0]
    front = {str(found): cycles for cycles, _, found in ranked(kernel.front, machine())}
    behind = BehindCost(kernel, machine()).price(Nest.of(kernel, schedule))
    assert least == pytest.approx(front[str(schedule)] + behind)


def test_rows_come_in_blocks_that_a_cache_holds() -> None:
    kernel = normalised(8192, 1024, 1024)
    block = BehindCost(kernel, machine()).price(Nest.of(kernel, ranked(kernel, machine())[0][2]))
    assert block < 0.5 * BehindCost(kernel, machine()).price(nest(kernel, "co m", co=48, m=8))


@pytest.mark.parametrize("cores", [2, 4])
def test_cores_never_divide_a_row(cores: int) -> None:
    kernel = normalised(128, 768, 768)
    assert plan_cached(kernel.front, machine(cores)).schedule.shared == "co"
    plan = plan_cached(kernel, machine(cores))
    assert plan.schedule.shared == "m"
    took = slowest(kernel, machine(cores), plan.schedule, plan.predicted_cycles)
    assert plan.predicted_cycles / cores < took < plan.predicted_cycles
    alone = plan_cached(normalised(1, 768, 768), machine(cores)).schedule
    assert alone.shared == ""
