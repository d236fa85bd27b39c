"""Whole networks as packages of words: values, waits between kernels, variants, damage."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.graph.networks import by_hand, parameters

from tilewright.codegen.words import assemble
from tilewright.compiler import api as compiling
from tilewright.errors import TilewrightError
from tilewright.frontends import Imported
from tilewright.graph.dialect import NetworkOp, OutputOp, WeightOp, network_of
from tilewright.graph.operations import BY_NAME
from tilewright.graph.weights import Weights
from tilewright.ir import ModuleOp, SSAValue
from tilewright.ir.types import shape_of, tensor
from tilewright.machine import Machine
from tilewright.machine.load import load_machine
from tilewright.runtime import Executable
from tilewright.simulate.races import find_races
from tilewright.system.choices import target_names
from tilewright.targets.base import find_target
from tilewright.targets.cambricon_x import TARGET
from tilewright.targets.generic.program import decode
from tilewright.targets.generic.runner import InstructionRunner
from tilewright.targets.generic.simulate import Simulator
from tilewright.targets.generic.timing import accesses_of, timed_program

SMALL_NPU = Path(__file__).parents[3] / "examples" / "machines" / "small-npu.toml"


def network(seed: int = 1) -> Imported:
    module, weights = by_hand(parameters(seed))
    return Imported(module, weights, "small", 17, "0" * 64)


def image(seed: int) -> dict[str, NDArray[np.float32]]:
    return {"image": np.random.default_rng(seed).normal(0, 1, (2, 3, 12, 12)).astype(np.float32)}


@cache
def compiled() -> Executable:
    return compiling.compile(network(), "cambricon-x")


def runner_of(executable: Executable) -> InstructionRunner:
    assert isinstance(executable.runner, InstructionRunner)
    return executable.runner


def test_a_network_matches_the_interpreter_bit_for_bit(tmp_path: Path) -> None:
    executable = compiled()
    seen: list[bytes] = []
    for seed in range(3):
        outputs = executable.run(image(seed), check_races=True, trace=tmp_path / "trace.json")
        check = executable.check(image(seed), outputs)
        assert check.equal and check.exact and check.mismatches == 0
        seen.append(outputs["y"].tobytes())
    assert len(set(seen)) == 3
    profile = executable.profile
    assert profile.cycles is not None and profile.dram_bytes is not None
    kernels = [kernel for kernel in profile.kernels if not kernel.on_host]
    assert sum(k.cycles or 0 for k in kernels) == pytest.approx(profile.cycles, abs=1)
    assert sum(k.dram_bytes or 0 for k in kernels) == profile.dram_bytes
    assert all(0 < fraction <= 1 for fraction in profile.engines.values())
    trace = (tmp_path / "trace.json").read_text()
    assert "conv0" in trace or any(node in trace for k in kernels for node in k.nodes)
    json.loads(trace)


def test_every_accelerator_kernel_names_its_nodes() -> None:
    rows = runner_of(compiled()).parts.file.kernels
    assert rows and all(row.nodes for row in rows)
    assert [row.start for row in rows[1:]] == [row.end for row in rows[:-1]]


def test_the_listing_assembles_to_the_program() -> None:
    runner = runner_of(compiled())
    listing = TARGET.listing(compiled().directory / "program")
    assert f"; kernel {runner.parts.file.kernels[0].symbol}" in listing
    np.testing.assert_array_equal(assemble(runner.instruction_set, listing), runner.words)
    machine = runner.instruction_set.machine
    data = (compiled().directory / "program" / "program.bin").read_bytes()
    assert TARGET.assemble(TARGET.disassemble(data, machine), machine) == data


def test_waits_between_kernels_are_needed() -> None:
    """Drop, one by one, the waits of each kernel's first instructions: many leave a race."""
    runner = runner_of(compiled())
    commands = timed_program(runner.program, runner.kernels)
    accesses = accesses_of(runner.program)
    machine = runner.instruction_set.machine
    found = tried = 0
    for row in runner.parts.file.kernels[1:]:
        for command in range(row.start, min(row.start + 4, row.end)):
            for engine in np.flatnonzero(commands["waits"][command]).tolist():
                changed = commands.copy()
                changed["waits"][command, engine] = 0
                report = find_races(changed, accesses, machine)
                found += bool(report.races or report.unwritten)
                tried += 1
    assert tried > 10
    assert found > tried // 4


