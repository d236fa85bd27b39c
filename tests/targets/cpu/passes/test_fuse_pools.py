"""fuse-pools: which pools join the kernel before them, and that the network means the same."""

from math import prod
from typing import Any

import pytest
from tests.graph.passes.pass_networks import Builder, assert_same, context, evaluate, inputs_of
from tests.graph.passes.pipelines import place_pipeline, prepare_pipeline

from tilewright.graph.dialect import KernelOp, network_of
from tilewright.graph.operations import Operation
from tilewright.graph.passes.memory_plan import memory_plan_of
from tilewright.graph.passes.reanchoring import plain_kernel, with_layouts
from tilewright.ir import ModuleOp, SSAValue
from tilewright.ir.passes import PassRunner
from tilewright.ir.types import shape_of
from tilewright.machine import Machine
from tilewright.planning.cost.bounds import compulsory_bytes
from tilewright.targets.cpu.machine import machine as cpu
from tilewright.targets.cpu.passes.choose_methods import ChooseMethods
from tilewright.targets.cpu.passes.fuse_pools import FusePools
from tilewright.targets.cpu.planning.planner import plan_cached
from tilewright.targets.cpu.processors import Processor

MACHINE = cpu(Processor(lanes=16, registers=32, vectors_per_cycle=2.0))
TILES = ("winograd_4",)
TWO: dict[str, Any] = {"kernel": (2, 2), "strides": (2, 2)}
PADS: dict[str, Any] = {"pads": (1, 1, 1, 1)}


def apply(
    net: Builder,
    *outputs: SSAValue,
    method: tuple[str, ...] = TILES,
    machine: Machine = MACHINE,
    tolerance: float = 2e-5,
) -> ModuleOp:
    """The network behind the pass; its meaning is compared on the way, and places are given."""
    module = net.finish(*outputs)
    inputs = inputs_of(module)
    before = evaluate(module, net.store, inputs)
    made = context(machine, net.store)
    PassRunner(made).run(module, prepare_pipeline(machine), "")
    ChooseMethods(method).apply(made, module)
    middle = evaluate(module, net.store, inputs)
    FusePools().apply(made, module)
    module.verify()
    after = evaluate(module, net.store, inputs)
    assert_same(middle, after, 0)
    assert_same(before, after, tolerance)
    text = str(module)
    FusePools().apply(made, module)
    assert str(module) == text, "a second run changes nothing"
    return module


def kernels(module: ModuleOp) -> list[list[str]]:
    """The operations of every kernel."""
    found = [op for op in network_of(module).block.ops if isinstance(op, KernelOp)]
    return [[op.operation for op in k.operations if isinstance(op, Operation)] for k in found]


def pooled(module: ModuleOp) -> bool:
    """Whether a pool follows in the kernel of a convolution in tiles."""
    together = [ops for ops in kernels(module) if ops[0] == "winograd_conv"]
    assert together, "the method is the one that was asked for"
    return any(op.endswith("_pool") for ops in together for op in ops)


def relu(net: Builder, y: SSAValue) -> SSAValue:
    return net.op("relu", y)


@pytest.mark.parametrize("kind", ["max_pool", "average_pool"])
@pytest.mark.parametrize(
    ("batch", "size", "window", "method", "group"),
    [
        (1, (12, 12), (2, 2), TILES, 1),
        (2, (13, 15), (2, 2), TILES, 1),
        (1, (14, 9), (4, 1), ("winograd_4_plain",), 1),
        (1, (14, 9), (2, 4), ("winograd_4_plain",), 2),
        (1, (11, 8), (2, 1), ("winograd_2",), 2),
    ],
)
def test_windows_within_tiles_join(
    kind: str, batch: int, size: tuple[int, int], window: tuple[int, int], method: Any, group: int
) -> None:
    net = Builder(1, x=(batch, 32, *size))
    y = relu(net, net.conv(net.inputs["x"], 48 if group == 1 else 64, group=group, **PADS))
    y = net.op("exp", net.op(kind, y, kernel=window, strides=window))
    assert kernels(apply(net, y, method=method)) == [["winograd_conv", "relu", kind, "exp"]]


