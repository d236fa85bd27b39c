"""The float meaning of every operation agrees with ONNX Runtime's."""

import numpy as np
import pytest

from tests.graph.operations.catalogue import EXAMPLES
from tests.graph.operations.example import Example
from tilewright.graph.operations import BY_NAME
from tilewright.ir.types import shape_of

REPRESENTATION = {"requantise", "quantise", "dequantise", "convert_layout"}
AFFINE = {
    *("quantise_linear", "dequantise_linear", "requantise_linear"),
    *("add_linear", "mul_linear", "look_up"),
}
"""Between floats and quantised integers: test_quantisation.py."""

METHODS = {"winograd_conv", "winograd_input", "winograd_output"}
METHODS |= {"im2col", "separable_conv", "sparse_product"}
METHODS |= {"piece_conv", "piece_matmul"}
"""Forms of other operations, on prepared weights or with scratch: tests of their own."""


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_float_meaning(example: Example) -> None:
    op = example.make()
    for seed in range(2):
        operands = example.operands(seed)
        kept = [operand.copy() for operand in operands]
        result = op.evaluate(*operands)
        expected = example.expected(operands)
        assert result.dtype == expected.dtype
        assert result.shape == shape_of(op.result) == expected.shape
        scale = max(1.0, float(np.abs(expected.astype(np.float64)).max(initial=0)))
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=example.tolerance * scale)
        for operand, before in zip(operands, kept, strict=True):
            np.testing.assert_array_equal(operand, before)


def test_every_operation_has_an_example() -> None:
    # The examples' operator set has no BitCast; tests/frontends/onnx/test_onnx_signals.py has.
    others = REPRESENTATION | METHODS | AFFINE | {"bit_cast", "maximum_gradient", "lrn_gradient"}
    # tests/graph/operations/test_blocked.py and tests/llm have these.
    others |= {"block_round", "block_matmul", "block_gather", "rotate", "cached_attention"}
    assert {example.operation for example in EXAMPLES} == set(BY_NAME) - others


def test_floats_keep_infinities_and_signs_apart() -> None:
    sigmoid = next(example for example in EXAMPLES if example.operation == "sigmoid").make()
    x = np.full((2, 3, 5), -200, np.float32)
    x[0] = 200
    result = sigmoid.evaluate(x)
    assert (result[0] == 1).all() and (result[1] < 1e-38).all()
