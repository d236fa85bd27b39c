"""Tensors that stay on the chip from one kernel to others: the same bits, fewer bytes."""

from __future__ import annotations

from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import pytest

import tilewright
from tests.end_to_end.end_to_end_models import image, lenet
from tests.targets.dpu.test_dpu_networks import Net
from tilewright.codegen.program.interface import Profile
from tilewright.compiler.fuse import fuse
from tilewright.compiler.pipeline import resolve, run_pipeline
from tilewright.machine import Machine
from tilewright.machine.load import load_machine
from tilewright.machine.synchronisation import Synchronisation
from tilewright.targets.base import find_target


def siblings() -> onnx.ModelProto:
    """Three convolutions of one tensor; numbers of channels are multiples of nothing."""
    net = Net(1, 37, 9, 11)
    x = net.conv("x", 37, 29, 1)
    branches = [net.conv(x, 29, outputs, 1) for outputs in (31, 13, 5)]
    return net.model(net.op("Concat", *branches, axis=1))


def inception(seed: int, modules: int = 1, size: int = 14) -> onnx.ModelProto:
    """GoogLeNet's modules, of odd numbers of channels, and a residual block of stride 2."""
    net = Net(1, 3, 2 * size, 2 * size)
    pick = np.random.default_rng(seed)
    channels = int(pick.integers(20, 90))
    x = net.conv("x", 3, channels, 3, strides=[2, 2])
    for _ in range(modules):
        a, b, c, d, e, f = (int(n) for n in pick.integers(3, 50, 6))
        pooled = net.op("MaxPool", x, kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4)
        branches = (
            net.conv(x, channels, a, 1),
            net.conv(net.conv(x, channels, b, 1), b, c, 3),
            net.conv(net.conv(x, channels, d, 1), d, e, 5),
            net.conv(pooled, channels, f, 1),
        )
        x, channels = net.op("Concat", *branches, axis=1), a + c + e + f
    short = net.conv(x, channels, 40, 1, then="", strides=[2, 2])
    y = net.conv(net.conv(x, channels, 12, 1, strides=[2, 2]), 12, 40, 3, then="")
    return net.model(net.op("Relu", net.op("Add", short, y)))


def without(machine: Machine) -> Machine:
    """The machine in whose memories nothing stays."""
    memories = tuple(one.model_copy(update={"resident": ()}) for one in machine.memories)
    return machine.model_copy(update={"memories": memories})


def compared(
    model: onnx.ModelProto, name: str, folder: Path, *, fused: bool = True
) -> tuple[Profile, Profile]:
    """The profiles with tensors that stay, and without, of equal results."""
    path = folder / "model.onnx"
    onnx.save(model, path)
    sample, target = image(onnx.load(path)), find_target(name)
    machine = target.machine()
    if not fused:
        machine = machine.model_copy(update={"fusions": ()})
    runs = []
    for one in (machine, without(machine)):
        made = tilewright.compile(path, target, machine=one, calibration=[sample])
        outputs = made.run(sample, check_races=True)
        assert made.check(sample, outputs).equal
        runs.append((made.profile, outputs))
    (stays, found), (loads, wanted) = runs
    assert all(np.array_equal(found[key], wanted[key]) for key in wanted)
    assert any(np.unique(wanted[key]).size > 5 for key in wanted)
    return stays, loads


@pytest.mark.slow
def test_siblings_load_their_tensor_once(tmp_path: Path) -> None:
    """All bytes but those of two loads, exactly: no kernel here loads a row twice."""
    stays, loads = compared(siblings(), "zu2", tmp_path, fused=False)
    assert (loads.dram_bytes or 0) - (stays.dram_bytes or 0) == 2 * 29 * 9 * 11
    assert (stays.cycles or 0) < (loads.cycles or 0)


