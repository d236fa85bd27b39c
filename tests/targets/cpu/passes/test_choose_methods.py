"""choose-methods: which convolutions change their method, and that the network means the same."""

from functools import partial
from math import prod
from typing import Any

import numpy as np
import pytest
from tests.graph.passes.methods import anchors, apply_methods, methods
from tests.graph.passes.pass_networks import Builder, context
from tests.graph.passes.pipelines import place_pipeline, prepare_pipeline
from tests.slow import but_fast

from tilewright.graph.dialect import KernelOp, WeightOp, network_of
from tilewright.graph.passes.memory_plan import memory_plan_of
from tilewright.graph.passes.methods import WORTH, Form, Priced, select, worthwhile
from tilewright.graph.passes.own import own_passes
from tilewright.ir import ModuleOp
from tilewright.ir.passes import PassRunner
from tilewright.ir.types import shape_of
from tilewright.targets.cpu.machine import machine as cpu
from tilewright.targets.cpu.passes.methods import most_scratch, priced_methods
from tilewright.targets.cpu.processors import Processor

MACHINE = cpu(Processor(lanes=16, registers=32))

FAST = cpu(Processor(lanes=16, registers=32, vectors_per_cycle=2.0))
"""Products take half as long there, and what is done beside them counts twice."""


apply = partial(apply_methods, machine=MACHINE)


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
        (48, 48, 28, {"group": 2}),
        (64, 64, 28, {"kernel": 7}),
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
    assert not exact.primitives_for("winograd_conv") and MACHINE.primitives_for("winograd_conv")
    assert "choose-methods" not in own_passes(exact) and "choose-methods" in own_passes(MACHINE)


def test_a_single_result_is_computed_directly() -> None:
    """A tile around it would have 36 products for each channel in place of 25."""
    net = Builder(5, x=(1, 64, 5, 5))
    module = net.finish(net.conv(net.inputs["x"], 64, kernel=5))
    PassRunner(context(MACHINE, net.store)).run(module, prepare_pipeline(MACHINE), "")
    (kernel,) = (op for op in network_of(module).block.ops if isinstance(op, KernelOp))
    (method,) = priced_methods(kernel, MACHINE, most_scratch(MACHINE))
    assert method.form.direct and method.primitive == "conv"


FORMS = [
    ((64, 64, 28, 3, 1), ("winograd_2", "winograd_4", "winograd_2_plain", "winograd_4_plain")),
    ((64, 64, 37, 3, 1), ("winograd_6", "winograd_6_plain")),
    ((64, 96, 20, 3, 2), ("winograd_6", "winograd_6_plain")),
    ((32, 64, 20, 5, 1), ("winograd_2_5x5", "winograd_2_5x5_plain")),
    ((64, 96, 13, 5, 2), ("winograd_2_5x5", "winograd_2_5x5_plain")),
]


@pytest.mark.parametrize(
    ("shape", "primitive"), [(shape, name) for shape, names in FORMS for name in names]
)
def test_every_form_can_be_asked_for(shape: tuple[int, int, int, int, int], primitive: str) -> None:
    channels, outputs, size, taps, group = shape
    net = Builder(7, x=(1, channels, size, size))
    made = net.conv(net.inputs["x"], outputs, taps, pads=(1, 2, 0, 1), group=group)
    (anchor,) = anchors(apply(net, made, method=(primitive,)))
    assert anchor.operation == "winograd_conv"
    plain = primitive.endswith("_plain")
    tile = int(primitive.split("_")[1])
    assert anchor.integer("tile", 2, 6) == tile
    assert shape_of(anchor.inputs[1])[2] == (taps if plain else tile + taps - 1)
    assert (anchor.integer("taps", 3, 5), anchor.integer("group", 1, 9)) == (taps, group)


def bytes_of_weights(module: ModuleOp) -> int:
    weights = [op for op in network_of(module).block.ops if isinstance(op, WeightOp)]
    return sum(4 * prod(shape_of(op.result)) for op in weights)


