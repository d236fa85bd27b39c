"""assign-layouts: who asks for what, and where conversions stand."""

import numpy as np
import pytest

from tests.graph.passes.pass_networks import (
    Builder,
    accelerator,
    assert_same,
    context,
    evaluate,
    inputs_of,
)
from tilewright.graph.dialect import KernelOp, WeightOp, network_of
from tilewright.graph.operations import parse
from tilewright.graph.passes.assign_layouts import AssignLayouts, is_conversion
from tilewright.graph.passes.fuse_pointwise import FusePointwise
from tilewright.graph.passes.partition import Partition
from tilewright.ir import ModuleOp, SSAValue
from tilewright.ir.types import layout_of, shape_of
from tilewright.machine import Machine, Storage
from tilewright.planning.layout import Layout
from tilewright.targets.cpu.machine import machine as cpu
from tilewright.targets.cpu.processors import Processor

CPU = cpu(Processor(lanes=16))
FLOAT = accelerator(element="float32", accumulator="float32")


def assign(net: Builder, *outputs: SSAValue, machine: Machine = CPU) -> ModuleOp:
    module = net.finish(*outputs)
    inputs = inputs_of(module)
    expected = evaluate(module, net.store, inputs)
    ctx = context(machine, net.store)
    for step in (Partition(), FusePointwise(), AssignLayouts()):
        step.apply(ctx, module)
        module.verify()
    assert_same(expected, evaluate(module, net.store, inputs), 0)
    text = str(module)
    AssignLayouts().apply(ctx, module)
    module.verify()
    assert layouts(module) == layouts_of_text(text), "a second run changes no layout"
    return module


def layouts(module: ModuleOp) -> list[str]:
    found = [layout_of(op.results[0]) for op in network_of(module).block.ops if op.results]
    return sorted(found)


def layouts_of_text(text: str) -> list[str]:
    return layouts(parse(text))


def kernels(module: ModuleOp) -> dict[str, KernelOp]:
    found = [op for op in network_of(module).block.ops if isinstance(op, KernelOp)]
    return {op.operations[0].node_name or op.symbol.data: op for op in found}


def conversions(module: ModuleOp) -> list[tuple[str, str, tuple[int, ...]]]:
    return [
        (layout_of(op.inputs[0]), layout_of(op.result), shape_of(op.result))
        for op in network_of(module).block.ops
        if is_conversion(op) and isinstance(op, KernelOp)
    ]


def test_first_convolution_takes_the_image_as_it_is() -> None:
    net = Builder(x=(1, 3, 8, 8))
    x = net.conv(net.inputs["x"], 32, node="first")
    x = net.conv(net.op("relu", x), 32, node="second")
    module = assign(net, net.op("reduce_mean", x, axes=(2, 3)))
    found = kernels(module)
    assert [layout_of(v) for v in found["first"].inputs] == ["", "OIHW16o", "O16o"]
    assert [layout_of(v) for v in found["second"].inputs] == ["NCHW16c", "OIHW16i16o", "O16o"]
    assert layout_of(found["second"].result) == "NCHW16c"


def test_five_channels_are_too_many_for_the_first_primitive() -> None:
    net = Builder(x=(1, 5, 8, 8))
    module = assign(net, net.conv(net.inputs["x"], 16, node="only"))
    assert conversions(module) == [("", "NCHW16c", (1, 5, 8, 8)), ("NCHW16c", "", (1, 16, 6, 6))]


def test_conversion_stands_where_it_moves_least() -> None:
    """The map is converted behind the pool, where it has a quarter of the bytes."""
    net = Builder(x=(1, 3, 10, 10))
    x = net.op("relu", net.conv(net.inputs["x"], 16))
    x = net.op("sigmoid", net.op("max_pool", x, kernel=(2, 2), strides=(2, 2)))
    module = assign(net, net.op("exp", net.op("reshape", x, shape=(1, 256))))
    assert conversions(module) == [("NCHW16c", "", (1, 16, 4, 4))]


def test_free_maps_stay_between_row_major_neighbours() -> None:
    net = Builder(x=(1, 32, 4, 4))
    x = net.op("relu", net.inputs["x"])
    module = assign(net, net.op("div", x, net.op("exp", x)))
    assert conversions(module) == []


