"""Affine quantisation means what ONNX Runtime's operators do."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from tilewright.numerics import affine

TYPES = {"int8": TensorProto.INT8, "uint8": TensorProto.UINT8, "int16": TensorProto.INT16}


def onnx_result(operator: str, domain: str, operands: list[np.ndarray]) -> np.ndarray:
    """One node by ONNX Runtime."""
    names = [f"x{index}" for index in range(len(operands))]
    node = helper.make_node(operator, names, ["y"], domain=domain)
    values = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in zip(names, operands, strict=True)
    ]
    result = helper.make_empty_tensor_value_info("y")
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(
        helper.make_graph([node], "one", values, [result]), opset_imports=opsets, ir_version=10
    )
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return session.run(None, dict(zip(names, operands, strict=True)))[0]


def numbers(dtype: str, *shape: int, seed: int = 0) -> np.ndarray:
    limits = np.iinfo(dtype)
    drawn = np.random.default_rng(seed).integers(limits.min, limits.max, shape, endpoint=True)
    return drawn.astype(dtype)


@pytest.mark.parametrize("dtype", sorted(TYPES))
@pytest.mark.parametrize(("scale", "zero"), [(0.25, 0), (0.0371, 5), (3.0, 100)])
def test_quantise_and_dequantise(dtype: str, scale: float, zero: int) -> None:
    # Multiples of an eighth lie in the middle between two units of 0.25.
    x = np.concatenate([np.arange(-400, 400) / 8, [1e30, -1e30, 0.0, -0.0]]).astype(np.float32)
    unit, origin = np.array(scale, np.float32), np.array(zero, dtype)
    got = affine.quantise(x, unit, origin)
    np.testing.assert_array_equal(got, onnx_result("QuantizeLinear", "", [x, unit, origin]))
    integers = numbers(dtype, 500)
    back = affine.dequantise(integers, unit, origin)
    want = onnx_result("DequantizeLinear", "", [integers, unit, origin])
    np.testing.assert_array_equal(back, want)


def test_what_is_not_a_number_gives_the_least() -> None:
    x = np.array([np.nan, np.inf, -np.inf], np.float32)
    got = affine.quantise(x, np.float32(0.5), np.array(7, np.uint8))
    assert got.tolist() == [0, 255, 0]


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("operator", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("seed", range(3))
def test_pairs(operator: str, dtype: str, seed: int) -> None:
    x, y = numbers(dtype, 40, 33, seed=seed), numbers(dtype, 40, 33, seed=seed + 9)
    random = np.random.default_rng(seed)
    scales = random.uniform(0.005, 0.1, 3).astype(np.float32)
    zeros = numbers(dtype, 3, seed=seed + 30)
    operands = [x, scales[0], zeros[0], y, scales[1], zeros[1], scales[2], zeros[2]]
    want = onnx_result(operator, "com.microsoft", [np.asarray(o) for o in operands])
    attributes = {
        "first_zero": int(zeros[0]),
        "second_zero": int(zeros[1]),
        "zero": int(zeros[2]),
        "to": dtype,
    }
    first, second = scales[0] / scales[2], scales[1] / scales[2]
    if operator == "QLinearAdd":
        attributes |= {"first_factor": first, "second_factor": second}
        got = affine.add(x, y, attributes)
    else:
        got = affine.multiply(x, y, attributes | {"factor": scales[0] * scales[1] / scales[2]})
    difference = np.abs(got.astype(int) - want.astype(int))
    assert difference.max() <= 1
    # One apart only where rounding errors decide.
    assert (difference > 0).mean() < 0.01


def test_requantise_keeps_to_its_limits() -> None:
    sums = np.array([-(2**31), -300, -1, 0, 1, 300, 2**31 - 1], np.int32)
    values = {"zero": 10, "to": "uint8", "minimum": 10, "maximum": 100}
    got = affine.requantise(sums, np.array([0.5], np.float32), values)
    assert got.tolist() == [10, 10, 10, 10, 10, 100, 100]
    assert got.dtype == np.uint8


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_look_up(dtype: str) -> None:
    limits = np.iinfo(dtype)
    x = np.arange(limits.min, limits.max + 1).astype(dtype)
    entries = numbers("int8", 256)
    got = affine.look_up(x, {"table": tuple(entries.tolist()), "to": "int8"})
    np.testing.assert_array_equal(got, entries)
