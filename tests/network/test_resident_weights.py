"""Weights that several kernels read stay on the chip: the same results, less traffic."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tilewright.codegen.program.interface import RunTimer
from tilewright.compiler import pipeline as driver
from tilewright.compiler.pipeline import resolve, run_pipeline
from tilewright.network.resident_values import HeldKernel
from tilewright.runtime import Executable
from tilewright.targets.cambricon.capabilities import CambriconMemory
from tilewright.targets.cambricon.lowering.kept import Region, weight_tiles
from tilewright.targets.cambricon.lowering.network import Lowering
from tilewright.targets.cambricon.lowering.weights import Segments
from tilewright.targets.cambricon.simulate.simulator import Result, Simulator
from tilewright.targets.cambricon.target import CambriconTarget

Held = dict[str, HeldKernel]

CUT = Segments(1, 96, 64, 48, 32, 1, 1, 1, transposed=False)


def network(
    path: Path, nodes: list[onnx.NodeProto], sizes: dict[str, tuple[int, ...]], shape: list[int]
) -> Path:
    random = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(random.normal(0, 0.2, size).astype(np.float32), name)
        for name, size in sizes.items()
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    return path


def lstm(path: Path) -> Path:
    """Three steps of 192 cells: their recurrent weights load for longer than other kernels run."""
    nodes = [helper.make_node("LSTM", ["x", "w", "r", "b"], ["y"], hidden_size=192)]
    sizes = {"w": (1, 768, 3), "r": (1, 768, 192), "b": (1, 1536)}
    return network(path, nodes, sizes, [3, 1, 3])


CHANNELS = 128
WEIGHT_BYTES = 2 * CHANNELS * CHANNELS * 9


def convolutions(path: Path) -> Path:
    """Two layers with the same weights, and between them a pool in the matrix scratchpad: its
    windows leave no column out, so that an image is one transfer."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("MaxPool", ["a"], ["b"], kernel_shape=[3, 3], strides=[2, 2]),
        helper.make_node("Conv", ["b", "w"], ["y"], pads=[1, 1, 1, 1]),
    ]
    return network(path, nodes, {"w": (CHANNELS, CHANNELS, 3, 3)}, [1, CHANNELS, 5, 5])


def ran(path: Path, folder: Path, *, kilobytes: int, holds: bool = True) -> Executable:
    """A network on a machine whose matrix scratchpad has so much; exact, without races."""
    _, machine = resolve("cambricon", values={"memory.msm.bytes": kilobytes << 10})
    memories = tuple(
        one.model_copy(
            update={
                "own": CambriconMemory(
                    holds=one.own.keeps_values() and (holds or one.name != "msm")
                )
            }
        )
        for one in machine.memories
    )
    machine = machine.model_copy(update={"memories": memories})
    made = tilewright.compile(path, "cambricon", machine=machine, directory=folder)
    sample = {
        info.name: np.random.default_rng(1)
        .normal(0, 1, [int(size) for size in info.shape])
        .astype(info.dtype)
        for info in made.inputs
    }
    check = made.check(sample, made.run(sample, check_races=True))
    assert check.equal and check.exact and check.mismatches == 0
    return made


def cost(made: Executable) -> tuple[float, int]:
    """Cycles of a run, and the bytes that it loads into the matrix scratchpad."""
    results: list[Result] = []
    result = Simulator.result

    def watched(self: Simulator) -> Result:
        results.append(result(self))
        return results[-1]

    sample = {
        info.name: np.zeros([int(size) for size in info.shape], info.dtype) for info in made.inputs
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Simulator, "result", watched)
        made.run(sample)
    (found,) = results
    return found.cycles, found.bytes["mload"]


@pytest.mark.slow
@pytest.mark.parametrize("kilobytes", [768, 384])
def test_steps_of_an_lstm_find_their_weights(kilobytes: int, tmp_path: Path) -> None:
    """All of them, or those tiles that fit."""
    path = lstm(tmp_path / "net.onnx")
    cycles, moved = cost(ran(path, tmp_path / "held", kilobytes=kilobytes))
    slower, more = cost(ran(path, tmp_path / "loaded", kilobytes=kilobytes, holds=False))
    # The second of two steps finds them: the state before the first one is zero.
    least = 768 * 192 * 2 if kilobytes == 768 else 192 << 10
    assert moved <= more - least
    assert cycles < slower


