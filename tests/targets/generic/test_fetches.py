"""Instruction words take bandwidth: every byte of a program is charged to a transfer."""

import numpy as np

from tilewright.simulate.commands import timed_table
from tilewright.targets.cambricon_x.machine import MACHINE
from tilewright.targets.generic.timing import whole_program


def test_words_are_charged_to_the_transfers_around_them() -> None:
    table = timed_table(6)
    table["move"] = [-1, 0, -1, -1, 4, -1]
    table["bytes"] = [0, 1000, 0, 0, 500, 0]
    found = whole_program(table, MACHINE.with_values({"instruction_bytes": 10}), ())
    assert found["bytes"].tolist() == [0, 1020, 0, 0, 540, 0]
    assert found["bytes"].sum() == 1500 + 10 * len(table)


def test_a_program_without_transfers_moves_nothing() -> None:
    table = timed_table(2)
    table["move"] = -1
    assert np.all(whole_program(table, MACHINE, ())["bytes"] == 0)
