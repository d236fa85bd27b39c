"""The search on small networks: what it fuses, and that the passes fuse the same."""

from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from tests.graph.passes.pass_networks import Builder, context, random_network
from tests.network.fusion.kernel_networks import MACHINE, form, formed, kernels_of
from tests.slow import but_fast
from tilewright.compiler.pipeline import resolve, run_pipeline
from tilewright.graph.dialect import network_of
from tilewright.graph.operations import Operation
from tilewright.ir import ModuleOp, SSAValue, StringAttr
from tilewright.machine import Fusion
from tilewright.network.fusion.cost import CostOracle
from tilewright.network.fusion.run import FusionReport, search_fusions
from tilewright.planning import Planner
from tilewright.targets.cpu.passes.fuse_separable import FuseSeparable

MACHINES = Path(__file__).parents[3] / "examples" / "machines"

PADS: dict[str, Any] = {"pads": (1, 1, 1, 1)}


def searched(module: ModuleOp, *fusions: Fusion) -> FusionReport:
    text = str(module)
    oracle = CostOracle(Planner(MACHINE))
    found = search_fusions(network_of(module), MACHINE, oracle, fusions=fusions or None)
    assert str(module) == text, "the network is left as it is"
    cycles = [found.plans[name].cycles for name in ("exact", "paths", "greedy")]
    assert cycles == sorted(cycles)
    assert cycles[-1] <= found.apart + 1e-6
    for plan in found.plans.values():
        kernels = [k for group in plan.groups for k in group.kernels] + [k for k, _ in plan.alone]
        assert sorted(kernels) == sorted(k.symbol.data for k in kernels_of(module) if not k.on_host)
    return found


def test_a_sum_goes_to_the_branch_that_saves_more() -> None:
    net = Builder(1, x=(1, 64, 28, 28))
    large = net.conv(net.op("relu", net.conv(net.inputs["x"], 64, **PADS)), 128, **PADS)
    small = net.conv(net.inputs["x"], 128, 1)
    y = net.op("relu", net.op("add", large, small))
    module, _ = formed(net, y)
    found = searched(module)
    costs = {one.kernels: one for one in found.candidates if one.problem is None}
    assert len(costs) == 2
    (group,) = found.plans["exact"].groups
    saved = {k: (c.apart or 0) - (c.fused or 0) for k, c in costs.items()}
    assert saved[group.kernels] == max(saved.values())


def separable_network() -> tuple[Builder, SSAValue]:
    """Blocks of MobileNet on images from large to small."""
    net = Builder(3, x=(1, 16, 112, 112))
    y = net.inputs["x"]
    for stride, channels in ((1, 24), (2, 32), (2, 64), (1, 64), (2, 96)):
        inner = net.op("clip", net.conv(y, 96, 1), minimum=0.0, maximum=6.0)
        inner = net.conv(inner, 96, group=96, strides=(stride, stride), **PADS)
        y = net.conv(net.op("clip", inner, minimum=0.0, maximum=6.0), channels, 1)
    return net, y


def test_pairs_are_those_of_the_pass() -> None:
    module, _ = formed(*separable_network())
    found = searched(module, MACHINE.fusion("separable"))
    assert len(found.candidates) == 5
    fused = [group.kernels for group in found.plans["exact"].groups]
    symbols = {kernel.symbol.data for kernel in kernels_of(module)}
    module, made = formed(*separable_network())
    FuseSeparable().apply(made, module)
    left = {
        kernel.symbol.data: kernel.operations[0].operation
        for kernel in kernels_of(module)
        if isinstance(kernel.operations[0], Operation)
    }
    assert 0 < len(fused) < 5
    # The pair has the second kernel's name.
    assert {kernels[1] for kernels in fused} == {k for k, o in left.items() if "separable" in o}
    assert {kernels[0] for kernels in fused} == symbols - set(left)


def test_reasons_stand_beside_candidates() -> None:
    net = Builder(1, x=(1, 16, 28, 28))
    y = net.conv(net.inputs["x"], 16, **PADS)
    y = net.op("max_pool", y, kernel=(3, 3), strides=(2, 2))
    found = searched(formed(net, y)[0])
    (one,) = found.candidates
    assert one.problem is not None and one.problem.code == "fusion-form"
    assert (one.fusion, one.nodes) == ("pool", ("conv1", "max_pool2"))
    assert one.to_json()["problem"]["where"] == one.kernels[1]
    assert found.plans["exact"].groups == ()


def test_a_gain_that_is_too_small() -> None:
    net = Builder(1, x=(1, 32, 28, 28), r=(1, 32, 28, 28))
    y = net.op("add", net.conv(net.inputs["x"], 32, **PADS), net.inputs["r"])
    module, _ = formed(net, y)
    assert searched(module, Fusion(name="f", query="conv -> add")).plans["exact"].groups
    found = searched(module, Fusion(name="f", query="conv -> add", gain=0.01))
    assert not found.plans["exact"].groups
    assert found.candidates[0].problem is not None
    assert found.candidates[0].problem.code == "fusion-gain"


def test_without_patterns_nothing_is_priced() -> None:
    net = Builder(1, x=(1, 8, 8, 8))
    module, _ = formed(net, net.conv(net.inputs["x"], 8, **PADS))
    found = search_fusions(network_of(module), MACHINE, CostOracle(Planner(MACHINE)), fusions=())
    assert (found.kernels, found.candidates, found.plans) == (1, (), {})


def test_the_same_report_each_time() -> None:
    reports = [searched(formed(*separable_network())[0]).to_json() for _ in range(2)]
    assert reports[0] == reports[1]


@pytest.mark.parametrize("seed", but_fast(range(40), range(4)))
def test_random_networks(seed: int) -> None:
    """Every pattern of this file in a network of all kinds of operations; nothing escapes."""
    module, store = random_network(seed)
    form(module, context(MACHINE, store))
    texts = ("any -> any", "any -> any -> any")
    fusions = [Fusion(name=f"f{n}", query=text) for n, text in enumerate(texts)]
    found = searched(module, *MACHINE.fusions, *fusions)
    for one in found.candidates:
        assert (one.fused is None) <= (one.problem is not None)
        assert one.problem is None or one.problem.reason


def test_kernels_of_the_host_and_views_stay_apart() -> None:
    net = Builder(1, x=(1, 16, 28, 28))
    y = net.conv(net.inputs["x"], 16, **PADS)
    y = net.op("max_pool", y, kernel=(3, 3), strides=(2, 2))
    module, _ = formed(net, y)
    pool = kernels_of(module)[1]
    pool.engine = StringAttr("host")
    (candidate,) = searched(module).candidates
    assert candidate.problem is not None and candidate.apart is None
    assert candidate.problem.code == "fusion-fixed"
    assert candidate.problem.reason.startswith("runs on the host")


@pytest.mark.slow
def test_a_map_that_reads_no_earlier_compute_is_no_chain_with_it(tmp_path: Path) -> None:
    """GridSample has kernels of two maps, of which the second reads another's result."""
    graph = helper.make_graph(
        [helper.make_node("GridSample", ["x", "grid"], ["y"])],
        "sampled",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 4, 4]),
            helper.make_tensor_value_info("grid", TensorProto.FLOAT, [1, 2, 2, 2]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, 2, 2])],
    )
    path = tmp_path / "sampled.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), path)
    target, machine = resolve(str(MACHINES / "three-levels.toml"))
    state = run_pipeline(path, target, machine, until="numbers, layouts, memory")
    assert any(op.symbol.data for op in network_of(state.network).kernels)
