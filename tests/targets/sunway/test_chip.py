"""Four core groups: results, how layers are divided, what is counted, and what the shim finds."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests.slow import but_fast
from tests.targets.sunway.sunway_networks import NETWORKS, Network
from tests.targets.sunway.test_packages import STRICT, inputs_of, runner_of

import tilewright
from tilewright.compiler.pipeline import resolve
from tilewright.errors import TilewrightError
from tilewright.planning import Planner
from tilewright.planning.domain import Affine, Dim, Kernel, Operand, Stage
from tilewright.planning.own import start_cycles
from tilewright.runtime import Executable
from tilewright.targets.sunway.chip import CHIP, GROUPS, ChipPlanner, group_machine
from tilewright.targets.sunway.emit.package import SHIM_FLAGS, SHIM_LINK, sources_of
from tilewright.targets.sunway.machine import CHAINS, CPES, MACHINE
from tilewright.targets.sunway.runner import build


def images(folder: Path) -> Path:
    """A batch of eight, two convolutions."""
    net = Network(8, 3, 12, 12)
    x = net.op("Relu", net.conv("x", 3, 8, 3))
    return net.save(folder / "images.onnx", net.conv(x, 8, 12, 3))


MODELS: dict[str, Callable[[Path], Path]] = {
    "images": images,
    **{name: NETWORKS[name] for name in ("mixed", "alex")},
}


class Chip:
    """A network for one core group and for the chip."""

    def __init__(self, model: Path, folder: Path) -> None:
        apart = {f"fusion.{query.replace(' -> ', '-')}": "off" for query in CHAINS}
        self.group = tilewright.compile(
            model, "sunway", directory=folder / "group", planner="exact", values=apart
        )
        self.whole = tilewright.compile(model, "sunway-chip", directory=folder / "chip")

    @property
    def program(self) -> Path:
        """The files of the chip's program."""
        return runner_of(self.whole).directory


