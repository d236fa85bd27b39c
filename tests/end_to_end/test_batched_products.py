"""Products with several batch dims, as attention has them, on machines of instructions."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright
from tests.slow import crossed

SHAPES = [
    ((2, 3, 5, 7), (2, 3, 7, 4)),
    ((2, 3, 5, 7), (3, 7, 4)),
    ((2, 1, 5, 7), (1, 3, 7, 4)),
    ((2, 2, 3, 5, 7), (2, 2, 3, 7, 17)),
]


@pytest.mark.parametrize(
    ("shapes", "target"),
    crossed(SHAPES, ["cambricon", "cambricon-x", "examples/machines/small-npu.toml"]),
    ids=str,
)
def test_several_batch_dims(
    shapes: tuple[tuple[int, ...], tuple[int, ...]], target: str, tmp_path: Path
) -> None:
    a, b = shapes
    result = [*np.broadcast_shapes(a[:-2], b[:-2]), a[-2], b[-1]]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["a", "b"], ["y"], name="product")],
        "batches",
        [
            helper.make_tensor_value_info("a", TensorProto.FLOAT, a),
            helper.make_tensor_value_info("b", TensorProto.FLOAT, b),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, result)],
    )
    path = tmp_path / "batches.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    root = Path(__file__).parents[2]
    executable = tilewright.compile(path, str(root / target) if "/" in target else target)
    random = np.random.default_rng(3)
    inputs = {
        name: random.uniform(-1, 1, shape).astype(np.float32)
        for name, shape in (("a", a), ("b", b))
    }
    outputs = executable.run(inputs, check_races=True)
    assert executable.check(inputs, outputs).equal
    np.testing.assert_allclose(outputs["y"], inputs["a"] @ inputs["b"], atol=5e-3)
    product = next(k for k in executable.manifest.kernels if "product" in k.nodes)
    assert product.engine != "host", product
