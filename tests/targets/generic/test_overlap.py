"""Kernels that follow one another: weights loaded ahead, waits tile by tile, memory shared."""

from __future__ import annotations

import numpy as np
import pytest
from tests.targets.generic.test_packages import image, network

from tilewright.codegen.program.locations import TensorPlace
from tilewright.compiler import api as compiling
from tilewright.compiler.pipeline import resolve, run_pipeline
from tilewright.targets.generic.lowering.hazards import Footprint, Hazards, Use, overlaps
from tilewright.targets.generic.lowering.prefetch import Prefetch
from tilewright.targets.generic.runner import InstructionRunner
from tilewright.targets.generic.timer import run_timer

PLACE = TensorPlace(0, (20, 2), (8, 10), 2)


def boxes(random: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    start = np.array([random.integers(0, 8, count), random.integers(0, 10, count)])
    size = np.array([random.integers(0, 4, count), random.integers(0, 5, count)])
    return start, np.minimum(size, np.array([[8], [10]]) - start)


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(4))
def test_a_load_waits_for_the_stores_that_it_overlaps(seed: int) -> None:
    random = np.random.default_rng(seed)
    stored, loaded = boxes(random, 300), boxes(random, 280)
    hazards = Hazards()
    low, high = PLACE.range
    hazards.add([Use("dram", low, high, True)], 1, np.array([7]))
    counts = 10 + np.cumsum(random.integers(1, 3, 300))
    hazards.add([Use("dram", low, high, True, footprint=Footprint(PLACE, *stored))], 1, counts)
    wait = hazards.waits(
        [Use("dram", low, high, False, footprint=Footprint(PLACE, *loaded))], 0, 280
    )
    grid = np.zeros((280, 8, 10), np.bool_)
    for i in range(280):
        (y, x), (h, w) = loaded[0][:, i], loaded[1][:, i]
        grid[i, y : y + h, x : x + w] = True
    for i in range(280):
        needed = 7
        for j in range(300):
            (y, x), (h, w) = stored[0][:, j], stored[1][:, j]
            if grid[i, y : y + h, x : x + w].any():
                needed = max(needed, int(counts[j]))
        # Boxes far from the border between the kernels are taken together.
        exact = i < 256
        assert wait[1][i] >= needed
        assert not exact or wait[1][i] == max(needed, int(counts[300 - 256 - 1]))


def test_other_tensors_in_the_same_bytes_are_waited_for_whole() -> None:
    hazards = Hazards()
    start, size = np.zeros((2, 1), np.int64), np.ones((2, 1), np.int64)
    low, high = PLACE.range
    hazards.add(
        [Use("dram", low, high, True, footprint=Footprint(PLACE, start, size))], 1, np.array([5])
    )
    view = TensorPlace(0, (2, 16), (8, 10), 2)
    far = Footprint(view, start + 3, size)
    assert hazards.waits([Use("dram", low, high, False, footprint=far)], 0, 1)[1] == 5
    near = Footprint(PLACE, start + 3, size)
    assert hazards.waits([Use("dram", low, high, False, footprint=near)], 0, 1)[1] == 0
    assert not overlaps((start, size), (start + 3, size)).any()


@pytest.mark.parametrize("seed", range(6))
def test_counts_keep_their_meaning_when_loads_come_first(seed: int) -> None:
    random = np.random.default_rng(seed)
    keys = random.permutation(60)
    ops: list[str] = ["x", "w", "v"]
    parts = {op: np.sort(part) for op, part in zip(ops, np.split(keys, [20, 45]), strict=True)}
    hoisted = {"w": parts["w"] < 25, "v": parts["v"] < 10}
    moved = Prefetch(dict(parts), dict.fromkeys(ops, "load"), hoisted)  # type: ignore[arg-type]
    assert sorted(np.concatenate(list(moved.keys.values())).tolist()) == sorted(
        set(np.concatenate(list(moved.keys.values())).tolist())
    )
    place = {(op, i): int(p) for op in ops for i, p in enumerate(moved.positions[op])}  # type: ignore[index]
    for count in range(1, 61):
        old = sorted((int(key), op, i) for op in ops for i, key in enumerate(parts[op]))[:count]
        reached = moved.waits({"load": np.array([count])})["load"][0]
        assert reached == 1 + max(place[op, i] for _, op, i in old)
    assert moved.waits({"load": np.array([0])})["load"][0] == 0


@pytest.mark.slow
def test_a_network_takes_less_than_its_kernels_alone() -> None:
    """Values are right, no wait is missing, and the first tiles load ahead."""
    executable = compiling.compile(network(), "cambricon-x")
    outputs = executable.run(image(1), check_races=True)
    assert executable.check(image(1), outputs).exact
    assert isinstance(executable.runner, InstructionRunner)
    together = executable.runner.timeline.cycles
    target, machine = resolve("cambricon-x")
    state = run_pipeline(network(), target, machine)
    file = executable.runner.parts.file
    cycles = run_timer(executable.runner.instruction_set, file.arenas)
    alone = sum(cycles([item]) for item in state.kernels if item.program is not None)
    assert together < 0.97 * alone


@pytest.mark.slow
def test_buffers_keep_away_from_what_is_used_last() -> None:
    target, machine = resolve("cambricon-x")
    state = run_pipeline(network(), target, machine)
    starts = set()
    for item in state.kernels:
        for program in item.programs:
            for op in program.walk():
                if op.name == "tile.buffer":
                    starts.add(int(op.get("address")) > 0)  # type: ignore[attr-defined]
    assert starts == {True, False}
