"""The interpreter runs networks, in float as ONNX Runtime does and in fixed point exactly."""

import gc
import weakref

import numpy as np
import onnxruntime
import pytest

from tests.graph.networks import as_onnx, by_hand, parameters
from tilewright.errors import TilewrightError
from tilewright.graph.dialect import KernelOp, NetworkOp, OutputOp, WeightOp, YieldOp, network_of
from tilewright.graph.interpreter import interpret
from tilewright.graph.operations import BY_NAME, parse
from tilewright.graph.operations.convolution import ConvOp
from tilewright.graph.operations.numbers import QuantiseOp, RequantiseOp
from tilewright.graph.operations.pointwise import ReluOp
from tilewright.graph.weights import Weights
from tilewright.ir import Block, ModuleOp, Region, StringAttr, VerifyException, to_text
from tilewright.ir.types import Array, FixedType, tensor
from tilewright.numerics import fixed


def image(seed: int) -> Array:
    return np.random.default_rng(seed).normal(size=(2, 3, 12, 12)).astype(np.float32)


@pytest.mark.parametrize("seed", range(3))
def test_a_network_by_hand_agrees_with_onnx_runtime(seed: int) -> None:
    values = parameters(seed)
    module, weights = by_hand(values)
    module.verify()
    x = image(seed + 100)
    session = onnxruntime.InferenceSession(
        as_onnx(values).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    expected = session.run(None, {"image": x})[0]
    for run in (module, network_of(module), parse(to_text(module))):
        result = interpret(run, weights, {"image": x})
        assert list(result) == ["y"]
        np.testing.assert_allclose(result["y"], expected, rtol=1e-5, atol=1e-6)
    assert np.abs(expected - session.run(None, {"image": image(1)})[0]).max() > 1e-3


def test_observer_sees_inputs_and_computed_values_in_order() -> None:
    module, weights = by_hand(parameters(0))
    seen: dict[str, Array] = {}
    result = interpret(module, weights, {"image": image(0)}, lambda n, a: seen.update({n: a}))
    names = list(seen)
    assert names[0] == "image" and names[1].startswith("conv") and names[-1].startswith("softmax")
    assert len(names) == 15
    np.testing.assert_array_equal(seen[names[-1]], result["y"])


@pytest.mark.slow
def test_values_are_dropped_after_their_last_use() -> None:
    network = NetworkOp.of("chain", [("x", tensor((4, 4)))], ["y"])
    value = network.block.args[0]
    for _ in range(6):
        op = BY_NAME["exp"].build_from([value])
        network.block.add_op(op)
        value = op.result
    network.block.add_op(OutputOp.build(operands=[[value]]))
    alive: list[int] = []
    seen: list[weakref.ref[Array]] = []

    def observe(_: str, array: Array) -> None:
        seen.append(weakref.ref(array))
        gc.collect()
        alive.append(sum(reference() is not None for reference in seen[1:]))

    interpret(ModuleOp([network]), Weights(), {"x": np.zeros((4, 4), np.float32)}, observe)
    assert max(alive) <= 2


def fixed_layer(fused: bool) -> tuple[ModuleOp, Weights, Array, Array]:
    """quantise, conv, requantise, relu; the last three in a kernel if ``fused``."""
    generator = np.random.default_rng(9)
    w = generator.normal(size=(5, 3, 3, 3)) * 0.2
    b = generator.normal(size=5)
    weights, network = Weights(), NetworkOp.of("q", [("x", tensor((1, 3, 8, 8)))], ["y"])
    kinds = [
        tensor((5, 3, 3, 3), FixedType.of(16, 14)),
        tensor((5,), FixedType.of(32, 26)),
        tensor((1, 5, 6, 6), FixedType.of(16, 11)),
    ]
    wq = WeightOp.of(weights.add(fixed.quantise(w, 14), "w"), kinds[0])
    bq = WeightOp.of(weights.add(fixed.quantise32(b, 26), "b"), kinds[1])
    xq = QuantiseOp.build_from(
        network.block.args, result_type=tensor((1, 3, 8, 8), FixedType.of(16, 12))
    )
    network.block.add_ops([wq, bq, xq])
    outer = [xq.result, wq.result, bq.result]
    block = Block(arg_types=[value.type for value in outer]) if fused else network.block
    conv = ConvOp.build_from(block.args if fused else outer, node="c")
    narrow = RequantiseOp.build_from([conv.result], result_type=kinds[2], node="c")
    relu = ReluOp.build_from([narrow.result], node="r")
    block.add_ops([conv, narrow, relu])
    result = relu.result
    if fused:
        block.add_op(YieldOp.build(operands=[[relu.result]]))
        kernel = KernelOp.build(
            operands=[outer],
            result_types=[kinds[2]],
            properties={"symbol": StringAttr("k")},
            regions=[Region(block)],
        )
        network.block.add_op(kernel)
        result = kernel.result
    network.block.add_op(OutputOp.build(operands=[[result]]))
    return ModuleOp([network]), weights, w, b


def test_fixed_point_in_kernels_and_out_of_them() -> None:
    x = np.random.default_rng(10).normal(size=(1, 3, 8, 8)).astype(np.float32)
    runs: list[Array] = []
    for fused in (False, True):
        module, weights, w, b = fixed_layer(fused)
        module.verify()
        seen: list[str] = []

        def observe(name: str, _: Array, into: list[str] = seen) -> None:
            into.append(name)

        runs.append(interpret(module, weights, {"x": x}, observe)["y"])
        assert seen == ["x", "quantise", "c", "c_requantise", "r"]
        exact = np.zeros((1, 5, 6, 6))
        for i in range(6):
            for j in range(6):
                exact[0, :, i, j] = (w * x[0, :, i : i + 3, j : j + 3]).sum((1, 2, 3)) + b
        # 27 products of an operand off by half a unit each, then half a unit of the result.
        bound = 27 * (np.abs(w).max() * 2.0**-13 + np.abs(x).max() * 2.0**-15) + 2.0**-12
        assert np.abs(runs[-1] * 2.0**-11 - np.maximum(exact, 0)).max() < bound
    np.testing.assert_array_equal(runs[0], runs[1])
    assert runs[0].dtype == np.int16 and runs[0].max() > 0


def test_inputs_that_do_not_fit_are_refused_together() -> None:
    network = NetworkOp.of("n", [("a", tensor((2,))), ("b", tensor((3,)))], ["y"])
    network.block.add_op(OutputOp.build(operands=[[network.block.args[0]]]))
    with pytest.raises(TilewrightError) as caught:
        interpret(network, Weights(), {"c": np.zeros(2), "b": np.zeros(3)})
    problems = caught.value.problems
    assert [problem.code for problem in problems] == ["input-mismatch"] * 3
    assert [problem.where for problem in problems] == ["'c'", "'a'", "'b'"]
    assert "float64 [3], needs float32 [3]" in problems[2].reason
    with pytest.raises(TilewrightError, match=r"float32 \[4\], needs float32 \[3\]"):
        interpret(network, Weights(), {"a": np.zeros(2, np.float32), "b": np.zeros(4, np.float32)})


def test_weights_that_do_not_fit_are_refused() -> None:
    network = NetworkOp.of("n", [], ["y"])
    op = WeightOp.of("absent", tensor((2,)))
    network.block.add_ops([op, OutputOp.build(operands=[[op.result]])])
    with pytest.raises(TilewrightError, match="no such weight"):
        interpret(network, Weights(), {})

    class Wrong:
        def get(self, symbol: str) -> Array:
            return np.zeros(2)

    with pytest.raises(TilewrightError, match="float64"):
        interpret(network, Wrong(), {})


def test_a_network_without_an_end_is_refused() -> None:
    network = NetworkOp.of("n", [("x", tensor((2,)))], [])
    with pytest.raises(VerifyException, match="end"):
        interpret(network, Weights(), {"x": np.zeros(2, np.float32)})


def test_a_value_may_be_used_twice_and_returned_twice() -> None:
    network = NetworkOp.of("n", [("x", tensor((2,)))], ["y", "z"])
    x = network.block.args[0]
    op = BY_NAME["add"].build_from([x, x])
    network.block.add_ops([op, OutputOp.build(operands=[[op.result, op.result]])])
    result = interpret(network, Weights(), {"x": np.array([1, 2], np.float32)})
    assert result["y"].tolist() == result["z"].tolist() == [2, 4]
