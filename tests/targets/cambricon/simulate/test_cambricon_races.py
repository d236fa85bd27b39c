"""Races: pairs of instructions that only the queue's check of dependences put in order."""

from __future__ import annotations

import numpy as np
from tests.targets.cambricon.simulate.running import R, number

from tilewright.targets.cambricon.machine import MACHINE
from tilewright.targets.cambricon.simulate import Race, Result, run
from tilewright.targets.cambricon.statements import Statement, assemble_statements, statement

BARRIER = statement("VMOVE.barrier", R[0], R[0], R[0])
SIZES = [number(R[1], 64), number(R[2], 1024), number(R[3], 8192), number(R[4], 8)]
LOAD = statement("VLOAD", R[0], R[1], R[0], 0)
WEIGHTS = statement("MLOAD", R[0], R[1], R[0], 0)
PRODUCT = statement("MMV", R[2], R[4], R[0], R[0], R[4])
STORE = statement("VSTORE", R[2], R[4], R[3], 0)


def simulate(*program: Statement) -> Result:
    main = np.zeros(1 << 16, np.uint8)
    return run(assemble_statements([*SIZES, *program]), MACHINE, main, races=True)


def test_missing_barriers_are_reported_with_both_words() -> None:
    found = simulate(LOAD, WEIGHTS, PRODUCT, STORE)
    assert found.races == (
        Race(4, 6, "vsm", 0),
        Race(5, 6, "msm", 0),
        Race(6, 7, "vsm", 1024),
    )
    assert found.races_complete


def test_barriers_order_everything_before_and_after() -> None:
    found = simulate(LOAD, WEIGHTS, BARRIER, PRODUCT, BARRIER, STORE)
    assert found.races == ()


def test_one_barrier_leaves_the_other_race() -> None:
    assert simulate(LOAD, WEIGHTS, BARRIER, PRODUCT, STORE).races == (Race(7, 8, "vsm", 1024),)
    assert len(simulate(LOAD, WEIGHTS, PRODUCT, BARRIER, STORE).races) == 2


def test_a_unit_is_in_order_with_itself_and_reads_do_not_race() -> None:
    vector = statement("VMOVE", R[3], R[4], R[0])
    other = statement("VAV", R[3], R[4], R[3], R[3])
    assert simulate(LOAD, WEIGHTS, BARRIER, PRODUCT, vector, other).races == ()


def test_a_write_after_a_read_races_too() -> None:
    found = simulate(LOAD, WEIGHTS, BARRIER, PRODUCT, LOAD)
    assert found.races == (Race(7, 8, "vsm", 0),)


def test_transfers_race_in_main_memory() -> None:
    found = simulate(
        LOAD,
        BARRIER,
        statement("VSTORE", R[0], R[4], R[3], 6),
        statement("MLOAD", R[0], R[4], R[3], 0),
    )
    assert found.races == (Race(6, 7, MACHINE.main, 8198),)


def test_tables_race_with_the_load_that_fills_them() -> None:
    size = number(R[1], 257)
    table = statement("VLOAD.table=1", R[0], R[1], R[0], 0)
    use = statement("VEXP.table=1", R[2], R[4], R[0])
    assert simulate(size, LOAD, table, BARRIER, use).races == ()
    assert simulate(size, LOAD, BARRIER, table, use).races == (Race(7, 8, "tables", 1024),)


def test_a_loop_that_overlaps_with_itself_is_found() -> None:
    """The next turn's load overwrites what this turn's product reads."""
    found = simulate(
        number(R[5], 2),
        WEIGHTS,
        Statement(label="loop"),
        LOAD,
        BARRIER,
        PRODUCT,
        statement("SSUB", R[5], R[5], 1),
        statement("CB", R[5], "loop"),
    )
    assert found.races == (Race(8, 6, "vsm", 0),)


def test_what_cannot_be_looked_at_is_said() -> None:
    many = [statement("MSTORE", R[0], R[4], R[3], 0)] * 5000
    assert not simulate(WEIGHTS, BARRIER, *many).races_complete
