"""What a target's instructions cannot say runs on the host: with the reason, and checked."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

import tilewright
from tests.slow import but_fast
from tilewright.cli.main import app
from tilewright.compiler.pipeline import advance, resolve, run_pipeline
from tilewright.errors import KernelError, Problem, TilewrightError
from tilewright.frontends.onnx import import_onnx
from tilewright.graph.dialect import KernelOp, network_of
from tilewright.report.explain import explain

ROOT = Path(__file__).parents[2]
SMALL_NPU = str(ROOT / "examples" / "machines" / "small-npu.toml")
FIXED_POINT = ("cambricon", "cambricon-x", "shidiannao", SMALL_NPU)
MIXED, *_ = OTHER_MACHINES = [
    str(ROOT / "examples" / "machines" / f"{name}.toml")
    for name in ("mixed", "systolic-int8", "five-buffers")
]
TARGETS = (*FIXED_POINT, *OTHER_MACHINES, "zu2", "ascend910", "sunway")
OTHERS = [target for target in TARGETS if target != SMALL_NPU]


def network(
    nodes: list[tuple[str, str, str, dict[str, Any]]],
    constants: dict[str, np.ndarray] | None = None,
    **inputs: tuple[int, ...],
) -> onnx.ModelProto:
    """A model of nodes (operator, inputs, output, attributes); its output is the last node's."""
    made = [
        helper.make_node(operator, takes.split(), [gives], f"{gives}_node", **attributes)
        for operator, takes, gives, attributes in nodes
    ]
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, s) for name, s in inputs.items()
    ]
    output = helper.make_tensor_value_info(nodes[-1][2], TensorProto.FLOAT, None)
    kept = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(made, "net", values, [output], kept)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return onnx.shape_inference.infer_shapes(model)


def drawn(*shape: int) -> np.ndarray:
    return (np.random.default_rng(sum(shape)).standard_normal(shape) / 4).astype(np.float32)


def attention() -> onnx.ModelProto:
    shape = (1, 2, 8, 16)
    return network(
        [
            ("Transpose", "k", "turned", {"perm": [0, 1, 3, 2]}),
            ("MatMul", "q turned", "scores", {}),
            ("Softmax", "scores", "weights", {"axis": -1}),
            ("MatMul", "weights v", "y", {}),
        ],
        q=shape,
        k=shape,
        v=shape,
    )


def linear_gelu_linear() -> onnx.ModelProto:
    constants = {
        "w1": drawn(16, 32),
        "b1": drawn(32),
        "w2": drawn(32, 16),
        "b2": drawn(16),
        "root": np.float32(2**0.5),
        "one": np.float32(1),
        "half": np.float32(0.5),
    }
    nodes: list[tuple[str, str, str, dict[str, Any]]] = [
        ("MatMul", "x w1", "product", {}),
        ("Add", "product b1", "hidden", {}),
        ("Div", "hidden root", "scaled", {}),
        ("Erf", "scaled", "error", {}),
        ("Add", "error one", "shifted", {}),
        ("Mul", "hidden shifted", "gated", {}),
        ("Mul", "gated half", "gelu", {}),
        ("MatMul", "gelu w2", "second", {}),
        ("Add", "second b2", "y", {}),
    ]
    return network(nodes, {k: np.asarray(v) for k, v in constants.items()}, x=(1, 4, 4, 16))


def heads_of_one_product() -> onnx.ModelProto:
    """Queries, keys and values by a transpose of five axes, which no reshape makes four."""
    return network(
        [
            ("MatMul", "x w", "all", {}),
            ("Reshape", "all apart", "five", {}),
            ("Transpose", "five", "turned", {"perm": [2, 0, 3, 1, 4]}),
            ("Gather", "turned zero", "q", {"axis": 0}),
            ("Gather", "turned one", "k", {"axis": 0}),
            ("Transpose", "k", "keys", {"perm": [0, 1, 3, 2]}),
            ("MatMul", "q keys", "y", {}),
        ],
        {
            "w": drawn(16, 48),
            "apart": np.array([2, 8, 3, 2, 8]),
            "zero": np.array(0),
            "one": np.array(1),
        },
        x=(2, 8, 16),
    )