@pytest.fixture(scope="module", params=but_fast(MODELS, ["images"]))
def chip(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Chip:
    folder = tmp_path_factory.mktemp("chip")
    return Chip(MODELS[request.param](folder), folder)


def test_results_are_those_of_one_core_group(chip: Chip) -> None:
    runner = runner_of(chip.whole)
    runner.program = build(runner.directory, runner.manifest, STRICT)
    for seed, order in ((1, ""), (2, "5")):
        inputs = inputs_of(chip.whole, seed)
        runner.order = order
        result = chip.whole.run(inputs)
        assert chip.whole.check(inputs, result).equal
        for name, wanted in chip.group.run(inputs).items():
            assert np.array_equal(result[name], wanted), name


def test_counts_are_those_of_the_slowest_core_group(chip: Chip) -> None:
    runner, takes = runner_of(chip.whole), (7, 5, 11, 3)
    groups = [int(row["groups"]) for row in runner.layers if not row["on_host"]]
    assert max(groups) > 1
    rows = [f"{takes[g]} 6 2 0 0 0 {g}" for count in groups for g in range(count)]
    # The threads come in any order, and each writes its kernels in theirs.
    profile = runner.profile("\n".join(sorted(rows, key=lambda row: -int(row.split()[-1]))))
    assert profile.cycles == sum(max(takes[:count]) for count in groups)
    assert profile.dram_bytes == 8 * sum(groups)


@pytest.mark.slow
def test_layers_take_what_the_slowest_core_group_does(chip: Chip) -> None:
    inputs = inputs_of(chip.whole, 3)
    assert chip.whole.check(inputs, chip.whole.run(inputs, profile=True)).equal
    for kernel in chip.whole.profile.kernels:
        assert kernel.on_host or (kernel.cycles or 0) > start_cycles(CHIP)


def convolution(n: int, co: int, side: int) -> Kernel:
    def axes(text: str) -> tuple[Affine, ...]:
        return tuple(Affine.parse(part) for part in text.split(","))

    sizes = (("n", n), ("co", co), ("oh", side), ("ow", side))
    dims = (*(Dim(d, e) for d, e in sizes), Dim("ci", 64, "reduction"))
    x = Operand("x", (n, 64, side, side), axes("n, ci, oh, ow"), "float32", layout="NCHW")
    w = Operand("w", (co, 64, 1, 1), axes("co, ci, 0, 0"), "float32", "weight", layout="IHWO")
    y = Operand("y", (n, co, side, side), axes("n, co, oh, ow"), "float32", "output")
    return Kernel("k", (Stage("conv", dims, (x, w), y),))


@pytest.mark.parametrize(
    ("kernel", "groups"),
    [
        (convolution(1, 512, 7), "4 by co"),
        (convolution(1, 4, 128), "4 by oh"),
        (convolution(1, 4, 3), "1"),
        (convolution(128, 64, 4), "4 by n"),
    ],
)
def test_the_planner_chooses_what_is_divided(kernel: Kernel, groups: str) -> None:
    planned = ChipPlanner(CHIP, None)(kernel, CHIP)
    schedule = planned.schedule
    assert dict(schedule.options)["core_groups"] == groups
    assert f"core_groups={groups}" in str(schedule)
    alone = Planner(group_machine(CHIP)).plan(kernel)
    if groups == "1":
        assert schedule.levels == alone.schedule.levels
        return
    alone_cycles = alone.predicted_cycles - start_cycles(MACHINE)
    assert planned.predicted_cycles - start_cycles(CHIP) < alone_cycles
    # The parts in the order of their numbers, dealt to the CPEs in equal runs.
    extents, outer = kernel.anchor.extents, dict(schedule.levels[0].tile)
    parts = list(product(*(range(-(-extents[dim] // size)) for dim, size in outer.items())))
    run = -(-len(parts) // CHIP.cores) * CPES
    axis = list(outer).index(groups.split()[-1])
    seen = [{part[axis] for part in parts[g * run : (g + 1) * run]} for g in range(GROUPS)]
    assert all(not a & b for a, b in pairwise(seen))


def test_memory_of_other_core_groups_may_be_slower() -> None:
    kernel, cycles = convolution(4, 8, 32), list[float]()
    for name in ("swgemm", "swgemm_half"):
        values: dict[str, Any] = {"move.get.curve": name, "move.put.curve": name}
        _, machine = resolve("sunway-chip", values=values)
        cycles.append(ChipPlanner(machine, None)(kernel, machine).predicted_cycles)
    assert cycles[0] < cycles[1] < 2 * cycles[0]


MUTATIONS = (
    (
        "core_groups.h",
        "pthread_barrier_wait(&all);\n    if (!layers)",
        "if (!layers)",
        "have not met",
    ),
    ("core_groups.h", "CPU_SET(4 * group,", "CPU_SET(4 * (group / 2),", "two threads are bound"),
    ("main.c", "    bind(group);\n", "    (void)bind;\n", "is bound to no MPE"),
    ("layers/LAYER_slave.c", "para.group * 64", "para.group * 32", "core group"),
    ("layers/LAYER_slave.c", "para.group * 64", "0 * 64", "have not met"),
)


ATTEMPTS = 10
"""Runs in which a missing barrier has to be seen once."""


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> tuple[Executable, dict[str, Path]]:
    """The batch's package for the chip, and an object of each of its files."""
    folder = tmp_path_factory.mktemp("mutations")
    package = tilewright.compile(images(folder), "sunway-chip", directory=folder / "p")
    program = runner_of(package).directory
    names = [str(row["symbol"]) for row in runner_of(package).layers]
    found: dict[str, Path] = {}
    for number, source in enumerate(sources_of(names, names)):
        found[source] = folder / f"{number}.o"
        compiled(program, source, found[source])
    return package, found


def compiled(program: Path, source: str, target: Path) -> None:
    command = ["cc", *SHIM_FLAGS, "-O0", "-w", "-c", source, "-o", str(target)]
    subprocess.run(command, cwd=program, check=True)


@pytest.mark.few(2)
@pytest.mark.parametrize(("source", "text", "changed", "said"), MUTATIONS)
def test_core_groups_that_meddle_are_found(
    objects: tuple[Executable, dict[str, Path]],
    source: str,
    text: str,
    changed: str,
    said: str,
    tmp_path: Path,
) -> None:
    package, kept = objects
    program, built = runner_of(package).directory, dict(kept)
    source = source.replace("LAYER", str(runner_of(package).layers[0]["symbol"]))
    original = (program / source).read_text()
    assert text in original
    mutated = original.replace(text, changed, 1)
    if source.endswith(".h"):  # It stands in main.c in place of its name.
        mutated = (program / "main.c").read_text().replace(f'#include "{source}"', mutated)
        source = "main.c"
    copy = (program / source).with_name("mutation.c")
    copy.write_text(mutated)
    built[source] = tmp_path / "mutation.o"
    compiled(program, str(copy.relative_to(program)), built[source])
    binary = tmp_path / "program"
    files = [str(path) for path in built.values()]
    subprocess.run(["cc", *SHIM_LINK, *files, "-o", str(binary), "-lm"], check=True)
    (tmp_path / "x").write_bytes(inputs_of(package, 4)["x"].tobytes())
    words = [binary, program / "weights.bin", tmp_path / "x", tmp_path / "y"]
    # A missing barrier is seen when threads run side by side, as on a busy host they may not; a
    # thread may also meet a pointer that another one has not yet set.
    for _ in range(ATTEMPTS):
        ran = subprocess.run(
            [str(word) for word in words],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env=dict(os.environ),
        )
        if ran.returncode == 3:
            break
    assert ran.returncode == 3, ran.stderr
    assert said in ran.stderr
    assert re.match(r"shim: [\w./]+:\d+: ", ran.stderr)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"values": {"cores": 128}}, "256 CPEs"),
        ({"planner": "ldm{share=mesh}"}, "no mesh of cores"),
    ],
)
def test_what_the_chip_is_not_is_refused(
    options: dict[str, Any], word: str, tmp_path: Path
) -> None:
    with pytest.raises(TilewrightError) as raised:
        tilewright.compile(images(tmp_path), "sunway-chip", **options)
    assert word in str(raised.value)


@pytest.mark.slow
def test_the_makefile_builds_a_program_of_four_threads(chip: Chip) -> None:
    made = subprocess.run(
        ["make", "-C", str(chip.program), "shim", "CFLAGS=-O0 -Wall -Wextra -Werror"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    main = (chip.program / "main.c").read_text()
    assert "pthread_create(&threads[group]" in main
    assert "shim" not in main


def test_a_network_without_kernels_runs(tmp_path: Path) -> None:
    """Core groups with nothing to do may halt before others begin."""
    shape = helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 1])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, 1])
    node = helper.make_node("Transpose", ["x"], ["y"], perm=[0, 1])
    graph = helper.make_graph([node], "nothing", [shape], [result])
    path = tmp_path / "nothing.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), path)
    x = np.arange(8, dtype=np.float32).reshape(8, 1)
    result = tilewright.compile(path, "sunway-chip").run({"x": x})["y"]
    np.testing.assert_array_equal(result, x)