def test_run_of_maps_moves_together() -> None:
    """relu -> concat -> relu between convolutions: blocked throughout, nothing converted."""
    net = Builder(x=(1, 3, 8, 8))
    a = net.conv(net.inputs["x"], 16)
    b = net.conv(net.inputs["x"], 16)
    joined = net.op("concat", net.op("relu", a), net.op("tanh", b), a, axis=1)
    module = assign(net, net.op("sigmoid", net.conv(net.op("exp", joined), 16)))
    assert conversions(module) == [("NCHW16c", "", (1, 16, 4, 4))]


def test_concatenation_that_cuts_blocks_is_row_major() -> None:
    net = Builder(x=(1, 3, 6, 6))
    a, b = net.conv(net.inputs["x"], 8), net.conv(net.inputs["x"], 16)
    module = assign(net, net.conv(net.op("concat", a, b, axis=1), 16))
    concat = next(op for op in network_of(module).block.ops if op.name == "graph.concat")
    assert layout_of(concat.results[0]) == ""
    module = assign(other := Builder(x=(1, 3, 6, 6)), _joined(other, 16, 8))
    concat = next(op for op in network_of(module).block.ops if op.name == "graph.concat")
    assert layout_of(concat.results[0]) == "NCHW16c"


def _joined(net: Builder, first: int, second: int) -> SSAValue:
    a, b = net.conv(net.inputs["x"], first), net.conv(net.inputs["x"], second)
    return net.conv(net.op("concat", a, b, axis=1), 16)


def test_division_never_sees_padded_lanes() -> None:
    """8 channels in blocks of 16: lanes of 0/0 would poison the next convolution."""
    for channels, blocked in ((8, False), (32, True)):
        net = Builder(x=(1, 3, 6, 6))
        a, b = net.conv(net.inputs["x"], channels), net.conv(net.inputs["x"], channels)
        module = assign(net, net.conv(net.op("div", a, b), 16))
        dividing = [
            op
            for op in kernels(module).values()
            if any(inner.name == "graph.div" for inner in op.operations)
        ]
        assert len(dividing) == 1
        assert (layout_of(dividing[0].result) == "NCHW16c") is blocked


def test_groups_that_cut_blocks_have_a_primitive_of_their_own() -> None:
    for per_group, weights in ((8, "OIHW16o"), (16, "OIHW16i16o")):
        net = Builder(x=(1, 3, 6, 6))
        a = net.conv(net.inputs["x"], 4 * per_group)
        module = assign(net, net.conv(a, 4 * per_group, group=4, node="grouped"))
        kernel = kernels(module)["grouped"]
        assert layout_of(kernel.inputs[0]) == layout_of(kernel.result) == "NCHW16c"
        assert layout_of(kernel.inputs[1]) == weights


def test_depthwise_weights_are_blocked() -> None:
    net = Builder(x=(1, 32, 6, 6))
    module = assign(net, net.conv(net.inputs["x"], 32, group=32, node="depthwise"))
    kernel = kernels(module)["depthwise"]
    assert [layout_of(v) for v in kernel.inputs] == ["NCHW16c", "OIHW16o", "O16o"]


def test_value_read_in_two_roles_has_two_operands() -> None:
    """The image is a row-major input and a blocked residual of one kernel."""
    net = Builder(x=(1, 4, 6, 6))
    x = net.inputs["x"]
    module = assign(net, net.op("add", net.conv(x, 4, pads=(1,) * 4, node="conv"), x))
    kernel = kernels(module)["conv"]
    named = [layout_of(v) for v in kernel.inputs if not isinstance(v.owner, WeightOp)]
    assert named == ["", "NCHW16c"]


def test_conversion_is_shared() -> None:
    net = Builder(x=(1, 32, 6, 6))
    x = net.inputs["x"]
    outputs = [net.op("reduce_mean", net.conv(x, 16), axes=(2, 3)) for _ in range(3)]
    module = assign(net, *outputs)
    assert conversions(module).count(("", "NCHW16c", (1, 32, 6, 6))) == 1