def test_names_of_kernels_values_and_nodes_stay() -> None:
    net = Builder(2, x=(1, 16, 12, 12))
    y = net.op("max_pool", relu(net, net.conv(net.inputs["x"], 16, **PADS)), **TWO)
    z = net.op("max_pool", relu(net, net.conv(y, 16, **PADS)), **TWO)
    module = apply(net, z)
    found = [op for op in network_of(module).block.ops if isinstance(op, KernelOp)]
    assert [op.symbol.data for op in found] == ["k0_conv1", "k2_conv4"]
    nodes = [[op.node_name for op in kernel.operations] for kernel in found]
    assert nodes == [["conv1", "relu2", "max_pool3"], ["conv4", "relu5", "max_pool6"]]
    assert not any(op.merged_nodes for kernel in found for op in kernel.operations)


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [
        ("max_pool", {"kernel": (3, 3), "strides": (2, 2)}),
        ("max_pool", {"kernel": (3, 3), "strides": (3, 3)}),
        ("max_pool", {"kernel": (2, 2), "strides": (1, 1)}),
        ("max_pool", {"kernel": (1, 2), "strides": (2, 2)}),
        ("max_pool", {"pads": (1, 1, 0, 0), **TWO}),
        # As ceil_mode is imported: the last window reaches beyond the image.
        ("max_pool", {"pads": (0, 0, 1, 1), **TWO}),
        ("max_pool", {"dilations": (2, 2), **TWO}),
        ("average_pool", {"kernel": (13, 13)}),
    ],
    ids=["overlap", "3 in 4", "dense", "gaps", "padded", "rounded up", "dilated", "whole"],
)
def test_other_windows_stay(kind: str, attributes: dict[str, Any]) -> None:
    net = Builder(3, x=(1, 16, 13, 13))
    y = relu(net, net.conv(net.inputs["x"], 16, **PADS))
    assert not pooled(apply(net, net.op(kind, y, **attributes)))


def test_windows_may_be_as_large_as_a_tile_and_no_larger() -> None:
    for method, joined in (("winograd_4", True), ("winograd_2", False)):
        net = Builder(4, x=(1, 16, 16, 16))
        y = net.conv(net.inputs["x"], 16, **PADS)
        y = net.op("max_pool", y, kernel=(4, 4), strides=(4, 4))
        assert pooled(apply(net, y, method=(method,))) is joined


@pytest.mark.parametrize("how", ["output", "kernel", "twice"])
def test_what_others_read_is_written_whole(how: str) -> None:
    net = Builder(5, x=(1, 16, 12, 12))
    y = relu(net, net.conv(net.inputs["x"], 16, **PADS))
    z = net.op("max_pool", y, **TWO)
    other = y
    if how != "output":
        other = net.conv(y, 8, 1) if how == "kernel" else net.op("average_pool", y, **TWO)
    assert not pooled(apply(net, z, other))


def test_constants_per_channel_may_lie_between_and_images_may_not() -> None:
    net = Builder(6, x=(1, 16, 12, 12))
    y = net.op("prelu", net.conv(net.inputs["x"], 16, **PADS), net.drawn(1, 16, 1, 1))
    y = net.op("mul", net.op("sigmoid", y), net.drawn(1, 1, 1))
    assert pooled(apply(net, net.op("max_pool", y, **TWO)))
    for shape in ((1, 16, 12, 12), (1, 1, 12, 12), (12,)):
        net = Builder(7, x=(1, 16, 12, 12))
        y = net.op("add", relu(net, net.conv(net.inputs["x"], 16, **PADS)), net.drawn(*shape))
        assert not pooled(apply(net, net.op("max_pool", y, **TWO)))
    net = Builder(8, x=(1, 16, 12, 12), r=(1, 16, 1, 1))
    y = net.op("mul", net.conv(net.inputs["x"], 16, **PADS), net.inputs["r"])
    assert not pooled(apply(net, net.op("max_pool", y, **TWO)))


