"""Attention with masks, as exporters write them, on machines of every kind of numbers: near ONNX
Runtime's result, whichever number stands for "not this one"."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.slow import but_fast

import tilewright
from tilewright.ir.types import Array

FLOAT, BOOL, INT64 = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64
FIXED = ("cambricon", "shidiannao", "examples/machines/small-npu.toml")
NEAR = {"zu2": 2**-3, "examples/machines/systolic-int8.toml": 2**-4}
"""What a result may be off, by the largest value that is attended to. Scores of 16 bits have steps
of 2**-10 at least, so that weights are 2**-9 off, and so are those of float16 up to 8; of 8 bits,
steps of 2**-4."""

TARGETS = (*FIXED, "zu2", "ascend910", "examples/machines/five-buffers.toml", *list(NEAR)[1:])
LOWEST = float(np.finfo(np.float32).min)
ABOVE = np.triu(np.ones((5, 5), bool), 1)
PLAIN: dict[str, tuple[int, list[int]]] = {
    "q": (FLOAT, [1, 2, 5, 8]),
    "k": (FLOAT, [1, 2, 8, 5]),
    "v": (FLOAT, [1, 2, 5, 8]),
}

Form = tuple[list[tuple[str, list[str], str]], dict[str, object], dict[str, tuple[int, list[int]]]]


def masked(form: str) -> Form:
    """What lies between the scores ``s`` and the softmax's operand ``x``: nodes, constants, and
    further inputs."""
    name, _, number = form.partition(" ")
    lowest = np.float32(number or LOWEST)
    forms: dict[str, Form] = {
        "added": ([("Add", ["s", "c"], "x")], {"c": np.where(ABOVE, lowest, np.float32(0))}, {}),
        "chosen": ([("Where", ["b", "c", "s"], "x")], {"b": ABOVE, "c": lowest}, {}),
        "scaled": (
            [("Add", ["s", "c"], "t"), ("Mul", ["t", "f"], "x")],
            {"c": np.where(ABOVE, lowest, np.float32(0)), "f": np.float32(0.35)},
            {},
        ),
        "twice": (
            [("Add", ["s", "c"], "t"), ("Add", ["t", "d"], "x")],
            {
                "c": np.where(ABOVE, lowest, np.float32(0)),
                "d": np.where(np.arange(5) == 4, np.float32(-1e4), np.float32(0)),
            },
            {},
        ),
        "given": ([("Add", ["s", "m"], "x")], {}, {"m": (FLOAT, [5, 5])}),
        "flags": ([("Where", ["m", "s", "c"], "x")], {"c": lowest}, {"m": (BOOL, [5, 5])}),
        "computed": (
            [
                ("Cast", ["m"], "f"),
                ("Sub", ["one", "f"], "g"),
                ("Mul", ["g", "c"], "h"),
                ("Add", ["s", "h"], "x"),
            ],
            {"one": np.float32(1), "c": lowest},
            {"m": (INT64, [1, 1, 1, 5])},
        ),
    }
    return forms[name]


def model(form: str) -> onnx.ModelProto:
    nodes, constants, inputs = masked(form)
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["q", "k"], ["s"]),
            *(
                helper.make_node(kind, names, [to], **({"to": FLOAT} if kind == "Cast" else {}))
                for kind, names, to in nodes
            ),
            helper.make_node("Softmax", ["x"], ["p"], axis=-1),
            helper.make_node("MatMul", ["p", "v"], ["y"]),
        ],
        "attention",
        [
            helper.make_tensor_value_info(name, kind, shape)
            for name, (kind, shape) in {**PLAIN, **inputs}.items()
        ],
        [helper.make_tensor_value_info("y", FLOAT, [1, 2, 5, 8])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def sample(form: str, seed: int) -> dict[str, Array]:
    """Inputs; the masks differ from sample to sample."""
    random = np.random.default_rng(seed)
    inputs: dict[str, Array] = {
        name: random.normal(size=shape).astype(np.float32) for name, (_, shape) in PLAIN.items()
    }
    number = form.partition(" ")[2]
    kept = random.permutation([1, 1, 1, 0, 0])
    for name, (kind, shape) in masked(form)[2].items():
        if kind == INT64:
            inputs[name] = kept.reshape(shape)
        elif kind == BOOL:
            inputs[name] = np.broadcast_to(kept == 1, shape)
        else:
            lowest = np.float32(number or LOWEST)
            inputs[name] = np.where(ABOVE[:, ::-1] & (kept == 0), lowest, np.float32(0))
    return inputs


def check(form: str, target: str, calibrated: bool, folder: Path) -> None:
    path = folder / "model.onnx"
    onnx.save(model(form), path)
    samples = [sample(form, seed) for seed in range(3)] if calibrated else None
    executable = tilewright.compile(path, target, calibration=samples)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for seed in (1, 7):
        inputs = sample(form, seed)
        found, (want,) = executable.run(inputs), session.run(None, inputs)
        checked = executable.check(inputs, found)
        assert checked.passed and not checked.overflows
        assert np.std(want) > 0.1
        limit = NEAR.get(target, 2**-8) * np.abs(inputs["v"]).max()
        assert np.abs(found["y"] - want).max() <= limit


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("form", "target", "calibrated"),
    [
        ("added -inf", "cambricon", True),
        ("given -inf", "shidiannao", False),
        ("computed", "examples/machines/small-npu.toml", True),
        ("chosen", "zu2", False),
        ("given", "ascend910", False),
    ],
)
def test_masks(form: str, target: str, calibrated: bool, tmp_path: Path) -> None:
    check(form, target, calibrated, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "form",
    [
        *(f"{name} {number}" for name in ("added", "given") for number in ("-1e4", "-1e9", "-inf")),
        *("added", "given", "chosen", "chosen -inf", "scaled", "scaled -inf", "twice -inf"),
        *("flags", "flags -inf", "computed", "computed -1e4"),
    ],
)
def test_every_form_of_mask(form: str, target: str, tmp_path: Path) -> None:
    for calibrated in (True, False):
        check(form, target, calibrated, tmp_path)


CAUSAL = helper.make_node("Attention", ["q", "k", "v"], ["y"], is_causal=1)


@pytest.mark.parametrize("target", ["cambricon", "zu2"])
def test_causal_attention(target: str, tmp_path: Path) -> None:
    """One operator, of operator set 23, whose mask the importer writes."""
    shape = [1, 2, 4, 8]
    graph = helper.make_graph(
        [CAUSAL],
        "causal",
        [helper.make_tensor_value_info(name, FLOAT, shape) for name in ("q", "k", "v")],
        [helper.make_tensor_value_info("y", FLOAT, shape)],
    )
    path = tmp_path / "model.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11), path
    )
    random = np.random.default_rng(2)
    inputs = {name: random.normal(size=shape).astype(np.float32) for name in ("q", "k", "v")}
    found = tilewright.compile(path, target, calibration=[inputs]).run(inputs)["y"]
    scores = inputs["q"] @ inputs["k"].swapaxes(2, 3) / np.sqrt(8)
    scores = np.where(np.triu(np.ones((4, 4), bool), 1), -np.inf, scores)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    want = weights / weights.sum(-1, keepdims=True) @ inputs["v"]
    limit = NEAR.get(target, 2**-8) * np.abs(inputs["v"]).max()
    assert np.abs(found - want).max() <= limit


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "target", but_fast(["cambricon-x", *TARGETS], ["cambricon-x", "zu2", FIXED[-1]])
)
@pytest.mark.parametrize("kind", [BOOL, FLOAT])
def test_attention_takes_masks_as_inputs(kind: int, target: str, tmp_path: Path) -> None:
    """The operator also asks the mask which rows have nothing to attend to: the host reads that off
    the mask as it is given, and the machine a mask of its own numbers."""
    shapes = {"q": [1, 2, 3, 8], "k": [1, 2, 5, 8], "v": [1, 2, 5, 8]}
    ports = [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in shapes.items()]
    graph = helper.make_graph(
        [helper.make_node("Attention", ["q", "k", "v", "m"], ["y"])],
        "attention",
        [*ports, helper.make_tensor_value_info("m", kind, [3, 5])],
        [helper.make_tensor_value_info("y", FLOAT, shapes["q"])],
    )
    opset = [helper.make_opsetid("", 23)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=10), tmp_path / "a.onnx")
    generator = np.random.default_rng(5)
    kept = np.ones((3, 5), bool)
    kept[1, 0], kept[2, 3:] = False, False
    mask = kept if kind == BOOL else np.where(kept, 0, -np.inf).astype(np.float32)
    drawn = {n: generator.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    inputs: dict[str, Array] = {**drawn, "m": mask}
    package = tilewright.compile(tmp_path / "a.onnx", target, calibration=[inputs])
    scores = drawn["q"] @ drawn["k"].transpose(0, 1, 3, 2) / np.sqrt(8)
    weights = np.exp(np.where(kept, scores, -np.inf))
    want = weights / weights.sum(-1, keepdims=True) @ drawn["v"]
    error = np.abs(package.run(inputs)["y"] - want).max()
    assert error <= NEAR.get(target, 2**-8) * np.abs(drawn["v"]).max()


@pytest.mark.few(3)
@pytest.mark.parametrize("target", ["cambricon-x", "zu2", *FIXED])
@pytest.mark.parametrize("calibrated", [True, False])
@pytest.mark.parametrize("lowest", [-1e9, LOWEST])
@pytest.mark.parametrize("shape", [[1, 4, 15], [1, 4, 9, 9]])
def test_paddings_before_maxima_set_no_binary_point(
    shape: list[int], lowest: float, calibrated: bool, target: str, tmp_path: Path
) -> None:
    axes = len(shape) - 2
    pads = np.array([0, 0, *[1] * axes] * 2)
    weights = np.random.default_rng(3).normal(0, 0.2, (6, 4, *[3] * axes)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["t"], pads=[1] * 2 * axes),
        helper.make_node("Pad", ["t", "pads", "lowest"], ["u"]),
        helper.make_node("MaxPool", ["u"], ["y"], kernel_shape=[3] * axes, strides=[2] * axes),
    ]
    graph = helper.make_graph(
        nodes,
        "padded",
        [helper.make_tensor_value_info("x", FLOAT, shape)],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [
            numpy_helper.from_array(array, name)
            for name, array in (("w", weights), ("pads", pads), ("lowest", np.float32(lowest)))
        ],
    )
    path = tmp_path / "model.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path
    )
    inputs = {"x": np.random.default_rng(4).normal(size=shape).astype(np.float32)}
    executable = tilewright.compile(path, target, calibration=[inputs] if calibrated else None)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    found, (want,) = executable.run(inputs), session.run(None, inputs)
    assert executable.check(inputs, found).passed
    assert np.abs(found["y"] - want).max() <= NEAR.get(target, 2**-8) * np.abs(want).max()


@pytest.mark.parametrize("lowest", [-np.inf, LOWEST])
def test_log_softmax_keeps_what_no_binary_point_holds(lowest: float, tmp_path: Path) -> None:
    mask = np.where(ABOVE, np.float32(lowest), np.float32(0))
    nodes = [
        helper.make_node("MatMul", ["q", "k"], ["s"]),
        helper.make_node("Add", ["s", "c"], ["x"]),
        helper.make_node("LogSoftmax", ["x"], ["y"], axis=-1),
    ]
    graph = helper.make_graph(
        nodes,
        "logarithms",
        [helper.make_tensor_value_info(name, *PLAIN[name]) for name in "qk"],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [numpy_helper.from_array(mask, "c")],
    )
    path = tmp_path / "model.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path
    )
    inputs = {name: array for name, array in sample("added", 1).items() if name in "qk"}
    executable = tilewright.compile(path, "cambricon-x", calibration=[inputs])
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    found, (want,) = executable.run(inputs)["y"], session.run(None, inputs)
    assert executable.check(inputs, {"y": found}).passed
    np.testing.assert_array_equal(found < -1e30, want < -1e30)
    seen = want > -1e30
    np.testing.assert_allclose(found[seen], want[seen], atol=2**-8 * np.abs(want[seen]).max())


@pytest.mark.parametrize("target", ["cambricon-x", "zu2"])
def test_the_range_of_integers_of_16_bits_is_their_types(target: str, tmp_path: Path) -> None:
    """Without calibration, too."""
    weights = np.random.default_rng(3).normal(0, 0.2, (6, 4, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Cast", ["x"], ["f"], to=FLOAT),
        helper.make_node("Mul", ["f", "s"], ["t"]),
        helper.make_node("Conv", ["t", "w"], ["y"], pads=[1] * 4),
    ]
    graph = helper.make_graph(
        nodes,
        "sound",
        [helper.make_tensor_value_info("x", TensorProto.INT16, [1, 4, 9, 9])],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [
            numpy_helper.from_array(weights, "w"),
            numpy_helper.from_array(np.float32(2**-15), "s"),
        ],
    )
    path = tmp_path / "model.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path
    )
    random = np.random.default_rng(4)
    inputs = {"x": random.integers(-(2**15), 2**15, (1, 4, 9, 9)).astype(np.int16)}
    executable = tilewright.compile(path, target)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    found, (want,) = executable.run(inputs), session.run(None, inputs)
    assert executable.check(inputs, found).passed
    assert np.abs(found["y"] - want).max() <= NEAR.get(target, 2**-8) * np.abs(want).max()


@pytest.mark.parametrize("number", [-1e4, -1e9])
def test_a_row_that_is_masked_altogether_is_told(number: float, tmp_path: Path) -> None:
    """In float32 -1e4 keeps the scores beside it; a format of 16 bits does not."""
    path = tmp_path / "model.onnx"
    onnx.save(model("computed" + f" {number:g}"), path)
    inputs = sample(f"computed {number:g}", 1)
    inputs["m"] = np.zeros_like(inputs["m"])
    seen = sample(f"computed {number:g}", 2)
    for target in ("cambricon-x", "ascend910"):
        executable = tilewright.compile(path, target, calibration=[seen])
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        found, (want,) = executable.run(inputs), session.run(None, inputs)
        check = executable.check(inputs, found)
        far = np.abs(found["y"] - want).max() > 0.05 * np.abs(want).max()
        if far:
            assert not check.passed
            assert "masked altogether" in str(check.model)
            assert "calibrate" not in str(check.model)


@pytest.mark.slow
@pytest.mark.parametrize("target", [*TARGETS, "cpu", "sunway", "examples/machines/mixed.toml"])
@pytest.mark.parametrize(
    ("kind", "constant"),
    [
        *(("Add", [0, value]) for value in (-np.inf, np.inf)),
        *(("Max", [0, -np.inf]), ("Min", [0, np.inf]), ("Mul", [1, np.inf])),
        *(("Clip", [-np.inf, np.inf]), ("Clip", [0, np.inf]), ("Pad", [-np.inf])),
        *(("MaxPool", [-np.inf]), ("Gemm", [0, -np.inf, 1])),
    ],
)
def test_infinite_constants_are_no_crash(
    kind: str, constant: list[float], target: str, tmp_path: Path
) -> None:
    """Where numbers of a target have no infinity, the host computes."""
    values: dict[str, Array] = {"c": np.tile(np.float32(constant), 6 // len(constant))}
    names = ["x", "c"]
    if kind in ("Pad", "MaxPool"):
        values = {"p": np.array([0, 0, 1, 1, 0, 0, 1, 1]), "c": np.float32(constant[0])}
        names = ["x", "p", "c"]
    elif kind == "Clip":
        values, names = (
            {"a": np.float32(constant[0]), "b": np.float32(constant[1])},
            ["x", "a", "b"],
        )
    elif kind == "Gemm":
        values["w"] = np.random.default_rng(4).normal(size=(6, 6)).astype(np.float32)
        names = ["x", "w", "c"]
    shape = [1, 6] if kind == "Gemm" else [1, 2, 6, 6]
    nodes = [helper.make_node("Pad" if kind == "MaxPool" else kind, names, ["y"])]
    if kind == "MaxPool":
        nodes[0].output[0] = "t"
        nodes.append(helper.make_node(kind, ["t"], ["y"], kernel_shape=[3, 3], strides=[2, 2]))
    graph = helper.make_graph(
        nodes,
        "infinite",
        [helper.make_tensor_value_info("x", FLOAT, shape)],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in values.items()],
    )
    path = tmp_path / "model.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), path
    )
    x = np.random.default_rng(5).normal(size=shape).astype(np.float32)
    executable = tilewright.compile(
        path, target, calibration=None if target in ("cpu", "sunway", "sunway-chip") else [{"x": x}]
    )
    (found,) = executable.run({"x": x}).values()
    assert executable.check({"x": x}, {"y": found}).passed
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (want,) = session.run(None, {"x": x})
    finite = np.isfinite(want)
    assert np.array_equal(found[~finite], want[~finite])
    assert np.abs(found[finite] - want[finite]).max() <= 2**-4