@pytest.mark.slow
@pytest.mark.parametrize(
    "values",
    [
        pytest.param(
            {"memory.sb.bytes": 65536, "memory.nbin.bytes": 16384}, marks=pytest.mark.slow
        ),
        {"memory.nbin.bytes": 3072, "memory.nbout.bytes": 3072, "memory.sb.bytes": 4096},
        pytest.param({"memory.dram.bytes_per_cycle": 8.0}, marks=pytest.mark.slow),
        pytest.param({"memory.tables.bytes": 1024}, marks=pytest.mark.slow),
        pytest.param(
            {"move.load_nbin.in_flight": 4, "move.load_sb.in_flight": 4}, marks=pytest.mark.slow
        ),
        pytest.param(
            {"engine.load.queue": 1, "engine.compute.queue": 1, "engine.store.queue": 1},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"move.load_nbin.transaction": 64, "move.store_nbout.transaction": 64},
            marks=pytest.mark.slow,
        ),
    ],
    ids=lambda values: ",".join(values),
)
def test_varied_machines_compute_the_same(values: Mapping[str, float]) -> None:
    executable = compiling.compile(network(), "cambricon-x", values=values)
    outputs = executable.run(image(4), check_races=True)
    assert executable.check(image(4), outputs).mismatches == 0


@pytest.mark.slow
def test_a_slower_memory_takes_longer() -> None:
    cycles = []
    for rate in (128.0, 1.0):
        values = {"memory.dram.bytes_per_cycle": rate}
        executable = compiling.compile(network(), "cambricon-x", values=values)
        executable.run(image(0))
        cycles.append(executable.profile.cycles)
    assert cycles[0] < cycles[1]


@pytest.mark.slow
def test_a_machine_file_runs_without_python() -> None:
    executable = compiling.compile(network(), str(SMALL_NPU))
    outputs = executable.run(image(2), check_races=True)
    check = executable.check(image(2), outputs)
    assert check.equal
    on_host = {node for k in executable.profile.kernels if k.on_host for node in k.nodes}
    assert any("softmax" in node for node in on_host), "it has no softmax: the host's C runs it"
    assert (executable.directory / "program" / "host").is_dir()
    profile = executable.profile
    kernels = sum(k.seconds or 0 for k in profile.kernels if k.on_host)
    assert profile.host_seconds is not None and profile.host_seconds >= kernels > 0
    assert executable.runner.timed().host_seconds is None, "nothing was measured"


@pytest.mark.slow
def test_one_scratchpad_and_one_engine_for_moves_do_too() -> None:
    executable = compiling.compile(network(), str(Path(__file__).parent / "one_scratchpad.toml"))
    outputs = executable.run(image(2), check_races=True)
    assert executable.check(image(2), outputs).equal
    assert list(executable.profile.engines) == ["dma", "core"]


def float_machine() -> Machine:
    machine = load_machine(SMALL_NPU)
    keep = [
        p.model_copy(update={"epilogue": (("add",), ("relu", "clip", "leaky_relu"), ("tanh",))})
        for p in machine.primitives
    ]
    lrn = TARGET.machine().primitive("lrn")
    softmax = TARGET.machine().primitive("softmax")
    places = {"input": "feature", "residual": "result", "output": "result"}
    for one in (lrn, softmax):
        operands = {
            role: storage.model_copy(update={"memory": places[role]})
            for role, storage in one.operands.items()
        }
        keep.append(one.model_copy(update={"operands": operands, "epilogue": ()}))
    return machine.model_copy(
        update={
            "name": "float-npu",
            "element": "float32",
            "accumulator": "float32",
            "primitives": tuple(keep),
        }
    )


