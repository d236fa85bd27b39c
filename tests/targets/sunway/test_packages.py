"""Whole networks as athread C: built without a warning, run on the shim, every layer compared."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.slow import but_fast
from tests.targets.sunway.sunway_networks import NETWORKS, Network

import tilewright
from benchmarks import models
from tilewright.errors import TilewrightError
from tilewright.runtime import Executable
from tilewright.targets.sunway.runner import SunwayRunner, build

STRICT = ("-O1", "-Wall", "-Wextra", "-Werror")
# Without optimisation every access of the source is watched, and the compiler needs half the time.
SANITIZED = ("-O0", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


@pytest.fixture(scope="module", params=but_fast(NETWORKS, ["tiny"]))
def package(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Executable:
    folder = tmp_path_factory.mktemp("network")
    return tilewright.compile(NETWORKS[request.param](folder), "sunway", directory=folder / "p")


class Seen:
    """The values of a run by name."""

    def __init__(self) -> None:
        self.values: dict[str, NDArray[np.float32]] = {}

    def see(self, name: str, array: NDArray[np.float32]) -> None:
        """Keep one."""
        self.values[name] = array


def runner_of(package: Executable) -> SunwayRunner:
    assert isinstance(package.runner, SunwayRunner)
    return package.runner


def inputs_of(package: Executable, seed: int) -> dict[str, NDArray[np.float32]]:
    random = np.random.default_rng(seed)
    return {
        info.name: random.normal(size=[int(n) for n in info.shape]).astype(np.float32)
        for info in package.inputs
    }


def test_every_layer_is_what_the_interpreter_computes(package: Executable) -> None:
    runner = runner_of(package)
    runner.program = build(runner.directory, runner.manifest, STRICT)
    for seed in (1, 2):
        inputs = inputs_of(package, seed)
        seen, wanted = Seen(), Seen()
        result = package.run(inputs, observe=seen.see)
        package.reference(inputs, wanted.see)
        assert len(seen.values) > 3
        for name, array in seen.values.items():
            # What lies between the operations of a kernel is in the interpreter's walk alone.
            largest = float(np.abs(wanted.values[name]).max(initial=1e-30))
            error = float(np.abs(array - wanted.values[name]).max(initial=0.0)) / largest
            assert error <= 1e-4, f"{name}: {error}"
        assert set(result) == {info.name for info in package.outputs}


def test_the_order_of_the_cores_changes_nothing(package: Executable) -> None:
    runner, inputs = runner_of(package), inputs_of(package, 3)
    runner.program = build(runner.directory, runner.manifest, STRICT)
    first = package.run(inputs)
    runner.order = "7"
    second = package.run(inputs)
    runner.order = ""
    for name, array in first.items():
        assert np.array_equal(array, second[name])


@pytest.mark.parametrize("header", ["files.h", "save.h", "layers/layers.h"])
def test_a_header_that_has_changed_is_compiled(
    package: Executable, header: str, tmp_path: Path
) -> None:
    runner = runner_of(package)
    build(runner.directory, runner.manifest, STRICT)
    copy = shutil.copytree(runner.directory, tmp_path / "program")
    (copy / header).write_text("#error changed\n")
    with pytest.raises(TilewrightError, match="changed"):
        build(copy, runner.manifest, STRICT)


def test_the_package_is_laid_out_as_swtvm_has_it(package: Executable) -> None:
    program = runner_of(package).directory
    main = (program / "main.c").read_text()
    for row in runner_of(package).layers:
        name = str(row["symbol"])
        assert f"{name}(" in main
        header = f'"{name}_para.h"'
        users = [p.name for p in program.rglob("*.[ch]") if header in p.read_text()]
        assert sorted(users) == ([] if row["on_host"] else [f"{name}.c", f"{name}_slave.c"])
    for path in program.glob("[!s]*/*"):
        assert not re.search(r"\b(malloc|calloc|realloc|free)\(", path.read_text()), path.name
    for path in (*program.glob("layers/*"), *program.glob("slave/*"), *program.glob("*.[ch]")):
        text = path.read_text()
        assert len(text.splitlines()) < 400, path.name
        assert path.name == "files.h" or not re.search(r"\b[mc]alloc\(", text)
        assert "shim" not in text.lower()
    assert main.index("/* Memory. */") < main.index("/* Parameters") < main.index("/* Computation")


def test_a_trace_has_each_layer_and_its_nodes(package: Executable, tmp_path: Path) -> None:
    inputs = inputs_of(package, 5)
    package.run(inputs, trace=tmp_path / "trace.json")
    written = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    events = [event for event in written if event["ph"] == "X"]
    counted = [kernel for kernel in package.profile.kernels if not kernel.on_host]
    assert counted
    assert [event["name"] for event in events] == [kernel.symbol for kernel in counted]
    assert [event["args"]["cycles"] for event in events] == [kernel.cycles for kernel in counted]
    assert [tuple(event["args"]["nodes"]) for event in events] == [k.nodes for k in counted]


@pytest.mark.slow
def test_files_of_a_deep_network_stay_short(tmp_path: Path) -> None:
    model = models.save("resnet50", tmp_path)
    for target in ("sunway", "sunway-chip"):
        tilewright.compile(model, target, planner="swatop", directory=tmp_path / target)
        program = tmp_path / target / "program"
        files = [path for path in program.rglob("*.[ch]") if path.parts[-2] != "shim"]
        assert len(files) > 150
        long = [path.name for path in files if len(path.read_text().splitlines()) >= 400]
        assert not long


@pytest.mark.slow
def test_sanitizers_find_nothing(package: Executable) -> None:
    runner, inputs = runner_of(package), inputs_of(package, 4)
    runner.program = build(runner.directory, runner.manifest, SANITIZED)
    checked = package.check(inputs, package.run(inputs))
    assert checked.equal


@pytest.mark.slow
def test_the_makefile_builds_the_same_program(tmp_path: Path) -> None:
    package = tilewright.compile(NETWORKS["tiny"](tmp_path), "sunway", directory=tmp_path / "p")
    program = tmp_path / "p" / "program"
    made = subprocess.run(
        ["make", "-C", str(program), "shim", "CFLAGS=-O1 -Wall -Wextra -Werror"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    inputs = inputs_of(package, 5)
    (tmp_path / "x").write_bytes(inputs["x"].tobytes())
    words = [program / "tiny_shim", program / "weights.bin", tmp_path / "x", tmp_path / "y"]
    subprocess.run([str(word) for word in words], check=True)
    (name, wanted), *_ = package.run(inputs).items()
    assert np.allclose(np.fromfile(tmp_path / "y", np.float32), wanted.ravel(), atol=1e-6), name


def test_the_same_model_gives_the_same_bytes(tmp_path: Path) -> None:
    model = NETWORKS["tiny"](tmp_path)
    texts: list[dict[Path, bytes]] = []
    for name in ("a", "b"):
        tilewright.compile(model, "sunway", directory=tmp_path / name)
        program = tmp_path / name / "program"
        texts.append({p.relative_to(program): p.read_bytes() for p in program.rglob("*.*")})
    assert texts[0] == texts[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "values",
    [
        {"memory.ldm.bytes": 10240},
        {"memory.ldm.bytes": 9216, "cores": 3},
        {"cores": 1, "memory.ldm.bytes": 16384},
        {"move.get.curve": "swcandle", "move.put.curve": "swcandle"},
    ],
)
@pytest.mark.parametrize("name", ["tiny", "residual", "mixed"])
def test_other_core_groups(name: str, values: dict[str, float], tmp_path: Path) -> None:
    package = tilewright.compile(NETWORKS[name](tmp_path), "sunway", values=values)
    inputs = inputs_of(package, 6)
    assert package.check(inputs, package.run(inputs)).equal


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"cores": 65}, "64 CPEs"),
        ({"memory.ldm.bytes": 1 << 17}, "LDM"),
        ({"move.get.curve": "fast"}, "curve"),
    ],
)
def test_machines_that_no_core_group_is(
    values: dict[str, float], word: str, tmp_path: Path
) -> None:
    with pytest.raises(TilewrightError) as raised:
        tilewright.compile(NETWORKS["tiny"](tmp_path), "sunway", values=values)
    assert word in str(raised.value)


def test_a_layer_that_fits_no_tile_runs_on_the_mpe(tmp_path: Path) -> None:
    net = Network(1, 40)
    x = net.op("Softmax", net.linear("x", 40, 9000), axis=1)
    package = tilewright.compile(net.save(tmp_path / "wide.onnx", x), "sunway")
    rows = runner_of(package).layers
    assert [row["on_host"] for row in rows] == [False, True]
    inputs = inputs_of(package, 7)
    assert package.check(inputs, package.run(inputs)).equal


def test_names_of_the_model_are_never_names_of_the_c(tmp_path: Path) -> None:
    net = Network(1, 3, 8, 8)
    net.op("Relu", net.conv("x", 3, 4, 3))
    net.nodes[0].name, net.nodes[1].name = 'while */ ??/ "x" \\', "int"
    net.nodes[0].output[0] = net.nodes[1].input[0] = "double"
    net.nodes[1].output[0] = "return"
    model = net.save(tmp_path / "shim.onnx", "return")
    package = tilewright.compile(model, "sunway")
    runner, inputs = runner_of(package), inputs_of(package, 8)
    runner.program = build(runner.directory, runner.manifest, STRICT)
    assert package.check(inputs, package.run(inputs)).equal


def test_a_damaged_manifest_is_refused(tmp_path: Path) -> None:
    package = tilewright.compile(NETWORKS["tiny"](tmp_path), "sunway", directory=tmp_path / "p")
    place = runner_of(package).directory / "program.json"
    text = place.read_text()
    for damage in (
        text[:-20],
        text.replace('"format": 1', '"format": 2'),
        re.sub(r'"start": \d+', '"start": 999999999', text, count=1),
        re.sub(r'"symbol": "\w+"', '"symbol": "../x"', text, count=1),
        re.sub(r'"nodes": \[[^]]*\]', '"nodes": 1', text, count=1),
    ):
        place.write_text(damage)
        with pytest.raises(TilewrightError, match="package-invalid"):
            SunwayRunner(place.parent)
