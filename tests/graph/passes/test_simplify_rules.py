"""simplify and fuse-batch-norm, rule by rule: what they rewrite, and what they must not."""

from collections import Counter

import numpy as np
import pytest

from tests.graph.passes.pass_networks import (
    Array,
    Builder,
    accelerator,
    assert_same,
    context,
    evaluate,
    inputs_of,
)
from tilewright.errors import TilewrightError
from tilewright.graph.dialect import network_of
from tilewright.graph.operations import Operation
from tilewright.graph.passes.fold_constants import FoldConstants
from tilewright.graph.passes.fuse_batch_norm import FuseBatchNorm
from tilewright.graph.passes.simplify import Simplify
from tilewright.ir import Context, ModulePass, SSAValue
from tilewright.ir.types import shape_of
from tilewright.machine import Machine
from tilewright.targets.cpu.machine import machine as cpu
from tilewright.targets.cpu.processors import Processor

SMALL = accelerator()
CPU = cpu(Processor(lanes=16))
PLAIN = accelerator(layouts={}, element="float32", accumulator="float32")
TESTS = (Simplify(),)


def after(
    net: Builder,
    *outputs: SSAValue,
    passes: tuple[ModulePass, ...] = TESTS,
    machine: Machine = SMALL,
    tolerance: float = 1e-5,
    inputs: dict[str, Array] | None = None,
) -> list[Operation]:
    """The operations that are left, after checking that the network means the same."""
    module = net.finish(*outputs)
    given = inputs or inputs_of(module)
    expected = evaluate(module, net.store, given)
    for step in passes:
        step.apply(context(machine, net.store), module)
        module.verify()
    assert_same(expected, evaluate(module, net.store, given), tolerance)
    return [op for op in network_of(module).block.ops if isinstance(op, Operation)]


def names(ops: list[Operation]) -> list[str]:
    return [op.operation for op in ops]


BN = (FuseBatchNorm(),)


def test_normalisation_behind_a_convolution() -> None:
    for group, bias in ((1, False), (1, True), (2, True), (8, False)):
        net = Builder(x=(1, 8, 6, 6))
        x = net.conv(net.inputs["x"], 8, group=group, bias=bias, pads=(1,) * 4)
        ops = after(net, net.batch_norm(x), passes=BN)
        assert names(ops) == ["conv"]
        assert len(ops[0].inputs) == 3
        assert ops[0].get("group") == group


def test_normalisation_in_front_of_a_convolution() -> None:
    for group in (1, 2, 8):
        net = Builder(x=(1, 8, 6, 6))
        x = net.conv(net.batch_norm(net.inputs["x"]), 8, group=group)
        assert names(after(net, x, passes=BN)) == ["conv"]
        net = Builder(x=(1, 8, 6, 6))
        x = net.conv(net.batch_norm(net.inputs["x"]), 8, group=group, pads=(0, 0, 0, 1))
        assert names(after(net, x, passes=BN)) == ["conv", "conv"], "padding is not normalised"


def test_normalisation_of_a_shared_value_stays_apart() -> None:
    net = Builder(x=(1, 8, 6, 6))
    x = net.conv(net.inputs["x"], 8)
    y = net.op("add", net.batch_norm(x), x)
    assert names(after(net, y, passes=BN, machine=CPU)) == ["conv", "mul", "add", "add"]


def test_normalisation_of_rows() -> None:
    net = Builder(x=(3, 8))
    assert names(after(net, net.batch_norm(net.inputs["x"]), passes=BN)) == ["mul", "add"]


@pytest.mark.parametrize("variance", [-1.0, 1e-42, np.nan])
def test_insane_normalisation_is_left(variance: float) -> None:
    net = Builder(x=(1, 2, 4, 4))
    x = net.conv(net.inputs["x"], 2)
    operands = [net.drawn(2) for _ in range(3)]
    bad = net.constant(np.array([1.0, variance], np.float32))
    y = net.op("batch_norm", x, *operands, bad, epsilon=0.0)
    module = net.finish(y)
    text = str(module)
    FuseBatchNorm().apply(context(SMALL, net.store), module)
    assert str(module) == text