@pytest.mark.slow
def test_a_float_machine_comes_close() -> None:
    executable = compiling.compile(network(), "generic", machine=float_machine())
    outputs = executable.run(image(3), check_races=True)
    check = executable.check(image(3), outputs)
    assert check.equal and not check.exact
    assert check.max_abs_error < 1e-5
    assert not [k for k in executable.profile.kernels if k.on_host and k.nodes]


def with_division() -> Imported:
    """A network whose middle is for the host: the accelerator has no division."""
    weights, net = Weights(), NetworkOp.of("net", [("x", tensor((1, 8, 6, 6)))], ["y"])
    pick = np.random.default_rng(3)

    def weight(shape: tuple[int, ...]) -> SSAValue:
        array = (pick.normal(0, 0.3, shape)).astype(np.float32)
        op = WeightOp.of(weights.add(array, "w"), tensor(shape))
        net.block.add_op(op)
        return op.result

    def add(kind: str, *inputs: SSAValue, **attributes: object) -> SSAValue:
        op = BY_NAME[kind].build_from(inputs, attributes, node=kind)  # type: ignore[arg-type]
        net.block.add_op(op)
        return op.result

    x = add("conv", net.block.args[0], weight((16, 8, 3, 3)), pads=(1, 1, 1, 1))
    below = add("exp", add("conv", net.block.args[0], weight((16, 8, 1, 1))))
    divided = add("div", x, below)
    y = add("conv", divided, weight((4, 16, 1, 1)))
    assert shape_of(y) == (1, 4, 6, 6)
    net.block.add_op(OutputOp.build(operands=[[y]]))
    return Imported(ModuleOp([net]), weights, "net", 17, "0" * 64)


def test_the_host_runs_between_kernels() -> None:
    executable = compiling.compile(with_division(), "cambricon-x")
    x = {"x": np.random.default_rng(0).normal(0, 1, (1, 8, 6, 6)).astype(np.float32)}
    outputs = executable.run(x, check_races=True)
    assert executable.check(x, outputs).equal
    order = [(k.on_host, k.nodes) for k in executable.profile.kernels]
    host = order.index((True, ("div",)))
    assert any(not on_host for on_host, _ in order[:host])
    assert any(not on_host for on_host, _ in order[host:])
    reasons = {k.nodes: k.reason for k in executable.manifest.kernels}
    assert "div" in reasons[("div",)]


TOY = '''
from tilewright.targets.cambricon_x.machine import MACHINE
from tilewright.targets.generic.target import InstructionTarget


class Toy(InstructionTarget):
    """A target in one file."""

    name = "toy"
    description = "half of cambricon-x"

    def machine(self):
        """Half the buffers."""
        return MACHINE.with_values({"memory.sb.bytes": 16384})


TARGET = Toy()
'''


@pytest.mark.slow
def test_a_target_installed_elsewhere_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "toy_target.py").write_text(TOY)
    info = tmp_path / "toy-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tilewright.targets]\ntoy = toy_target:TARGET\n")
    assert "toy" not in target_names()
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        assert "toy" in target_names()
        assert find_target("toy").machine().memory("sb").bytes == 16384
        executable = compiling.compile(network(), "toy")
        outputs = executable.run(image(1), check_races=True)
        assert executable.check(image(1), outputs).mismatches == 0
        assert executable.manifest.target == "toy"
    finally:
        sys.modules.pop("toy_target", None)


def test_generic_needs_a_machine() -> None:
    with pytest.raises(TilewrightError, match="target-machine"):
        compiling.compile(network(), "generic")


