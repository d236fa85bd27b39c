"""Products in pieces in C, on the processor's tiles and without: errors held to their analysis."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from tests.slow import but_fast
from tests.targets.cpu.piece_networks import (
    BUILDS,
    CASES,
    EVERYWHERE,
    TILES,
    Case,
    Network,
    expected_of,
    lacking,
    network,
)

import tilewright
from tilewright.codegen.c.compiler import FLAGS, build_library, find_compiler, run_compiler
from tilewright.ir.types import Array
from tilewright.numerics.pieces import THREE, TWO
from tilewright.targets.cpu import capabilities
from tilewright.targets.cpu.passes.choose_methods import ChooseMethods
from tilewright.targets.cpu.piece_primitives import PIECE_PRIMITIVES
from tilewright.targets.cpu.runner import CpuRunner

RELATIVE = 2e-5
"""Largest error of an output, of the largest output: of K products of random signs sqrt(K) times
what one has, which is up to 3e-5. Without the third product of pieces it would be 1e-3."""

SUMS = 2e-6
"""The same of sums in float32 of the products of pieces, as they would be in float64; and of three
pieces."""

BESIDE = 1.0
"""Error in the root mean square of three pieces, of that of float32's products one by one."""

FEW = 16
"""Products of which there is next to nothing to add up: then what is behind them rounds more."""

TDPBF16PS = bytes.fromhex("c4e24a5cc4")
"""The instruction on tiles 0, 6 and 4."""

NAN = 0x7FC07FC0
"""Not a number as a float32, nor as two bfloat16."""


@dataclass(frozen=True)
class Built:
    """A network, its program, and what each build of it that runs here computes."""

    network: Network
    program: Path
    outputs: Mapping[str, Mapping[str, Array]]

    def of(self, build: str) -> Mapping[str, Array]:
        """Outputs of a build; skips where it does not run."""
        if reason := lacking(build):
            pytest.skip(reason)
        return self.outputs[build]


def run(program: Path, build: str, inputs: Mapping[str, Array], threads: int = 1):
    """The outputs, in a workspace that held what is no number."""
    runner = CpuRunner(program, BUILDS[build][0])
    runner.threads = threads
    runner.workspace[: runner.workspace.size // 4 * 4].view(np.uint32)[:] = NAN
    return runner.run(inputs).outputs


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    made = network(CASES)
    program = made.emit(tmp_path_factory.mktemp("pieces"))
    outputs = {b: run(program, b, made.maker.inputs) for b in BUILDS if not lacking(b)}
    return Built(made, program, outputs)


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("name", CASES)
def test_errors_stay_within_what_analysis_allows(built: Built, name: str, build: str) -> None:
    expected = built.network.expected[name]
    found = built.of(build)[f"out{list(CASES).index(name)}"].astype(np.float64)
    assert found.shape == expected.exact.shape
    scale = np.abs(expected.exact).max()
    error = np.abs(found - expected.exact)
    assert (error <= expected.bound).all()
    assert error.max() < (RELATIVE if expected.count == TWO else SUMS) * scale
    if expected.sequential is not None:
        beside = np.sqrt(np.mean((expected.sequential - expected.exact) ** 2))
        assert expected.products <= FEW or np.sqrt(np.mean(error**2)) < BESIDE * beside
    # What is not rounding of sums is the fourth product, and what pieces lack: the rest is exact.
    error = np.abs(found - expected.pieces)
    assert (error <= expected.rounding).all()
    assert error.max() < SUMS * scale


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.equal])
def test_all_output_channels_are_added_up_alike(built: Built, name: str, build: str) -> None:
    """Also the last one of an odd number of vectors, in its own register tiles."""
    found = built.of(build)[f"out{list(CASES).index(name)}"]
    assert np.array_equal(found, np.repeat(found[:, :1], found.shape[1], 1))


@pytest.mark.parametrize("name", CASES)
def test_tiles_and_emulation_agree(built: Built, name: str) -> None:
    output = f"out{list(CASES).index(name)}"
    tiles, emulated = (built.of(b)[output].astype(np.float64) for b in ("tiles", "emulated"))
    difference = np.abs(tiles - emulated)
    assert (difference <= 2 * built.network.expected[name].rounding).all()
    assert difference.max() < SUMS * np.abs(emulated).max()


ONNX = {
    "conv": Case((2, 64, 28, 30), 96, (3, 3), pads=(1, 1, 1, 1), bias=True),
    "pointwise": Case((1, 96, 17, 19), 80, bias=True),
    "gemm": Case((40, 64), 48, bias=True, rows=True),
    "gemm transposed": Case((64, 72), 48, bias=True, rows=True),
    "matmul": Case((2, 20, 64), 112, rows=True),
}