def test_zero_variance_is_defended_by_epsilon() -> None:
    net = Builder(x=(1, 2, 4, 4))
    operands = [net.drawn(2) for _ in range(3)]
    x = net.op("batch_norm", net.conv(net.inputs["x"], 2), *operands, net.constant([0.0, 1.0]))
    assert names(after(net, x, passes=BN, tolerance=1e-4)) == ["conv"]


def test_scales_and_shifts_join_a_convolution() -> None:
    net = Builder(x=(2, 3, 6, 6))
    x = net.conv(net.inputs["x"], 4)
    x = net.op("mul", net.drawn(4, 1, 1), x)
    x = net.op("sub", net.drawn(1, 4, 1, 1), x)
    x = net.op("div", x, net.constant(np.float32([[[[2.0]], [[4.0]], [[-3.0]], [[0.5]]]])))
    x = net.op("add", x, net.constant([0.25]))
    assert names(after(net, x)) == ["conv"]


def test_what_is_not_per_channel_stays() -> None:
    net = Builder(x=(1, 4, 4, 4))
    x = net.op("mul", net.conv(net.inputs["x"], 4, 1), net.drawn(1, 1, 4, 1))
    x = net.op("div", net.conv(x, 4, 1), net.constant(np.float32([0, 1, 2, 3]).reshape(4, 1, 1)))
    given = {"x": np.full((1, 4, 4, 4), 0.5, np.float32)}
    module = net.finish(x)
    Simplify().apply(context(SMALL, net.store), module)
    left = [op.operation for op in network_of(module).block.ops if isinstance(op, Operation)]
    assert left == ["conv", "mul", "conv", "div"]
    assert given["x"].shape == shape_of(network_of(module).block.args[0])
    net = Builder(x=(1, 1, 4, 4))
    widening = net.op("add", net.conv(net.inputs["x"], 1), net.drawn(1, 5, 1, 1))
    assert names(after(net, widening)) == ["conv", "add"]


def test_pads_join_what_follows() -> None:
    net = Builder(x=(1, 3, 6, 7))
    x = net.op("pad", net.inputs["x"], pads=(0, 0, 1, 2, 0, 0, 0, 1))
    ops = after(net, net.conv(x, 4, pads=(0, 1, 0, 0)), net.op("average_pool", x, kernel=(2, 3)))
    assert Counter(names(ops)) == {"conv": 1, "average_pool": 1}
    found = {op.operation: op for op in ops}
    assert found["conv"].get("pads") == (1, 3, 0, 1)
    assert found["average_pool"].get("counted") == (1, 2, 0, 1)


def test_pads_that_must_stay() -> None:
    net = Builder(x=(1, 3, 6, 6), value=())
    x = net.inputs["x"]
    computed = net.op("pad", x, net.inputs["value"], pads=(0, 0, 1, 1, 0, 0, 1, 1))
    ones = net.op("pad", x, pads=(0, 0, 1, 1, 0, 0, 1, 1), value=1.0)
    channels = net.op("pad", x, pads=(0, 1, 0, 0, 0, 0, 0, 0))
    edge = net.op("pad", x, pads=(0, 0, 1, 1, 0, 0, 1, 1), mode="edge")
    zeros = net.op("pad", x, pads=(0, 0, 1, 1, 0, 0, 1, 1))
    pool = net.op("max_pool", zeros, kernel=(2, 2))
    images = (computed, ones, channels, edge)
    ops = after(net, *(net.conv(image, 2) for image in images), pool)
    assert names(ops).count("pad") == 5


def test_pads_in_front_of_a_maximum() -> None:
    net = Builder(x=(1, 3, 6, 6))
    least = float(np.finfo(np.float32).min)
    lowest = net.op("pad", net.inputs["x"], pads=(0, 0, 1, 1, 0, 0, 0, 0), value=least)
    zeros = net.op("pad", net.op("relu", net.inputs["x"]), pads=(0, 0, 1, 1, 0, 0, 1, 1))
    outputs = [net.op("max_pool", v, kernel=(3, 3), strides=(2, 2)) for v in (lowest, zeros)]
    assert Counter(names(after(net, *outputs))) == {"max_pool": 2, "relu": 1}