def test_wrong_inputs_are_refused() -> None:
    executable = compiled()
    x = image(0)["image"]
    for inputs, code in (
        ({}, "input-missing"),
        ({"image": x, "more": x}, "input-name"),
        ({"image": x[:1]}, "input-shape"),
        ({"image": x.astype(np.float64)}, "input-dtype"),
    ):
        with pytest.raises(TilewrightError, match=code):
            executable.run(inputs)


@pytest.mark.parametrize("memory", ["sb", "nowhere", "dram"])
def test_a_result_that_stays_where_nothing_does_is_refused(memory: str, tmp_path: Path) -> None:
    folder = tmp_path / "program"
    shutil.copytree(compiled().directory / "program", folder)
    content = json.loads((folder / "program.json").read_text())
    content["kernels"][0]["held"] = {"memory": memory, "address": 0, "place": 0, "bytes": 2}
    (folder / "program.json").write_text(json.dumps(content))
    with pytest.raises(TilewrightError, match=r"package-invalid.*stays where"):
        TARGET.load(folder)


FILES = ("program.json", "program.bin", "network.mlir", "weights.bin", "tables.bin")


@pytest.mark.slow
@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    st.sampled_from(FILES),
    st.integers(0, 1 << 20),
    st.binary(max_size=4),
    st.integers(0, 5),
    st.booleans(),
)
def test_damaged_packages_are_refused_or_run(
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
    at: int,
    insert: bytes,
    cut: int,
    truncate: bool,
) -> None:
    """The manifest's digests are checked above; this is what lies below them."""
    folder = tmp_path_factory.mktemp("damaged") / "program"
    shutil.copytree(compiled().directory / "program", folder)
    path = folder / name
    data = path.read_bytes()
    at %= len(data) + 1
    path.write_bytes(data[:at] if truncate else data[:at] + insert + data[at + cut :])
    try:
        runner = TARGET.load(folder)
        runner.run({i.name: np.zeros(i.shape, i.dtype) for i in runner.inputs}, check_races=True)
    except TilewrightError:
        pass
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("word_bytes", 64, "package-invalid"),
        ("arenas", {"weights": 64, "activations": 64}, "package-invalid"),
        ("arenas", {"weights": -1, "activations": 1 << 60}, "package-invalid"),
        ("bases", {}, "package-invalid"),
        ("steps", [["words", 99]], "package-invalid"),
        ("steps", [["shell", 0]], "package-invalid"),
        ("kernels", [], "package-invalid"),
        ("machine", {"name": "x"}, "machine-"),
    ],
)
def test_hostile_programs_are_refused(key: str, value: Any, code: str, tmp_path: Path) -> None:
    folder = tmp_path / "program"
    shutil.copytree(compiled().directory / "program", folder)
    data = json.loads((folder / "program.json").read_text())
    data[key] = value
    (folder / "program.json").write_text(json.dumps(data))
    with pytest.raises(TilewrightError) as caught:
        TARGET.load(folder)
    assert caught.value.problems[0].code.startswith(code)


def test_kernels_that_the_network_does_not_have_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "program"
    shutil.copytree(compiled().directory / "program", folder)
    data = json.loads((folder / "program.json").read_text())
    data["kernels"][0]["symbol"] = "other"
    (folder / "program.json").write_text(json.dumps(data))
    with pytest.raises(TilewrightError, match=r"package-invalid.*is not in the network"):
        TARGET.load(folder)


def test_memories_too_large_to_simulate_are_refused() -> None:
    instructions = TARGET.instruction_set(
        TARGET.machine().with_values({"memory.sb.bytes": 1 << 40})
    )
    program = decode(instructions, np.zeros(0, np.uint64))
    with pytest.raises(TilewrightError, match="simulate-memory"):
        Simulator(program, [])


def test_the_network_keeps_its_outputs() -> None:
    assert [name for name, _ in network_of(network().module).outputs] == ["y"]
