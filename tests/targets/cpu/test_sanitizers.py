"""Whole packages under the sanitizers: addresses, undefined behaviour, and races of threads."""

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from tests.targets.cpu.built_attention import grouped_attention
from tests.targets.cpu.built_networks import expected, image, missing, package, run_program
from tests.targets.cpu.piece_networks import BUILDS, EVERYWHERE, lacking
from tests.targets.cpu.test_builds import USER
from tests.targets.cpu.test_integers import LANES, groups, images, matrices, windows

import tilewright
from tilewright.graph.interpreter import interpret
from tilewright.targets.cpu import capabilities
from tilewright.targets.cpu.machine import machine
from tilewright.targets.cpu.passes.choose_methods import ChooseMethods
from tilewright.targets.cpu.piece_primitives import PIECE_PRIMITIVES
from tilewright.targets.cpu.processors import this_processor

pytestmark = pytest.mark.slow

Shapes = Mapping[str, tuple[int, ...]]

EXAMPLES = Path(__file__).parents[3] / "examples"
MODELS = sorted(
    path
    for kind in ("*.onnx", "*.prototxt")
    for path in EXAMPLES.rglob(kind)
    if path.stat().st_size < 1 << 20
)

VECTORS = machine(replace(this_processor(), block_cycles=0.0))
"""The processor at hand without matrix tiles, which might be faster than Winograd's method."""

OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=1:abort_on_error=0",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1",
}


def build(
    program: Path, sanitizers: str, *targets: str, processor: Sequence[str] = ("-march=native",)
) -> None:
    # Without optimisation every access of the source is watched, and the compiler needs a third of
    # the time; of what debuggers are told, line numbers are what sanitizers print.
    flags = f"-std=gnu99 -g1 -O0 -fPIC -pthread -fsanitize={sanitizers} -fno-sanitize-recover=all"
    flags = " ".join([flags, *processor])
    ran = subprocess.run(
        ["make", "-s", "-j2", "-C", program, f"CFLAGS={flags}", *targets],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


def test_there_are_examples() -> None:
    assert len(MODELS) >= 3


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_example_models_stay_within_memory(path: Path, tmp_path: Path) -> None:
    run_under_sanitizers(path, tmp_path)


def test_attention_and_groups_stay_within_memory(tmp_path: Path) -> None:
    path = tmp_path / "grouped_attention.onnx"
    onnx.save(grouped_attention(), path)
    schedules = run_under_sanitizers(path, tmp_path)
    used = {schedule.partition(" ")[0] for schedule in schedules}
    assert {"attention", "conv_grouped", "layer_norm", "matmul_m", "shuffle"} <= used


@pytest.mark.parametrize("make", [groups, images, matrices, windows])
def test_bytes_stay_within_memory(make: Any, tmp_path: Path) -> None:
    """Words of bytes, and runs of them that widen, which end with the tensor."""
    path = tmp_path / "bytes.onnx"
    quantised, outputs = make(LANES[-1], np.uint8)
    onnx.save(quantised.model(*outputs), path)
    used = {name.partition(" ")[0] for name in run_under_sanitizers(path, tmp_path)}
    assert any(name.endswith("_8") for name in used)


def test_pools_within_tiles_stay_within_memory(tmp_path: Path) -> None:
    """Of images whose last rows and columns no window reads, and tiles that reach beyond them."""
    two: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], **two),
        helper.make_node("Conv", ["p", "v"], ["d"], pads=[0, 1, 1, 0]),
        helper.make_node("AveragePool", ["d"], ["y"], **two),
    ]
    weights = {"w": (40, 24, 3, 3), "b": (40,), "v": (40, 40, 3, 3)}
    path = saved(tmp_path, nodes, {"x": (2, 24, 59, 61)}, {"y": (2, 40, 14, 14)}, weights)
    schedules = run_under_sanitizers(path, tmp_path, machine=VECTORS)
    used = [schedule.partition(" ")[0] for schedule in schedules]
    assert sum(name.startswith("winograd") for name in used) == 2 and "pool" not in used