def channel_shuffle() -> onnx.ModelProto:
    return network(
        [
            ("Conv", "x w", "c", {}),
            ("Reshape", "c apart", "five", {}),
            ("Transpose", "five", "turned", {"perm": [0, 2, 1, 3, 4]}),
            ("Reshape", "turned whole", "shuffled", {}),
            ("Conv", "shuffled w", "y", {}),
        ],
        {
            "w": drawn(16, 16, 1, 1),
            "apart": np.array([2, 4, 4, 6, 6]),
            "whole": np.array([2, 16, 6, 6]),
        },
        x=(2, 16, 6, 6),
    )


MODELS = {
    "attention": attention(),
    "linear, GELU, linear of rank 4": linear_gelu_linear(),
    "ranks 4 and 3": network([("Max", "x z", "y", {})], x=(2, 4, 6, 6), z=(4, 6, 6)),
    "ranks 4 and 2": network(
        [("Conv", "x w", "c", {}), ("Add", "c z", "y", {})],
        {"w": drawn(4, 4, 1, 1)},
        x=(1, 4, 6, 6),
        z=(6, 6),
    ),
    "matrix and scalar": network([("Mul", "x z", "y", {})], x=(4, 4), z=()),
    "softmax of an image's rows": network([("Softmax", "x", "y", {"axis": 3})], x=(1, 3, 4, 5)),
    "softmax of an image's channels": network([("Softmax", "x", "y", {"axis": 1})], x=(1, 3, 4, 5)),
    "mean of a large window": network(
        [("AveragePool", "x", "y", {"kernel_shape": [363, 363]})], x=(1, 1, 364, 363)
    ),
    "dilation of one tap": network(
        [("Conv", "x w", "y", {"dilations": [256, 256]})], {"w": drawn(4, 3, 1, 1)}, x=(1, 3, 6, 6)
    ),
    "taps in padding": network(
        [("Conv", "x w", "y", {"dilations": [7, 7], "pads": [9, 9, 9, 9]})],
        {"w": drawn(4, 3, 3, 3)},
        x=(1, 3, 5, 5),
    ),
    "concatenation of many": network(
        [("Relu", "x", "r", {}), ("Concat", "r " * 150, "y", {"axis": 0})], x=(3, 2)
    ),
    "sum of many": network([("Relu", "x", "r", {}), ("Sum", "r x " * 12, "y", {})], x=(3, 2)),
    "groups of one position": network(
        [("Conv", "x w b", "y", {"group": 8})],
        {"w": drawn(120, 1, 1, 1), "b": drawn(120)},
        x=(2, 8, 1, 1),
    ),
    "transposed matrix": network(
        [("Gemm", "x w b", "y", {"transA": 1})], {"w": drawn(24, 16), "b": drawn(16)}, x=(24, 7)
    ),
    "batch of vectors": network([("MatMul", "x w", "y", {})], {"w": drawn(24, 24)}, x=(3, 1, 24)),
    "batch of small images": network(
        [("BatchNormalization", "x scale bias mean variance", "y", {})],
        {n: np.abs(drawn(2)) + 1 for n in ("scale", "bias", "mean", "variance")},
        x=(2, 2),
    ),
    "softmax along rows": network([("Softmax", "x", "y", {"axis": 0})], x=(5, 7)),
    "heads of one product": heads_of_one_product(),
    "channel shuffle": channel_shuffle(),
    "depth to space": network(
        [("Conv", "x w", "c", {}), ("DepthToSpace", "c", "y", {"blocksize": 2})],
        {"w": drawn(16, 4, 1, 1)},
        x=(2, 4, 5, 3),
    ),
    "transposed convolution": network(
        [("ConvTranspose", "x w", "y", {"strides": [2, 2]})],
        {"w": drawn(4, 6, 3, 3)},
        x=(2, 4, 5, 6),
    ),
    "every second": network(
        [("Slice", "x begin end axes steps", "y", {})],
        {
            "begin": np.array([1]),
            "end": np.array([32]),
            "axes": np.array([1]),
            "steps": np.array([2]),
        },
        x=(9, 32),
    ),
    "convolution of volumes": network(
        [("Conv", "x w b", "y", {"group": 5, "pads": [0, 0, 3, 0, 1, 1], "strides": [3, 3, 3]})],
        {"w": drawn(10, 1, 2, 2, 4), "b": drawn(10)},
        x=(1, 5, 2, 2, 4),
    ),
    "gather of rank 5": network(
        [("Gather", "x indices", "y", {"axis": 4})],
        {"indices": np.array([[3, 0, 1], [1, 1, 2]])},
        x=(1, 20, 4, 5, 4),
    ),
    "rank 5": network([("Abs", "x", "y", {})], x=(2, 3, 2, 3, 2)),
    "rank 6": network(
        [("Mul", "x z", "product", {}), ("Relu", "product", "y", {})],
        x=(2, 2, 2, 2, 3, 2),
        z=(2, 3, 1),
    ),
}


