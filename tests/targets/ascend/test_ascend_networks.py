"""Networks on the DaVinci targets: products and points there, the rest on the host."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from tests.slow import but_fast

import tilewright
from tilewright.errors import TilewrightError
from tilewright.graph.dialect import KernelOp, network_of
from tilewright.runtime.executable import Executable
from tilewright.runtime.manifest import Manifest
from tilewright.system.typed_json import from_json
from tilewright.targets.ascend import lower
from tilewright.targets.ascend.lowering.launches import Launches
from tilewright.targets.ascend.runner import AscendRunner

APART: Mapping[str, Any] = {"fusion": "off"}
"""Of a machine whose kernels are no chains."""


def perceptron(
    path: Path, rows: int, sizes: tuple[int, ...], *, scale: float = 1.0, seed: int = 0
) -> Path:
    """Gemm and Relu, alternately; then x * x + x, Clip and Softmax."""
    random = np.random.default_rng(seed)
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []
    value = "x"
    for number, (depth, columns) in enumerate(pairwise(sizes)):
        weight = random.normal(0, scale / np.sqrt(depth), (columns, depth)).astype(np.float32)
        bias = random.normal(0, 0.3, columns).astype(np.float32)
        weights += [
            numpy_helper.from_array(weight, f"w{number}"),
            numpy_helper.from_array(bias, f"b{number}"),
        ]
        gemm = helper.make_node(
            *("Gemm", [value, f"w{number}", f"b{number}"], [f"g{number}"]),
            name=f"gemm{number}",
            transB=1,
        )
        nodes += [gemm, helper.make_node("Relu", [f"g{number}"], [f"r{number}"])]
        value = f"r{number}"
    weights += [
        numpy_helper.from_array(np.array(bound, np.float32), f"m{bound}") for bound in (0, 2)
    ]
    nodes += [
        helper.make_node("Mul", [value, value], ["square"]),
        helper.make_node("Add", ["square", value], ["sum"]),
        helper.make_node("Clip", ["sum", "m0", "m2"], ["clipped"]),
        helper.make_node("Softmax", ["clipped"], ["y"], name="softmax"),
    ]
    graph = helper.make_graph(
        nodes,
        "perceptron",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, sizes[0]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, sizes[-1]])],
        weights,
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def convolutions(path: Path, channels: int, size: int, results: int) -> Path:
    """A strided convolution, one with a residual, relu, and a product behind the pool."""
    random = np.random.default_rng(3)
    weights: dict[str, NDArray[np.float32]] = {}
    for name, shape in (
        ("w0", (results, channels, 3, 3)),
        ("w1", (results, results, 3, 3)),
        ("w2", (10, results)),
    ):
        depth = np.sqrt(np.prod(shape[1:]))
        weights[name] = (random.normal(0, 1, shape) / depth).astype(np.float32)
        weights[name.replace("w", "b")] = random.normal(0, 0.3, shape[0]).astype(np.float32)
    nodes = [
        helper.make_node(
            *("Conv", ["x", "w0", "b0"], ["a"], "first"),
            kernel_shape=[3, 3],
            strides=[2, 2],
            pads=[1, 0, 1, 2],
        ),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node(
            *("Conv", ["r", "w1", "b1"], ["b"], "second"),
            kernel_shape=[3, 3],
            dilations=[2, 2],
            pads=[2, 2, 2, 2],
        ),
        helper.make_node("Add", ["b", "r"], ["sum"]),
        helper.make_node("Relu", ["sum"], ["s"]),
        helper.make_node("GlobalAveragePool", ["s"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("Gemm", ["f", "w2", "b2"], ["y"], "classifier", transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "convolutions",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, channels, size, size])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 10])],
        [numpy_helper.from_array(data, name) for name, data in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


@pytest.mark.parametrize("case", but_fast([(3, 20, 17), (1, 15, 33), (20, 13, 16)], [(1, 15, 33)]))
def test_convolutions(case: tuple[int, int, int], tmp_path: Path) -> None:
    """All convolutions and products on the core, with every channel count."""
    channels, size, _ = case
    path = convolutions(tmp_path / "model.onnx", *case)
    executable = tilewright.compile(path, target="ascend910")
    kernels = [op for op in network_of(executable.graph).walk() if isinstance(op, KernelOp)]
    there = [op.symbol.data for op in kernels if not op.on_host]
    for name in ("first", "second", "classifier"):
        assert any(symbol.endswith(name) for symbol in there)
    random = np.random.default_rng(5)
    given = {"x": random.normal(0, 1, (1, channels, size, size)).astype(np.float32)}
    found = executable.run(given)["y"]
    assert executable.check(given, {"y": found}).equal
    np.testing.assert_allclose(found, reference(path, given), atol=5e-3)


def attention(path: Path, tokens: int, heads: int, size: int) -> Path:
    """Products of attention, without what lies between scores and their use."""
    width = heads * size
    random = np.random.default_rng(7)
    weights = {
        f"w{name}": (random.normal(0, 1, (width, width)) / np.sqrt(width)).astype(np.float32)
        for name in "qkvo"
    }
    constants = {
        "split": np.array([1, tokens, heads, size]),
        "flat": np.array([1, tokens, width]),
    }
    nodes: list[onnx.NodeProto] = []
    for name, order in (("q", (0, 2, 1, 3)), ("k", (0, 2, 3, 1)), ("v", (0, 2, 1, 3))):
        nodes += [
            helper.make_node("MatMul", ["x", f"w{name}"], [name], name),
            helper.make_node("Reshape", [name, "split"], [f"{name}s"]),
            helper.make_node("Transpose", [f"{name}s"], [f"{name}t"], perm=order),
        ]
    nodes += [
        helper.make_node("MatMul", ["qt", "kt"], ["scores"], "scores"),
        helper.make_node("MatMul", ["scores", "vt"], ["mixed"], "mixed"),
        helper.make_node("Transpose", ["mixed"], ["back"], perm=(0, 2, 1, 3)),
        helper.make_node("Reshape", ["back", "flat"], ["joined"]),
        helper.make_node("MatMul", ["joined", "wo"], ["y"], "out"),
    ]
    shape = [1, tokens, width]
    graph = helper.make_graph(
        nodes,
        "attention",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(data, name) for name, data in {**weights, **constants}.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def test_no_data_move_between_consecutive_products(tmp_path: Path) -> None:
    """Heads are split and joined, and keys transposed, by addresses; formats change where values
    come in and go out, and nowhere else."""
    path = attention(tmp_path / "model.onnx", 32, 2, 48)
    executable = tilewright.compile(path, target="ascend910", values=APART)
    kernels = [op for op in network_of(executable.graph).walk() if isinstance(op, KernelOp)]
    operations = [one.operation for op in kernels for one in op.operations[:1]]  # type: ignore[union-attr]
    assert sorted(operations) == ["cast"] * 2 + ["convert_layout"] * 2 + ["matmul"] * 6
    given = {"x": np.random.default_rng(1).normal(0, 0.3, (1, 32, 96)).astype(np.float32)}
    found = executable.run(given)["y"]
    assert executable.check(given, {"y": found}).equal
    expected = reference(path, given)
    np.testing.assert_allclose(found, expected, atol=4e-3 * np.abs(expected).max())


def test_depthwise_convolutions(tmp_path: Path) -> None:
    """By diagonals; other groups as groups of whole blocks."""
    random = np.random.default_rng(3)
    shapes = {"w0": (33, 1, 3, 3), "w1": (33, 11, 3, 3)}
    weights = {name: random.normal(0, 0.3, shape) for name, shape in shapes.items()}
    weights["b0"] = random.normal(0, 1, 33)
    nodes = [
        helper.make_node(
            *("Conv", ["x", "w0", "b0"], ["a"], "depthwise"),
            kernel_shape=[3, 3],
            strides=[2, 1],
            pads=[1, 1, 1, 1],
            group=33,
        ),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node(*("Conv", ["r", "w1"], ["y"], "grouped"), kernel_shape=[3, 3], group=3),
    ]
    graph = helper.make_graph(
        nodes,
        "depthwise",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 33, 13, 15])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 33, 5, 13])],
        [numpy_helper.from_array(w.astype(np.float32), name) for name, w in weights.items()],
    )
    path = tmp_path / "model.onnx"
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    executable = tilewright.compile(path, target="ascend910")
    kernels = [op for op in network_of(executable.graph).walk() if isinstance(op, KernelOp)]
    there = [op.symbol.data for op in kernels if not op.on_host]
    assert any(symbol.endswith("depthwise") for symbol in there)
    given = {"x": random.normal(0, 1, (1, 33, 13, 15)).astype(np.float32)}
    found = executable.run(given)["y"]
    assert executable.check(given, {"y": found}).equal
    np.testing.assert_allclose(found, reference(path, given), atol=2e-2)


def inputs(rows: int, columns: int, seed: int = 1) -> dict[str, NDArray[np.float32]]:
    random = np.random.default_rng(seed)
    return {"x": random.normal(0, 1, (rows, columns)).astype(np.float32)}


def reference(path: Path, given: dict[str, NDArray[np.float32]]) -> NDArray[np.float32]:
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, given)[0]


@pytest.mark.few(1)
@pytest.mark.parametrize("target", ["ascend910", "ascend310"])
@pytest.mark.parametrize(
    "case",
    but_fast(
        [(33, (50, 100, 10)), (1, (784, 128, 10)), (70, (64, 96, 48, 17))], [(33, (50, 100, 10))]
    ),
)
def test_perceptrons(target: str, case: tuple[int, tuple[int, ...]], tmp_path: Path) -> None:
    rows, sizes = case
    path = perceptron(tmp_path / "model.onnx", rows, sizes)
    executable = tilewright.compile(path, target=target)
    given = inputs(rows, sizes[0])
    found = executable.run(given)["y"]
    assert executable.check(given, {"y": found}).equal
    np.testing.assert_allclose(found, reference(path, given), atol=2e-3)


def built(folder: Path, rows: int = 20) -> tuple[Executable, dict[str, NDArray[np.float32]]]:
    path = perceptron(folder / "model.onnx", rows, (40, 24, 10))
    return tilewright.compile(path, target="ascend910"), inputs(rows, 40)


def test_kernels_alike_share_a_function(tmp_path: Path) -> None:
    path = perceptron(tmp_path / "model.onnx", 20, (32, 32, 32))
    executable = tilewright.compile(path, target="ascend910", values=APART)
    given = inputs(20, 32)
    found = executable.run(given)["y"]
    assert executable.check(given, {"y": found}).equal
    runner = executable.runner
    assert isinstance(runner, AscendRunner)
    products = [one.function for one in runner.launches if one.function.endswith("_matmul")]
    assert len(products) == 2
    assert len(set(products)) == 1
    np.testing.assert_allclose(found, reference(path, given), atol=2e-3)


def test_a_network_on_the_core(tmp_path: Path) -> None:
    executable, given = built(tmp_path)
    kernels = [op for op in network_of(executable.graph).walk() if isinstance(op, KernelOp)]
    there = [op.symbol.data for op in kernels if not op.on_host]
    assert len(there) >= 3
    assert len(there) == len(kernels)
    found = executable.run(given)
    assert executable.check(given, found).equal
    profile = executable.profile
    assert profile.cycles is not None
    assert profile.cycles > 0
    assert profile.engines["m"] > 0
    runner = executable.runner
    assert isinstance(runner, AscendRunner)
    for order in (1, 9, 12, 99):
        runner.order = order
        np.testing.assert_array_equal(executable.run(given)["y"], found["y"])


def test_a_check_allows_roundings_and_no_more(tmp_path: Path) -> None:
    executable, given = built(tmp_path)
    results = executable.run(given)["y"]
    wrong = results.copy()
    wrong[3, 4] += 3e-2 * results.max()
    check = executable.check(given, {"y": wrong})
    assert not check.equal
    assert check.mismatches == 1


def test_saved_packages_are_the_same_bytes_and_run(tmp_path: Path) -> None:
    executable, given = built(tmp_path)
    again, _ = built(tmp_path)
    for name in ("launches.json", "constants.bin", "program.json"):
        folders = (one.content / "program" for one in (executable, again))
        first, second = ((folder / name).read_bytes() for folder in folders)
        assert first == second
    saved = executable.save(tmp_path / "package")
    found = Executable.load(saved).run(given)["y"]
    np.testing.assert_array_equal(found, executable.run(given)["y"])
    assert sorted(path.name for path in (saved / "program" / "cce").glob("*_matmul.c"))


def test_weights_beyond_half_precision_fall_to_the_host(tmp_path: Path) -> None:
    path = perceptron(tmp_path / "model.onnx", 4, (16, 8), scale=1e6)
    executable = tilewright.compile(path, target="ascend910")
    kernels = [op for op in network_of(executable.graph).walk() if isinstance(op, KernelOp)]
    reasons = [op.reason.data for op in kernels if op.on_host and op.reason is not None]
    assert any("half precision ends at 65504" in reason for reason in reasons)


def test_damaged_packages_are_refused(tmp_path: Path) -> None:
    executable, given = built(tmp_path)
    saved = executable.save(tmp_path / "package")
    launches = saved / "program" / "launches.json"
    text = launches.read_text()
    launches.write_text(text.replace("operand", "operator", 1))
    with pytest.raises(TilewrightError, match="package-"):
        Executable.load(saved).run({})
    for kind, key, value in (("operand", "bytes", 1), ("result", "number", 7)):
        data = json.loads(text)
        arguments = [one for launch in data["launches"] for one in launch["arguments"]]
        for argument in arguments:
            if argument["kind"] == kind:
                argument[key] = value
        launches.write_text(json.dumps(data))
        from_json(Manifest, (saved / "manifest.json").read_text()).write(saved)
        with pytest.raises(TilewrightError, match="package-invalid"):
            Executable.load(saved).run(given)


def gram(path: Path, channels: int, rows: int, columns: int) -> Path:
    """A pooled image's maps, each times its own transpose."""
    shape = [1, channels, rows + 1, 2 * columns]
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p"], "pool", kernel_shape=[2, 2], strides=[1, 2]),
        helper.make_node("LeakyRelu", ["p"], ["r"], "relu", alpha=0.25),
        helper.make_node("Transpose", ["r"], ["t"], "transpose", perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["r", "t"], ["y"], "product"),
    ]
    graph = helper.make_graph(
        nodes,
        "gram",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def test_images_become_transposed_operands(tmp_path: Path) -> None:
    """NC1HWC0 to Nz of the transposes: a copy that no node of the model asks for."""
    package = tilewright.compile(gram(tmp_path / "gram.onnx", 16, 5, 3), "ascend910")
    engines = {node: kernel.engine for kernel in package.manifest.kernels for node in kernel.nodes}
    assert engines["product"] == "accelerator"
    inputs = {"x": np.random.default_rng(4).normal(size=(1, 16, 6, 6)).astype(np.float32)}
    outputs = package.run(inputs)
    assert package.check(inputs, outputs).equal
    halves = inputs["x"].astype(np.float16).astype(np.float32)
    pooled = halves.reshape(1, 16, 6, 3, 2).max(4)
    pooled = np.maximum(pooled[:, :, :5], pooled[:, :, 1:])
    leaky = np.where(pooled > 0, pooled, pooled * 0.25)
    np.testing.assert_allclose(outputs["y"], leaky @ leaky.swapaxes(2, 3), rtol=2e-3, atol=2e-3)


def test_copies_that_cannot_be_lowered_run_on_the_host_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(launches: Launches, *_: object) -> None:
        raise launches.refusal("there is no such change of format")

    monkeypatch.setattr(lower, "moved", refuse)
    package = tilewright.compile(gram(tmp_path / "gram.onnx", 16, 5, 3), "ascend910")
    inputs = {"x": np.random.default_rng(5).normal(size=(1, 16, 6, 6)).astype(np.float32)}
    assert package.check(inputs, package.run(inputs)).equal
    on_host = [kernel for kernel in package.manifest.kernels if kernel.engine == "host"]
    assert on_host and not any(kernel.nodes for kernel in on_host)
    assert all("no such change of format" in kernel.reason for kernel in on_host)
