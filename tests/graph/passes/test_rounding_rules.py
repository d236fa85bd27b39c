"""Rules of a machine that rounds in ways of its own, as attributes of the graph's operations."""

import numpy as np
import pytest

from tests.graph.passes.pass_networks import Builder, context, inputs_of
from tests.graph.passes.test_fix_numbers import calibrate
from tilewright.graph.interpreter import interpret
from tilewright.graph.operation import Operation
from tilewright.graph.operations import BY_NAME
from tilewright.graph.passes.fix_numbers import FixNumbers
from tilewright.graph.passes.fuse_pointwise import FusePointwise
from tilewright.graph.passes.numbers_rewriter import quantise_bias
from tilewright.graph.passes.partition import Partition
from tilewright.ir import Block
from tilewright.ir.types import FixedType, tensor
from tilewright.numerics import power_of_two
from tilewright.targets.dpu.core import ZU2
from tilewright.targets.dpu.machine import ROUNDING, machine_of


@pytest.mark.parametrize(("low", "high"), [(0, 0), (3, 3), (-1, 4), (7, 2), (5, 8)])
def test_sums_cut_their_operands_at_guard_bits(low: int, high: int) -> None:
    rng = np.random.default_rng(low * 9 + high + 9)
    x, y = rng.integers(-128, 128, (2, 1, 5, 7, 6), np.int8)
    kinds = [tensor(x.shape, FixedType.of(8, fraction)) for fraction in (low, high)]
    block = Block(arg_types=kinds)
    add = BY_NAME["add"].build_from(block.args, {"guard": 2}, node="")
    total = add.evaluate(x, y)
    least = min(low, high)
    assert add.result.type.element_type == FixedType.of(32, least + 2)
    for result in range(least - 3, least + 4):
        kind = tensor(x.shape, FixedType.of(8, result))
        rounded = BY_NAME["requantise"].build_from([add.result], {}, node="", result_type=kind)
        shifts = [low - least, high - least]
        expected = power_of_two.elementwise([x, y], shifts, result - least)
        np.testing.assert_array_equal(rounded.evaluate(total), expected)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 6, 7, 8])
def test_averages_are_those_of_the_instruction(size: int) -> None:
    x = np.random.default_rng(size).integers(-128, 128, (1, 3, 16, 17), np.int8)
    factor = ROUNDING.average(size, size)
    block = Block(arg_types=[tensor(x.shape, FixedType.of(8, 3))])
    pool = BY_NAME["average_pool"].build_from(
        block.args, {"kernel": (size, size), "factor": factor}, node=""
    )
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.int64), (size, size), (2, 3))
    expected = power_of_two.average(windows.sum(axis=(-1, -2)), (size, size), 0)
    np.testing.assert_array_equal(pool.evaluate(x), expected)


@pytest.mark.parametrize("point", [3, 9, 14])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 50.0])
def test_biases_are_bytes_with_a_point_of_their_own(point: int, scale: float) -> None:
    bias = np.random.default_rng(point).normal(0, scale, 40).astype(np.float32)
    found = quantise_bias(bias, point, 8).astype(np.int64)
    bits = int(np.bitwise_or.reduce(np.abs(found)))
    unit = bits & -bits if bits else 1
    assert np.abs(found).max() <= 128 * unit
    largest = float(np.abs(bias).max())
    step = max(2.0**-point, 2.0 ** np.ceil(np.log2(largest / 127)))
    np.testing.assert_allclose(found / 2.0**point, bias, atol=step * 0.51)


def operations(module, name: str) -> list[Operation]:
    return [op for op in module.walk() if isinstance(op, Operation) and op.name == name]


@pytest.fixture(scope="module")
def network():
    build = Builder(3, x=(1, 8, 12, 12))
    x = build.inputs["x"]
    y = build.op("relu", build.conv(x, 16, pads=(1, 1, 1, 1)))
    z = build.conv(y, 16, kernel=1)
    y = build.op("add", y, z)
    partial = build.op("average_pool", y, kernel=(3, 3), strides=(1, 1), pads=(1, 1, 1, 1))
    y = build.op("add", y, partial)
    y = build.op("average_pool", y, kernel=(12, 12))
    module = build.finish(y)
    machine = machine_of(ZU2)
    samples = [inputs_of(build.network, seed) for seed in range(3)]
    ctx = context(machine, build.store)
    for step in (Partition(), FusePointwise()):
        step.apply(ctx, module)
    floats = interpret(module, build.store, samples[0])
    ranges = calibrate(module, build.store, samples)
    fixed = context(machine, build.store, ranges=ranges)
    FixNumbers().apply(fixed, module)
    return module, floats, interpret(module, build.store, samples[0])


def test_rules_become_attributes(network) -> None:
    module, _, _ = network
    assert [op.get("guard") for op in operations(module, "graph.add")] == [2, 2]
    pools = {tuple(op.get("kernel")): op.values for op in operations(module, "graph.average_pool")}
    assert "factor" not in pools[3, 3], "windows at the border count fewer elements"
    assert pools[12, 12]["factor"] == (57, 13)


def test_points_leave_shifts_that_the_machine_has(network) -> None:
    module, _, _ = network
    for op in operations(module, "graph.requantise"):
        shift = op.fractions[0] - op.result_fraction
        assert -5 <= shift <= 17


def test_results_stay_near_those_of_floats(network) -> None:
    _, floats, fixed = network
    for name, value in floats.items():
        np.testing.assert_allclose(fixed[name], value, atol=0.1 * np.abs(value).max())