def test_windows_wholly_in_padding_keep_the_pad() -> None:
    net = Builder(x=(1, 3, 4, 4))
    zeros = net.op("pad", net.op("relu", net.inputs["x"]), pads=(0, 0, 4, 0, 0, 0, 0, 0))
    ops = after(net, net.op("max_pool", zeros, kernel=(2, 2), strides=(2, 2)))
    assert names(ops) == ["relu", "pad", "max_pool"]


def test_means() -> None:
    net = Builder(x=(2, 3, 4, 5))
    x = net.inputs["x"]
    pools = [net.op("reduce_mean", x, axes=(-1, 2), keep_dims=keep) for keep in (True, False)]
    other = net.op("reduce_mean", x, axes=(1, 2))
    ops = after(net, *pools, other)
    assert Counter(names(ops)) == {"average_pool": 2, "reshape": 1, "reduce_mean": 1}


def test_means_of_images_with_the_channels_last() -> None:
    net = Builder(x=(2, 3, 4, 5))
    last = net.op("transpose", net.inputs["x"], permutation=(0, 2, 3, 1))
    turned = net.op("transpose", net.inputs["x"], permutation=(1, 3, 2, 0))
    pools = [net.op("reduce_mean", last, axes=(1, 2), keep_dims=keep) for keep in (True, False)]
    other = net.op("reduce_mean", turned, axes=(1, 2))  # Channels come before images.
    ops = after(net, *pools, other)
    assert Counter(names(ops)) == {
        "average_pool": 2,
        "reshape": 2,
        "transpose": 1,
        "reduce_mean": 1,
    }


def test_views_merge_and_cancel() -> None:
    net = Builder(x=(2, 3, 4, 5))
    x = net.inputs["x"]
    a = net.op("reshape", net.op("reshape", x, shape=(6, 20)), shape=(2, 3, 4, 5))
    b = net.op(
        "transpose", net.op("transpose", x, permutation=(1, 2, 3, 0)), permutation=(3, 0, 1, 2)
    )
    c = net.op(
        "transpose", net.op("transpose", x, permutation=(1, 2, 3, 0)), permutation=(1, 0, 3, 2)
    )
    d = net.op("slice", net.op("concat", x, axis=1), starts=(0,), ends=(99,), axes=(3,))
    ops = after(net, *(net.op("neg", v) for v in (a, b, c, d)))
    assert Counter(names(ops)) == {"neg": 4, "transpose": 1}


def test_transpose_of_unit_axes_is_a_reshape() -> None:
    net = Builder(x=(2, 5, 1, 1))
    ops = after(net, net.op("transpose", net.inputs["x"], permutation=(0, 2, 3, 1)))
    assert names(ops) == ["reshape"]


@pytest.mark.parametrize(("machine", "kept"), [(SMALL, "conv"), (CPU, "conv"), (PLAIN, "matmul")])
@pytest.mark.parametrize("bias", [True, False])
def test_product_on_an_image(machine: Machine, kept: str, bias: bool) -> None:
    net = Builder(x=(2, 16, 3, 4))
    x = net.op("reshape", net.op("relu", net.inputs["x"]), shape=(2, 192))
    x = net.product(x, 10, bias)
    x = net.op("relu", net.op("mul", net.op("add", x, net.drawn(10)), net.drawn(1, 10)))
    ops = after(net, net.product(x, 4), machine=machine, tolerance=2e-5)
    expected = ["relu", "conv", "relu", "reshape", "matmul"]
    assert names(ops) == (
        expected if kept == "conv" else ["relu", "reshape", "matmul", "relu", "matmul"]
    )
    assert all(op.get("transpose_b") for op in ops if op.operation == "matmul")