@pytest.mark.slow
def test_fusion_plans_say_what_stays(tmp_path: Path) -> None:
    """The tensor, who reads it, its bytes in granules of the banks, and what it gains; as text."""
    path = tmp_path / "model.onnx"
    onnx.save(siblings(), path)
    target, machine = resolve("zu2")
    machine = machine.model_copy(update={"fusions": machine.fusions[:1]})
    plan = fuse(path, target, machine, searches=("exact",)).plans["exact"]
    (staying,) = plan.stays
    assert staying.memory == "vb0" and len(staying.readers) == 3
    assert set(staying.readers) < plan.kernels
    assert staying.bytes >= 29 * 9 * 11 and staying.gain > 0
    assert "stays in vb0: " in str(plan) and len(plan.to_json()["stays"]) == 1
    state = run_pipeline(path, target, machine)
    reading = [k for k, plan in state.plans.items() if plan.schedule.stays]
    assert tuple(reading) == staying.readers
    alone = fuse(path, target, without(machine), searches=("exact",)).plans["exact"]
    assert alone.stays == () and alone.cycles == plan.cycles


@pytest.mark.slow
@pytest.mark.parametrize(("name", "fused"), [("zu2", False), ("zu9", True)])
def test_modules_of_odd_channels(name: str, fused: bool, tmp_path: Path) -> None:
    """Chains, and single kernels, some of them between two readers."""
    stays, loads = compared(inception(2 + fused), name, tmp_path, fused=fused)
    assert (stays.dram_bytes or 0) < (loads.dram_bytes or 0)
    assert (stays.cycles or 0) < (loads.cycles or 0)


@pytest.mark.slow
def test_plans_say_what_stays_and_what_is_left(tmp_path: Path) -> None:
    """Readers have the tensor in their schedules; kernels between them have less memory."""
    path = tmp_path / "model.onnx"
    onnx.save(inception(3), path)
    target, machine = resolve("zu2")
    machine = machine.model_copy(update={"fusions": ()})
    sample = image(onnx.load(path))
    state = run_pipeline(path, target, machine, calibration=[sample])
    whole = machine.memory("vb0").bytes or 0
    kernels = {item.kernel.symbol: item.kernel for item in state.kernels}
    held = {name: plan for name, plan in state.plans.items() if plan.schedule.rooms}
    staying = {name: plan for name, plan in held.items() if plan.schedule.stays}
    assert len(staying) > 1 and len(staying) < len(held)
    for plan in held.values():
        assert dict(plan.schedule.rooms)["vb0"] < whole
    for name, plan in staying.items():
        for resident in plan.schedule.stays:
            (operand,) = (o for o in kernels[name].inputs if o.name == resident.operand)
            assert operand.role == "input"
            assert resident.address >= dict(plan.schedule.rooms)["vb0"]
        assert plan.moved_bytes >= prod(kernels[name].output.shape)
    alone = run_pipeline(path, target, machine, calibration=[sample], hold=False)
    assert not any(plan.schedule.rooms for plan in alone.plans.values())


MACHINES = Path(__file__).parents[2] / "examples" / "machines"


SYNCHRONISATION = {"flags": {"style": "flags", "ids": 8}, "tokens": {"style": "tokens"}}


def unified(text: str) -> str:
    """The machine of small-npu-c.toml with one memory for features and results."""
    lines = [line for line in text.splitlines() if not line.startswith("memory.result")]
    kept = [line for line in lines if 'target = "result"' not in line]
    return "\n".join(kept).replace('"result"', '"feature"') + "\n"


def resident_machine(name: str, memory: str, style: str) -> Machine:
    """An example machine whose tensors may stay in a memory."""
    text = (MACHINES / f"{name}.toml").read_text(encoding="utf-8")
    with TemporaryDirectory() as folder:
        file = Path(folder) / f"{name}.toml"
        file.write_text(unified(text) if name == "small-npu-c" else text, encoding="utf-8")
        machine = load_machine(file)
    memories = tuple(
        item.model_copy(update={"resident": ("inputs", "results")}) if item.name == memory else item
        for item in machine.memories
    )
    update: dict[str, object] = {"memories": memories, "fusions": ()}
    if style:
        update["synchronisation"] = Synchronisation.model_validate(SYNCHRONISATION[style])
    return machine.model_copy(update=update)


