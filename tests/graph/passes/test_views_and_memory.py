"""eliminate-views and plan-memory: what is an address, what is copied, what shares bytes."""

import numpy as np
import pytest

from tests.graph.passes.pass_networks import (
    Builder,
    accelerator,
    context,
    random_network,
)
from tests.graph.passes.pipelines import place_pipeline, prepare_pipeline
from tilewright.codegen.program.concurrent import Span
from tilewright.errors import TilewrightError
from tilewright.graph.dialect import KernelOp, ScratchOp, network_of
from tilewright.graph.interpreter import interpret
from tilewright.graph.passes.assign_layouts import AssignLayouts, is_conversion
from tilewright.graph.passes.eliminate_views import EliminateViews
from tilewright.graph.passes.fuse_pointwise import FusePointwise
from tilewright.graph.passes.memory_plan import activation_bound, memory_plan_of
from tilewright.graph.passes.partition import Partition
from tilewright.graph.passes.plan_memory import PlanMemory
from tilewright.graph.placement import ACTIVATIONS, TEMPORARY, arenas_of, placement_of
from tilewright.ir import ModuleOp, SSAValue
from tilewright.ir.passes import PassRunner
from tilewright.ir.types import shape_of
from tilewright.machine import Machine
from tilewright.targets.cpu.machine import machine as cpu
from tilewright.targets.cpu.processors import Processor

CPU = cpu(Processor(lanes=16))
NHWC = accelerator(element="float32", accumulator="float32")


def build(net: Builder, *outputs: SSAValue, machine: Machine = CPU, fuse: bool = True) -> ModuleOp:
    module = net.finish(*outputs)
    ctx = context(machine, net.store)
    passes = (Partition(), FusePointwise(fuse), AssignLayouts(), EliminateViews(), PlanMemory())
    for step in passes:
        step.apply(ctx, module)
        module.verify()
    return module


def named(module: ModuleOp, name: str) -> SSAValue:
    for op in network_of(module).block.ops:
        if isinstance(op, KernelOp) and op.operations[-1].node_name == name:
            return op.result
        if op.results and getattr(op, "node_name", "") == name:
            return op.results[0]
    raise KeyError(name)


def copies(module: ModuleOp) -> int:
    return sum(is_conversion(op) for op in network_of(module).block.ops)


def flat(net: Builder) -> list[SSAValue]:
    """Row-major kernels that no layout disturbs."""
    return [net.op("exp", net.inputs["x"], node="a"), net.op("neg", net.inputs["x"], node="b")]


def test_parts_are_written_in_place() -> None:
    net = Builder(x=(2, 4, 8))
    a, b = flat(net)
    joined = net.op("concat", a, b, a, axis=1, node="joined")
    module = build(net, net.op("abs", joined))
    # The second use of a needs bytes of its own.
    assert copies(module) == 1
    whole, first, second = (placement_of(named(module, n)) for n in ("joined", "a", "b"))
    assert whole.strides == first.strides == second.strides == (96, 8, 1)
    assert (first.offset - whole.offset, second.offset - whole.offset) == (0, 4 * 8 * 4)


def test_interleaved_images_are_written_pixel_by_pixel() -> None:
    """Into the result, and into what that is a part of; row-major rows have no such runs."""
    plain = accelerator(element="float32", accumulator="float32", layouts={})
    for machine, copied in ((NHWC, 0), (plain, 2)):
        net = Builder(x=(1, 8, 3, 5))
        x = net.inputs["x"]
        b = net.conv(x, 4, pads=(1, 1, 1, 0), node="b")
        joined = net.op("interleave", net.conv(x, 4, pads=(1,) * 4, node="a"), b, steps=(1, 2))
        wide = net.op("concat", joined, net.conv(x, 4, 1, node="c"), axis=3, node="whole")
        module = build(net, net.conv(wide, 8, 1), machine=machine)
        kernels = [op for op in network_of(module).block.ops if isinstance(op, KernelOp)]
        assert sum(op.scattered is not None for op in kernels) == copied
        if not copied:
            a, b, whole = (placement_of(named(module, name)) for name in ("a", "b", "whole"))
            assert whole.strides == (3 * 14 * 4, 14 * 4, 4, 1)
            assert a.strides == b.strides == (3 * 14 * 4, 14 * 4, 8, 1)
            assert (a.offset - whole.offset, b.offset - whole.offset) == (0, 4 * 4)