def test_product_that_flattens_otherwise_stays() -> None:
    """The batch is folded into the rows: no kernel of a whole image."""
    net = Builder(x=(2, 3, 4, 5))
    x = net.op("reshape", net.inputs["x"], shape=(6, 20))
    assert names(after(net, net.product(x, 7))) == ["reshape", "matmul"]


def test_computed_products_stay() -> None:
    net = Builder(x=(3, 4), y=(4, 5))
    product = net.op("matmul", net.inputs["x"], net.inputs["y"])
    assert names(after(net, net.op("add", product, net.drawn(5)))) == ["matmul", "add"]


@pytest.mark.parametrize(
    ("shape", "order", "kept"),
    [
        ((5, 4), (1, 0), ["matmul"]),
        ((2, 5, 4), (0, 2, 1), ["matmul"]),
        ((2, 5, 3, 4), (0, 2, 3, 1), ["transpose", "matmul"]),
        ((5, 2, 4), (1, 2, 0), ["transpose", "matmul"]),
        ((4, 2, 5), (1, 0, 2), ["transpose", "matmul"]),
    ],
)
@pytest.mark.parametrize("machine", [CPU, SMALL])
def test_computed_products_take_transposed_operands(
    machine: Machine, shape: tuple[int, ...], order: tuple[int, ...], kept: list[str]
) -> None:
    """Behind caches a product takes either order; what else is transposed keeps rows together."""
    net = Builder(x=(3, 4), y=shape)
    product = net.op(
        "matmul", net.inputs["x"], net.op("transpose", net.inputs["y"], permutation=order)
    )
    ops = after(net, product, machine=machine)
    last = len(shape) - 1
    turned = machine is CPU and order[-2] == last
    assert names(ops) == (kept if turned else ["transpose", "matmul"])
    assert bool(ops[-1].get("transpose_b", False)) == turned
    if turned and len(ops) == 2:
        assert ops[0].integers("permutation")[-1] == last


def test_neutral_constants_go_unless_they_widen() -> None:
    net = Builder(x=(1, 4))
    x = net.op("mul", net.inputs["x"], net.constant(np.ones((1, 4), np.float32)))
    x = net.op("sub", x, net.constant(np.zeros(4, np.float32)))
    assert names(after(net, x)) == []
    net = Builder(x=(1, 4))
    wide = net.op("add", net.inputs["x"], net.constant(np.zeros((3, 4), np.float32)))
    assert names(after(net, wide)) == ["add"]


def test_folding_is_bounded() -> None:
    for limit, left in ((1 << 20, []), (63, ["exp"])):
        net = Builder(x=(4, 4))
        grown = net.op("exp", net.drawn(4, 4))
        ops = after(net, net.op("add", net.inputs["x"], grown), passes=(FoldConstants(limit),))
        assert names(ops) == [*left, "add"]


def test_a_plain_context_is_refused() -> None:
    module = Builder(x=(1, 4)).finish()
    with pytest.raises(TilewrightError, match="pass-context"):
        FoldConstants().apply(Context(), module)


def test_products_of_any_rank_take_a_bias_and_a_scale() -> None:
    net = Builder(x=(2, 5, 6))
    x = net.op("matmul", net.inputs["x"], net.drawn(6, 7))
    x = net.op("mul", net.op("add", net.drawn(7), x), net.constant(np.array(0.5, np.float32)))
    (product,) = after(net, net.op("add", x, net.drawn(1, 7)), machine=CPU)
    assert (product.operation, len(product.inputs)) == ("matmul", 3)
    assert product.get("transpose_b")
    # A row of its own for every m is no bias.
    net = Builder(x=(2, 5, 6))
    x = net.op("add", net.op("matmul", net.inputs["x"], net.drawn(6, 7)), net.drawn(5, 7))
    assert names(after(net, x, machine=CPU)) == ["matmul", "add"]


