"""Loops in packages of C: the program runs the rounds, with any number of threads and any form."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

import tilewright
from tests.compiler.test_loops import MODELS, checked, drawn, saved
from tests.frontends.onnx.loop_models import recurrent, scan
from tests.slow import but_fast

TARGETS = ("cpu", "sunway", "sunway-chip")
CASES = [(target, name) for name in MODELS for target in TARGETS]


@pytest.mark.parametrize(
    "case", but_fast(CASES, [("cpu", n) for n in MODELS] + [("sunway", "gru")])
)
def test_the_program_runs_the_rounds(case: tuple[str, str], tmp_path: Path) -> None:
    target, name = case
    path = saved(MODELS[name], tmp_path / "model.onnx")
    made = tilewright.compile(path, target, directory=tmp_path / "package")
    arrays = drawn(made)
    wanted = ort.InferenceSession(str(path)).run(None, arrays)
    for (output, array), want in zip(checked(made).items(), wanted, strict=True):
        np.testing.assert_allclose(array, want, atol=1e-5, rtol=1e-5, err_msg=output)
    assert any(row.rounds > 1 for row in made.manifest.kernels)
    assert [kernel.symbol for kernel in made.profile.kernels] == [
        row.name for row in made.manifest.kernels
    ]


@pytest.mark.parametrize("target", but_fast(TARGETS, ["cpu"]))
def test_programs_do_not_grow_with_the_rounds(target: str, tmp_path: Path) -> None:
    sizes: list[int] = []
    for length in (10, 90):
        path = saved(recurrent("LSTM", length=length), tmp_path / "model.onnx")
        made = tilewright.compile(path, target, directory=tmp_path / f"package{length}")
        program = tmp_path / f"package{length}" / "program"
        sizes.append(sum(len(file.read_text().splitlines()) for file in program.rglob("*.c")))
        assert made.summary()["predicted_cycles"] > 0
    assert abs(sizes[1] - sizes[0]) < 20, sizes  # The first product may have other tiles.


def test_threads_share_the_steps_of_a_loop(tmp_path: Path) -> None:
    """A loop's copies are those of one thread, on both sides of what all share."""
    model = recurrent(
        "LSTM", length=6, hidden=384, features=256, batch=8, direction="bidirectional"
    )
    path = saved(model, tmp_path / "model.onnx")
    made = tilewright.compile(path, "cpu", directory=tmp_path / "package")
    text = min(
        (tmp_path / "package" / "program" / "src").glob("*.c"), key=lambda file: len(file.name)
    ).read_text()
    assert "team_meet(team);" in text.partition("static void compute(")[0]
    arrays = drawn(made)
    wanted = ort.InferenceSession(str(path)).run(None, arrays)
    alone = made.run(arrays)
    made.threads = 3
    for (name, array), want in zip(made.run(arrays).items(), wanted, strict=True):
        np.testing.assert_array_equal(array, alone[name])
        np.testing.assert_allclose(array, want, atol=1e-4, rtol=1e-4, err_msg=name)


@pytest.mark.parametrize("bare", [True, False])
def test_every_form_of_a_package_has_loops(bare: bool, tmp_path: Path) -> None:
    path = saved(scan(length=7, backwards=True, axis=1), tmp_path / "model.onnx")
    made = tilewright.compile(
        path, "cpu", directory=tmp_path / "package", weights="array", bare=bare
    )
    _ = checked(made)