@pytest.mark.parametrize(
    ("shape", "order", "axes"),
    [
        ((1, 5, 3, 2, 4), (2, 0, 3, 1, 4), 3),  # Queries, keys and values of one image.
        ((2, 5, 3, 2, 4), (2, 0, 3, 1, 4), 5),
        ((2, 4, 3, 5, 6), (0, 2, 1, 3, 4), 4),  # A channel shuffle.
        ((1, 2, 2, 3, 5, 4), (0, 3, 4, 1, 5, 2), 4),  # Depth to space.
        ((2, 3, 4, 1, 5, 2), (4, 5, 0, 1, 3, 2), 2),
        ((2, 1, 3, 1, 2, 2), (5, 4, 3, 2, 1, 0), 4),
    ],
)
def test_transposes_of_many_axes_have_one_for_those_that_stay_side_by_side(
    shape: tuple[int, ...], order: tuple[int, ...], axes: int
) -> None:
    net = Builder(x=shape)
    turned = net.op("transpose", net.op("exp", net.inputs["x"]), permutation=order)
    module = build(net, net.op("neg", turned))
    kernels = [op for op in network_of(module).block.ops if isinstance(op, KernelOp)]
    moved = [k for k in kernels if k.operations[0].name == "graph.transpose"]
    assert [len(shape_of(kernel.result)) for kernel in moved] == [axes]
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    (found,) = interpret(module, net.store, {"x": x}).values()
    np.testing.assert_allclose(found, -np.exp(x).transpose(order), rtol=1e-6)


@pytest.mark.parametrize("odd", [False, True])
def test_bytes_of_interleaved_images_are_told_apart_where_rows_begin_alike(odd: bool) -> None:
    """A row of odd length begins in the middle of a period: the second pixels of one row lie where
    the first ones of another do."""
    net = Builder(x=(1, 8, 3, 5))
    x = net.inputs["x"]
    b = net.conv(x, 4, pads=(1, 1, 1, 0 if odd else 1), node="b")
    joined = net.op("interleave", net.conv(x, 4, pads=(1,) * 4, node="a"), b, steps=(1, 2))
    module = build(net, net.conv(joined, 8, 1), machine=NHWC)
    first, second = (Span.of(named(module, name)) for name in ("a", "b"))
    assert first.meets(second) is odd and second.meets(first) is odd


def test_nested_concatenations_lie_in_one_another() -> None:
    net = Builder(x=(1, 4, 8))
    a, b = flat(net)
    inner = net.op("concat", a, b, axis=1, node="inner")
    c = net.op("sqrt", net.op("abs", net.inputs["x"]), node="c")
    outer = net.op("concat", inner, c, axis=1, node="outer")
    module = build(net, net.op("neg", outer), net.op("relu", inner))
    assert copies(module) == 0
    places = {n: placement_of(named(module, n)).offset for n in ("outer", "inner", "a", "b", "c")}
    base = places["outer"]
    assert {n: offset - base for n, offset in places.items()} == {
        "outer": 0,
        "inner": 0,
        "a": 0,
        "b": 128,
        "c": 256,
    }


def test_inputs_weights_and_shared_parts_are_copied() -> None:
    net = Builder(x=(1, 4, 8))
    a, _ = flat(net)
    one = net.op("concat", a, net.inputs["x"], net.drawn(1, 4, 8), axis=1)
    two = net.op("concat", a, a, axis=2)
    module = build(net, net.op("neg", one), net.op("neg", two))
    assert copies(module) == 4


def test_slices_and_reshapes_are_addresses() -> None:
    net = Builder(x=(4, 6, 8))
    a, _ = flat(net)
    part = net.op("slice", a, starts=(2,), ends=(4,), axes=(0,), node="part")
    shaped = net.op("reshape", part, shape=(2, 48), node="shaped")
    module = build(net, net.op("relu", shaped), net.op("relu", a))
    assert copies(module) == 0
    whole, cut, view = (placement_of(named(module, n)) for n in ("a", "part", "shaped"))
    assert cut.offset == view.offset == whole.offset + 2 * 48 * 4
    assert view.strides == (48, 1)


def test_what_no_strides_describe_is_copied() -> None:
    net = Builder(x=(4, 6, 8))
    a, _ = flat(net)
    turned = net.op("transpose", a, permutation=(2, 0, 1), node="turned")
    back = net.op("slice", a, starts=(-1,), ends=(-100,), axes=(2,), steps=(-1,), node="back")
    column = net.op("slice", a, starts=(1,), ends=(3,), axes=(2,))
    module = build(net, turned, back, net.op("reshape", column, shape=(48,)))
    kinds = [
        op.operations[0].name
        for op in network_of(module).block.ops
        if isinstance(op, KernelOp) and not is_conversion(op)
    ]
    assert sorted(kinds) == ["graph.exp", "graph.slice", "graph.transpose"]
    assert copies(module) == 1


def test_outputs_are_dense_and_of_their_own() -> None:
    net = Builder(x=(2, 4, 8))
    a, b = flat(net)
    joined = net.op("concat", a, b, axis=1)
    module = build(net, a, joined, net.drawn(2, 3))
    strides = [placement_of(v).strides for v in network_of(module).output_op.values]
    arenas = [placement_of(v).arena for v in network_of(module).output_op.values]
    assert strides == [(32, 8, 1), (64, 8, 1), (3, 1)]
    assert set(arenas) == {"activations"}
    assert copies(module) == 2


def test_channels_last_concatenation_interleaves() -> None:
    net = Builder(x=(1, 4, 6, 6))
    a = net.conv(net.inputs["x"], 8, node="a")
    b = net.conv(net.inputs["x"], 4, node="b")
    joined = net.op("concat", a, b, axis=1, node="joined")
    module = build(net, net.conv(joined, 4), machine=NHWC)
    first, second = placement_of(named(module, "a")), placement_of(named(module, "b"))
    assert first.strides == second.strides == (4 * 4 * 12, 4 * 12, 12, 1)
    assert second.offset - first.offset == 8 * 4


