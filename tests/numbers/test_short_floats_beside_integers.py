"""A machine file of 16-bit floats whose products multiply int8: networks that come quantised."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import tilewright
from tilewright.graph.dialect import KernelOp, network_of
from tilewright.ir.types import element_name, tensor_type

MIXED = Path(__file__).parents[2] / "examples" / "machines" / "mixed.toml"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """The machine of examples/, with halves for its float32."""
    head, _, primitives = MIXED.read_text().partition("[primitive.matmul]")
    head = head.replace('element = "float32"', 'element = "float16"')
    primitives = primitives.replace('element = "float32"\n', "").replace('"float32"', '"float16"')
    factors = 'operands.residual = { memory = "accumulators", elements = ["float16"] }'
    primitives = primitives.replace(factors, factors.replace("16", "32"))
    path = tmp_path / "halves.toml"
    path.write_text(f"{head}[primitive.matmul]{primitives}")
    return path


def test_products_of_integers_on_a_machine_of_halves(machine: Path, tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    x = random.normal(0, 2, (6, 64)).astype(np.float16).astype(np.float32)
    w, scale = random.integers(-128, 128, (64, 40), np.int8), np.float32(0.043)
    scales = random.uniform(0.002, 0.004, 40).astype(np.float32)
    bias = random.normal(0, 0.5, 40).astype(np.float32)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "sx", "zx"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "sx", "zx"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["wd"], axis=1),
        helper.make_node("MatMul", ["xd", "wd"], ["product"]),
        helper.make_node("Add", ["product", "b"], ["y"]),
    ]
    weights = {"w": w, "sx": scale, "zx": np.int8(7), "sw": scales, "b": bias}
    weights["zw"] = np.zeros(40, np.int8)
    graph = helper.make_graph(
        nodes,
        "product",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (6, 40))],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "model.onnx")
    executable = tilewright.compile(tmp_path / "model.onnx", target=str(machine))
    (product,) = (
        op
        for op in network_of(executable.graph).block.ops
        if isinstance(op, KernelOp) and any(s.name == "graph.matmul" for s in op.operations)
    )
    assert not product.on_host
    assert element_name(tensor_type(product.inputs[0]).element_type) == "int8"
    integers = np.clip(np.rint(x / scale) + 7, -128, 127).astype(np.int64) - 7
    factors = scale * scales
    sums = integers @ w.astype(np.int64) + np.rint(bias.astype(np.float64) / factors)
    expected = (sums.astype(np.float32) * factors).astype(np.float16)
    np.testing.assert_array_equal(executable.run({"x": x})["y"], expected)
