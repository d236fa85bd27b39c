"""choose-methods: which convolutions change their method, and that the network means the same."""

from typing import Any

import pytest

from tests.graph.passes.pass_networks import Builder, assert_same, context, evaluate, inputs_of
from tilewright.graph.dialect import KernelOp, WeightOp, network_of
from tilewright.graph.operations import Operation
from tilewright.graph.passes import place_pipeline, prepare_pipeline
from tilewright.graph.passes.choose_methods import ChooseMethods
from tilewright.graph.passes.memory_plan import memory_plan_of
from tilewright.ir import ModuleOp, SSAValue
from tilewright.machine import Machine
from tilewright.passes import PassRunner
from tilewright.targets.cpu.machine import machine as cpu
from tilewright.targets.cpu.processors import Processor

MACHINE = cpu(Processor(lanes=16, registers=32))


def anchors(module: ModuleOp) -> list[Operation]:
    kernels = [op for op in network_of(module).block.ops if isinstance(op, KernelOp)]
    return [op for k in kernels if isinstance(op := k.operations[0], Operation)]


def apply(net: Builder, *outputs: SSAValue, machine: Machine = MACHINE) -> ModuleOp:
    """The network with kernels and methods; its meaning is compared on the way."""
    module = net.finish(*outputs)
    inputs = inputs_of(module)
    before = evaluate(module, net.store, inputs)
    made = context(machine, net.store)
    PassRunner(made).run(module, prepare_pipeline(machine), "")
    ChooseMethods().apply(made, module)
    module.verify()
    assert_same(before, evaluate(module, net.store, inputs), 2e-5)
    text = str(module)
    ChooseMethods().apply(made, module)
    assert str(module) == text, "a second run changes nothing"
    return module


def methods(module: ModuleOp) -> list[str]:
    return [op.operation for op in anchors(module)]


def test_wide_layers_change_and_share_weights_and_scratch_dies_at_once() -> None:
    net = Builder(1, x=(1, 64, 28, 28))
    w, b = net.drawn(64, 64, 3, 3, scale=0.04), net.drawn(64)
    x = net.inputs["x"]
    for _ in range(3):
        x = net.op("relu", net.op("conv", x, w, b, pads=(1, 1, 1, 1)))
    module = apply(net, x)
    assert methods(module) == ["winograd_conv"] * 3
    network = network_of(module)
    symbols = {op.symbol.data for op in network.block.ops if isinstance(op, WeightOp)}
    assert len(symbols) == 2, "transformed weights, and the bias"
    assert all(op.integers("pads") == (1, 1, 1, 1) for op in anchors(module))
    assert [op.node_name for op in anchors(module)] == ["conv1", "conv3", "conv5"]
    PassRunner(context(MACHINE, net.store)).run(module, place_pipeline(MACHINE), "")
    plan = memory_plan_of(module)
    scratch = [buffer for buffer in plan.buffers if buffer.name.startswith("scratch")]
    steps = list(network.block.ops)
    assert len(scratch) == 3
    for buffer in scratch:
        assert buffer.first == buffer.last
        assert isinstance(steps[buffer.last - 1], KernelOp)
    # All of them lie in the same bytes, or nearly: one scratch counts in the peak.
    assert plan.peak < 3 * 64 * 28 * 28 * 4 + 1.2 * max(buffer.bytes for buffer in scratch)


def test_residuals_and_inputs_read_twice_stay_what_they_are() -> None:
    net = Builder(2, x=(1, 64, 14, 14))
    first = net.op("relu", net.conv(net.inputs["x"], 64, pads=(1, 1, 1, 1)))
    again = net.op("relu", net.op("add", net.conv(first, 64, pads=(1, 1, 1, 1)), first))
    other = net.op("add", net.conv(again, 64, bias=False, pads=(1, 1, 1, 1)), first)
    module = apply(net, other)
    assert methods(module) == ["winograd_conv"] * 3


@pytest.mark.parametrize(
    ("channels", "outputs", "size", "attributes"),
    [
        (3, 64, 32, {"pads": (1, 1, 1, 1)}),
        (64, 64, 28, {"strides": (2, 2)}),
        (64, 64, 28, {"dilations": (2, 2)}),
        (64, 64, 28, {"group": 2}),
        (64, 64, 28, {"kernel": 5}),
        (64, 64, 28, {"kernel": 1}),
        (64, 64, 3, {}),
    ],
)
def test_what_is_left_alone(
    channels: int, outputs: int, size: int, attributes: dict[str, Any]
) -> None:
    net = Builder(3, x=(1, channels, size, size))
    kernel = attributes.pop("kernel", 3)
    module = apply(net, net.conv(net.inputs["x"], outputs, kernel, **attributes))
    assert methods(module) == ["conv"]


def test_computed_weights_are_left_alone() -> None:
    net = Builder(4, x=(1, 64, 28, 28), w=(64, 64, 3, 3))
    assert methods(apply(net, net.op("conv", net.inputs["x"], net.inputs["w"]))) == ["conv"]


def test_exact_machines_keep_the_direct_method() -> None:
    exact = MACHINE.exact()
    assert not [step for step in place_pipeline(exact) if isinstance(step.step, ChooseMethods)]
    assert [step for step in place_pipeline(MACHINE) if isinstance(step.step, ChooseMethods)]
    net = Builder(5, x=(1, 64, 28, 28))
    assert methods(apply(net, net.conv(net.inputs["x"], 64), machine=exact)) == ["conv"]


def test_small_maps_of_many_channels_take_small_tiles_or_none() -> None:
    """Transformed weights are four times as many bytes, which few tiles do not pay for."""
    net = Builder(6, x=(1, 512, 7, 7))
    made = anchors(apply(net, net.conv(net.inputs["x"], 512, pads=(1, 1, 1, 1))))[0]
    assert made.operation == "conv" or made.integer("tile", 2, 4) == 2
