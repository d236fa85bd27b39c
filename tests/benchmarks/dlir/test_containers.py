"""DLIR's generation: what goes together, that values stay, and that it costs what it must."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.papers.dlir.passes import PAIRED, PairIterations, Unit, generate

from tests.targets.generic.kernel_cases import random_case, sparse_case
from tests.tile.interpreter import run
from tilewright.ir.passes import PassEntry
from tilewright.planning import Planner
from tilewright.planning.planners.greedy import Greedy
from tilewright.simulate.timing import simulate
from tilewright.targets.cambricon_x.machine import MACHINE
from tilewright.targets.generic.isa import derive
from tilewright.targets.generic.timer import placed_alone, timed_kernel
from tilewright.tile.iteration import Order
from tilewright.tile.lower import tile
from tilewright.tile.queues import Queues

LOAD, COMPUTE, STORE = range(3)
NARROW = MACHINE.with_values({"memory.nbin.bytes": 2048, "memory.nbout.bytes": 2048})


def iterations(count: int, *, stores: bool) -> list[list[Unit]]:
    """Two loads, a compute and perhaps a store in each; the output has one slot, the input two."""
    found: list[list[Unit]] = []
    for i in range(count):
        # Slots are free when the compute before last, and the store before, have ended.
        loads = Unit(LOAD, 2 * i, 2, (0, max(i - 1, 0), 0))
        compute = Unit(COMPUTE, i, 1, (2 * i + 2, 0, i if stores else 0))
        found.append([loads, compute, *([Unit(STORE, i, 1, (0, i + 1, 0))] if stores else [])])
    return found


def names(containers: list[tuple[Unit, ...]]) -> list[str]:
    letter = {LOAD: "L", COMPUTE: "C", STORE: "S"}
    return [
        "+".join(
            f"{letter[u.engine]}{u.first // (2 if u.engine == LOAD else 1)}" for u in container
        )
        for container in containers
    ]


def test_loads_of_the_next_iteration_pair_with_computes() -> None:
    """Figure 5.8: CONV0 with LOAD input1, and so on."""
    found = names(generate(iterations(4, stores=False), 3))
    assert found == ["L0", "L1+C0", "L2+C1", "L3+C2", "C3"] or found == [
        *("L0", "C0+L1", "C1+L2", "C2+L3", "C3")
    ]


def test_the_window_holds_two_iterations() -> None:
    """While iteration 0 is not stored, nothing of iteration 2 is generated."""
    found = names(generate(iterations(5, stores=True), 3))
    assert found[0] == "L0" and found[1] in ("C0+L1", "L1+C0")
    assert found.index(next(c for c in found if "S0" in c)) < found.index(
        next(c for c in found if "L2" in c)
    )
    assert sorted("+".join(found).split("+")) == sorted(
        f"{letter}{i}" for i in range(5) for letter in "LCS"
    )


@pytest.mark.parametrize("seed", range(10))
def test_containers_keep_dependences_and_values(seed: int) -> None:
    case = sparse_case(seed, 0.3) if seed % 5 == 4 else random_case(seed)
    schedule = Planner(NARROW, search=Greedy("granule", 2)).plan(case.kernel).schedule
    program = tile(case.kernel, schedule, NARROW, order=PAIRED)
    queues = Queues(Order(program))
    numbers = queues.groups
    everywhere = np.concatenate(list(numbers.values()))
    assert set(everywhere.tolist()) == set(range(int(everywhere.max()) + 1))
    for ascending in numbers.values():
        assert np.all(np.diff(ascending) >= 0)
    for number in np.unique(everywhere).tolist():
        assert sum(number in column for column in numbers.values()) <= 2
    for op in queues.commands:
        if op.engine.data not in numbers or queues.order.rows(op).count == 0:
            continue
        mine = numbers[op.engine.data][queues.position(op)]
        for engine, counts in queues.dependences(op).items():
            known = counts > 0
            assert np.all(numbers[engine][counts[known] - 1] < mine[known])
    (output,) = run(program, case.operands, NARROW, interleave=seed).values()
    np.testing.assert_array_equal(output, case.expected)


@pytest.mark.parametrize("seed", range(8))
def test_containers_never_run_faster_than_dependences_allow(seed: int) -> None:
    case = random_case(100 + seed)
    schedule = Planner(NARROW, search=Greedy("granule", 2)).plan(case.kernel).schedule
    instructions = derive(NARROW)

    def cycles(order: PassEntry | None) -> float:
        places, lowering = placed_alone(case.kernel, instructions)
        program = tile(case.kernel, schedule, NARROW, places, order=order)
        commands = timed_kernel(program, lowering)
        return float(simulate(commands, NARROW).cycles)

    assert cycles(PAIRED) >= cycles(None) > 0


def test_halves_give_two_slots_to_what_is_filled_again() -> None:
    case = random_case(0)
    schedule = Planner(MACHINE, search=Greedy("granule", 1)).plan(case.kernel).schedule
    program = tile(case.kernel, schedule, MACHINE)
    PairIterations(halves=True).run(program, MACHINE)
    slots = {op.get("slots") for op in program.walk() if op.name == "tile.buffer"}  # type: ignore[attr-defined]
    assert slots <= {1, 2}
    assert program.groups is not None and program.groups.data == "dlir"