@pytest.mark.parametrize("first", ["half", "sum", "last"])
@pytest.mark.parametrize("divide", [True, False])
def test_gelu_in_every_spelling(first: str, divide: bool) -> None:
    def number(value: float) -> SSAValue:
        return net.constant(np.array(value, np.float32))

    def spelled() -> SSAValue:
        x = net.inputs["x"]
        root = number(np.sqrt(2)) if divide else number(np.sqrt(0.5))
        more = net.op("add", number(1), net.op("erf", net.op("div" if divide else "mul", x, root)))
        if first == "half":
            return net.op("mul", net.op("mul", x, number(0.5)), more)
        if first == "sum":
            return net.op("mul", net.op("mul", number(0.5), more), x)
        return net.op("mul", net.op("mul", x, more), number(0.5))

    net = Builder(x=(2, 5))
    assert names(after(net, spelled(), machine=CPU)) == ["gelu"]
    net = Builder(x=(2, 5))
    # A machine without it keeps what it can compute.
    assert "gelu" not in names(after(net, spelled(), machine=SMALL))


def test_what_is_no_gelu_stays() -> None:
    net = Builder(x=(2, 5), y=(2, 5))
    half, one = (net.constant(np.array(v, np.float32)) for v in (0.5, 1.0))
    x, y = net.inputs["x"], net.inputs["y"]
    scaled = net.op("mul", x, net.constant(np.array(0.7, np.float32)))
    other = net.op("mul", net.op("mul", x, net.op("add", net.op("erf", scaled), one)), half)
    scaled = net.op("mul", x, net.constant(np.array(np.sqrt(0.5), np.float32)))
    mixed = net.op("mul", net.op("mul", y, net.op("add", net.op("erf", scaled), one)), half)
    assert "gelu" not in names(after(net, other, mixed, machine=CPU))


@pytest.mark.parametrize("swapped", [True, False])
def test_silu_in_either_order(swapped: bool) -> None:
    def spelled(net: Builder) -> SSAValue:
        factors = [net.inputs["x"], net.op("sigmoid", net.inputs["x"])]
        return net.op("mul", *(factors[::-1] if swapped else factors))

    net = Builder(x=(2, 5))
    assert names(after(net, spelled(net), machine=CPU)) == ["silu"]
    net = Builder(x=(2, 5))
    # A machine without it keeps what it can compute.
    assert "silu" not in names(after(net, spelled(net), machine=SMALL))


def test_what_is_no_silu_stays() -> None:
    net = Builder(x=(2, 5), y=(2, 5))
    other = net.op("mul", net.inputs["y"], net.op("sigmoid", net.inputs["x"]))
    gate = net.op("sigmoid", net.inputs["y"])
    shared = net.op("mul", net.inputs["y"], gate)
    kept = names(after(net, other, shared, gate, machine=CPU))
    assert sorted(kept) == ["mul", "mul", "sigmoid", "sigmoid"]


@pytest.mark.parametrize(
    ("machine", "order", "kept"),
    [
        (CPU, (0, 2, 1, 3, 4), ["channel_shuffle"]),
        (SMALL, (0, 2, 1, 3, 4), ["reshape", "transpose", "reshape"]),
        (CPU, (0, 2, 1, 4, 3), ["reshape", "transpose", "reshape"]),
    ],
)
def test_channel_shuffles(machine: Machine, order: tuple[int, ...], kept: list[str]) -> None:
    net = Builder(x=(2, 12, 3, 3))
    x = net.op("reshape", net.inputs["x"], shape=(2, 4, 3, 3, 3))
    x = net.op("reshape", net.op("transpose", x, permutation=order), shape=(2, 12, 3, 3))
    assert names(after(net, x, machine=machine)) == kept


def test_powers_of_a_half_are_roots_where_there_are_no_infinities() -> None:
    half = np.array(0.5, np.float32)
    for machine, left in ((PLAIN, "pow"), (SMALL, "sqrt")):
        net = Builder(x=(2, 5, 6))
        x = net.op("abs", net.inputs["x"])
        ops = after(net, net.op("pow", x, net.constant(half)), machine=machine)
        assert names(ops) == ["abs", left]
