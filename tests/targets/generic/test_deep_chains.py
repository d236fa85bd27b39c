"""Chains on a machine with two levels of on-chip memory: words, races, traffic, predictions."""

from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from tests.slow import but_fast
from tests.targets.generic.kernel_cases import Case, lower_case
from tests.targets.generic.test_fused_machine import attention, chain

from tilewright.errors import TilewrightError
from tilewright.machine.load import load_machine
from tilewright.planning import Plan, Planner
from tilewright.targets.generic.isa import derive
from tilewright.targets.generic.timer import timer
from tilewright.targets.generic.timing import check_races, time_program
from tilewright.tile.lower import tile

FILE = Path(__file__).parents[3] / "examples" / "machines" / "five-buffers.toml"
MACHINE = load_machine(FILE).with_values({"element": "fixed16", "accumulator": "fixed32"})
"""On integers, so that words can be compared bit for bit."""
INSTRUCTIONS = derive(MACHINE)

CASES = {
    "attention": lambda: attention(7, 3, 64, 16),
    "long attention": lambda: attention(8, 2, 200, 64),
    "two convolutions": lambda: chain(1, (16, 24), (("conv", 24, 3, 1), ("conv", 40, 3, 1)))[0],
    "pointwise": lambda: chain(3, (32, 12), (("conv", 128, 1, 1), ("conv", 32, 1, 1)))[0],
    "strided": lambda: chain(4, (20, 25), (("conv", 32, 3, 2), ("conv", 16, 3, 1)))[0],
}


@lru_cache
def planned(name: str) -> tuple[Case, Plan]:
    case = CASES[name]()
    return case, Planner(MACHINE).plan(case.kernel)


@pytest.mark.parametrize("name", but_fast(CASES, ["attention", "pointwise"]))
def test_words_compute_what_the_graph_means_at_the_price_foretold(name: str) -> None:
    case, found = planned(name)
    inner = (found.schedule, *found.schedule.inner)
    assert max(len(schedule.levels) for schedule in inner) == 2
    lowered = lower_case(case, found.schedule, MACHINE, INSTRUCTIONS)
    np.testing.assert_array_equal(lowered.run(), case.expected)
    kernels = np.zeros(lowered.program.size, np.int64)
    report = check_races(lowered.program, kernels)
    assert report.complete
    assert not report.races
    assert not report.unwritten
    timeline = time_program(lowered.program, kernels)
    fetched = lowered.program.size * INSTRUCTIONS.machine.instruction_bytes
    assert timeline.main_bytes == found.moved_bytes + fetched
    assert timeline.cycles >= found.granule_bound
    took = timer(MACHINE, INSTRUCTIONS)(case.kernel, found.schedule)
    assert 0.98 < found.predicted_cycles / took < 1.02


def test_scores_pass_no_main_memory() -> None:
    """Of attention, queries, keys and values are read once, and the result is written once."""
    case, found = planned("attention")
    operands = [
        o for o in case.kernel.operands if o.name not in {m.name for m in case.kernel.produced}
    ]
    whole = sum(int(np.prod(o.shape)) * o.element_bytes for o in operands)
    assert found.moved_bytes == whole


@pytest.mark.few(2)
@pytest.mark.parametrize("memory", ["l1", "l0a", "l0b", "l0c", "ub"])
def test_smaller_memories_at_each_level(memory: str) -> None:
    case = attention(9, 2, 96, 32)
    size = {"l1": 24_576, "ub": 16_384, "l0c": 16_384}.get(memory, 4096)
    machine = MACHINE.with_values({f"memory.{memory}.bytes": size})
    found = Planner(machine).plan(case.kernel)
    lowered = lower_case(case, found.schedule, machine, derive(machine))
    np.testing.assert_array_equal(lowered.run(), case.expected)


def test_a_machine_without_a_way_back_to_the_products_refuses() -> None:
    case, _ = planned("attention")
    moves = tuple(move for move in MACHINE.moves if move.name != "ub-to-l1")
    with pytest.raises(TilewrightError, match=r"kernel-chain.*no moves on the chip"):
        Planner(MACHINE.model_copy(update={"moves": moves})).plan(case.kernel)


def test_levels_of_a_chain_stand_in_its_program() -> None:
    """Loops of each kernel's own around its products; the row of scores is made in between."""
    case, found = planned("attention")
    program = tile(case.kernel, found.schedule, MACHINE)
    assert program.get("levels") == ("l1", "l0a")