def residual(seed: int) -> onnx.ModelProto:
    """Convolutions, a depthwise one, a pool, branches and a residual addition, of odd sizes."""
    pick = np.random.default_rng(seed)
    size, a, b = (int(n) for n in pick.integers(9, 21, 3))
    net = Net(1, 3, size, size + 3)
    x = net.conv("x", 3, a, 3)
    y = net.conv(net.conv(x, a, b, 1), b, a, 3, then="")
    x = net.op("Relu", net.op("Add", x, y))
    pooled = net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    branches = (net.conv(pooled, a, 7, 1), net.conv(pooled, a, 5, 3))
    return net.model(net.op("Concat", *branches, axis=1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "memory", "style", "seed"),
    [
        ("fused", "maps", "", 0),
        ("fused", "maps", "flags", 1),
        ("fused", "maps", "tokens", 0),
        ("replies", "ldm", "", 1),
        ("small-npu-c", "feature", "", 0),
    ],
)
def test_results_stay_on_any_machine(
    name: str, memory: str, style: str, seed: int, tmp_path: Path
) -> None:
    """Results that nothing stores: the same bits as with stores, and fewer bytes and cycles."""
    machine = resident_machine(name, memory, style)
    path = tmp_path / "model.onnx"
    onnx.save(residual(seed), path)
    sample = image(onnx.load(path))
    runs: list[tuple[Profile, dict[str, np.ndarray]]] = []
    for one in (machine, without(machine)):
        compiled = tilewright.compile(path, "generic", machine=one, calibration=[sample])
        outputs = compiled.run(sample, check_races=True)
        assert compiled.check(sample, outputs).equal
        runs.append((compiled.profile, outputs))
    (stays, found), (stores, wanted) = runs
    for key in wanted:  # Sums of floats take another order in other tiles.
        rough = 1e-5 if machine.element == "float32" else 0.0
        np.testing.assert_allclose(found[key], wanted[key], rtol=rough, atol=rough)
    assert (stays.dram_bytes or 0) < (stores.dram_bytes or 0)
    assert (stays.cycles or 0) < (stores.cycles or 0)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["microcontroller", "small-npu-c"])
def test_plans_move_the_bytes_that_the_simulator_counts(name: str, tmp_path: Path) -> None:
    """Kernel by kernel: what stays is not stored, what is found is not loaded. The simulator also
    counts the words of instructions, which have no bytes here."""
    machine = resolve(str(MACHINES / f"{name}.toml"))[1]
    if name == "small-npu-c":
        machine = resident_machine(name, "feature", "")
    machine = machine.model_copy(update={"instruction_bytes": 0})
    path = tmp_path / "model.onnx"
    onnx.save(residual(2) if name == "small-npu-c" else lenet(), path)
    sample = image(onnx.load(path))
    made = tilewright.compile(path, "generic", machine=machine, calibration=[sample])
    made.run(sample)
    planned = {entry.name: entry for entry in made.manifest.kernels}
    assert any(" stays at " in entry.schedule for entry in planned.values())
    assert any(" found at " in entry.schedule for entry in planned.values())
    simulated = {run.symbol: run.dram_bytes for run in made.profile.kernels}
    moved = {key: entry.moved_bytes for key, entry in planned.items() if entry.moved_bytes}
    assert moved and moved == {key: simulated[key] for key in moved}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["fused", "small-npu-c"])
def test_results_that_stay_can_be_looked_at(name: str, tmp_path: Path) -> None:
    """Who watches a run sees them, though no kernel stores them."""
    machine = resident_machine(name, "maps" if name == "fused" else "feature", "")
    path = tmp_path / "model.onnx"
    onnx.save(residual(3), path)
    sample = image(onnx.load(path))
    seen: list[dict[str, np.ndarray]] = []
    for one in (machine, without(machine)):
        compiled = tilewright.compile(path, "generic", machine=one, calibration=[sample])
        values: dict[str, np.ndarray] = {}
        compiled.run(
            sample, observe=lambda key, value, into=values: into.update({key: value.copy()})
        )
        seen.append(values)
    stays, stores = seen
    assert len(stays) > 5
    for key, value in stays.items():
        np.testing.assert_array_equal(value, stores[key])