@pytest.mark.slow_cases(12)
@pytest.mark.few(8)
@pytest.mark.parametrize("target", but_fast(TARGETS, [SMALL_NPU]))
@pytest.mark.parametrize("name", MODELS)
def test_host_runs_what_the_target_cannot(name: str, target: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(MODELS[name], path)
    package = tilewright.compile(path, target)
    random = np.random.default_rng(1)
    for _ in range(2):
        inputs = {
            value.name: np.asarray(
                random.standard_normal([d.dim_value for d in value.type.tensor_type.shape.dim]),
                np.float32,
            )
            for value in MODELS[name].graph.input
        }
        assert package.check(inputs, package.run(inputs)).equal
    # Explaining takes as long as compiling: each model on two targets.
    if target not in (SMALL_NPU, OTHERS[[*MODELS].index(name) % len(OTHERS)]):
        return
    found, machine = resolve(target)
    explanation = explain(path, found, machine)
    hosted = {kernel.name: kernel for kernel in package.manifest.kernels if kernel.engine == "host"}
    told = [fate for fate in explanation.nodes if fate.kernels]
    assert told
    for fate in told:
        assert (fate.place == "host") == any(kernel in hosted for kernel in fate.kernels), fate
        if fate.place == "host":
            assert fate.objection is not None
            reasons = {hosted[kernel].reason for kernel in fate.kernels if kernel in hosted}
            assert all(reasons), "every kernel on the host has its reason"
            assert any(fate.objection.reason in reason for reason in reasons), (fate, reasons)


@pytest.mark.few(2)
@pytest.mark.parametrize("target", but_fast(FIXED_POINT, ["cambricon", "shidiannao"]))
@pytest.mark.parametrize("name", ["attention", "linear, GELU, linear of rank 4"])
def test_products_of_every_rank_run_on_the_accelerator(
    name: str, target: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(MODELS[name], path)
    package = tilewright.compile(path, target)
    engines = {node: k.engine for k in package.manifest.kernels for node in k.nodes}
    products = [node for node in MODELS[name].graph.node if node.op_type == "MatMul"]
    assert {engines[node.name] for node in products} == {"accelerator"}
    inputs = {
        value.name: drawn(*(d.dim_value for d in value.type.tensor_type.shape.dim))
        for value in MODELS[name].graph.input
    }
    outputs = package.run(inputs, check_races=True)
    assert package.check(inputs, outputs).equal
    session = ort.InferenceSession(MODELS[name].SerializeToString())
    expected = np.asarray(session.run(None, inputs)[0])
    np.testing.assert_allclose(outputs["y"], expected, atol=4e-3)


@pytest.mark.few(1)
@pytest.mark.parametrize("target", but_fast(OTHER_MACHINES, [MIXED]))
@pytest.mark.parametrize(
    ("name", "nodes"), [("heads of one product", {"turned_node"}), ("channel shuffle", set())]
)
def test_nothing_innocent_goes_to_the_host(
    name: str, nodes: set[str], target: str, tmp_path: Path
) -> None:
    """A pass makes a kernel of the transpose once all others are formed: it alone is refused, and
    not at all where axes that stay side by side leave four."""
    path = tmp_path / "model.onnx"
    onnx.save(MODELS[name], path)
    kernels = tilewright.compile(path, target).manifest.kernels
    refused = {node for k in kernels if "[lower-" in k.reason for node in k.nodes}
    assert refused == nodes
    products = {n.name for n in MODELS[name].graph.node if n.op_type in ("MatMul", "Conv")}
    assert products <= {node for k in kernels if k.engine == "accelerator" for node in k.nodes}


@pytest.mark.few(3)
@pytest.mark.parametrize("kind", [TensorProto.INT64, TensorProto.INT32, TensorProto.DOUBLE])
@pytest.mark.parametrize("name", ["replies", "five-buffers"])
def test_machines_of_floats_compute_on_nothing_else(name: str, kind: int, tmp_path: Path) -> None:
    """Whole numbers and doubles, of which units would read the bytes as floats."""
    nodes = [
        helper.make_node("Add", ["x", "z"], ["sum"], name="sum_node"),
        helper.make_node("Relu", ["sum"], ["y"], name="y_node"),
    ]
    ends = [helper.make_tensor_value_info(n, kind, (3, 5, 2)) for n in "xzy"]
    graph = helper.make_graph(nodes, "wide", ends[:2], ends[2:])
    path = tmp_path / "wide.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    package = tilewright.compile(path, str(ROOT / "examples" / "machines" / f"{name}.toml"))
    assert all(k.engine == "host" and k.reason for k in package.manifest.kernels)
    random, dtype = np.random.default_rng(1), helper.tensor_dtype_to_np_dtype(kind)
    x, z = (random.integers(-(2**30), 2**30, (3, 5, 2)).astype(dtype) for _ in range(2))
    outputs = package.run({"x": x, "z": z}, check_races=True)
    np.testing.assert_array_equal(outputs["y"], np.maximum(x + z, 0))


@pytest.mark.parametrize("name", ["heads of one product", "rank 5"])
def test_plan_and_compile_agree(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(MODELS[name], path)
    result = CliRunner().invoke(app, ["plan", str(path), "-t", MIXED, "--json", "--quiet"])
    rows = json.loads(result.output)["kernels"]
    planned = {row["name"]: (row["engine"], row.get("reason", "")) for row in rows}
    kernels = tilewright.compile(path, MIXED).manifest.kernels
    assert planned == {kernel.name: (kernel.engine, kernel.reason) for kernel in kernels}
    assert any(engine == "host" for engine, _ in planned.values())


@pytest.mark.parametrize("target", ("cpu", *TARGETS))
def test_nodes_with_too_many_operands_are_refused_at_once(target: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(network([("Concat", "x " * 1100, "y", {"axis": 0})], x=(3, 2)), path)
    with pytest.raises(TilewrightError, match=r"onnx-too-large.*1100 inputs.*limit is 1024"):
        tilewright.compile(path, target)


@pytest.mark.parametrize("step", ["_input", "_product", ""])
def test_a_refused_step_of_a_method_leaves_the_convolution_on_the_machine(step: str) -> None:
    """By its own method; where that is refused, too, the host has it."""
    nodes = [("Conv", "x w", "y", {"pads": [1, 1, 1, 1]})]
    model = network(nodes, {"w": drawn(64, 64, 3, 3)}, x=(1, 64, 28, 28))
    target, machine = resolve("sunway")
    state = run_pipeline(import_onnx(model), target, machine, until="numbers, layouts, memory")

    def kernels() -> list[KernelOp]:
        ops = network_of(state.network).walk()
        return [op for op in ops if isinstance(op, KernelOp)]

    def refused(symbol: str) -> KernelOp:
        """The convolution after a refusal of one kernel."""
        refusals = [KernelError(symbol, [Problem("lower-test", "no instruction says it", symbol)])]

        def refuse_once() -> None:
            if refusals:
                raise refusals.pop()

        advance(state, (), refuse_once)
        (kernel,) = [op for op in kernels() if op.operations[0].name == "graph.conv"]
        return kernel

    assert len(kernels()) == 3
    name = kernels()[-1].symbol.data
    assert not refused(name + step).on_host
    kernel = refused(name)
    assert kernel.on_host and kernel.reason is not None
    assert "no instruction says it" in kernel.reason.data