@pytest.mark.parametrize(("kind", "joined"), [("max_pool", True), ("average_pool", False)])
def test_the_largest_of_short_floats_joins_and_their_mean_does_not(kind: str, joined: bool) -> None:
    net = Builder(13, x=(1, 16, 12, 12))
    y = net.op("cast", net.conv(net.inputs["x"], 16, **PADS), to="float16")
    y = net.op("cast", net.op(kind, y, **TWO), to="float32")
    assert pooled(apply(net, y, tolerance=2e-3)) is joined


def test_what_follows_the_pool_may_read_images() -> None:
    net = Builder(9, x=(1, 16, 12, 12), r=(1, 16, 6, 6))
    y = net.op("max_pool", relu(net, net.conv(net.inputs["x"], 16, **PADS)), **TWO)
    module = apply(net, relu(net, net.op("add", y, net.inputs["r"])))
    assert kernels(module) == [["winograd_conv", "relu", "max_pool", "add", "relu"]]


def test_a_second_pool_and_direct_convolutions_are_kernels_of_their_own() -> None:
    net = Builder(10, x=(1, 16, 16, 16))
    y = net.op("max_pool", net.conv(net.inputs["x"], 16, **PADS), **TWO)
    module = apply(net, net.op("max_pool", y, **TWO))
    assert kernels(module) == [["winograd_conv", "max_pool"], ["max_pool"]]
    net = Builder(11, x=(1, 16, 16, 16))
    y = net.op("max_pool", net.conv(net.inputs["x"], 16, **PADS), **TWO)
    module = apply(net, y, method=("conv",))
    assert kernels(module) == [["conv"], ["max_pool"]]


def test_the_road_has_the_pass_where_primitives_pool() -> None:
    names = [entry.step.name for entry in place_pipeline(MACHINE)]
    assert names.index("choose-methods") + 1 == names.index("fuse-pools")
    exact = [entry.step.name for entry in place_pipeline(MACHINE.exact())]
    assert "fuse-pools" not in exact


def test_plans_and_reports_count_what_is_written() -> None:
    def described(fused: bool) -> tuple[list[int], float, int]:
        net = Builder(12, x=(1, 64, 56, 56))
        y = relu(net, net.conv(net.inputs["x"], 64, **PADS))
        module = net.finish(net.conv(net.op("max_pool", y, **TWO), 16, 1))
        made = context(MACHINE, net.store)
        PassRunner(made).run(module, prepare_pipeline(MACHINE), "")
        ChooseMethods(TILES).apply(made, module)
        if fused:
            FusePools().apply(made, module)
        steps = [
            entry
            for entry in place_pipeline(MACHINE)
            if entry.step.name not in ("choose-methods", "fuse-pools")
        ]
        PassRunner(made).run(module, steps, "")
        found = [op for op in network_of(module).block.ops if isinstance(op, KernelOp)]
        first = next(op for op in found if op.operations[0].name == "graph.winograd_conv")
        kernel = with_layouts(plain_kernel(first), MACHINE, MACHINE.primitive("winograd_4"))
        assert kernel.output.shape == shape_of(first.result)
        others = [o for o in kernel.inputs if o.role != "scratch"]
        moved = [compulsory_bytes(kernel), sum(4 * prod(o.shape) for o in others)]
        return moved, plan_cached(kernel, MACHINE).predicted_cycles, memory_plan_of(module).peak

    (all_apart, read_apart), cycles_apart, peak_apart = described(False)
    (all_one, read_one), cycles_one, peak_one = described(True)
    assert read_one == read_apart
    assert all_apart - all_one == 4 * 64 * (56 * 56 - 28 * 28)
    assert cycles_one <= cycles_apart
    assert peak_one < peak_apart
