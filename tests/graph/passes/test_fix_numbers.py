"""fix-numbers: accuracy against float32, exact determinism, types, and the room it promises."""

import numpy as np
import pytest

from tests.graph.passes.pass_networks import (
    Array,
    Builder,
    accelerator,
    context,
    evaluate,
    inputs_of,
    random_network,
)
from tests.slow import but_fast
from tilewright.errors import TilewrightError
from tilewright.graph.dialect import KernelOp, network_of
from tilewright.graph.interpreter import interpret
from tilewright.graph.passes.fix_numbers import FixNumbers, numbers_of
from tilewright.graph.passes.fuse_batch_norm import FuseBatchNorm
from tilewright.graph.passes.fuse_pointwise import FusePointwise
from tilewright.graph.passes.partition import Partition
from tilewright.graph.passes.simplify import Simplify
from tilewright.graph.weights import Weights
from tilewright.ir import ModuleOp, SSAValue
from tilewright.ir.passes import CompilerContext
from tilewright.ir.types import element_name, fraction_of, tensor_type
from tilewright.machine import Machine

SMALL = accelerator()
Ranges = dict[str, tuple[float, float]]


def calibrate(module: ModuleOp, store: Weights, samples: list[dict[str, Array]]) -> Ranges:
    ranges: Ranges = {}

    def observe(name: str, array: Array) -> None:
        low, high = ranges.get(name, (np.inf, -np.inf))
        ranges[name] = (min(low, float(array.min())), max(high, float(array.max())))

    for sample in samples:
        interpret(module, store, sample, observe)
    return ranges


def prepare(
    module: ModuleOp, store: Weights, samples: list[dict[str, Array]], machine: Machine = SMALL
) -> CompilerContext:
    ctx = context(machine, store)
    for step in (Simplify(), FuseBatchNorm(), Simplify(), Partition(), FusePointwise()):
        step.apply(ctx, module)
    return context(machine, store, ranges=calibrate(module, store, samples))


def fix(module: ModuleOp, store: Weights, samples: list[dict[str, Array]]) -> ModuleOp:
    FixNumbers().apply(prepare(module, store, samples), module)
    module.verify()
    return module


@pytest.mark.parametrize("seed", but_fast(range(24), range(5)))
def test_close_to_float_and_exactly_repeatable(seed: int) -> None:
    module, store = random_network(seed)
    samples = [inputs_of(module, 100 + i) for i in range(3)]
    held_out = samples[1]
    expected = evaluate(module, store, held_out)
    twin = module.clone()
    fix(module, store, samples)
    first = evaluate(module, store, held_out)
    error = np.abs(first[0] - expected[0]).max() / max(np.abs(expected[0]).max(), 1e-3)
    assert error < 0.02, error
    fix(twin, store, samples)
    assert str(twin) == str(module)
    again = evaluate(twin, store, held_out)
    assert np.array_equal(first[0], again[0])


@pytest.mark.parametrize("seed", range(12))
def test_borders_and_types(seed: int) -> None:
    module, store = random_network(seed)
    fix(module, store, [inputs_of(module, 5)])
    network = network_of(module)
    for _, value in (*network.inputs, *network.outputs):
        assert element_name(tensor_type(value).element_type) == "float32"
    for op in network.block.ops:
        if not isinstance(op, KernelOp):
            continue
        kinds = [element_name(tensor_type(value).element_type) for value in op.inputs]
        result = element_name(tensor_type(op.result).element_type)
        names = [inner.name for inner in op.operations]
        if not op.on_host:
            assert result == "fixed16", names
            assert set(kinds) <= {"fixed16", "fixed32"}
        elif names not in (["graph.quantise"], ["graph.dequantise"]):
            assert {result, *kinds} == {"float32"}, names


def test_second_run_changes_nothing() -> None:
    module, store = random_network(3)
    ctx = prepare(module, store, [inputs_of(module)])
    FixNumbers().apply(ctx, module)
    text = str(module)
    FixNumbers().apply(ctx, module)
    assert str(module) == text


def test_float_machine_is_left_alone() -> None:
    module, store = random_network(4)
    text = str(module)
    machine = accelerator(element="float32", accumulator="float32")
    FixNumbers().apply(context(machine, store), module)
    assert str(module) == text


def test_values_without_a_range_are_all_named() -> None:
    module, store = random_network(5)
    ctx = prepare(module, store, [inputs_of(module)])
    kept = dict(sorted(ctx.ranges.items())[:-2])
    missing = sorted(ctx.ranges)[-2:]
    with pytest.raises(TilewrightError, match="numbers-range") as caught:
        FixNumbers().apply(context(SMALL, store, ranges=kept), module)
    assert {problem.where for problem in caught.value.problems} >= set(missing[:1])


def classifier(scale: float = 1.0) -> tuple[ModuleOp, Weights]:
    net = Builder(7, x=(2, 8, 6, 6))
    x = net.inputs["x"]
    weight = net.drawn(16, 8, 3, 3, scale=scale)
    y = net.op("relu", net.op("conv", x, weight, net.drawn(16), pads=(1,) * 4))
    return net.finish(y), net.store


