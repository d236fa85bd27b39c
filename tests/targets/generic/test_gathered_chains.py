"""Chains whose convolutions read gathered windows: words, races, traffic, predictions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.targets.generic.kernel_cases import Case, lower_case
from tests.targets.generic.test_fused_machine import chain

from tilewright.machine import Machine, Move
from tilewright.machine.load import load_machine
from tilewright.planning import Planner
from tilewright.targets.generic.isa import derive
from tilewright.targets.generic.timer import timer
from tilewright.targets.generic.timing import check_races, time_program
from tilewright.tile.dialect import MoveOp
from tilewright.tile.lower import tile

FILE = Path(__file__).parents[3] / "examples" / "machines" / "img2col.toml"


def linked() -> Machine:
    """The example with a way back from results to images, and pools that read results."""
    machine = load_machine(FILE)
    back = Move(
        name="result-to-image",
        source="result",
        target="image",
        engine="store",
        bytes_per_cycle=64.0,
        latency=10,
        in_flight=2,
    )
    primitives = list(machine.primitives)
    for number, primitive in enumerate(primitives):
        if primitive.name == "pool":
            storage = primitive.operands["input"].model_copy(update={"memory": "result"})
            operands = {**primitive.operands, "input": storage}
            primitives[number] = primitive.model_copy(update={"operands": operands})
    return machine.model_copy(
        update={"moves": (*machine.moves, back), "primitives": tuple(primitives), "c": None}
    )


MACHINE = linked()
INSTRUCTIONS = derive(MACHINE)

CASES = {
    "a pool behind": lambda: chain(1, (16, 20), (("conv", 24, 3, 1), ("max_pool", 0, 3, 2)))[0],
    "two convolutions": lambda: chain(2, (12, 18), (("conv", 24, 3, 1), ("conv", 16, 3, 1)))[0],
    "strided": lambda: chain(3, (20, 25), (("conv", 32, 3, 2), ("conv", 16, 3, 1)))[0],
    "one of them copied": lambda: chain(4, (16, 14), (("conv", 32, 1, 1), ("conv", 16, 3, 1)))[0],
}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", CASES)
def test_words_compute_what_the_graph_means_at_the_price_foretold(name: str) -> None:
    case: Case = CASES[name]()
    found = Planner(MACHINE).plan(case.kernel)
    program = tile(case.kernel, found.schedule, MACHINE)
    assert any(isinstance(op, MoveOp) and op.transform is not None for op in program.walk())
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
    took = timer(MACHINE, INSTRUCTIONS)(case.kernel, found.schedule)
    assert 0.98 < found.predicted_cycles / took < 1.02