def test_weights_take_layouts_for_nothing() -> None:
    net = Builder(x=(1, 32, 4, 4))
    scale = net.drawn(1, 32, 1, 1)
    x = net.op("mul", net.conv(net.inputs["x"], 32), scale)
    module = assign(net, net.op("add", x, net.drawn(1, 1, 1, 1)))
    kernel = next(op for op in kernels(module).values() if not is_conversion(op))
    named = {shape_of(v): layout_of(v) for v in kernel.inputs}
    assert named[1, 32, 1, 1] == "NCHW16c"
    assert named[1, 1, 1, 1] == ""


def _copies(module: ModuleOp) -> list[KernelOp]:
    return [op for op in kernels(module).values() if is_conversion(op)]


def test_channels_last_flattens_without_a_conversion() -> None:
    """One pixel a channel: NHWC and row-major are the same bytes."""
    net = Builder(x=(2, 3, 4, 4))
    x = net.op("reshape", net.conv(net.inputs["x"], 8, 4), shape=(2, 8))
    module = assign(net, net.product(x, 5, transpose_b=True), machine=FLOAT)
    assert conversions(module) == [("", "NHWC", (2, 3, 4, 4))]


def test_transpose_to_channels_last_is_free_there() -> None:
    net = Builder(x=(1, 3, 6, 6))
    x = net.op("transpose", net.conv(net.inputs["x"], 8), permutation=(0, 2, 3, 1))
    module = assign(net, x, machine=FLOAT)
    assert conversions(module) == [("", "NHWC", (1, 3, 6, 6))]


@pytest.mark.parametrize("machine", [CPU, FLOAT], ids=["cpu", "small"])
def test_conversion_runs_where_it_can(machine: Machine) -> None:
    net = Builder(x=(1, 32, 6, 6))
    module = assign(net, net.conv(net.inputs["x"], 16), machine=machine)
    expected = "accelerator" if machine is CPU else "host"
    assert {op.engine.data for op in _copies(module) if op.engine} == {expected}


@pytest.mark.parametrize(
    ("channels", "operation", "copies"),
    [(32, "reduce_max", 1), (32, "reduce_min", 1), (24, "reduce_max", 2), (32, "reduce_sum", 2)],
)
def test_extremes_of_all_elements_are_found_as_they_lie(
    channels: int, operation: str, copies: int
) -> None:
    """In any order, but not beside padded lanes; sums keep theirs. One copy is the input's."""
    net = Builder(x=(1, 16, 6, 6))
    y = net.conv(net.inputs["x"], channels)
    module = assign(net, net.op(operation, y, axes=(0, 1, 2, 3), keep_dims=False))
    assert len(_copies(module)) == copies


def test_first_primitive_that_serves_decides() -> None:
    conv = FLOAT.primitive("conv")
    blocked = conv.model_copy(
        update={
            "name": "blocked",
            "extents": {"ci": (16, 1024)},
            "operands": {
                **conv.operands,
                "input": Storage(memory="in", layout="NCHW8c"),
            },
        }
    )
    machine = FLOAT.model_copy(update={"primitives": (blocked, *FLOAT.primitives)})
    for channels, layout in ((15, "NHWC"), (16, "NCHW8c")):
        net = Builder(x=(1, channels, 4, 4))
        module = assign(net, net.conv(net.inputs["x"], 8, node="conv"), machine=machine)
        assert layout_of(kernels(module)["conv"].inputs[0]) == layout
        assert np.prod(shape_of(kernels(module)["conv"].result)) > 0


@pytest.mark.parametrize("axis", [1, 3])
def test_a_primitive_may_ask_for_a_dim_along_contiguous_elements(axis: int) -> None:
    """Images lie channels last there, and are row-major where columns are reduced."""
    plain = accelerator()
    operands = {
        role: Storage(memory=memory, layout="any", along=("axis",))
        for role, memory in (("input", "in"), ("output", "out"))
    }
    primitives = tuple(
        p.model_copy(update={"operands": operands}) if p.name == "softmax" else p
        for p in plain.primitives
    )
    machine = plain.model_copy(update={"primitives": primitives})
    net = Builder(1, x=(1, 8, 6, 4))
    x = net.conv(net.inputs["x"], 8, 1)
    module = assign(net, net.op("softmax", x, axis=axis), machine=machine)
    softmax = next(k for k in kernels(module).values() if k.operations[0].name == "graph.softmax")
    assert not softmax.on_host
    innermost = Layout.parse(layout_of(softmax.inputs[0]), 4).factors[-1].axis
    assert innermost == axis
