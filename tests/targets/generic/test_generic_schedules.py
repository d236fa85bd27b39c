"""Random schedules: graph, tile interpreter and words agree bit for bit, and no wait is missing."""

from __future__ import annotations

import numpy as np
import pytest
from tests.slow import but_fast
from tests.targets.generic.kernel_cases import CASES, Case, Lowered, lower_case, random_case
from tests.tile.interpreter import run

from tilewright.errors import TilewrightError
from tilewright.planning.schedule import Level, Schedule
from tilewright.targets.cambricon_x.machine import MACHINE
from tilewright.targets.generic.isa import InstructionSet
from tilewright.targets.generic.timing import check_races
from tilewright.tile.lower import tile

ATTEMPTS = 200
MOST_COMMANDS = 3000


def random_schedule(case: Case, pick: np.random.Generator) -> Schedule:
    """Any tile sizes, any order of the loops, any buffering; it may not fit."""
    stage = case.kernel.anchor
    primitive = MACHINE.primitives_for(stage.operation)[0]
    outer: list[tuple[str, int]] = []
    inner: list[tuple[str, int]] = []
    for dim in stage.dims:
        whole = dim.name in primitive.whole or pick.random() < 0.3
        least = dim.extent if whole else max(1, dim.extent // int(pick.choice([1, 2, 3, 5])))
        inner.append((dim.name, least))
        steps = int(pick.integers(1, 4))
        outer.append((dim.name, dim.extent if dim.kind == "reduction" else least * steps))
    reduced = [dim.name for dim in stage.dims if dim.kind == "reduction"]
    parallel = [dim.name for dim in stage.dims if dim.kind == "parallel"]
    mixed = tuple(str(name) for name in pick.permutation(reduced + parallel))
    first = tuple(str(name) for name in pick.permutation(parallel))
    if pick.random() < 0.5:
        levels = (Level("nbin", tuple(inner), first + tuple(reduced)),)
    else:
        # The output's tile stays in nbout while loops of any order run within it.
        levels = (Level("nbout", tuple(outer), first), Level("nbin", tuple(inner), mixed))
    buffers = tuple((o.name, int(pick.integers(1, 3))) for o in case.kernel.operands)
    return Schedule(primitive.name, levels, buffers)


def fitting(case: Case, seed: int, instructions: InstructionSet) -> tuple[Schedule, Lowered] | None:
    """A random schedule that fits the machine, and the kernel's words under it."""
    pick = np.random.default_rng(seed)
    for _ in range(ATTEMPTS):
        schedule = random_schedule(case, pick)
        try:
            lowered = lower_case(case, schedule, MACHINE, instructions)
        except TilewrightError as error:
            assert error.problems[0].code in ("tile-capacity", "tile-too-many", "tile-coverage")
            continue
        if lowered.program.size <= MOST_COMMANDS:
            return schedule, lowered
    return None


@pytest.mark.parametrize("seed", but_fast(range(5 * len(CASES)), range(2 * len(CASES))))
def test_three_levels_agree(seed: int, instructions: InstructionSet) -> None:
    case = random_case(1000 + seed)
    found = fitting(case, seed, instructions)
    if found is None:
        pytest.skip("no random schedule fits this kernel")
    schedule, lowered = found
    np.testing.assert_array_equal(lowered.run(), case.expected)
    report = check_races(lowered.program, np.zeros(lowered.program.size, np.int64))
    assert not report.races and not report.unwritten
    if lowered.program.size < 300:
        program = tile(case.kernel, schedule, MACHINE)
        (output,) = run(program, case.operands, MACHINE).values()
        np.testing.assert_array_equal(output, case.expected)
