"""Products and reductions over nothing, and empty parts: what ONNX defines is what comes out."""

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

import tilewright
from tests.slow import but_fast
from tilewright.errors import TilewrightError

ROOT = Path(__file__).parents[3]
SMALL_NPU = str(ROOT / "examples" / "machines" / "small-npu.toml")
Shapes = dict[str, tuple[int, ...]]


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def model(
    nodes: list[NodeProto], shapes: Shapes, constants: dict[str, np.ndarray] | None = None
) -> onnx.ModelProto:
    inputs = [helper.make_tensor_value_info(k, TensorProto.FLOAT, s) for k, s in shapes.items()]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    kept = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(nodes, "empty", inputs, outputs, kept)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


node = helper.make_node
AXIS = {"axes": np.array([1])}
CASES: dict[str, tuple[list[NodeProto], Shapes, dict[str, np.ndarray]]] = {
    "product": ([node("MatMul", ["a", "b"], ["y"])], {"a": (3, 0), "b": (0, 4)}, {}),
    "batch": ([node("MatMul", ["a", "b"], ["y"])], {"a": (2, 3, 0), "b": (2, 0, 4)}, {}),
    "product and sum": (
        [node("MatMul", ["a", "w"], ["z"]), node("Add", ["z", "c"], ["y"])],
        {"a": (3, 0), "c": (3, 4)},
        {"w": drawn(0, 4)},
    ),
    "cut off": (
        [
            node("Slice", ["x", "at", "at", "axes"], ["a"]),
            node("MatMul", ["a", "w"], ["z"]),
            node("Sub", ["c", "z"], ["y"]),
        ],
        {"x": (3, 5), "c": (3, 4)},
        {"w": drawn(0, 4), "at": np.array([2])} | AXIS,
    ),
    "gemm with a computed bias": (
        [node("Gemm", ["a", "b", "c"], ["y"])],
        {"a": (3, 0), "b": (0, 4), "c": (4,)},
        {},
    ),
    "gemm with a constant bias": (
        [node("Gemm", ["a", "w", "d"], ["y"], transB=1)],
        {"a": (3, 0)},
        {"w": drawn(4, 0), "d": drawn(4)},
    ),
    "einsum": (
        [node("Einsum", ["a", "b"], ["y"], equation="ik,kj->ij")],
        {"a": (3, 0), "b": (0, 4)},
        {},
    ),
    "transposed convolution": (
        [node("ConvTranspose", ["x", "w", "d"], ["y"])],
        {"x": (1, 0, 3, 3)},
        {"w": drawn(0, 4, 3, 3), "d": drawn(4)},
    ),
    "no rows": (
        [node("MatMul", ["a", "w"], ["z"]), node("Concat", ["z", "c"], ["y"], axis=0)],
        {"a": (0, 5), "c": (2, 4)},
        {"w": drawn(5, 4)},
    ),
    "no images": (
        [node("Conv", ["x", "w"], ["z"]), node("Concat", ["z", "c"], ["y"], axis=0)],
        {"x": (0, 2, 5, 5), "c": (1, 4, 3, 3)},
        {"w": drawn(4, 2, 3, 3)},
    ),
    "sum over an empty axis": (
        [node("ReduceSum", ["x", "axes"], ["z"]), node("Add", ["z", "c"], ["y"])],
        {"x": (3, 0), "c": (3, 4)},
        AXIS,
    ),
    "product over an empty axis": (
        [node("ReduceProd", ["x", "axes"], ["z"]), node("Mul", ["z", "c"], ["y"])],
        {"x": (3, 0), "c": (3, 4)},
        AXIS,
    ),
    "expanded to nothing": (
        [node("Expand", ["x", "n"], ["z"]), node("ReduceSum", ["z", "axes"], ["y"])],
        {"x": (3, 1)},
        {"n": np.array([3, 0])} | AXIS,
    ),
    "repeated no times": (
        [node("Tile", ["x", "n"], ["z"]), node("Concat", ["z", "x"], ["y"], axis=1)],
        {"x": (3, 2)},
        {"n": np.array([1, 0])},
    ),
    "cut off by pads": (
        [node("Pad", ["x", "n"], ["z"]), node("Concat", ["z", "x"], ["y"], axis=1)],
        {"x": (3, 2)},
        {"n": np.array([0, -1, 0, -1])},
    ),
    "none of the largest": (
        [node("TopK", ["x", "n"], ["z", "i"]), node("Concat", ["z", "x"], ["y"], axis=1)],
        {"x": (3, 2)},
        {"n": np.array([0])},
    ),
    "no parts replaced": (
        [node("Relu", ["x"], ["z"]), node("ScatterND", ["z", "i", "u"], ["y"])],
        {"x": (3, 2)},
        {"i": np.zeros((0, 1), np.int64), "u": drawn(0, 2)},
    ),
    "no elements replaced": (
        [node("Relu", ["x"], ["z"]), node("ScatterElements", ["z", "i", "u"], ["y"])],
        {"x": (3, 2)},
        {"i": np.zeros((3, 0), np.int64), "u": drawn(3, 0)},
    ),
    "an empty part": (
        [node("Concat", ["x", "e"], ["y"], axis=1)],
        {"x": (3, 2), "e": (3, 0)},
        {},
    ),
}


