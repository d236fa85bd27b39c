"""Packages for every size: nothing is compiled when they run, and each size is right."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from tests.frontends.onnx.onnx_models import onnxruntime_of
from tests.targets.free_sizes import (
    EXAMPLES,
    Shapes,
    convolutions,
    floats,
    node,
    random,
    saved,
    scores,
    tokens,
)

import tilewright
from tilewright.codegen.c.compiler import find_compiler
from tilewright.errors import TilewrightError
from tilewright.ir.types import Array
from tilewright.runtime.dynamic import DynamicExecutable
from tilewright.runtime.planned import PlannedExecutable
from tilewright.targets.cpu.runner import CpuRunner


def check(
    executable: tilewright.Executable,
    inputs: Callable[[Mapping[str, int]], dict[str, Array]],
    sizes: Sequence[Mapping[str, int]],
) -> None:
    """Run at sizes, from memory full of NaN, by one thread and by several."""
    assert isinstance(executable, DynamicExecutable)
    for each in sizes:
        given = inputs(each)
        at = executable.specialise_for(given)
        assert isinstance(at, PlannedExecutable) and isinstance(at.runner, CpuRunner)
        results = list[dict[str, Array]]()
        for threads in (1, 3):
            at.runner.threads = threads
            at.runner.workspace[:] = 0xFF
            results.append(executable.run(given))
            assert executable.check(given, results[-1]).passed, (each, threads)
            assert executable.beside_model(given, results[-1]).passed, (each, threads)
        at.runner.threads = 1
        for name, array in results[0].items():
            np.testing.assert_array_equal(array, results[1][name])


TOKENS = {"tokens": ("batch:1..3", "sequence:1..64")}


@pytest.mark.parametrize("name", ["words", "encoder"])
def test_batches_of_texts(name: str, tmp_path: Path) -> None:
    package = tilewright.compile(
        EXAMPLES / f"{name}.onnx", "cpu", shapes=TOKENS, directory=tmp_path / "package"
    )
    plans = sorted(path.name for path in (package.directory / "plans").iterdir())
    assert plans == ["3x16", "3x4", "3x64"]
    pairs = ((1, 1), (2, 2), (3, 16), (1, 33), (2, 17), (3, 63), (3, 64))
    check(package, tokens, [{"batch": b, "sequence": s} for b, s in pairs])
    assert not any("compiled when" in note for note in package.manifest.notes)


def test_batches_of_images(tmp_path: Path) -> None:
    path = convolutions(tmp_path / "net.onnx")
    package = tilewright.compile(
        path, "cpu", shapes={"batch": "1..5"}, directory=tmp_path / "package"
    )
    sizes = [{"batch": batch} for batch in (1, 2, 3, 5)]
    check(package, floats({"x": ["batch", 3, 12, 10]}), sizes)


def test_two_lengths_are_summed_along(tmp_path: Path) -> None:
    path = scores(tmp_path / "net.onnx")
    package = tilewright.compile(
        path, "cpu", shapes={"rows": "1..40", "keys": "1..70"}, directory=tmp_path / "package"
    )
    pairs = ((1, 1), (2, 3), (17, 33), (40, 1), (1, 70), (40, 70), (16, 16))
    inputs = floats({"q": [2, "rows", 24], "k": [2, "keys", 24]})
    check(package, inputs, [{"rows": r, "keys": k} for r, k in pairs])


def test_other_sizes_are_refused(tmp_path: Path) -> None:
    path = convolutions(tmp_path / "net.onnx")
    package = tilewright.compile(
        path, "cpu", shapes={"batch": "1..5"}, directory=tmp_path / "package"
    )
    assert isinstance(package, DynamicExecutable)
    for batch in (0, 6):
        with pytest.raises(TilewrightError, match="shape-bounds"):
            package.run({"x": np.zeros((batch, 3, 12, 10), np.float32)})
    runner = package.specialise({"batch": 5}).runner
    for shape in ((6, 3, 12, 10), (0, 3, 12, 10)):
        with pytest.raises(TilewrightError, match="shape-bounds"):
            runner.run({"x": np.zeros(shape, np.float32)})
    with pytest.raises(TilewrightError, match="input-shape"):
        runner.run({"x": np.zeros((2, 3, 12, 11), np.float32)})


def test_the_program_takes_sizes(tmp_path: Path) -> None:
    package = tilewright.compile(
        EXAMPLES / "words.onnx", "cpu", shapes=TOKENS, directory=tmp_path / "package"
    )
    folder = package.directory / "plans" / "3x64" / "program"
    make = ["make", "-s", f"CC={' '.join(find_compiler())}", "CFLAGS=-O1 -Werror"]
    subprocess.run(make, cwd=folder, check=True)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        files = ["weights.bin", "tokens", "hidden"]
        return subprocess.run(
            ["./words", *words, *files], cwd=folder, capture_output=True, text=True
        )

    for batch, sequence in ((1, 1), (2, 17), (3, 64)):
        given = tokens({"batch": batch, "sequence": sequence})
        given["tokens"].tofile(folder / "tokens")
        done = run(str(batch), str(sequence))
        assert done.returncode == 0, done.stderr
        (wanted,) = package.run(given).values()
        found = np.fromfile(folder / "hidden", np.float32).reshape(wanted.shape)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    for words in (("0", "5"), ("1", "65"), ("many", "5")):
        assert run(*words).returncode == 2


def test_models_without_plans_say_why(tmp_path: Path) -> None:
    image = ["x"], {"x": [1, 2, "height", 8]}
    lacking = {
        "edge": ([node("Pad", ["x", "pads"], ["y"], mode="edge")], {"pads": ints(*[1] * 8)}),
        "joined": ([node("Concat", ["x", "x"], ["y"], axis=2)], {}),
    }
    for name, (nodes, weights) in lacking.items():
        path = saved(tmp_path / f"{name}.onnx", nodes, image[1], **weights)
        package = tilewright.compile(
            path, "cpu", shapes={"height": "1..9"}, directory=tmp_path / name
        )
        assert [one for one in package.manifest.notes if "compiled when" in one]
        assert not (tmp_path / name / "plans").exists()
        given = {"x": np.ones((1, 2, 5, 8), np.float32)}
        assert package.check(given, package.run(given)).passed


def ints(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


# Values that come from the size of ``z`` alone, whose rows are the run's.
SHAPE = [node("Shape", ["z"], ["shape"]), node("Slice", ["shape", "zero", "one"], ["s"])]
SCALAR = [*SHAPE, node("Squeeze", ["s"], ["n"])]
RAMP = [
    *SCALAR,
    node("Range", ["first", "n", "step"], ["r"]),
    node("Cast", ["r"], ["ramp"], to=TensorProto.FLOAT),
]
NUMBERS = {
    "table": random(40, 8),
    "zero": ints(0),
    "one": ints(1),
    "first": np.array(0, np.int64),
    "step": np.array(1, np.int64),
}
FROM_SHAPES: Mapping[str, tuple[Sequence[onnx.NodeProto], Shapes, bool]] = {
    "a sum along positions": (
        [*RAMP, node("Add", ["c", "ramp"], ["a"]), node("ReduceSum", ["a", "one"], ["y"])],
        {"c": [4, 1]},
        True,
    ),
    "positions themselves": ([*RAMP, node("Neg", ["ramp"], ["y"])], {}, True),
    "keys of a table": (
        [
            *SHAPE,
            node("Slice", ["table", "zero", "s"], ["k"]),
            node("Transpose", ["k"], ["t"], perm=[1, 0]),
            node("MatMul", ["q", "t"], ["a"]),
            node("Softmax", ["a"], ["p"]),
            node("ReduceMax", ["p"], ["y"], axes=[1], keepdims=0),
        ],
        {"q": [2, 8]},
        True,
    ),
    "a choice by the size": (
        [
            *SHAPE,
            node("Greater", ["s", "one"], ["more"]),
            node("Neg", ["z"], ["m"]),
            node("Where", ["more", "z", "m"], ["y"]),
        ],
        {},
        False,
    ),
}


@pytest.mark.parametrize("name", FROM_SHAPES)
def test_what_follows_from_the_size_alone(name: str, tmp_path: Path) -> None:
    """It is followed, or there are no plans: either way each size is right."""
    nodes, more, has_plans = FROM_SHAPES[name]
    shapes: Shapes = {"z": ["n", 3], **more}
    path = saved(tmp_path / "net.onnx", nodes, shapes, **NUMBERS)
    if name != "a sum along positions":
        model = onnx.load(path)
        model.opset_import[0].version = 17
        onnx.save(model, path)
    package = tilewright.compile(path, "cpu", shapes={"n": "1..20"}, directory=tmp_path / "package")
    assert (tmp_path / "package" / "plans").exists() == has_plans
    inputs = floats(shapes)
    if has_plans:
        check(package, inputs, [{"n": n} for n in (1, 2, 3, 4, 5, 9, 19, 20)])
        return
    for n in (1, 2, 20):
        given = inputs({"n": n})
        wanted = onnxruntime_of(onnx.load(path), given)["y"]
        np.testing.assert_allclose(package.run(given)["y"], wanted, rtol=1e-5, atol=1e-5)


def test_dims_of_equal_bounds_are_told_apart(tmp_path: Path) -> None:
    """Where both are 9, a swap of axes by their sizes looks like none."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "swapped"], ["t"]),
        node("Relu", ["x"], ["r"]),
        node("Reshape", ["r", "t"], ["a"]),
        node("Softmax", ["a"], ["y"], axis=0),
    ]
    path = saved(tmp_path / "net.onnx", nodes, {"x": ["a", "b", 6]}, swapped=ints(1, 0, 2))
    bounds = {"a": "1..9", "b": "1..9"}
    package = tilewright.compile(path, "cpu", shapes=bounds, directory=tmp_path / "package")
    assert not (tmp_path / "package" / "plans").exists()
    assert package.run({"x": np.ones((3, 9, 6), np.float32)})["y"].shape == (9, 3, 6)
    plain = [node("Relu", ["x"], ["r"]), node("Softmax", ["r"], ["y"], axis=0)]
    path = saved(tmp_path / "plain.onnx", plain, {"x": ["a", "b", 6]})
    package = tilewright.compile(path, "cpu", shapes=bounds, directory=tmp_path / "plain")
    pairs = ((1, 1), (3, 9), (9, 3), (9, 9), (2, 4))
    check(package, floats({"x": ["a", "b", 6]}), [{"a": a, "b": b} for a, b in pairs])


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ["t", 'a"b', "*/ x", "a\\"])
def test_any_name_of_a_dim_builds(name: str, tmp_path: Path) -> None:
    path = saved(tmp_path / "net.onnx", [node("Relu", ["x"], ["y"])], {"x": [name, 4]})
    package = tilewright.compile(
        path, "cpu", shapes={"x": ("1..5", 4)}, directory=tmp_path / "package"
    )
    x = np.ones((3, 4), np.float32)
    np.testing.assert_array_equal(package.run({"x": x})["y"], x)
    folder = package.directory / "plans" / "5" / "program"
    make = ["make", "-s", f"CC={' '.join(find_compiler())}", "CFLAGS=-O1 -Wall -Wextra -Werror"]
    subprocess.run(make, cwd=folder, check=True)


def test_a_damaged_manifest_is_refused(tmp_path: Path) -> None:
    package = tilewright.compile(
        convolutions(tmp_path / "net.onnx"),
        "cpu",
        shapes={"batch": "1..5"},
        directory=tmp_path / "package",
    )
    program = package.directory / "plans" / "5" / "program"
    path = program / "program.json"
    whole = json.loads(path.read_text())
    for side, ended in (
        ("inputs", [[7, "batch"]]),
        ("inputs", [[1, "batch"]]),
        ("inputs", [[0, "other"]]),
        ("outputs", [[1, "batch"]]),
        ("inputs", []),
    ):
        row = {**whole[side][0], "ended": ended}
        path.write_text(json.dumps({**whole, side: [row]}))
        with pytest.raises(TilewrightError, match="package-invalid"):
            CpuRunner(program)