@pytest.mark.slow
def test_weights_are_not_held_where_loading_is_as_fast(tmp_path: Path) -> None:
    """A kernel before loads the first weights: what is left of loading hides behind computing."""
    path = lstm(tmp_path / "net.onnx")
    cycles, _ = cost(ran(path, tmp_path / "held", kilobytes=288))
    loaded, _ = cost(ran(path, tmp_path / "loaded", kilobytes=288, holds=False))
    assert cycles <= loaded


@pytest.mark.slow
@pytest.mark.parametrize("pays", [True, False])
def test_the_run_of_all_kernels_says_whether_holding_pays(
    pays: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_timer(*arguments: Any) -> RunTimer:
        return lambda kernels: sum((0.5 if pays else 2.0) if one.keeps else 1.0 for one in kernels)

    monkeypatch.setattr(CambriconTarget, "run_timer", run_timer)
    target, machine = resolve("cambricon")
    state = run_pipeline(lstm(tmp_path / "net.onnx"), target, machine, until="plan")
    assert sum(bool(one.keeps) for one in state.held.values()) == 2 * pays


def readers(held: Held) -> list[HeldKernel]:
    """The two convolutions whose weights are held, where the pool uses the same scratchpad."""
    found = [one for one in held.values() if one.keeps]
    (between,) = (one for one in held.values() if not one.keeps)
    assert len(found) == 2
    assert between.plan.schedule.primitive == "matrix_pool"
    return found


@dataclass(frozen=True)
class Searched:
    """The convolutions on a machine that holds their weights: its file, its plans, its run."""

    path: Path
    held: Held
    cycles: float
    moved: int


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Searched:
    """The search takes most of the time of the tests that need it."""
    folder = tmp_path_factory.mktemp("searched")
    path, found, search = convolutions(folder / "net.onnx"), Held(), driver.hold_weights

    def watched(*arguments: Any) -> Held:
        found.update(search(*arguments))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "hold_weights", watched)
        return Searched(path, found, *cost(ran(path, folder / "held", kilobytes=768)))


@pytest.mark.slow
def test_a_kernel_between_leaves_the_weights_alone(searched: Searched, tmp_path: Path) -> None:
    assert readers(searched.held)
    slower, more = cost(ran(searched.path, tmp_path / "loaded", kilobytes=768, holds=False))
    assert searched.moved <= more - WEIGHT_BYTES
    assert searched.cycles < slower


@pytest.mark.slow
def test_weights_that_a_kernel_between_overwrites_are_loaded_again(
    searched: Searched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool is given some of their room: its columns, at the end of it, lie where they are."""
    kernel = Lowering.kernel
    lost: list[bool] = []

    def watched(self: Lowering, *arguments: Any) -> None:
        kernel(self, *arguments)
        lost.append(self.kept is None)

    def roomier(one: HeldKernel) -> HeldKernel:
        size = (one.machine.memory("msm").bytes or 0) + WEIGHT_BYTES // 2
        return replace(one, machine=one.machine.with_values({"memory.msm.bytes": size}))

    assert readers(searched.held)
    changed = {symbol: one if one.keeps else roomier(one) for symbol, one in searched.held.items()}
    monkeypatch.setattr(driver, "hold_weights", lambda *_: changed)
    monkeypatch.setattr(Lowering, "kernel", watched)
    made = ran(searched.path, tmp_path / "package", kilobytes=768)
    # The timer lowers kernels alone; the package's are the last ones.
    assert lost[-3:] == [False, True, False]
    assert cost(made)[1] >= 2 * WEIGHT_BYTES


@pytest.mark.slow
def test_no_weights_are_held_that_one_kernel_reads() -> None:
    target, machine = resolve("cambricon")
    lenet = Path(__file__).parents[2] / "examples" / "lenet5" / "lenet5.onnx"
    state = run_pipeline(lenet, target, machine, until="plan")
    assert not any(one.keeps for one in state.held.values())


def test_the_last_tiles_that_fit_stay() -> None:
    tiles = weight_tiles(CUT, {"co": 64, "ci": 32})
    assert tiles == (2 * 64 * 32, 2 * 64 * 16, 2 * 32 * 32, 2 * 32 * 16)
    kept = Region("w", 1000, 1000 + 5 * 1024).keep(0, CUT, tiles)
    assert kept is not None
    assert (kept.first, kept.filled, kept.coming) == (2 * 64 * 32, (1000, 6120), 1)
    assert not kept.there
    again = Region("w", 1000, 1000 + 5 * 1024, kept).keep(0, CUT, tiles)
    assert again is not None and again.there
    other = Region("w", 1000, 1000 + 5 * 1024, kept).keep(64, CUT, tiles)
    assert other is not None and not other.there
    assert Region("w", 0, 1023).keep(0, CUT, tiles) is None
