"""fuse-separable: which pairs become one kernel, and that the network means the same."""

from typing import Any

import pytest
from tests.graph.passes.methods import methods
from tests.graph.passes.pass_networks import Builder, assert_same, context, evaluate, inputs_of
from tests.graph.passes.pipelines import place_pipeline, prepare_pipeline

from tilewright.graph.dialect import KernelOp, ScratchOp, network_of
from tilewright.graph.passes.reanchoring import plain_kernel
from tilewright.ir import SSAValue
from tilewright.ir.passes import PassRunner
from tilewright.ir.types import shape_of
from tilewright.machine import Machine
from tilewright.planning import Planner
from tilewright.targets.cpu.machine import machine as cpu
from tilewright.targets.cpu.passes.fuse_separable import FuseSeparable
from tilewright.targets.cpu.processors import Processor

MACHINE = cpu(Processor(lanes=16, registers=32, vectors_per_cycle=2.0))


def block(
    net: Builder, x: SSAValue, channels: int, between: str = "clip", **attributes: Any
) -> SSAValue:
    inner = shape_of(x)[1]
    y = net.conv(x, inner, group=inner, **{"pads": (1, 1, 1, 1), **attributes})
    if between:
        y = net.op(between, y, **({"minimum": 0.0, "maximum": 6.0} if between == "clip" else {}))
    return net.conv(y, channels, 1)


def apply(net: Builder, *outputs: SSAValue, always: bool = False) -> list[str]:
    """The anchors behind the pass; the network's meaning is compared on the way."""
    module = net.finish(*outputs)
    inputs = inputs_of(module)
    before = evaluate(module, net.store, inputs)
    made = context(MACHINE, net.store)
    PassRunner(made).run(module, prepare_pipeline(MACHINE), "")
    FuseSeparable(always).apply(made, module)
    module.verify()
    assert_same(before, evaluate(module, net.store, inputs), 2e-5)
    chosen = methods(module)
    text = str(module)
    FuseSeparable(always).apply(made, module)
    assert str(module) == text, "a second run changes nothing"
    scratch = [op for op in network_of(module).block.ops if isinstance(op, ScratchOp)]
    assert len(scratch) == chosen.count("separable_conv"), "no trial is left behind"
    PassRunner(made).run(module, place_pipeline(MACHINE), "")
    return chosen


def test_large_images_are_fused_and_small_ones_are_not() -> None:
    net = Builder(1, x=(1, 32, 112, 112), z=(1, 96, 7, 7))
    large = block(net, net.inputs["x"], 16)
    small = block(net, net.inputs["z"], 96, strides=(2, 2))
    assert sorted(apply(net, large, small)) == ["conv", "conv", "separable_conv"]


@pytest.mark.parametrize("between", ["", "relu", "clip", "silu", "hard_swish"])
def test_maps_between_and_chains_behind_are_kept(between: str) -> None:
    net = Builder(2, x=(1, 12, 9, 9), r=(1, 20, 5, 5))
    y = block(net, net.inputs["x"], 20, between, strides=(2, 2), bias=between != "relu")
    y = net.op("relu", net.op("add", y, net.inputs["r"]))
    assert apply(net, y, always=True) == ["separable_conv"]


def test_what_others_read_stays() -> None:
    net = Builder(3, x=(1, 16, 9, 9))
    y = net.conv(net.inputs["x"], 16, group=16, pads=(1, 1, 1, 1))
    assert apply(net, net.conv(y, 8, 1), net.op("exp", y), always=True).count("conv") == 2


@pytest.mark.parametrize(
    "change", [{"kernel": 3}, {"strides": (2, 2)}, {"pads": (1, 1, 0, 0)}, {"group": 2}]
)
def test_only_products_of_single_points_follow(change: dict[str, Any]) -> None:
    net = Builder(4, x=(1, 16, 9, 9))
    y = net.conv(net.inputs["x"], 16, group=16, pads=(1, 1, 1, 1))
    assert apply(net, net.conv(y, 8, **{"kernel": 1, **change}), always=True) == ["conv", "conv"]


def test_other_maps_and_the_depthwise_image_as_residual_keep_them_apart() -> None:
    net = Builder(5, x=(1, 16, 9, 9), z=(1, 16, 9, 9))
    leaky = block(net, net.inputs["x"], 8, "leaky_relu")
    again = net.op("add", block(net, net.inputs["z"], 16), net.inputs["z"])
    assert apply(net, leaky, again, always=True) == ["conv"] * 4


def test_the_prediction_decides() -> None:
    def cycles(fused: bool) -> list[float]:
        net = Builder(6, x=(1, 32, 112, 112))
        module = net.finish(block(net, net.inputs["x"], 16))
        made = context(MACHINE, net.store)
        steps = [*prepare_pipeline(MACHINE), *place_pipeline(MACHINE)]
        kept = [entry for entry in steps if fused or not isinstance(entry.step, FuseSeparable)]
        PassRunner(made).run(module, kept, "")
        kernels = [op for op in network_of(module).block.ops if isinstance(op, KernelOp)]
        products = [op for op in kernels if op.operations[0].name.endswith("conv")]
        return [Planner(MACHINE).plan(plain_kernel(op)).predicted_cycles for op in products]

    (one,), two = cycles(True), cycles(False)
    assert len(two) == 2
    gain = MACHINE.fusion("separable").gain
    assert one < gain * sum(two)


def test_the_machine_s_pattern_decides() -> None:
    def fused(machine: Machine) -> bool:
        net = Builder(6, x=(1, 32, 112, 112))
        module = net.finish(block(net, net.inputs["x"], 16))
        compiler_context = context(machine, net.store)
        PassRunner(compiler_context).run(module, prepare_pipeline(machine), "")
        FuseSeparable().apply(compiler_context, module)
        return "separable_conv" in str(module)

    assert fused(MACHINE)
    assert not fused(MACHINE.with_values({"fusion.separable.gain": 0.05}))
    assert not fused(MACHINE.model_copy(update={"fusions": ()}))
