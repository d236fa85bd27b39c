"""Groups cost what the kernels cost that the passes make of them; the others say why not."""

from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

import pytest

from tests.graph.passes.pass_networks import Builder
from tests.network.fusion.kernel_networks import MACHINE, formed, kernels_of
from tilewright.errors import Problem
from tilewright.graph.dialect import KernelOp
from tilewright.graph.operations import Operation
from tilewright.graph.passes.constraints import candidate, serving
from tilewright.graph.passes.enclosing import chained
from tilewright.graph.passes.reanchoring import plain_kernel, with_layouts
from tilewright.ir import ModuleOp, SSAValue
from tilewright.machine import Machine
from tilewright.machine.load import load_machine
from tilewright.network.fusion.cost import CostOracle
from tilewright.network.fusion.forms import described
from tilewright.planning import Plan, Planner
from tilewright.planning.domain import Kernel
from tilewright.targets.cpu.passes.choose_methods import ChooseMethods
from tilewright.targets.cpu.passes.fuse_pools import FusePools
from tilewright.targets.cpu.passes.fuse_separable import FuseSeparable
from tilewright.targets.cpu.planning.sharing import share

PADS: dict[str, Any] = {"pads": (1, 1, 1, 1)}
TWO: dict[str, Any] = {"kernel": (2, 2), "strides": (2, 2)}


def cycles(kernel: KernelOp) -> float:
    """What planning predicts for a kernel, apart from the oracle."""
    anchor = kernel.operations[0]
    assert isinstance(anchor, Operation)
    primitive = serving(candidate(anchor), MACHINE)[0]
    return Planner(MACHINE).plan(with_layouts(plain_kernel(kernel), MACHINE, primitive)).cycles


def by_method(make: Callable[[], tuple[Builder, SSAValue]], sums: bool, pools: bool) -> float:
    """The fewest cycles of a network of one kernel, over all methods."""
    least = inf
    for method in ("conv", "winograd_2", "winograd_4", "winograd_4_plain"):
        net, y = make()
        module, made = formed(net, y, sums=sums)
        ChooseMethods((method,)).apply(made, module)
        if pools:
            FusePools().apply(made, module)
        found = kernels_of(module)
        if len(found) == 1:
            least = min(least, cycles(found[0]))
    return least


def group_cost(module: ModuleOp) -> float | Problem:
    """All kernels of a network as one group; pricing leaves the network as it was."""
    text = str(module)
    cost = CostOracle(Planner(MACHINE)).cost(kernels_of(module))
    assert str(module) == text
    module.verify()
    return cost


def test_a_pool_in_tiles() -> None:
    def make() -> tuple[Builder, SSAValue]:
        net = Builder(1, x=(1, 64, 56, 56))
        y = net.op("relu", net.conv(net.inputs["x"], 64, **PADS))
        return net, net.op("max_pool", y, **TWO)

    module, _ = formed(*make())
    cost = group_cost(module)
    assert cost == by_method(make, sums=False, pools=True) < inf
    oracle = CostOracle(Planner(MACHINE))
    apart = [oracle.cost([kernel]) for kernel in kernels_of(module)]
    assert isinstance(cost, float) and cost < sum(c for c in apart if isinstance(c, float))


@pytest.mark.parametrize("size", [28, 5])
def test_a_sum_by_the_fastest_method(size: int) -> None:
    def make() -> tuple[Builder, SSAValue]:
        net = Builder(1, x=(1, 32, size, size), r=(1, 32, size, size))
        y = net.op("add", net.inputs["r"], net.conv(net.inputs["x"], 32, **PADS))
        return net, net.op("relu", y)

    module, _ = formed(*make())
    assert len(kernels_of(module)) == 2
    assert group_cost(module) == pytest.approx(by_method(make, sums=True, pools=False))


def test_a_separable_pair_and_its_sum() -> None:
    net = Builder(1, x=(1, 32, 112, 112))
    y = net.op("relu", net.conv(net.inputs["x"], 32, group=32, **PADS))
    y = net.conv(y, 32, 1)
    module, made = formed(net, y)
    cost = group_cost(module)
    FuseSeparable(always=True).apply(made, module)
    (pair,) = kernels_of(module)
    # The pass gives scratch as the schedule needs it, the trial as much as there may be.
    assert isinstance(cost, float) and cost == pytest.approx(cycles(pair), rel=1e-6)

    def with_sum(residual: str) -> tuple[Builder, SSAValue]:
        net = Builder(1, x=(1, 32, 112, 112), r=(1, 32, 112, 112))
        y = net.op("relu", net.conv(net.inputs["x"], 32, group=32, **PADS))
        return net, net.op("add", net.conv(y, 32, 1), net.inputs[residual])

    three = group_cost(formed(*with_sum("r"))[0])
    module, made = formed(*with_sum("r"), sums=True)
    FuseSeparable(always=True).apply(made, module)
    (pair,) = kernels_of(module)
    assert isinstance(three, float) and three == pytest.approx(cycles(pair), rel=1e-6)
    assert "does not read the pair's own image" in refusal(*with_sum("x"))


