"""Infinities in inputs: where a check finds them, beside ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import helper

import tilewright
from tests.frontends.onnx.onnx_models import model_of, noise, onnxruntime_of, single
from tilewright.frontends import phases
from tilewright.frontends.onnx import import_onnx
from tilewright.graph.interpreter import interpret
from tilewright.graph.operations import parse
from tilewright.graph.passes.take_steps import TakeSteps, has_steps
from tilewright.ir import Context

TRANSPOSED = single(
    "ConvTranspose", [(1, 6, 9, 9), noise(6, 4, 3, 3)], strides=[2, 2], pads=[1] * 4
)
RESIZED = single(
    "Resize",
    [(1, 6, 9, 9), np.array([], np.float32), np.array([1, 1, 2, 2], np.float32)],
    mode="linear",
)
GROUPED = single("Conv", [(1, 6, 9, 9), noise(12, 2, 3, 3)], group=3, pads=[1] * 4)


def one_infinity(place: tuple[int, ...] = (0, 0, 4, 4)) -> dict[str, np.ndarray]:
    x = noise(1, 6, 9, 9, seed=3)
    x[place] = np.inf
    return {"x0": x}


@pytest.mark.parametrize(
    ("model", "target", "kept_apart"),
    [
        (TRANSPOSED, "cpu", False),
        (TRANSPOSED, "ascend910", True),
        (RESIZED, "cpu", False),
        (GROUPED, "cpu", True),
        (GROUPED, "ascend910", False),
    ],
    ids=["transposed-cpu", "transposed-ascend", "resized-cpu", "grouped-cpu", "grouped-ascend"],
)
def test_a_check_counts_numbers_that_infinities_took(
    model: onnx.ModelProto, target: str, kept_apart: bool
) -> None:
    feeds = one_infinity()
    executable = tilewright.compile(import_onnx(model), target)
    outputs = executable.run(feeds)
    check = executable.check(feeds, outputs)
    (row,) = check.model.outputs  # type: ignore[union-attr]
    ((_, want),) = onnxruntime_of(model, feeds).items()
    (got,) = outputs.values()
    assert check.equal
    assert row.not_finite == (np.isfinite(want) & ~np.isfinite(got)).sum()
    assert row.saturated == row.clipped == 0
    assert check.passed == kept_apart == (row.not_finite == 0)
    assert ("spread them (docs/faq.md)" in str(check.model)) == (not kept_apart)


@pytest.mark.parametrize("model", [TRANSPOSED, RESIZED, GROUPED])
def test_an_imported_operator_keeps_infinities_within_its_windows(model: onnx.ModelProto) -> None:
    for place in ((0, 0, 4, 4), (0, 5, 0, 8)):
        feeds = one_infinity(place)
        imported = import_onnx(model)
        ((name, got),) = interpret(imported.module, imported.weights, feeds).items()
        want = onnxruntime_of(model, feeds)[name]
        np.testing.assert_array_equal(np.isfinite(got), np.isfinite(want))
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_a_check_sees_wrong_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have no part in what the model means."""
    right = phases.merged_phases

    def wrong(axes: Sequence[phases.Axis], weights: np.ndarray) -> np.ndarray:
        return right(axes, weights) * 1.01

    monkeypatch.setattr(phases, "merged_phases", wrong)
    executable = tilewright.compile(import_onnx(TRANSPOSED), "cpu")
    feeds = {"x0": noise(1, 6, 9, 9, seed=3)}
    check = executable.check(feeds, executable.run(feeds))
    assert check.equal
    assert not check.passed


def test_text_of_operators_with_steps_is_read_again() -> None:
    nodes = [
        helper.make_node("ConvTranspose", ["x0", "w"], ["wide"], strides=[2, 2]),
        helper.make_node("Resize", ["wide", "", "s"], ["y"], mode="linear"),
    ]
    weights = {"w": noise(6, 2, 3, 3), "s": np.array([1, 1, 1.5, 3], np.float32)}
    model = model_of(nodes, {"x0": (1, 6, 4, 5)}, ["y"], weights)
    imported = import_onnx(model)
    assert has_steps(imported.module)
    again = parse(str(imported.module))
    assert str(again) == str(imported.module)
    feeds = {"x0": noise(1, 6, 4, 5, seed=3)}
    ((_, want),) = interpret(again, imported.weights, feeds).items()
    TakeSteps().apply(Context(), again)
    again.verify()
    assert not has_steps(again)
    ((_, got),) = interpret(again, imported.weights, feeds).items()
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", ["cpu", "ascend910", "ascend310"])
def test_the_power_one_half_of_infinities(target: str) -> None:
    """Of minus infinity it is infinity, and of -0 it is 0, where a root gives neither."""
    model = single("Pow", [(2, 4), np.array(0.5, np.float32)])
    x = np.array([[-np.inf, np.inf, np.nan, -0.0], [0.25, -4, 9, 1e-3]], np.float32)
    executable = tilewright.compile(import_onnx(model), target)
    (found,) = executable.run({"x0": x}).values()
    ((_, want),) = onnxruntime_of(model, {"x0": x}).items()
    np.testing.assert_allclose(found, want, rtol=1e-3)
    assert not np.signbit(found[0, 3])
    assert executable.check({"x0": x}, {"y0": found}).passed
