"""Constants of less than 8 bits, floats of 8, and weights in blocks, against other evaluators."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import tilewright
from tilewright.errors import TilewrightError

FLOAT = TensorProto.FLOAT
Arrays = dict[str, NDArray[np.generic]]


def model(
    nodes: list[NodeProto],
    inputs: Arrays,
    stored: list[TensorProto],
    kind: int = FLOAT,
    opset: int = 25,
) -> ModelProto:
    named = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in inputs.items()
    ]
    outputs = [helper.make_tensor_value_info("y", kind, None)]
    graph = helper.make_graph(nodes, "narrow", named, outputs, stored)
    sets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=sets, ir_version=11)


def ours(made: ModelProto, inputs: Arrays, folder: Path) -> NDArray[np.generic]:
    onnx.save(made, folder / "model.onnx")
    return tilewright.compile(folder / "model.onnx", "cpu").run(inputs)["y"]


def drawn(*shape: int, seed: int = 1) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32)


KINDS = [
    *("INT4", "UINT4", "INT2", "UINT2", "FLOAT4E2M1"),
    *("FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ"),
]


def stored(kind: str, shape: tuple[int, ...], name: str, *, raw: bool) -> TensorProto:
    """A tensor of every value of a type, or of random ones."""
    number = TensorProto.DataType.Value(kind)
    bits = 8 if "FLOAT8" in kind else int("".join(filter(str.isdigit, kind))[:1])
    codes = np.random.default_rng(2).integers(0, 2**bits, int(np.prod(shape)))
    codes = np.where(codes & 0x7C == 0x7C, 0, codes) if bits == 8 else codes  # No NaN.
    per = 8 // bits
    padded = np.append(codes, np.zeros(-codes.size % per, np.int64)).reshape(-1, per)
    packed = (padded << (np.arange(per) * bits)).sum(1).astype(np.uint8)
    tensor = TensorProto(data_type=number, dims=shape, name=name)
    if raw:
        tensor.raw_data = packed.tobytes()
    else:
        tensor.int32_data.extend(packed.tolist())
    return tensor


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_stored_weights_are_dequantised(kind: str, raw: bool, tmp_path: Path) -> None:
    """An odd number of elements ends within a byte."""
    weight = stored(kind, (7, 3), "w", raw=raw)
    scale = numpy_helper.from_array(np.array([0.5, 2, 0.25], np.float32), "s")
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=1),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    inputs: Arrays = {"x": drawn(5, 7)}
    found = ours(model(nodes, inputs, [weight, scale]), inputs, tmp_path)
    values = np.asarray(numpy_helper.to_array(weight)).astype(np.float32)
    wanted = inputs["x"] @ (values * np.array([0.5, 2, 0.25], np.float32))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("kind", ["INT4", "UINT4"])
def test_blocks_have_zero_points_of_their_own(kind: str, tmp_path: Path) -> None:
    weight, zero = stored(kind, (8, 6), "w", raw=True), stored(kind, (2, 6), "z", raw=True)
    scale = numpy_helper.from_array(np.abs(drawn(2, 6)), "s")
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"], axis=0, block_size=4),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    inputs: Arrays = {"x": drawn(3, 8)}
    made = model(nodes, inputs, [weight, zero, scale], opset=21)
    (wanted,) = ort.InferenceSession(made.SerializeToString()).run(None, inputs)
    np.testing.assert_allclose(ours(made, inputs, tmp_path), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["INT4", "UINT4"])
def test_numbers_are_quantised_to_four_bits(kind: str, tmp_path: Path) -> None:
    zero = TensorProto(data_type=TensorProto.DataType.Value(kind), dims=[], name="z")
    zero.int32_data.append(3)
    scale = numpy_helper.from_array(np.array(0.25, np.float32), "s")
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    inputs: Arrays = {"x": drawn(400) * 3}
    made = model(nodes, inputs, [zero, scale], opset=21)
    (wanted,) = ReferenceEvaluator(made).run(None, inputs)
    found = ours(made, inputs, tmp_path)
    np.testing.assert_array_equal(found, wanted)
    assert len(np.unique(found)) == 16


@pytest.mark.parametrize(
    ("bits", "zero"),
    [
        *((2, "none"), (2, "packed"), (4, "none"), (4, "packed"), (4, "floats"), (8, "none")),
        (8, "packed"),
    ],
)
@pytest.mark.parametrize(("rows", "block"), [(64, 32), (100, 32), (48, 16)])
def test_products_of_weights_in_blocks(
    bits: int, zero: str, rows: int, block: int, tmp_path: Path
) -> None:
    columns, random = 12, np.random.default_rng(bits + rows)
    blocks = -(-rows // block)
    each = block * bits // 8
    arrays = {
        "b": random.integers(0, 256, (columns, blocks, each)).astype(np.uint8),
        "s": np.abs(drawn(columns * blocks)),
    }
    names = ["a", "b", "s"]
    if zero == "packed":
        size = -(-blocks * bits // 8)
        arrays["z"] = random.integers(0, 256, columns * size).astype(np.uint8)
    elif zero == "floats":
        arrays["z"] = random.uniform(0, 2**bits, columns * blocks).astype(np.float32)
    names += ["z"] if zero != "none" else []
    node = helper.make_node(
        "MatMulNBits", names, ["y"], domain="com.microsoft", K=rows, N=columns, bits=bits,
        block_size=block,
    )  # fmt: skip
    inputs: Arrays = {"a": drawn(2, 5, rows)}
    made = model(
        [node], inputs, [numpy_helper.from_array(a, n) for n, a in arrays.items()], opset=21
    )
    (wanted,) = ort.InferenceSession(made.SerializeToString()).run(None, inputs)
    found = ours(made, inputs, tmp_path)
    largest = np.abs(wanted).max()
    # ONNX Runtime may round the activations to 8 bits for a block.
    np.testing.assert_allclose(found, wanted, atol=2e-2 * largest if bits == 8 else 1e-4 * largest)


def test_products_keep_weights_in_blocks_where_the_machine_can(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    arrays = {
        "b": random.integers(0, 256, (64, 4, 16)).astype(np.uint8),
        "s": random.uniform(0.01, 0.02, 256).astype(np.float32),
    }
    node = helper.make_node(
        "MatMulNBits", ["a", "b", "s"], ["y"], domain="com.microsoft", K=128, N=64, bits=4,
        block_size=32,
    )  # fmt: skip
    inputs: Arrays = {"a": drawn(2, 3, 128)}
    stored_arrays = [numpy_helper.from_array(a, n) for n, a in arrays.items()]
    made = model([node], inputs, stored_arrays, opset=21)
    (wanted,) = ort.InferenceSession(made.SerializeToString()).run(None, inputs)
    for number, name in enumerate(("batch", "length")):
        made.graph.input[0].type.tensor_type.shape.dim[number].dim_param = name
    onnx.save(made, tmp_path / "model.onnx")
    largest = np.abs(wanted).max()
    packed = tilewright.compile(tmp_path / "model.onnx", shapes={"a": (2, 3, 128)})
    assert packed.runner.weights.nbytes == 64 * 64 + 256 * 4
    free = tilewright.compile(tmp_path / "model.onnx", shapes={"batch": "1..2", "length": "1..8"})
    assert free.manifest.open_model is not None and free.manifest.open_model.plans
    for executable in (packed, free):
        np.testing.assert_allclose(executable.run(inputs)["y"], wanted, atol=1e-4 * largest)
    # A machine without such products has floats.
    floats = tilewright.compile(tmp_path / "model.onnx", "sunway", shapes={"a": (2, 3, 128)})
    np.testing.assert_allclose(floats.run(inputs)["y"], wanted, atol=1e-5 * largest)


@pytest.mark.parametrize(("bits", "zeros"), [(4, True), (4, False), (8, True), (8, False)])
def test_parts_of_a_table_in_blocks(bits: int, zeros: bool, tmp_path: Path) -> None:
    random, per = np.random.default_rng(3), 8 // bits
    arrays = {
        "d": random.integers(0, 256, (9, 32 // per)).astype(np.uint8),
        "s": np.abs(drawn(9, 2)),
    }
    if zeros:
        arrays["z"] = random.integers(0, 256, (9, -(-2 // per))).astype(np.uint8)
    names = ["d", "i", "s", *(["z"] if zeros else [])]
    node = helper.make_node(
        "GatherBlockQuantized", names, ["y"], domain="com.microsoft", bits=bits, block_size=16,
        gather_axis=0, quantize_axis=1,
    )  # fmt: skip
    inputs: Arrays = {"i": np.array([[3, 0], [8, 3]], np.int64)}
    made = model(
        [node], inputs, [numpy_helper.from_array(a, n) for n, a in arrays.items()], opset=21
    )
    (wanted,) = ort.InferenceSession(made.SerializeToString()).run(None, inputs)
    np.testing.assert_allclose(ours(made, inputs, tmp_path), wanted, rtol=1e-6)


@pytest.mark.parametrize("kind", ["INT4", "UINT4"])
@pytest.mark.parametrize("zeros", [True, False])
def test_parts_of_a_table_of_four_bit_elements(kind: str, zeros: bool, tmp_path: Path) -> None:
    """Without zero points they have 0; a block has 128 numbers if nothing else is said."""
    table, points = stored(kind, (9, 256), "d", raw=True), stored(kind, (9, 2), "z", raw=True)
    scales = numpy_helper.from_array(np.abs(drawn(9, 2)), "s")
    names = ["d", "i", "s", *(["z"] if zeros else [])]
    node = helper.make_node("GatherBlockQuantized", names, ["y"], domain="com.microsoft")
    inputs: Arrays = {"i": np.array([[3, 0], [8, 3]], np.int64)}
    made = model([node], inputs, [table, scales, *([points] if zeros else [])], opset=21)
    (wanted,) = ort.InferenceSession(made.SerializeToString()).run(None, inputs)
    np.testing.assert_allclose(ours(made, inputs, tmp_path), wanted, rtol=1e-6)


def test_pools_of_images_with_channels_last(tmp_path: Path) -> None:
    inputs: Arrays = {"x": np.random.default_rng(4).integers(0, 256, (2, 7, 6, 3)).astype(np.uint8)}
    node = helper.make_node(
        "NhwcMaxPool", ["x"], ["y"], domain="com.microsoft", kernel_shape=[3, 2], strides=[2, 2],
        pads=[1, 0, 1, 0],
    )  # fmt: skip
    made = model([node], inputs, [], TensorProto.UINT8, opset=21)
    (wanted,) = ort.InferenceSession(made.SerializeToString()).run(None, inputs)
    np.testing.assert_array_equal(ours(made, inputs, tmp_path), wanted)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"bits": 3}, "numbers of 3 bits"),
        ({"block_size": 0}, "a block_size of 0"),
        ({"N": 11}, "bytes and"),
        ({"K": 0}, "a weight of"),
    ],
)
def test_weights_that_do_not_fit_are_refused(
    change: dict[str, int], said: str, tmp_path: Path
) -> None:
    given = {"K": 64, "N": 12, "bits": 4, "block_size": 32} | change
    node = helper.make_node("MatMulNBits", ["a", "b", "s"], ["y"], domain="com.microsoft", **given)
    weights = [
        numpy_helper.from_array(np.zeros((12, 2, 16), np.uint8), "b"),
        numpy_helper.from_array(np.ones(24, np.float32), "s"),
    ]
    inputs: Arrays = {"a": drawn(2, 64)}
    with pytest.raises(TilewrightError) as error:
        _ = ours(model([node], inputs, weights, opset=21), inputs, tmp_path)
    assert said in str(error.value)


def test_bytes_that_are_cut_off_are_refused(tmp_path: Path) -> None:
    weight = stored("INT4", (7, 3), "w", raw=True)
    weight.raw_data = weight.raw_data[:-1]
    scale = numpy_helper.from_array(np.array(1, np.float32), "s")
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["d"]),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    inputs: Arrays = {"x": drawn(5, 7)}
    with pytest.raises(TilewrightError, match=r"onnx-truncated.*10 bytes.*11"):
        _ = ours(model(nodes, inputs, [weight, scale]), inputs, tmp_path)
