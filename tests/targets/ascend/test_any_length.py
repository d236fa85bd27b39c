"""Packages for every length: a few plans, nothing compiled when they run, right at each length."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from benchmarks.transformers import bert_small

import tilewright
from benchmarks import models
from tilewright.cli.main import app
from tilewright.codegen.c.compiler import find_compiler
from tilewright.errors import TilewrightError
from tilewright.ir.types import Array
from tilewright.runtime.dynamic import DynamicExecutable
from tilewright.runtime.planned import PlannedExecutable
from tilewright.targets.ascend.runner import AscendRunner

ENCODER = Path(__file__).parents[3] / "examples" / "dynamic" / "encoder.onnx"


def compiled(folder: Path, layers: int, width: int, longest: int) -> DynamicExecutable:
    """A package of a small BERT of any length, from the command line."""
    model = bert_small(layers, width, longest, free="length", head=32)
    onnx.save(models.randomise(model), folder / "bert.onnx")
    words = ["compile", str(folder / "bert.onnx"), "-t", "ascend910", "--quiet"]
    words += ["--shape", f"length=1..{longest}", "-o", str(folder / "bert")]
    app(words, standalone_mode=False)
    executable = tilewright.Executable.load(folder / "bert")
    assert isinstance(executable, DynamicExecutable)
    return executable


def inputs_of(length: int) -> dict[str, Array]:
    """Words, and a mask that hides the last fifth."""
    random = np.random.default_rng(length)
    shown = np.arange(length)[None] < max(1, length - length // 5)
    return {"tokens": random.integers(0, 1000, (1, length)), "mask": shown.astype(np.int64)}


def check(executable: DynamicExecutable, lengths: Sequence[int], orders: Sequence[int]) -> None:
    files = {path: path.stat().st_mtime_ns for path in executable.directory.rglob("*")}
    for length in lengths:
        given = inputs_of(length)
        at = executable.specialise_for(given)
        assert isinstance(at, PlannedExecutable)
        assert isinstance(at.runner, AscendRunner)
        for order in orders:
            at.runner.order = order
            results = executable.run(given)
            assert next(iter(results.values())).shape[1] == length
            found = executable.check(given, results)
            assert found.equal, (length, order, found)
        assert executable.profile.cycles
    now = {path: path.stat().st_mtime_ns for path in executable.directory.rglob("*")}
    assert now == files


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> DynamicExecutable:
    """One layer, up to 32 tokens: one plan."""
    return compiled(tmp_path_factory.mktemp("short"), 1, 64, 32)


@pytest.mark.slow
def test_a_package_of_one_plan(short: DynamicExecutable) -> None:
    assert sorted(path.name for path in (short.directory / "plans").iterdir()) == ["32"]
    check(short, (1, 17, 32), (12,))
    for length in (0, 33):
        with pytest.raises(TilewrightError, match="shape-bounds"):
            short.run({name: np.ones((1, length), np.int64) for name in ("tokens", "mask")})
    with pytest.raises(TilewrightError, match="shape-conflict"):
        short.run({"tokens": np.ones((1, 3), np.int64), "mask": np.ones((1, 4), np.int64)})
    with pytest.raises(TilewrightError, match="input-shape"):
        short.specialise({"length": 3}).run(inputs_of(4))
    # What it loads and stores goes with the length, also where cores share it.
    at = short.specialise({"length": 32})
    assert isinstance(at, PlannedExecutable) and isinstance(at.runner, AscendRunner)
    moved = [sum(launch.at(n).main_bytes for launch in at.runner.launches) for n in (8, 32)]
    assert 0 < moved[0] < moved[1]
    # Each has a grid, those of the vector unit too, as in a package that is compiled for 32.
    assert all(launch.blocks > 1 for launch in at.runner.launches)
    assert sum(launch.longest > 0 for launch in at.runner.launches) > 10


@pytest.mark.slow
def test_orders_and_a_copy_elsewhere(short: DynamicExecutable, tmp_path: Path) -> None:
    check(short, (1, 2, 15, 16, 31), (0, 5, 77))
    copy = tilewright.Executable.load(short.save(tmp_path / "copy"))
    assert isinstance(copy, DynamicExecutable)
    check(copy, (9,), (77,))


@pytest.mark.slow
def test_host_code_takes_the_length(short: DynamicExecutable, tmp_path: Path) -> None:
    folder = short.save(tmp_path / "copy") / "plans" / "32" / "program" / "acl"
    make = ["make", "-s", f"CC={' '.join(find_compiler())}", "CFLAGS=-O1 -Werror"]
    subprocess.run(make, cwd=folder, check=True)

    def run(word: str) -> subprocess.CompletedProcess[str]:
        files = ["kernels.so", "../weights.bin", "../constants.bin", word]
        files += ["tokens", "mask", "hidden", "pooled"]
        return subprocess.run(["./main", *files], cwd=folder, capture_output=True, text=True)

    for length in (1, 16, 19, 32):
        given = inputs_of(length)
        for name, array in given.items():
            array.tofile(folder / name)
        done = run(str(length))
        assert done.returncode == 0, done.stderr
        wanted = short.run(given).values()
        for name, array in zip(("hidden", "pooled"), wanted, strict=True):
            np.testing.assert_array_equal(np.fromfile(folder / name, np.float32), array.ravel())
    for word in ("0", "33", "many"):
        done = run(word)
        assert done.returncode == 1
        assert "has to be 1 to 32" in done.stderr


@pytest.mark.slow
def test_every_length_of_bert(tmp_path: Path) -> None:
    """Three plans: lengths around blocks and tiles, and those where plans end."""
    executable = compiled(tmp_path, 1, 64, 160)
    plans = [path.name for path in (executable.directory / "plans").iterdir()]
    assert sorted(map(int, plans)) == [16, 48, 160]
    lengths = (1, 16, 17, 49, 160)
    check(executable, lengths, (0,))


@pytest.mark.slow
def test_what_programs_cannot_end_is_masked(tmp_path: Path) -> None:
    """Two free dims, and a mean over the sequence: the sizes are inputs of the programs."""
    tokens = np.arange(7)[None]
    free = {"tokens": ("batch:1..2", "sequence:1..32")}
    one = {"tokens": (1, "sequence"), "sequence": "1..32"}
    for name, shapes in {"two": free, "one": one}.items():
        package = tilewright.compile(ENCODER, "ascend910", shapes=shapes, directory=tmp_path / name)
        assert not any("compiled when" in note for note in package.manifest.notes)
        assert isinstance(package, DynamicExecutable)
        assert isinstance(package.specialise_for({"tokens": tokens}), PlannedExecutable)
        assert package.check({"tokens": tokens}, package.run({"tokens": tokens})).passed