@pytest.mark.few(6)
@pytest.mark.parametrize(
    "target", but_fast(("cpu", "cambricon", "cambricon-x", "shidiannao", SMALL_NPU), ["cpu"])
)
@pytest.mark.parametrize("name", CASES)
def test_empty_operands(name: str, target: str, tmp_path: Path) -> None:
    nodes, shapes, constants = CASES[name]
    proto = model(nodes, shapes, constants)
    inputs = {key: drawn(*shape) for key, shape in shapes.items()}
    expected = np.asarray(ort.InferenceSession(proto.SerializeToString()).run(None, inputs)[0])
    onnx.save(proto, tmp_path / "model.onnx")
    package = tilewright.compile(tmp_path / "model.onnx", target, shapes=shapes)
    outputs = package.run(inputs)
    assert package.check(inputs, outputs).equal
    assert outputs["y"].shape == expected.shape
    np.testing.assert_allclose(outputs["y"], expected, atol=1e-5 if target == "cpu" else 2e-3)


@pytest.mark.parametrize("shapes", [None, {"x": (3, 2), "e": (3, 0)}, {"e": (3, "_")}])
def test_a_size_of_0_is_one(shapes: Shapes | None) -> None:
    nodes, stated, _ = CASES["an empty part"]
    package = tilewright.compile(model(nodes, stated), "cpu", shapes=shapes)
    x = drawn(3, 2)
    np.testing.assert_array_equal(package.run({"x": x, "e": drawn(3, 0)})["y"], x)


def test_a_size_of_0_may_stand_for_one_that_is_not_known() -> None:
    proto = model([node("Relu", ["x"], ["y"])], {"x": (3, 0)})
    assert tilewright.compile(proto, "cpu").run({"x": drawn(3, 0)})["y"].shape == (3, 0)
    x = drawn(3, 4)
    outputs = tilewright.compile(proto, "cpu", shapes={"x": (3, 4)}).run({"x": x})
    np.testing.assert_array_equal(outputs["y"], np.maximum(x, 0))


@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_gemm_scales_its_bias(scale: float, tmp_path: Path) -> None:
    """By ONNX's definition; ONNX Runtime leaves the scale out here."""
    shapes: Shapes = {"a": (3, 0), "b": (0, 4), "c": (4,)}
    proto = model([node("Gemm", ["a", "b", "c"], ["y"], beta=scale)], shapes)
    onnx.save(proto, tmp_path / "model.onnx")
    package = tilewright.compile(tmp_path / "model.onnx", "cpu", shapes=shapes)
    inputs = {key: drawn(*shape) for key, shape in shapes.items()}
    outputs = package.run(inputs)
    np.testing.assert_allclose(outputs["y"], np.tile(scale * inputs["c"], (3, 1)), rtol=1e-6)


def test_convolution_of_no_channels(tmp_path: Path) -> None:
    """A sum over nothing, and the bias; ONNX Runtime does not run it."""
    shapes: Shapes = {"x": (2, 0, 5, 5)}
    constants = {"w": drawn(4, 0, 3, 3), "d": drawn(4)}
    proto = model([node("Conv", ["x", "w", "d"], ["y"])], shapes, constants)
    onnx.save(proto, tmp_path / "model.onnx")
    outputs = tilewright.compile(tmp_path / "model.onnx", "cpu", shapes=shapes).run({})
    expected = np.broadcast_to(constants["d"][:, None, None], (2, 4, 3, 3))
    np.testing.assert_array_equal(outputs["y"], expected)


def test_a_model_whose_outputs_are_all_empty(tmp_path: Path) -> None:
    """The network has no ports; a run gives the arrays. Its C builds in C++, too."""
    onnx.save(model([node("Relu", ["x"], ["y"])], {"x": (3, 0)}), tmp_path / "model.onnx")
    package = tilewright.compile(tmp_path / "model.onnx", "cpu", shapes={"x": (3, 0)})
    found = package.run({"x": np.zeros((3, 0), np.float32)})["y"]
    assert found.shape == (3, 0) and found.dtype == np.float32
    package.save(tmp_path / "package")
    program = tmp_path / "package" / "program"
    (header,) = program.glob("include/*.hpp")
    (tmp_path / "use.cpp").write_text(f'#include "{header.name}"\nint main() {{}}\n')
    flags = ["-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{header.parent}"]
    subprocess.run(["c++", *flags, str(tmp_path / "use.cpp")], check=True)


def test_the_logarithm_of_no_exponentials(tmp_path: Path) -> None:
    proto = model([node("ReduceLogSumExp", ["x"], ["y"])], {"x": (3, 0)})
    onnx.save(proto, tmp_path / "model.onnx")
    package = tilewright.compile(tmp_path / "model.onnx", "cpu", shapes={"x": (3, 0)})
    assert package.run({})["y"].tolist() == [[-np.inf]]


@pytest.mark.parametrize(
    ("operator", "shape", "attributes"),
    [("ArgMax", (3, 0), {"axis": 1})],
)
def test_what_stays_refused(
    operator: str, shape: tuple[int, ...], attributes: dict[str, Any], tmp_path: Path
) -> None:
    proto = model([node(operator, ["x"], ["y"], **attributes)], {"x": shape})
    onnx.save(proto, tmp_path / "model.onnx")
    with pytest.raises(TilewrightError, match=r"\[onnx-"):
        tilewright.compile(tmp_path / "model.onnx", "cpu", shapes={"x": shape})
