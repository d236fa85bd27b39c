"""The pipeline model: small cases whose cycles follow from the rules by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilewright.targets.sunway.pipeline import (
    LATENCIES,
    Instruction,
    cycles,
    issued,
    steady,
)


def load(target: str) -> Instruction:
    return Instruction("vlds", target, ("p",))


def multiply(target: str, *sources: str) -> Instruction:
    return Instruction("vmas", target, (*sources, target))


def test_one_instruction_of_each_pipeline_in_a_cycle() -> None:
    program = [multiply("c0", "a", "b"), load("x"), multiply("c1", "a", "b"), load("y")]
    assert [cycle for cycle, _ in issued(program)] == [0, 0, 1, 1]
    assert [pipeline for _, pipeline in issued(program)] == [0, 1, 0, 1]
    assert cycles([load("x"), load("y"), load("z")]) == 3
    assert cycles([]) == 0


def test_nothing_overtakes() -> None:
    # The second waits for its pipeline, so the third does not go before it.
    program = [load("x"), load("y"), multiply("c", "a", "b")]
    assert [cycle for cycle, _ in issued(program)] == [0, 1, 1]


def test_integers_take_the_slot_that_is_free() -> None:
    add = Instruction("addl", "n", ("n",))
    assert [cycle for cycle, _ in issued([multiply("c", "a", "b"), add, load("x")])] == [0, 0, 1]
    assert [cycle for cycle, _ in issued([add, load("x"), multiply("c", "a", "b")])] == [0, 0, 1]
    assert [cycle for cycle, _ in issued([add, multiply("c", "a", "b"), load("x")])] == [0, 0, 1]
    other = Instruction("addl", "m", ("m",))
    assert cycles([add, other]) == 1
    assert cycles([add, add]) == 2


def test_what_is_read_must_be_there() -> None:
    program = [load("a"), multiply("c", "a", "b")]
    assert [cycle for cycle, _ in issued(program)] == [0, 4]
    assert [cycle for cycle, _ in issued(program, replace(LATENCIES, load=3))] == [0, 3]


@pytest.mark.parametrize("count", [1, 2, 4, 7, 8, 16])
def test_sums_hide_their_latency_behind_each_other(count: int) -> None:
    body = [multiply(f"c{number}", "a", "b") for number in range(count)]
    assert steady(body) == max(count, LATENCIES.multiply_add)


def test_a_register_may_be_loaded_in_the_cycle_of_its_last_use() -> None:
    program = [multiply("c", "a", "b"), load("a"), multiply("d", "a", "b")]
    assert [cycle for cycle, _ in issued(program)] == [0, 0, 4]


def test_names_are_known() -> None:
    with pytest.raises(ValueError, match="no instruction vfoo"):
        Instruction("vfoo")


@pytest.mark.parametrize("sends", [False, True])
def test_public_loops_of_a_step_take_sixteen_cycles(sends: bool) -> None:
    """What public kernels for doubles issue in a step: 16 multiply-adds with 8 registers that are
    received, or with 8 loads that send and the integers of addresses; two steps, whose operands
    take turns in two sets of registers."""
    body: list[Instruction] = []
    for step in "xy":
        other = {"x": "y", "y": "x"}[step]
        products = [
            multiply(f"c{i}{j}", f"{step}a{i}", f"{step}b{j}") for i in range(4) for j in range(4)
        ]
        rows, columns = ([f"{other}{side}{i}" for i in range(4)] for side in "ab")
        if sends:
            beside = [Instruction("vldr", name, ("p",)) for name in rows]
            beside += [Instruction("ldec", name, ("p",)) for name in columns]
            beside += [Instruction("addl", f"p{i}", (f"p{i}",)) for i in range(6)]
        else:
            beside = [Instruction("getr", name) for name in rows]
            beside += [Instruction("getc", name) for name in columns]
        beside += [Instruction("addl", "n", ("n",)), Instruction("branch", "", ("n",))]
        for number, product in enumerate(products):
            body += [product, *beside[number : number + 1]]
    assert steady(body) == pytest.approx(2 * 16, abs=2 * 1)