def test_all_cores_count() -> None:
    net = Builder(1, x=(1, 64, 56, 56), r=(1, 64, 56, 56))
    module, _ = formed(net, net.op("exp", net.inputs["x"]))
    (kernel,) = kernels_of(module)
    two = MACHINE.model_copy(update={"cores": 2})
    found = Planner(two).plan(with_layouts(plain_kernel(kernel), two, two.primitives_for("exp")[0]))
    want, _ = share(plain_kernel(kernel), two, found.schedule, found.cycles)
    assert CostOracle(Planner(two)).cost([kernel]) == want < found.cycles
    assert CostOracle(Planner(MACHINE)).cost([kernel]) == found.cycles


def test_kernels_alike_are_priced_once() -> None:
    net = Builder(1, x=(1, 16, 14, 14))
    y = net.inputs["x"]
    for _ in range(3):
        y = net.op("relu", net.conv(y, 16, **PADS))
    module, _ = formed(net, y)
    asked: list[Kernel] = []

    def search(kernel: Kernel) -> Plan:
        asked.append(kernel)
        return Planner(MACHINE).plan(kernel)

    oracle = CostOracle(Planner(MACHINE, ask=search))
    first, *others = kernels_of(module)
    cycles = oracle.cost([first])
    count = len(asked)
    assert count and {oracle.cost([kernel]) for kernel in others} == {cycles}
    assert len(asked) == count, "the others are known"


def refusal(net: Builder, *outputs: SSAValue, chosen: slice = slice(None)) -> str:
    module, _ = formed(net, *outputs)
    text = str(module)
    cost = CostOracle(Planner(MACHINE)).cost(kernels_of(module)[chosen])
    assert str(module) == text
    assert isinstance(cost, Problem), cost
    assert cost.code == "fusion-form" and cost.where
    return cost.reason


def test_reasons() -> None:
    net = Builder(1, x=(1, 16, 12, 12))
    y = net.op("max_pool", net.conv(net.inputs["x"], 16, **PADS), kernel=(3, 3), strides=(2, 2))
    assert "windows do not lie whole within its tiles" in refusal(net, y)

    net = Builder(1, x=(1, 16, 12, 12))
    y = net.conv(net.conv(net.inputs["x"], 16, **PADS), 16, **PADS)
    assert "no convolution of single points" in refusal(net, y)

    net = Builder(1, x=(1, 16, 12, 12))
    y = net.conv(net.conv(net.inputs["x"], 16, **PADS), 16, 1)
    assert "the first one is not depthwise" in refusal(net, y)

    net = Builder(1, x=(1, 16, 12, 12))
    siblings = [net.conv(net.inputs["x"], 8, **PADS) for _ in range(2)]
    assert "a kernel is a chain" in refusal(net, *siblings)

    net = Builder(1, x=(1, 16, 12, 12))
    y = net.conv(net.inputs["x"], 16, **PADS)
    both = net.op("max_pool", y, **TWO), net.op("average_pool", y, **TWO)
    assert "its result is read elsewhere" in refusal(net, *both, chosen=slice(0, 2))

    net = Builder(1, x=(1, 16, 12, 12))
    y = net.op(
        "lrn", net.conv(net.inputs["x"], 16, **PADS), size=5, alpha=1e-4, beta=0.75, bias=1.0
    )
    assert "no kernel has lrn after conv" in refusal(net, y)


FUSED = load_machine(Path(__file__).parents[3] / "examples" / "machines" / "fused.toml")


@pytest.mark.parametrize("machine", [MACHINE, FUSED], ids=["cpu", "fused"])
def test_a_result_that_a_map_behind_reads(machine: Machine) -> None:
    """A convolution whose kernel adds another's result does not read that on the chip."""
    net = Builder(1, x=(1, 16, 12, 12), z=(1, 16, 12, 12))
    first = net.conv(net.inputs["x"], 16, group=16, **PADS)
    y = net.op("add", net.conv(net.inputs["z"], 16, 1), first)
    module, _ = formed(net, y, machine=machine, sums=True)
    kernels = kernels_of(module)
    assert [len(kernel.operations) for kernel in kernels] == [1, 2]
    cost = CostOracle(Planner(machine)).cost(kernels)
    assert isinstance(cost, Problem) and "by a map after its results" in cost.reason


@pytest.mark.slow
def test_chains_of_computes() -> None:
    """Where tiles lie on the chip, a group costs what the plan of its chain costs."""
    net = Builder(1, x=(1, 16, 8, 8))
    y = net.op("relu", net.conv(net.inputs["x"], 24, **PADS))
    y = net.op("relu", net.conv(y, 32, **PADS))
    module, _ = formed(net, net.op("max_pool", y, **TWO), machine=FUSED)
    text, oracle = str(module), CostOracle(Planner(FUSED))
    kernels = kernels_of(module)
    cost = oracle.cost(kernels)
    assert str(module) == text
    chain = described(chained(kernels), FUSED)
    assert [len(chain.producers), len(chain.producers[0].producers)] == [1, 1]
    elements = {o.element for o in (*chain.operands, *chain.produced)}
    assert elements == {"fixed16", "fixed32"}
    assert Planner(FUSED).plan(chain).cycles == cost
    with_less = FUSED.with_values({"memory.maps.bytes": 512})
    module, _ = formed(*small_chain(), machine=with_less)
    cost = CostOracle(Planner(with_less)).cost(kernels_of(module))
    assert isinstance(cost, Problem) and cost.code == "plan-capacity"


def small_chain() -> tuple[Builder, SSAValue]:
    net = Builder(1, x=(1, 16, 12, 12))
    return net, net.conv(net.conv(net.inputs["x"], 16, **PADS), 16, **PADS)
