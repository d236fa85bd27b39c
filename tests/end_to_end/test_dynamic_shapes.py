"""Models whose shape arithmetic depends on free dims, on many shapes, beside ONNX Runtime."""

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import tilewright
from tilewright import Cache

FOLDER = Path(__file__).parents[2] / "examples" / "dynamic"
MACHINES = Path(__file__).parents[2] / "examples" / "machines"

TOKENS = [(1, 1), (2, 17), (5, 2)]
IMAGES = [(1, 8, 8), (2, 21, 13), (4, 5, 7)]


def given_for(name: str, shape: tuple[int, ...]) -> dict[str, Any]:
    random = np.random.default_rng(sum(shape))
    if name == "encoder":
        return {"tokens": random.integers(0, 32, shape)}
    batch, height, width = shape
    return {"image": random.uniform(-1, 1, (batch, 3, height, width)).astype(np.float32)}


def session(path: Path) -> Any:
    settings: Any = onnxruntime.SessionOptions()
    settings.log_severity_level = 4
    return onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])


def compare(
    name: str,
    target: str,
    shapes: list[tuple[int, ...]],
    tolerance: float,
    cache: Path,
    calibration: list[dict[str, Any]] | None = None,
) -> None:
    """Every output at every shape, within ``tolerance`` of its largest magnitude."""
    path = FOLDER / f"{name}.onnx"
    reference = session(path)
    names = [value.name for value in reference.get_outputs()]
    made = tilewright.compile(path, target, calibration=calibration, cache=Cache(cache))
    for shape in shapes:
        given = given_for(name, shape)
        found = made.run(given)
        want = dict(zip(names, reference.run(names, given), strict=True))
        assert found.keys() == want.keys()
        for key in names:
            assert found[key].shape == want[key].shape
            assert np.abs(found[key] - want[key]).max() <= tolerance * np.abs(want[key]).max(), key
        assert made.check(given, found).equal


def test_the_models_are_those_of_their_script(tmp_path: Path) -> None:
    made = runpy.run_path(str(FOLDER / "make_models.py"))
    for name in ("encoder", "pixels"):
        assert (FOLDER / f"{name}.onnx").read_bytes() == made[name]().SerializeToString()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "shapes"), [("encoder", TOKENS), ("pixels", IMAGES)])
def test_cpu(name: str, shapes: list[tuple[int, ...]], tmp_path: Path) -> None:
    compare(name, "cpu", shapes, 1e-5, tmp_path)


@pytest.mark.slow
def test_cambricon_x(tmp_path: Path) -> None:
    compare("pixels", "cambricon-x", IMAGES[1:], 0.01, tmp_path)
    samples = [given_for("encoder", (4, 48))]
    compare("encoder", "cambricon-x", [(1, 1), (1, 9)], 0.02, tmp_path, samples)


@pytest.mark.slow
def test_a_machine_file(tmp_path: Path) -> None:
    compare("pixels", str(MACHINES / "five-buffers.toml"), IMAGES[:2], 0.02, tmp_path)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("encoder", {"batch": 2, "sequence": 9}),
        ("pixels", {"batch": 2, "height": 9, "width": 6}),
    ],
)
def test_the_interpreter_on_what_is_imported(name: str, wanted: dict[str, int]) -> None:
    from tilewright.graph.interpreter import interpret

    path = FOLDER / f"{name}.onnx"
    imported = tilewright.load(path, shapes=wanted)
    given = given_for(name, tuple(wanted.values()))
    found = interpret(imported.module, imported.weights, given)
    reference = session(path)
    for value, want in zip(reference.get_outputs(), reference.run(None, given), strict=True):
        np.testing.assert_allclose(found[value.name], want, atol=1e-4)
