"""Constants, results and slices of results that stay on ACC-C: the same bits, fewer transfers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tests.network.test_residency import without
from tilewright.compiler.pipeline import resolve, run_pipeline
from tilewright.compiler.state import CompilationState
from tilewright.errors import TilewrightError
from tilewright.machine import Machine
from tilewright.network.fusion.plan import StayingTensor
from tilewright.targets.base import find_target

LENET = Path(__file__).parents[2] / "examples" / "lenet5" / "lenet5.onnx"


def lstm(path: Path, cells: int) -> Path:
    """Three steps, of which two read the same recurrent weights."""
    random = np.random.default_rng(0)
    sizes = {"w": (1, 4 * cells, 3), "r": (1, 4 * cells, cells), "b": (1, 8 * cells)}
    weights = [
        numpy_helper.from_array(random.normal(0, 0.2, size).astype(np.float32), name)
        for name, size in sizes.items()
    ]
    graph = helper.make_graph(
        [helper.make_node("LSTM", ["x", "w", "r", "b"], ["y"], hidden_size=cells)],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 1, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    return path


@dataclass(frozen=True)
class Ran:
    """A network's run: its cycles, the bytes of main memory, and what it gives."""

    cycles: float
    moved: int
    outputs: dict[str, np.ndarray]
    staying: tuple[StayingTensor, ...]


def ran(path: Path, machine: Machine) -> Ran:
    """Exact on two inputs, and without races."""
    made = tilewright.compile(path, "cambricon", machine=machine)
    outputs: dict[str, np.ndarray] = {}
    for seed in range(2):
        sample = {
            info.name: np.random.default_rng(seed)
            .normal(0, 1, [int(size) for size in info.shape])
            .astype(info.dtype)
            for info in made.inputs
        }
        outputs = made.run(sample, check_races=True)
        check = made.check(sample, outputs)
        assert check.equal and check.exact and check.mismatches == 0
    staying = run_pipeline(path, find_target("cambricon"), machine, until="plan").staying
    return Ran(made.profile.cycles or 0, made.profile.dram_bytes or 0, outputs, staying)


@pytest.mark.slow
def test_steps_of_an_lstm_find_weights_and_slices(tmp_path: Path) -> None:
    path = lstm(tmp_path / "net.onnx", 192)
    _, machine = resolve("cambricon")
    stays, stores = ran(path, machine), ran(path, without(machine))
    for name, values in stores.outputs.items():
        np.testing.assert_array_equal(stays.outputs[name], values)
    weights = [tensor for tensor in stays.staying if tensor.memory == "msm"]
    assert [len(tensor.readers) for tensor in weights] == [2]
    # The gates are slices of the sums of a step, each read by a kernel of its own.
    assert any(len(t.readers) == 5 and t.bytes == 2 * 4 * 192 for t in stays.staying)
    assert stays.cycles < stores.cycles and stays.moved < stores.moved


@pytest.mark.slow
def test_weights_that_do_not_fit_are_loaded(tmp_path: Path) -> None:
    path = lstm(tmp_path / "net.onnx", 48)
    _, machine = resolve("cambricon", values={"memory.msm.bytes": 16 << 10})
    assert not any(tensor.memory == "msm" for tensor in ran(path, machine).staying)


@cache
def lenet(*, stays: bool) -> CompilationState:
    target, machine = resolve("cambricon")
    return run_pipeline(LENET, target, machine if stays else without(machine))


@pytest.mark.slow
def test_results_and_biases_of_lenet_stay() -> None:
    state, alone = lenet(stays=True), lenet(stays=False)
    assert not alone.staying
    biases = [tensor for tensor in state.staying if "bias" in tensor.tensor]
    assert len(biases) == 5 and all(len(tensor.readers) == 1 for tensor in biases)
    assert len(state.staying) > 10
    moved = [sum(plan.moved_bytes for plan in one.plans.values()) for one in (state, alone)]
    assert moved[0] < moved[1]
    # The network's inputs and outputs pass main memory.
    last = state.kernels[-1].kernel.output.name
    assert not {"quantise", last} & {tensor.tensor for tensor in state.staying}


@pytest.mark.slow
def test_what_stays_meets_no_buffer_and_nothing_that_stays_with_it() -> None:
    state = lenet(stays=True)
    size = state.machine.memory("vsm").bytes or 0
    for item in state.kernels:
        if item.schedule is None:
            continue
        room = dict(item.schedule.rooms)["vsm"]
        bytes_of = {operand.name: operand.bytes for operand in item.kernel.operands}
        ranges = sorted((r.address, r.address + bytes_of[r.operand]) for r in item.schedule.stays)
        ends = [room, *(end for _, end in ranges)]
        assert all(end <= start for end, (start, _) in zip(ends, ranges, strict=False))
        assert ends[-1] <= size


@pytest.mark.slow
@pytest.mark.parametrize("kilobytes", [8, 16])
def test_results_do_not_depend_on_what_stays(kilobytes: int) -> None:
    values = {"memory.vsm.bytes": kilobytes << 10, "memory.vsm.reserved": kilobytes << 7}
    _, machine = resolve("cambricon", values=values)
    ran(LENET, machine)


def test_other_targets_let_no_constants_stay() -> None:
    target = find_target("cambricon-x")
    described = target.machine()
    memories = tuple(
        memory.model_copy(update={"resident": ("constants",)}) if memory.name == "sb" else memory
        for memory in described.memories
    )
    with pytest.raises(TilewrightError, match="lets no constants stay"):
        target.check_machine(described.model_copy(update={"memories": memories}))
