"""A check sees how far results are from the model as it was written, not only from its program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tilewright.frontends.onnx import import_onnx
from tilewright.graph.dialect import network_of
from tilewright.graph.interpreter import interpret
from tilewright.graph.sensitivity import rounding_errors
from tilewright.numerics.precision import PRECISIONS, coarsest
from tilewright.runtime.model_check import LARGEST, USUAL, depth

FLOAT = TensorProto.FLOAT
MACHINES = Path(__file__).parents[2] / "examples" / "machines"


def model(
    nodes: list[tuple[str, str, str]], shape: tuple[int, ...] = (4, 16), **weights: Any
) -> onnx.ModelProto:
    """A network of ``(operator, operands, result)``, from x to y."""
    graph = helper.make_graph(
        [helper.make_node(kind, operands.split(), [result]) for kind, operands, result in nodes],
        "network",
        [helper.make_tensor_value_info("x", FLOAT, shape)],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnx.shape_inference.infer_shapes(made)


def compiled(of: onnx.ModelProto, target: str = "cpu", **options: Any) -> tilewright.Executable:
    return tilewright.compile(import_onnx(of), target, **options)


def believed(of: onnx.ModelProto, written: onnx.ModelProto, target: str) -> tilewright.Executable:
    """A network compiled as if it were another model: what a wrong pass would make of that."""
    executable = compiled(of, target)
    other = import_onnx(written)
    executable.model = lambda: (other.module, other.weights)
    return executable


def normal(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


PRODUCTS = model(
    [("MatMul", "x a", "b"), ("Relu", "b", "c"), ("MatMul", "c d", "y")],
    a=normal(16, 16, seed=2),
    d=normal(16, 8, seed=3),
)
SOFTMAX = model([("MatMul", "x a", "b"), ("Softmax", "b", "y")], a=normal(16, 16, seed=4))


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("target", "options", "element"),
    [
        ("cpu", {}, "float32"),
        ("cpu", {"numbers": "int8"}, "uint8"),
        pytest.param("cambricon", {}, "fixed16", marks=pytest.mark.slow),
        (str(MACHINES / "tokens.toml"), {}, "int8"),
        pytest.param(str(MACHINES / "five-buffers.toml"), {}, "float16", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("of", [PRODUCTS, SOFTMAX], ids=["products", "softmax"])
def test_every_format_has_a_bound_that_sound_networks_keep_and_others_do_not(
    of: onnx.ModelProto, target: str, options: dict[str, Any], element: str
) -> None:
    samples = [{"x": normal(4, 16, seed=seed)} for seed in range(9, 39)]
    executable = compiled(of, target, calibration=samples, **options)
    inputs = {"x": normal(4, 16)}
    outputs = executable.run(inputs)
    found = executable.beside_model(inputs, outputs)
    imported = import_onnx(of)
    want = interpret(imported.module, imported.weights, inputs)["y"].astype(np.float64)
    (row,) = found.outputs
    assert found.passed and not found.reason and found.element == element
    error = outputs["y"] - want
    assert row.max_error == pytest.approx(np.abs(error).max(), rel=1e-3)
    assert row.rms_error == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-3)
    assert row.largest == pytest.approx(np.abs(want).max())
    # The bound is no larger than rounded operands and the rule explain, and is enforced.
    wrong = outputs["y"].copy()
    wrong[1, 2] += np.float32(2 * row.max_allowed + 1e-3)
    failed = executable.beside_model(inputs, {"y": wrong})
    assert not failed.passed
    assert ("--calibration" in str(failed)) != PRECISIONS[element].relative
    rather = (outputs["y"] + 3 * row.rms_allowed).astype(np.float32)
    assert not executable.beside_model(inputs, {"y": rather}).passed
    check = executable.check(inputs, outputs)
    assert check.passed and check.equal and check.model == found


def test_the_bound_follows_the_rule() -> None:
    executable = compiled(PRODUCTS)
    inputs = {"x": normal(4, 16)}
    (row,) = executable.beside_model(inputs, executable.run(inputs)).outputs
    roundings = depth(network_of(import_onnx(PRODUCTS).module))
    assert roundings == 3
    expected = row.largest * 2.0**-18 * 3**0.5
    assert row.max_allowed == pytest.approx(LARGEST * expected)
    often = USUAL + (LARGEST - USUAL) / row.size**0.5
    assert row.rms_allowed == pytest.approx(often * expected)
    for precision in PRECISIONS.values():
        assert precision.expected(16) == pytest.approx(4 * precision.expected(1))
    assert coarsest({"float32", "fixed8", "int8", "int32"}) == "fixed8"
    assert coarsest({"bool", "int64"}) == "float32"


PAIR = {"s": np.float32(1), "z": np.int8(0)}
AROUND = [("QuantizeLinear", "{} s z", "{}q"), ("DequantizeLinear", "{}q s z", "{}d")]


def pair(value: str) -> list[tuple[str, str, str]]:
    return [(kind, text.format(value), name.format(value)) for kind, text, name in AROUND]


@pytest.mark.parametrize("target", ["cpu", "zu2"])
def test_a_pair_of_quantisations_that_is_taken_away_is_seen(target: str) -> None:
    """The pair rounds, and saturates at 127."""
    nodes = [*pair("x"), ("Identity", "xd", "y")]
    written = model(nodes, (1, 8), **PAIR)
    without = model([("Identity", "x", "y")], (1, 8))
    beyond = {"x": np.array([[500, 3, -700, 1, 2, 5, 7, 90]], np.float32)}
    executable = believed(without, written, target)
    check = executable.check(beyond, executable.run(beyond))
    assert check.equal and not check.passed and check.model is not None
    assert check.model.outputs[0].max_error == 572
    # Not rounded, and nothing is beyond a step: the grid tells.
    near = {"x": np.array([[100.4, 3.3, 0.7, 1.2, 2.6, 5.5, 7.1, 90.3]], np.float32)}
    found = executable.beside_model(near, executable.run(near))
    assert not found.passed and found.outputs[0].off_grid == 7
    assert "7 off the grid  <" in str(found)
    right = compiled(written, "cpu")
    for inputs in (beyond, near):
        assert right.check(inputs, right.run(inputs)).passed


@pytest.mark.slow
def test_a_mask_that_coarsens_scores_is_seen() -> None:
    """Scores that are multiples of 0.6, as a binary point for -1e4 leaves them: 16 bits are not so
    coarse, though operands that are rounded with one scale for the tensor are."""
    mask = np.where(np.tril(np.ones((8, 8))), 0, -1e4).astype(np.float32)
    attention = [("Add", "x mask", "s"), ("Softmax", "s", "p"), ("MatMul", "p v", "y")]
    of = model(attention, (8, 8), mask=mask, v=normal(8, 4, seed=5))
    x = normal(8, 8)
    executable = compiled(of, "cambricon")
    step = np.float32(0.61)
    coarse = compiled(of).run({"x": np.rint(x / step) * step})
    found = executable.beside_model({"x": x}, coarse)
    assert found.element == "fixed16" and not found.passed
    assert executable.beside_model({"x": x}, compiled(of).run({"x": x})).passed


def test_networks_that_magnify_roundings_are_given_what_they_magnify() -> None:
    """A difference of about equal numbers: far beyond a step of the result, and right."""
    of = model(
        [("Mul", "x a", "b"), ("Sub", "b c", "y")], (1, 8), a=np.float32(1.1), c=np.float32(1e4)
    )
    executable = compiled(of)
    x = {"x": (np.full((1, 8), 1e4 / 1.1) + 1e-2 * np.arange(8)).astype(np.float32)}
    y = executable.run(x)["y"]
    assert executable.beside_model(x, {"y": y + np.float32(2e-3)}).passed
    (row,) = executable.beside_model(x, {"y": y + np.float32(2e-3)}).outputs
    assert row.max_error > LARGEST * PRECISIONS["float32"].expected(2) * row.largest
    assert not executable.beside_model(x, {"y": y + np.float32(1.0)}).passed


def test_half_of_the_largest_number_is_never_allowed_where_a_scale_is_a_tensors() -> None:
    """A difference of products, 64 times: eight bits say nothing of it, nor does the bound pass."""
    of = model(
        [("MatMul", "x a", "b"), ("MatMul", "x c", "d"), ("Sub", "b d", "e"), ("Mul", "e f", "y")],
        a=normal(16, 16, seed=2),
        c=normal(16, 16, seed=2) + np.float32(0.01) * normal(16, 16, seed=4),
        f=np.float32(64),
    )
    executable = compiled(of, "zu2")
    x = {"x": normal(4, 16)}
    (row,) = executable.beside_model(x, executable.run(x)).outputs
    assert row.max_allowed <= 0.5 * row.largest
    assert not row.passed


@pytest.mark.slow
def test_what_a_format_does_not_hold_is_counted() -> None:
    """A product beyond 65504 is infinite in half precision, and finite in the model."""
    executable = compiled(model([("Mul", "x w", "y")], w=np.float32(3e4)), "ascend910")
    x = {"x": np.linspace(-4, 4, 64, dtype=np.float32).reshape(4, 16)}
    check = executable.check(x, executable.run(x))
    assert check.equal and not check.passed and check.model is not None
    (row,) = check.model.outputs
    beyond = np.count_nonzero(np.abs(x["x"] * 3e4) > 65504)
    assert row.clipped == beyond > 0 and row.saturated >= beyond
    assert f"{beyond} clipped" in str(check.model)
    assert check.to_json()["model"]["outputs"][0]["max_error"] is None


def test_rounded_operands_err_as_their_step() -> None:
    imported = import_onnx(model([("Add", "x one", "y")], (64, 64), one=np.zeros(1, np.float32)))
    x = {"x": np.linspace(1, 2, 4096, dtype=np.float32).reshape(64, 64)}
    plain = interpret(imported.module, imported.weights, x)
    worst, usual = rounding_errors(
        imported.module, imported.weights, x, plain, 2.0**-6, relative=False
    )["y"]
    assert 0.9 * 2.0**-6 < worst <= 2.0**-6 * 1.001
    assert usual == pytest.approx(2 * 2.0**-6 / 12**0.5, rel=0.05)
    worst, _ = rounding_errors(imported.module, imported.weights, x, plain, 2.0**-6, relative=True)[
        "y"
    ]
    assert 0.9 * 2.0**-6 < worst <= 2.0**-6 * 1.001


def test_a_model_that_is_not_at_hand_is_told(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(PRODUCTS, path)
    executable = tilewright.compile(path, "cpu", directory=tmp_path / "package")
    inputs = {"x": normal(4, 16)}
    outputs = executable.run(inputs)
    assert executable.check(inputs, outputs).passed
    onnx.save(SOFTMAX, path)
    check = executable.check(inputs, outputs)
    assert check.passed and check.model is not None and "written to since" in check.model.reason
    package = tilewright.Executable.load(tmp_path / "package")
    check = package.check(inputs, outputs)
    assert check.passed and check.model is not None and "not at hand" in str(check.model)


def test_free_dims_are_compared_at_each_size(tmp_path: Path) -> None:
    of = model([("MatMul", "x a", "b"), ("Softmax", "b", "y")], ("n", 16), a=normal(16, 16))  # type: ignore[arg-type]
    path = tmp_path / "model.onnx"
    onnx.save(of, path)
    executable = tilewright.compile(path, "cpu", shapes={"n": "1..8"})
    for rows in (2, 5):
        inputs = {"x": normal(rows, 16)}
        found = executable.check(inputs, executable.run(inputs)).model
        assert found is not None and found.passed and found.outputs[0].size == rows * 16


def test_an_output_without_elements_hides_no_other() -> None:
    """The other outputs are compared all the same."""
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "a"], ["y"]),
            helper.make_node("Slice", ["y", "none", "none"], ["z"]),
        ],
        "network",
        [helper.make_tensor_value_info("x", FLOAT, [4, 16])],
        [helper.make_tensor_value_info(name, FLOAT, None) for name in "yz"],
        [
            numpy_helper.from_array(normal(16, 8, seed=2), "a"),
            numpy_helper.from_array(np.array([0], np.int64), "none"),
        ],
    )
    opset = [helper.make_opsetid("", 17)]
    of = onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=opset))
    executable, inputs = compiled(of), {"x": normal(4, 16)}
    outputs = executable.run(inputs)
    assert outputs["z"].shape == (0, 8)
    found = executable.beside_model(inputs, outputs)
    assert found.passed and not found.reason and [row.name for row in found.outputs] == ["y"]
    wrong = {**outputs, "y": outputs["y"] + np.float32(1)}
    assert not executable.check(inputs, wrong).passed