@pytest.mark.parametrize("memory", but_fast([1.0, 1.15, 1.4, 2.0, 9.0], [1.15]))
def test_transformed_weights_take_what_memory_allows(memory: float) -> None:
    net = Builder(8, x=(1, 64, 28, 28))
    x = net.inputs["x"]
    for channels in (64, 128, 128, 256):
        x = net.op("relu", net.conv(x, channels, pads=(1, 1, 1, 1)))
    module = apply(net, x, machine=FAST.with_values({"memory_growth": memory}))
    sizes = [shape_of(op.inputs[1])[2] for op in anchors(module)]
    least = 4 * (9 * (64 * 64 + 64 * 128 + 128 * 128 + 128 * 256) + 64 + 128 + 128 + 256)
    live = 4 * 28 * 28 * (128 + 256)
    assert bytes_of_weights(module) + live <= memory * (least + live)
    assert set(methods(module)) == {"winograd_conv"}
    if memory < 1.2:
        assert 3 in sizes, "transformed as the kernel runs"
    if memory == 9:
        assert 3 not in sizes, "nothing is as fast as what was done before"


def method(tile: int, plain: bool, cycles: float, count: int) -> Priced:
    return Priced(Form(tile, plain), "p", cycles, 0, count)


def test_bytes_go_where_they_gain_most() -> None:
    """Two kernels; the second one gains less for more bytes."""
    net = Builder(9, x=(1, 64, 28, 28))
    x = net.inputs["x"]
    for _ in range(2):
        x = net.op("relu", net.conv(x, 64, pads=(1, 1, 1, 1)))
    module = net.finish(x)
    PassRunner(context(MACHINE, net.store)).run(module, prepare_pipeline(MACHINE), "")
    first, second = (op for op in network_of(module).block.ops if isinstance(op, KernelOp))
    direct = method(0, True, 100, 9)
    small, large = method(2, False, 80, 16), method(4, False, 50, 36)
    plain, other = method(4, True, 70, 9), method(4, False, 65, 36)
    options = {first: [direct, small, large], second: [direct, plain, other]}
    for room, expected in ((0, (100, 70)), (7, (80, 70)), (27, (50, 70)), (53, (50, 70))):
        chosen = select(options, room)
        assert (chosen[first].cycles, chosen[second].cycles) == expected, room
    assert [m.cycles for m in select(options, 54).values()] == [50, 65]


@pytest.mark.parametrize(("room", "cycles"), [(54, 50.0), (120, 49.6)])
def test_bytes_that_take_most_of_the_room_must_gain_more(room: int, cycles: float) -> None:
    """A larger tile saves 0.8 % more, for 27 bytes more than the one before."""
    net = Builder(9, x=(1, 64, 28, 28))
    module = net.finish(net.op("relu", net.conv(net.inputs["x"], 64, pads=(1, 1, 1, 1))))
    PassRunner(context(MACHINE, net.store)).run(module, prepare_pipeline(MACHINE), "")
    kernel = next(op for op in network_of(module).block.ops if isinstance(op, KernelOp))
    methods = [method(0, True, 100, 9), method(4, False, 50, 36), method(6, False, 49.6, 63)]
    assert select({kernel: methods}, room)[kernel].cycles == cycles


@pytest.mark.parametrize("seed", range(20))
def test_with_all_the_room_nothing_worth_more_is_left(seed: int) -> None:
    net = Builder(9, x=(1, 64, 28, 28))
    module = net.finish(net.op("relu", net.conv(net.inputs["x"], 64, pads=(1, 1, 1, 1))))
    PassRunner(context(MACHINE, net.store)).run(module, prepare_pipeline(MACHINE), "")
    kernel = next(op for op in network_of(module).block.ops if isinstance(op, KernelOp))
    rng = np.random.default_rng(seed)
    methods = [method(0, True, 100, 9)]
    methods += [method(4, False, rng.uniform(20, 120), int(rng.integers(9, 64))) for _ in range(5)]
    chosen = select({kernel: methods}, 1 << 20)[kernel]
    assert all(each.cycles >= (1 - WORTH) * chosen.cycles for each in methods)


@pytest.mark.parametrize(
    ("cycles", "scratch", "taken"),
    [(95, 10, False), (85, 10, True), (85, 11, False), (70, 11, True)],
)
def test_scratch_beyond_what_is_to_spare_must_gain_more(
    cycles: float, scratch: int, taken: bool
) -> None:
    """There are 40 bytes to spare, ten elements."""
    other = Priced(Form(4, False), "p", cycles, scratch, 9)
    assert worthwhile(other, method(0, True, 100, 9), 40) == taken
