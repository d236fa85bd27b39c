"""Levels of detail lose nothing; shares of cycles are those of a count cycle by cycle."""

import numpy as np
import pytest

from tilewright.machine import Machine
from tilewright.machine.model import Engine, Memory, Move
from tilewright.report.page.intervals import engine_timelines, shares_of
from tilewright.simulate.commands import timed_table
from tilewright.simulate.timing import Spans

MACHINE = Machine(
    name="three",
    clock_hz=1e9,
    memories=(Memory(name="dram"), Memory(name="near", bytes=1024)),
    moves=(Move(name="in", source="dram", target="near", engine="load", bytes_per_cycle=8),),
    engines=(Engine(name="load"), Engine(name="compute"), Engine(name="vector")),
    primitives=(),
)


def random_run(seed: int, size: int, kernels: int) -> tuple[Spans, np.ndarray]:
    """Commands on three engines in whole cycles: each engine runs one at a time, in order."""
    random = np.random.default_rng(seed)
    commands = timed_table(size)
    commands["engine"] = random.integers(0, 3, size)
    commands["kernel"] = np.sort(random.integers(0, kernels, size))
    commands["bytes"] = random.integers(0, 100, size)
    start, end, free = np.zeros(size), np.zeros(size), [0] * 3
    for n, engine in enumerate(commands["engine"].tolist()):
        start[n] = free[engine] + int(random.integers(0, 6))
        end[n] = start[n] + int(random.integers(1, 9))
        free[engine] = int(end[n])
    ends = np.zeros(kernels)
    np.maximum.at(ends, commands["kernel"], end)
    return Spans(start, start, end, ends, np.zeros(kernels, np.int64)), commands


@pytest.mark.parametrize("seed", range(8))
def test_every_level_has_all_commands_bytes_and_busy_cycles(seed: int) -> None:
    spans, commands = random_run(seed, 3000, 12)
    for number, engine in enumerate(engine_timelines(spans, commands, MACHINE, (7, 50, 400))):
        mine = commands["engine"] == number
        busy = float((spans.end - spans.start)[mine].sum())
        assert [len(level) for level in engine.levels] == [7, 50, 400]
        assert (engine.busy, engine.commands, engine.moves) == (busy, mine.sum(), number == 0)
        for level in engine.levels:
            assert level.busy.sum() == busy
            assert level.commands.sum() == mine.sum()
            assert level.bytes.sum() == commands["bytes"][mine].sum()
            assert (level.start[1:] >= level.end[:-1]).all()
            assert (level.busy <= level.end - level.start).all()


def test_few_commands_are_shown_one_by_one() -> None:
    spans, commands = random_run(0, 90, 3)
    (load, *_) = engine_timelines(spans, commands, MACHINE, (1000,))
    mine = commands["engine"] == 0
    assert load.finest.start.tolist() == spans.start[mine].tolist()
    assert load.finest.kernel.tolist() == commands["kernel"][mine].tolist()


def test_kernels_stay_apart_while_there_is_room() -> None:
    spans, commands = random_run(3, 3000, 12)
    for engine in engine_timelines(spans, commands, MACHINE, (12,)):
        assert engine.finest.kernel.tolist() == list(range(12))


@pytest.mark.parametrize("seed", range(8))
def test_shares_are_those_of_a_count_cycle_by_cycle(seed: int) -> None:
    spans, commands = random_run(seed, 400, 6)
    last = int(spans.end.max())
    compute, either = np.zeros(last, bool), np.zeros(last, bool)
    for n, engine in enumerate(commands["engine"].tolist()):
        cycles = slice(int(spans.start[n]), int(spans.end[n]))
        either[cycles] = True
        compute[cycles] |= engine != 0
    shares = shares_of(spans, commands, MACHINE, spans.kernel_end.tolist())
    before = 0
    for kernel, end in enumerate(np.maximum.accumulate(spans.kernel_end).astype(int)):
        window = slice(before, int(end))
        assert shares.compute[kernel] == compute[window].sum()
        assert shares.moves[kernel] == (either & ~compute)[window].sum()
        assert shares.idle[kernel] == (~either)[window].sum()
        before = int(end)