@pytest.mark.parametrize("scale", [1e-3, 0.1, 1.0, 30.0, 1e4])
def test_accumulators_have_room(scale: float) -> None:
    """No calibrated accumulator reaches 2**30, and the finest weights are kept otherwise."""
    module, store = classifier(scale)
    samples = [inputs_of(module, i) for i in range(4)]
    expected = evaluate(module, store, samples[0])[0]
    fix(module, store, samples)
    largest: dict[str, int] = {}

    def observe(name: str, array: Array) -> None:
        if array.dtype == np.int32:
            largest[name] = max(largest.get(name, 0), int(np.abs(array.astype(np.int64)).max()))

    for sample in samples:
        interpret(module, store, sample, observe)
    assert largest
    assert 2**24 < max(largest.values()) < 2**30
    found = evaluate(module, store, samples[0])[0]
    assert np.abs(found - expected).max() < 2e-3 * np.abs(expected).max()


def test_residual_is_never_finer_than_the_accumulator() -> None:
    """A tiny residual would have more fraction bits than a large accumulator."""
    net = Builder(3, x=(1, 8, 5, 5), r=(1, 8, 5, 5))
    big = net.op("conv", net.inputs["x"], net.drawn(8, 8, 1, 1, scale=300.0))
    module = net.finish(net.op("add", big, net.inputs["r"]))
    samples = [inputs_of(module, i) for i in range(2)]
    samples = [{"x": 1000 * s["x"], "r": s["r"] / 500} for s in samples]
    fix(module, net.store, samples)
    adds = [
        inner
        for op in network_of(module).block.ops
        if isinstance(op, KernelOp)
        for inner in op.operations
        if inner.name == "graph.add"
    ]
    assert len(adds) == 1
    accumulator, residual = (fraction_of(value) for value in adds[0].inputs)
    assert accumulator >= residual == fraction_of(adds[0].inputs[1])
    assert fraction_of(adds[0].result) == accumulator


def test_concatenated_and_pooled_values_share_a_point() -> None:
    net = Builder(5, x=(1, 4, 8, 8))
    x = net.inputs["x"]
    a = net.op("max_pool", net.conv(x, 4), kernel=(2, 2), strides=(2, 2))
    b = net.op("average_pool", net.conv(x, 4), kernel=(2, 2), strides=(2, 2))
    small = net.op("mul", b, net.constant(np.full((1, 1, 1, 1), 1e-2)))
    module = net.finish(net.op("concat", a, net.op("relu", small), axis=1))
    fix(module, net.store, [inputs_of(module)])
    concat = next(op for op in network_of(module).block.ops if op.name == "graph.concat")
    points = {fraction_of(value) for value in (*concat.operands, concat.results[0])}
    assert len(points) == 1
    for op in network_of(module).block.ops:
        if isinstance(op, KernelOp) and op.operations[0].name == "graph.max_pool":
            assert fraction_of(op.inputs[0]) == fraction_of(op.result)


def test_requantise_comes_last_but_for_tables() -> None:
    net = Builder(5, x=(1, 4, 8, 8))
    x = net.op("sigmoid", net.conv(net.inputs["x"], 4))
    module = net.finish(net.op("relu", net.conv(x, 4)))
    fix(module, net.store, [inputs_of(module)])
    chains = [
        [inner.name.removeprefix("graph.") for inner in op.operations]
        for op in network_of(module).block.ops
        if isinstance(op, KernelOp) and not op.on_host
    ]
    assert chains == [["conv", "requantise", "sigmoid"], ["conv", "relu", "requantise"]]


def test_report() -> None:
    module, store = classifier()
    samples = [inputs_of(module, i) for i in range(2)]
    fix(module, store, samples)
    rows = {row.value: row for row in numbers_of(network_of(module))}
    low = min(float(sample["x"].min()) for sample in samples)
    quantised = next(row for row in rows.values() if row.minimum == low)
    assert 2**quantised.fraction * abs(low) <= 32767 < 2 ** (quantised.fraction + 1) * 8
    assert {row.guarantee for row in rows.values()} == {"", "calibrated", "always"} - (
        {"always"} if not any(row.guarantee == "always" for row in rows.values()) else set()
    )
    assert all(row.minimum <= row.maximum for row in rows.values())


def test_guarantee_is_earned() -> None:
    """With one tap per output no input can overflow: |x| <= 2**15, |w| < 2**15."""
    net = Builder(1, x=(1, 1, 4, 4))
    module = net.finish(net.op("conv", net.inputs["x"], net.drawn(2, 1, 1, 1)))
    fix(module, net.store, [inputs_of(module)])
    guarantees = [row.guarantee for row in numbers_of(network_of(module)) if row.guarantee]
    assert guarantees == ["always"]


def test_dequantised_once_for_all_users() -> None:
    net = Builder(1, x=(1, 4, 4, 4))
    y = net.conv(net.inputs["x"], 4)
    outputs: list[SSAValue] = [y, net.op("exp", y), net.op("div", y, y)]
    module = net.finish(*outputs)
    fix(module, net.store, [inputs_of(module)])
    kernels = [op for op in network_of(module).block.ops if isinstance(op, KernelOp)]
    names = [op.operations[0].name for op in kernels]
    assert names.count("graph.dequantise") == 1
    assert names.count("graph.quantise") == 1
