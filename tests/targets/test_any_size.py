"""Packages for every size on accelerators: the sizes are inputs of the programs, which compute all
of a plan, and what lies after a run's end is never read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from tests.frontends.onnx.onnx_models import onnxruntime_of
from tests.targets.free_sizes import (
    EXAMPLES,
    convolutions,
    ended,
    filled,
    flattened,
    floats,
    node,
    saved,
    scores,
    tokens,
)

import tilewright
from tilewright.errors import TilewrightError
from tilewright.graph.interpreter import interpret
from tilewright.ir.types import Array
from tilewright.runtime.dynamic import DynamicExecutable
from tilewright.runtime.planned import PlannedExecutable

Inputs = Callable[[Mapping[str, int]], dict[str, Array]]

IMAGES = floats({"x": ["batch", 3, 12, 10]})
ROWS = floats({"q": [2, "rows", 24], "k": [2, "keys", 24]})
MODELS: dict[str, tuple[Callable[[Path], Path], Inputs, dict[str, str], list[tuple[int, ...]]]] = {
    "texts": (
        lambda path: EXAMPLES / "encoder.onnx",
        lambda sizes: {"tokens": tokens(sizes)["tokens"] % 32},
        {"batch": "1..3", "sequence": "1..16"},
        [(1, 1), (2, 7), (3, 16), (1, 5)],
    ),
    "images": (convolutions, IMAGES, {"batch": "1..5"}, [(1,), (3,), (5,)]),
    "scores": (
        scores,
        ROWS,
        {"rows": "1..12", "keys": "1..20"},
        [(1, 1), (2, 3), (12, 1), (7, 20), (12, 20)],
    ),
    "rows of all": (
        flattened,
        floats({"x": ["batch", "length", 16]}),
        {"batch": "1..3", "length": "1..12"},
        [(1, 1), (2, 7), (1, 5), (3, 12)],
    ),
}

TARGETS = {
    **dict.fromkeys(("sunway", "sunway-chip"), 2**-16),
    **dict.fromkeys(("ascend910", "examples/machines/five-buffers.toml"), 2**-7),
    **dict.fromkeys(("cambricon", "cambricon-x", "shidiannao"), 2**-6),
    **dict.fromkeys(("zu2", "examples/machines/systolic-int8.toml"), 2**-2),
}
"""What a result may be off, by the largest of its output: what each target's numbers give."""


@pytest.mark.few(2)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", MODELS)
def test_every_size_is_right(name: str, target: str, tmp_path: Path) -> None:
    make, inputs, bounds, sizes = MODELS[name]
    path = make(tmp_path / "net.onnx")
    # Random words are few, and scales come from those that there are.
    most = dict(zip(bounds, map(max, zip(*sizes, strict=True)), strict=True))
    samples = [inputs(most)] if name == "texts" else None
    package = tilewright.compile(
        path, target, shapes=bounds, directory=tmp_path / "package", calibration=samples
    )
    assert isinstance(package, DynamicExecutable)
    notes = [note for note in package.manifest.notes if "compiled when" in note]
    assert not notes
    model = onnx.load(path)
    for size in sizes:
        given = inputs(dict(zip(bounds, size, strict=True)))
        assert isinstance(package.specialise_for(given), PlannedExecutable)
        found = package.run(given)
        assert package.check(given, found).passed
        for output, want in onnxruntime_of(model, given).items():
            assert found[output].shape == want.shape
            error = np.abs(found[output] - want).max()
            assert error <= TARGETS[target] * max(1, np.abs(want).max()), (size, error)
    engines = {kernel.engine for kernel in package.last.manifest.kernels}
    assert package.profile.cycles or engines == {"host"}


@pytest.mark.parametrize("name", MODELS)
def test_nothing_after_the_end_is_read(name: str, tmp_path: Path) -> None:
    """Zeros or numbers that would show: the results before the end are the same bits."""
    make, inputs, bounds, sizes = MODELS[name]
    path, most = make(tmp_path / "net.onnx"), sizes[-1] if name != "texts" else (3, 16)

    largest = dict(zip(bounds, most, strict=True))
    one, ends = ended(path, largest)
    generator = np.random.default_rng(0)
    for size in sizes:
        run = dict(zip(bounds, size, strict=True))
        results: list[dict[str, Array]] = []
        for filler in (0, 1):
            noise = generator if filler else None
            given = filled(inputs(run), inputs(largest), run, noise)
            with np.errstate(invalid="ignore"):
                results.append(interpret(one.module, one.weights, given))
        for end in ends:
            count = int(results[0][end.size])
            assert count == run[end.name]
            for result in results:
                result[end.output] = result[end.output].take(range(count), end.axis)
        for output in {end.output for end in ends}:
            np.testing.assert_array_equal(results[0][output], results[1][output])
            assert np.isfinite(results[0][output]).all()


def test_sizes_outside_bounds_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "net.onnx", [node("Relu", ["x"], ["y"])], {"x": ["n", 4]})
    package = tilewright.compile(path, "cambricon-x", shapes={"n": "1..9"})
    for size in (0, 10):
        with pytest.raises(TilewrightError, match="shape-bounds"):
            package.run({"x": np.zeros((size, 4), np.float32)})
    with pytest.raises(TilewrightError, match="input-shape"):
        package.run({"x": np.zeros((2, 5), np.float32)})
    assert package.run({"x": np.ones((5, 4), np.float32)})["y"].shape == (5, 4)


def test_a_model_that_counts_what_it_finds_has_no_such_plans(tmp_path: Path) -> None:
    nodes = [node("NonZero", ["x"], ["y"])]
    path = saved(tmp_path / "net.onnx", nodes, {"x": ["n", 4]})
    model = onnx.load(path)
    model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    onnx.save(model, path)
    package = tilewright.compile(path, "sunway", shapes={"n": "1..9"})
    assert any("compiled when" in note for note in package.manifest.notes)
    given = {"x": np.eye(3, 4, dtype=np.float32)}
    np.testing.assert_array_equal(package.run(given)["y"], [[0, 1, 2], [0, 1, 2]])
