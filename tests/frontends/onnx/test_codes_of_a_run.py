"""Formats of at most 8 bits as inputs, outputs and between operators, against ONNX's reference."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.numpy_helper import to_float8e8m0
from onnx.reference import ReferenceEvaluator

import tilewright
from tilewright.frontends.onnx import import_onnx
from tilewright.graph.interpreter import interpret

Arrays = dict[str, NDArray[np.generic]]

INTEGERS = ["INT4", "UINT4", "INT2", "UINT2"]
FLOATS = ["FLOAT4E2M1", "FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ"]


def kind_of(name: str) -> int:
    return TensorProto.DataType.Value(name)


def model(
    nodes: list[NodeProto], inputs: Arrays, outputs: dict[str, int], stored: Arrays
) -> ModelProto:
    named = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in inputs.items()
    ]
    given = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()]
    constants = [numpy_helper.from_array(array, name) for name, array in stored.items()]
    graph = helper.make_graph(nodes, "codes", named, given, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=11)


def check(made: ModelProto, inputs: Arrays) -> Arrays:
    """The interpreter and the cpu target have the reference's types and bytes."""
    names = [value.name for value in made.graph.output]
    with np.errstate(all="ignore"):
        wanted = dict(zip(names, ReferenceEvaluator(made).run(None, inputs), strict=True))
    imported = import_onnx(made)
    for got in (
        interpret(imported.module, imported.weights, inputs),
        tilewright.compile(made, "cpu").run(inputs),
    ):
        for name, want in wanted.items():
            assert got[name].dtype == want.dtype
            if want.dtype == np.float32:
                np.testing.assert_array_equal(got[name], want)
            else:
                found = np.ascontiguousarray(got[name])
                np.testing.assert_array_equal(found.view(np.uint8), want.copy().view(np.uint8))
    return wanted


def drawn(*shape: int, seed: int = 1) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(0, 4, shape).astype(np.float32)


@pytest.mark.parametrize("name", [*INTEGERS, *FLOATS])
def test_codes_are_inputs_and_outputs_and_move(name: str) -> None:
    """Their bytes are those of ml_dtypes at both ends; constants lie among them."""
    kind, dtype = kind_of(name), helper.tensor_dtype_to_np_dtype(kind_of(name))
    nodes = [
        helper.make_node("Concat", ["x", "c"], ["joined"], axis=0),
        helper.make_node("Transpose", ["joined"], ["turned"], perm=[1, 0]),
        helper.make_node("Gather", ["turned", "i"], ["parts"], axis=1),
        helper.make_node("Unsqueeze", ["parts", "axes"], ["y"]),
        helper.make_node("Cast", ["joined"], ["z"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["z"], ["again"], to=kind),
    ]
    bits = 8 if "FLOAT8" in name else int("".join(filter(str.isdigit, name))[:1])
    codes = np.random.default_rng(2).integers(0, 2**bits, (5, 6)).astype(np.uint8).view(dtype)
    inputs: Arrays = {"x": codes, "i": np.array([6, 0, 3])}
    stored: Arrays = {"c": codes[:2].copy(), "axes": np.array([0])}
    outputs = {"y": kind, "z": TensorProto.FLOAT, "again": kind}
    check(model(nodes, inputs, outputs, stored), inputs)


@pytest.mark.parametrize("block", [0, 4])
@pytest.mark.parametrize("name", [*INTEGERS, *FLOATS])
def test_scales_of_a_run(name: str, block: int) -> None:
    """Along an axis, and in blocks, with zero points of a run where integers have them."""
    kind, dtype = kind_of(name), helper.tensor_dtype_to_np_dtype(kind_of(name))
    whole = name in INTEGERS
    names = ["s", "zero"] if whole else ["s"]
    more = {"axis": 1, **({"block_size": block} if block else {})}
    stated = {} if whole else {"output_dtype": kind}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", *names], ["q"], **more, **stated),
        helper.make_node("DequantizeLinear", ["q", *names], ["y"], **more),
    ]
    shape = (6, 2) if block else (8,)
    inputs: Arrays = {"x": drawn(6, 8) * 100, "s": np.abs(drawn(*shape, seed=3)) + np.float32(0.01)}
    if whole:
        inputs["zero"] = np.random.default_rng(4).integers(0, 2, shape).astype(dtype)
    check(model(nodes, inputs, {"q": kind, "y": TensorProto.FLOAT}, {}), inputs)


@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize("name", FLOATS[1:])
def test_numbers_beyond_the_largest_float(name: str, saturate: int) -> None:
    kind = kind_of(name)
    x = np.array([1e6, -1e6, np.inf, -np.inf, 1e-9, -1e-9, 0.0, -0.0, 250, 460], np.float32)
    node = helper.make_node("Cast", ["x"], ["y"], to=kind, saturate=saturate)
    check(model([node], {"x": x}, {"y": kind}, {}), {"x": x})


@pytest.mark.parametrize("saturate", [False, True])
@pytest.mark.parametrize("mode", ["up", "down", "nearest"])
def test_powers_of_two(mode: str, saturate: bool) -> None:
    bits = np.random.default_rng(5).integers(0, 2**31, 4000).astype(np.uint32)
    edges = np.array([0, 0x400000, 0x400001, 0x7F7FFFFF, 0x7F800000, 0x3FC00000], np.uint32)
    x = np.concatenate([bits, edges]).view(np.float32)
    made = model(
        [
            helper.make_node(
                "Cast", ["x"], ["y"], to=TensorProto.FLOAT8E8M0, saturate=saturate, round_mode=mode
            ),
            helper.make_node("Cast", ["y"], ["z"], to=TensorProto.FLOAT),
        ],
        {"x": x},
        {"y": TensorProto.FLOAT8E8M0, "z": TensorProto.FLOAT},
        {},
    )
    found = check(made, {"x": x})["y"]
    np.testing.assert_array_equal(
        found.view(np.uint8), to_float8e8m0(x, saturate, mode).view(np.uint8)
    )