def test_maps_write_over_what_dies() -> None:
    net = Builder(x=(1, 64))
    a, b = flat(net)
    total = net.op("softmax", net.op("add", a, b, node="sum"), axis=1, node="soft")
    module = build(net, total, fuse=False)
    plan = memory_plan_of(module)
    # The input lives until b is made: three values of 256 bytes, two when the sum is made.
    assert plan.lower_bound == plan.peak == 3 * 256
    held = {b.name: b for b in plan.buffers}
    assert len(held) == 4
    assert placement_of(named(module, "sum")).offset in (
        placement_of(named(module, "a")).offset,
        placement_of(named(module, "b")).offset,
    )


def test_nothing_writes_over_what_is_still_read() -> None:
    net = Builder(x=(1, 64))
    a = net.op("exp", net.inputs["x"], node="a")
    b = net.op("softmax", a, axis=1, node="b")
    last = net.op("mul", net.op("softmax", b, axis=1, node="c"), a, node="d")
    module = build(net, last, fuse=False)
    places = {n: placement_of(named(module, n)).offset for n in ("a", "b", "c", "d")}
    assert len({places["a"], places["b"], places["c"]}) == 3, "softmax reads whole rows"
    assert places["d"] in (places["a"], places["c"])
    assert placement_of(network_of(module).block.args[0]).arena == "activations"


@pytest.mark.parametrize("reads", ["twice", "as a window"])
def test_residual_in_place_only_if_read_once(reads: str) -> None:
    """x + conv(x) may not write over x, which the convolution still reads."""
    net = Builder(x=(1, 16, 6, 6))
    x = net.conv(net.inputs["x"], 16, pads=(1,) * 4, node="x")
    other = net.conv(net.inputs["x"], 16, 1, node="other") if reads == "as a window" else x
    y = net.op("add", net.conv(x, 16, pads=(1,) * 4), other, node="y")
    module = build(net, net.op("reduce_mean", y, axes=(2, 3)))
    places = {n: placement_of(named(module, n)).offset for n in ("x", "y")}
    assert places["x"] != places["y"]
    if reads == "as a window":
        assert placement_of(named(module, "other")).offset == places["y"]


def test_plan_needs_addresses() -> None:
    net = Builder(x=(4, 6))
    turned = net.op("transpose", net.op("exp", net.inputs["x"]), permutation=(1, 0))
    module = net.finish(net.op("neg", turned))
    with pytest.raises(TilewrightError, match=r"memory-view.*transpose2.*eliminate-views"):
        memory_plan_of(module)


@pytest.mark.parametrize("seed", range(4))
def test_the_bound_of_a_placed_network_is_that_of_its_plan(seed: int) -> None:
    """A package's manifest tells it from the placements alone."""
    module, store = random_network(seed)
    ctx = context(CPU, store)
    PassRunner(ctx).run(module, prepare_pipeline(CPU), "")
    PassRunner(ctx).run(module, place_pipeline(CPU), "")
    plan = memory_plan_of(module)
    assert 0 < activation_bound(network_of(module)) == plan.lower_bound <= plan.peak


def test_arenas_and_report() -> None:
    net = Builder(x=(1, 16, 8, 8))
    x = net.op("relu", net.conv(net.inputs["x"], 16, node="conv"))
    module = build(net, net.op("max_pool", x, kernel=(2, 2), strides=(2, 2)), machine=NHWC)
    plan = memory_plan_of(module)
    assert arenas_of(network_of(module)) == {
        "activations": plan.peak,
        "weights": plan.weight_bytes,
    }
    assert plan.weight_bytes == 16 * 16 * 9 * 4 + 16 * 4
    assert plan.busiest in str(plan)
    assert sum(size for _, size in plan.alive) == plan.lower_bound
    assert {name for b in plan.buffers for name in b.values} >= {"x"}


def test_what_one_layer_needs_lies_behind_all_else_where_a_machine_says_so() -> None:
    """Scratch of Winograd's method: apart from the tensors between layers, or among them."""
    plain = cpu(Processor(lanes=16, registers=32))
    for machine in (plain, plain.model_copy(update={"temporary_space": True})):
        net = Builder(3, x=(1, 64, 28, 28))
        x = net.inputs["x"]
        for _ in range(3):
            x = net.op("relu", net.conv(x, 64, pads=(1, 1, 1, 1)))
        module = net.finish(x)
        runner = PassRunner(context(machine, net.store))
        runner.run(module, [*prepare_pipeline(machine), *place_pipeline(machine)], "")
        network = network_of(module)
        arenas = arenas_of(network)
        scratch = [op for op in network.block.ops if isinstance(op, ScratchOp)]
        assert len(scratch) == 3
        offsets = [placement_of(op.result).offset for op in scratch]
        if machine.temporary_space:
            assert min(offsets) >= arenas[ACTIVATIONS] > 0 < arenas[TEMPORARY]
        else:
            assert TEMPORARY not in arenas