def test_weights_that_are_transformed_on_the_way_stay_within_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With a last panel that is short, channels that fill no vectors, and groups."""
    names = ("winograd_4_plain", "winograd_2_5x5_plain")
    monkeypatch.setattr(capabilities, "ChooseMethods", lambda: ChooseMethods(method=names))
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["c", "v"], ["d"], pads=[0, 1, 1, 0]),
        helper.make_node("Conv", ["d", "u"], ["y"], group=2),
    ]
    weights = {"w": (40, 69, 3, 3), "b": (40,), "v": (96, 40, 3, 3), "u": (64, 48, 5, 5)}
    path = saved(tmp_path, nodes, {"x": (1, 69, 19, 23)}, {"y": (1, 64, 14, 18)}, weights)
    used = [schedule.partition(" ")[0] for schedule in run_under_sanitizers(path, tmp_path)]
    found = [name for name in used if "winograd" in name]
    assert found == ["winograd_4_plain", "winograd_4_plain", "winograd_2_5x5_plain"]


@pytest.mark.parametrize("names", PIECE_PRIMITIVES.values())
@pytest.mark.parametrize("build", BUILDS)
def test_pieces_stay_within_memory(
    build: str, names: tuple[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With channels that fill no groups and no vectors, strides, and rows that fill no tiles.

    The sanitizers see what the emulation reads; what tiles do, only where the system objects.
    """
    if reason := lacking(build):
        pytest.skip(reason)
    monkeypatch.setattr(capabilities, "ChooseMethods", lambda: ChooseMethods(method=names))
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 0, 1, 2]),
        helper.make_node("Conv", ["c", "v"], ["d"], strides=[2, 3], pads=[0, 1, 1, 0]),
        helper.make_node("Conv", ["d", "u"], ["e"]),
        helper.make_node("Relu", ["e"], ["r"]),
        helper.make_node("Conv", ["r", "t"], ["y"], dilations=[2, 1]),
        helper.make_node("MatMul", ["z", "m"], ["p"]),
    ]
    weights = {"w": (40, 69, 3, 3), "b": (40,), "v": (96, 40, 3, 5), "u": (33, 96, 1, 1)}
    weights |= {"t": (16, 33, 2, 3), "m": (45, 50)}
    inputs, outputs = (
        {"x": (2, 69, 19, 23), "z": (2, 21, 45)},
        {"y": (2, 16, 7, 5), "p": (2, 21, 50)},
    )
    path = saved(tmp_path, nodes, inputs, outputs, weights)
    flags = BUILDS[build][0][-1:]
    used = run_under_sanitizers(path, tmp_path, flags, machine=EVERYWHERE)
    found = [name.partition(" ")[0] for name in used]
    assert [name for name in found if name in names] == [*[names[0]] * 4, names[1]]


def saved(
    folder: Path, nodes: Sequence[onnx.NodeProto], inputs: Shapes, outputs: Shapes, weights: Shapes
) -> Path:
    """The file of a model with weights at random."""
    random = np.random.default_rng(3)
    constants = [
        numpy_helper.from_array((random.standard_normal(shape) / 20).astype(np.float32), name)
        for name, shape in weights.items()
    ]
    ends = [
        [helper.make_tensor_value_info(name, 1, shape) for name, shape in values.items()]
        for values in (inputs, outputs)
    ]
    graph = helper.make_graph(nodes, "network", *ends, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "network.onnx")
    return folder / "network.onnx"


def run_under_sanitizers(
    path: Path, tmp_path: Path, processor: Sequence[str] = ("-march=native",), **options: Any
) -> list[str]:
    """Build and run a model's package, compare with the interpreter; the kernels' schedules."""
    made = tilewright.compile(path, directory=tmp_path / "package", **options)
    if isinstance(made, tilewright.DynamicExecutable):
        sizes = dict.fromkeys(made.free, 12)
        made = tilewright.compile(path, shapes=sizes, directory=tmp_path / "static")
    program = made.directory / "program"
    build(program, "address,undefined", processor=processor)
    random = np.random.default_rng(1)
    files: list[Path] = [program / "weights.bin"]
    inputs: dict[str, np.ndarray] = {}
    for number, info in enumerate(made.inputs):
        array = random.standard_normal(info.shape).astype(info.dtype)
        inputs[info.name] = array
        files.append(tmp_path / f"in{number}.bin")
        array.tofile(files[-1])
    stated = made.manifest.outputs
    outputs = [tmp_path / f"out{number}.bin" for number in range(len(stated))]
    name = next(p.stem for p in (program / "include").glob("*.h"))
    ran = subprocess.run(
        [program / name, *files, *outputs], env=OPTIONS, capture_output=True, check=False
    )
    assert ran.returncode == 0, ran.stderr.decode()
    expected = interpret(made.graph, made.weights, inputs)
    for info, file in zip(stated, outputs, strict=True):
        found = np.fromfile(file, info.dtype).reshape(info.shape)
        np.testing.assert_allclose(found, expected[info.name], rtol=1e-3, atol=1e-4)
    return [kernel.schedule for kernel in made.manifest.kernels]


@pytest.mark.parametrize("sanitizers", ["address,undefined", "thread"])
def test_teams_of_threads(sanitizers: str, tmp_path: Path) -> None:
    if reason := missing("g++"):
        pytest.skip(reason)
    program = package(tmp_path, None)
    build(program, sanitizers, "libpictures.a")
    (program / "user.cpp").write_text(USER)
    command = ["g++", "-std=c++11", "-g", f"-fsanitize={sanitizers}", "-Iinclude", "user.cpp"]
    subprocess.run(
        [*command, "libpictures.a", "-o", "user", "-lm", "-pthread"], cwd=program, check=True
    )
    found = run_program(program, "user", ["env", *(f"{k}={v}" for k, v in OPTIONS.items())])
    np.testing.assert_allclose(found, expected(), rtol=2e-4, atol=1e-6)
    assert image().std() > 0.5