@cache
def model() -> tuple[onnx.ModelProto, Mapping[str, tuple[Array, Array, Array]]]:
    """A network of convolutions and products side by side; image, weights and bias of each."""
    data: dict[str, tuple[Array, Array, Array]] = {}
    nodes: list[onnx.NodeProto] = []
    constants: list[onnx.TensorProto] = []
    for name, case in ONNX.items():
        random = np.random.default_rng(len(name))
        taps = () if case.rows else case.window
        x = random.standard_normal(case.shape).astype(np.float32)
        w = random.standard_normal((case.co, case.channels, *taps)).astype(np.float32)
        b = random.standard_normal(case.co).astype(np.float32) * case.bias
        data[name] = x, w, b
        kind, attributes, stored = "Conv", {"pads": case.pads}, w
        if case.rows:
            transposed = name == "gemm transposed"
            kind, attributes = ("Gemm", {"transB": transposed}) if case.bias else ("MatMul", {})
            stored = w if transposed else np.ascontiguousarray(w.T)
        arrays = {"w": stored, "b": b}
        constants += [numpy_helper.from_array(a, f"{name} {end}") for end, a in arrays.items()]
        inputs = [name, f"{name} w", *([f"{name} b"] if case.bias else [])]
        nodes.append(helper.make_node(kind, inputs, [f"{name} y"], **attributes))
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "side_by_side",
        [value(name, 1, case.shape) for name, case in ONNX.items()],
        [value(f"{n} y", 1, expected_of(case, *data[n]).exact.shape) for n, case in ONNX.items()],
        constants,
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return made, data


def compiled(folder: Path, exact: bool = False) -> tilewright.Executable:
    folder.mkdir(exist_ok=True)
    path = folder / "model.onnx"
    onnx.save(model()[0], path)
    made = tilewright.compile(
        path, machine=EVERYWHERE, directory=folder / "package", exact_convolution=exact
    )
    assert isinstance(made, tilewright.Executable)
    return made


def used(made: tilewright.Executable) -> list[str]:
    return [kernel.schedule.partition(" ")[0] for kernel in made.manifest.kernels]


@pytest.fixture(scope="module", params=but_fast(PIECE_PRIMITIVES, [TWO]))
def package(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[int, Path]:
    """The program of ``model`` with every kernel in pieces, and how many these are."""
    conv, matmul = names = PIECE_PRIMITIVES[request.param]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capabilities, "ChooseMethods", lambda: ChooseMethods(method=names))
        made = compiled(tmp_path_factory.mktemp("model"))
    assert [name for name in used(made) if name in names] == [*[conv] * 2, *[matmul] * 3]
    return request.param, made.directory / "program"


@pytest.mark.parametrize("build", BUILDS)
def test_models_are_computed_in_pieces_by_any_number_of_threads(
    package: tuple[int, Path], build: str
) -> None:
    if reason := lacking(build):
        pytest.skip(reason)
    pieces, program = package
    data = model()[1]
    inputs = {name: arrays[0] for name, arrays in data.items()}
    alone = run(program, build, inputs)
    for name, case in ONNX.items():
        expected = expected_of(replace(case, pieces=pieces), *data[name])
        error = np.abs(alone[f"{name} y"].astype(np.float64) - expected.exact)
        assert (error <= expected.bound).all()
        allowed = RELATIVE if pieces == TWO else SUMS
        assert error.max() < allowed * np.abs(expected.exact).max()
    sources = "".join(path.read_text() for path in (program / "src").glob("*.c"))
    assert "long parts)" in sources, "nothing is divided"
    for threads in (2, 3, 4):
        shared = run(program, build, inputs, threads)
        assert all(np.array_equal(shared[name], alone[name]) for name in alone), threads


def test_pieces_are_taken_where_they_are_fastest(tmp_path: Path) -> None:
    """Of 64 and more channels six products of tiles are faster than one of vectors, too."""
    assert set(PIECE_PRIMITIVES[TWO]) <= set(used(compiled(tmp_path)))
    exact = set(used(compiled(tmp_path / "exact", exact=True)))
    assert PIECE_PRIMITIVES[THREE][0] in exact
    assert not set(PIECE_PRIMITIVES[TWO]) & exact


@pytest.mark.slow
def test_a_cross_build_has_no_warnings(built: Built, tmp_path: Path) -> None:
    """FLAGS ask for all warnings, and the build's make errors of them."""
    probe = tmp_path / "probe.c"
    probe.write_text("int main(void) { return 0; }\n")
    try:
        run_compiler([*find_compiler(), *TILES, str(probe), "-o", str(tmp_path / "probe")])
    except tilewright.TilewrightError:
        pytest.skip(f"the compiler does not know {TILES[-1]}")
    assert {"-Wall", "-Wextra"} <= set(FLAGS) and "-Werror" in TILES
    sources = sorted((built.program / "src").glob("*.c"))
    includes = (built.program / "include", built.program / "src")
    build_library(sources, tmp_path / "library.so", includes, TILES)
    assert TDPBF16PS in (tmp_path / "library.so").read_bytes()
