"""Kernels as words: values against the graph's meaning, waits against the race check."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.slow import but_fast
from tests.targets.generic.kernel_cases import CASES, conv_case, lower_case, random_case

from tilewright.planning import Planner
from tilewright.simulate.races import find_races
from tilewright.targets.cambricon_x.machine import MACHINE
from tilewright.targets.generic.isa import InstructionSet
from tilewright.targets.generic.program import decode
from tilewright.targets.generic.timer import timer
from tilewright.targets.generic.timing import accesses_of, check_races, time_program, timed_program


@pytest.mark.parametrize("seed", but_fast(range(4 * len(CASES)), range(2 * len(CASES))))
def test_words_compute_what_the_graph_means(seed: int, instructions: InstructionSet) -> None:
    case = random_case(seed)
    lowered = lower_case(case, Planner(MACHINE).plan(case.kernel).schedule, MACHINE, instructions)
    np.testing.assert_array_equal(lowered.run(), case.expected)
    kernels = np.zeros(lowered.program.size, np.int64)
    report = check_races(lowered.program, kernels)
    assert report.complete
    assert not report.races
    assert not report.unwritten


def test_predictions_hold(instructions: InstructionSet) -> None:
    ratios: list[float] = []
    for seed in range(0, 24, 3):
        case = random_case(seed)
        found = Planner(MACHINE).plan(case.kernel)
        lowered = lower_case(case, found.schedule, MACHINE, instructions)
        timeline = time_program(lowered.program, np.zeros(lowered.program.size, np.int64))
        assert timeline.cycles >= found.granule_bound
        ratios.append(timeline.cycles / found.predicted_cycles)
    assert 0.85 < min(ratios) <= max(ratios) < 1.2


def test_a_wait_taken_away_is_found(instructions: InstructionSet) -> None:
    """Every wait of a program is needed, or a later one of the same engine covers it."""
    case = conv_case(3, True)
    lowered = lower_case(case, Planner(MACHINE).plan(case.kernel).schedule, MACHINE, instructions)
    program = lowered.program
    kernels = np.zeros(program.size, np.int64)
    commands = timed_program(program, kernels)
    accesses = accesses_of(program)
    rows, engines = np.nonzero(commands["waits"])
    assert rows.size > 4
    found = 0
    for row, engine in zip(rows.tolist(), engines.tolist(), strict=True):
        changed = commands.copy()
        changed["waits"][row, engine] = 0
        report = find_races(changed, accesses, MACHINE)
        found += bool(report.races or report.unwritten)
    assert found >= rows.size // 2


def test_the_same_kernel_gives_the_same_words(instructions: InstructionSet) -> None:
    for seed in (0, 1, 2, 6):
        words = []
        for _ in range(2):
            case = random_case(seed)
            schedule = Planner(MACHINE).plan(case.kernel).schedule
            words.append(lower_case(case, schedule, MACHINE, instructions).program.units)
        np.testing.assert_array_equal(*words)


def test_decoding_gives_back_the_program(instructions: InstructionSet) -> None:
    case = random_case(3)
    program = lower_case(
        case, Planner(MACHINE).plan(case.kernel).schedule, MACHINE, instructions
    ).program
    again = decode(instructions, program.units.copy())
    for one, two in zip(program.groups, again.groups, strict=True):
        assert one.instruction is two.instruction
        for name, column in one.columns.items():
            np.testing.assert_array_equal(column, two.columns[name])


@pytest.mark.parametrize("seed", range(8))
def test_single_buffers_and_whole_tiles_work_too(seed: int, instructions: InstructionSet) -> None:
    case = random_case(seed)
    schedule = replace(Planner(MACHINE).plan(case.kernel).schedule, buffers=())
    lowered = lower_case(case, schedule, MACHINE, instructions)
    np.testing.assert_array_equal(lowered.run(), case.expected)
    report = check_races(lowered.program, np.zeros(lowered.program.size, np.int64))
    assert not report.races


@pytest.mark.parametrize("seed", range(8))
def test_the_planner_times_what_the_words_take(seed: int, instructions: InstructionSet) -> None:
    case = random_case(seed)
    schedule = Planner(MACHINE).plan(case.kernel).schedule
    program = lower_case(case, schedule, MACHINE, instructions).program
    timeline = time_program(program, np.zeros(program.size, np.int64))
    quick = timer(MACHINE, instructions)(case.kernel, schedule)
    tables = sum(g.rows.size for g in program.groups if g.instruction.mnemonic == "load_tables")
    assert 0 <= timeline.cycles - quick <= 120 * tables
