"""Function tables stay from kernel to kernel."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from tests.targets.generic.kernel_cases import KernelBuilder

from tilewright.errors import TilewrightError
from tilewright.planning import Planner
from tilewright.targets.cambricon.lowering.network import CONSTANTS, Lowering
from tilewright.targets.cambricon.lowering.tables import MAX_TABLES, KernelTables
from tilewright.targets.cambricon.machine import MACHINE
from tilewright.targets.cambricon.simulate import run
from tilewright.tile.lower import tile

CONTENTS = [bytes([number]) * 4 for number in range(20)]


def test_contents_that_are_there_are_not_loaded() -> None:
    first = KernelTables((), "k0")
    assert [first.number(CONTENTS[n]) for n in (0, 1, 0)] == [1, 2, 1]
    second = KernelTables(first.left, "k1")
    assert [second.number(CONTENTS[n]) for n in (1, 2)] == [2, 3]
    assert (first.loads, second.loads) == ({1: CONTENTS[0], 2: CONTENTS[1]}, {3: CONTENTS[2]})


def test_the_table_that_was_used_longest_ago_goes() -> None:
    full = KernelTables((), "k0")
    for data in CONTENTS[:MAX_TABLES]:
        full.number(data)
    again = KernelTables(full.left, "k1")
    assert again.number(CONTENTS[0]) == 1
    last = KernelTables(again.left, "k2")
    assert [last.number(CONTENTS[n]) for n in (16, 0, 17)] == [2, 1, 3]
    assert dict(last.left)[2] == CONTENTS[16]


def test_a_kernel_takes_no_table_twice() -> None:
    tables = KernelTables((), "k0")
    for data in CONTENTS[:MAX_TABLES]:
        tables.number(data)
    with pytest.raises(TilewrightError, match="lower-tables"):
        tables.number(CONTENTS[MAX_TABLES])


def test_two_kernels_load_a_table_once() -> None:
    """Both compute what the function says."""
    build = KernelBuilder(3)
    case = build.finish(build.op("sigmoid", build.operand((1, 400), 12), result=(16, 15)))
    schedule = Planner(MACHINE).plan(case.kernel).schedule
    (x,), y = case.kernel.inputs, case.kernel.output
    lowering = Lowering(MACHINE, {"activations": 0, CONSTANTS: 4096}, Counter())
    for place in (1024, 2048):
        where = {x.name: ("activations", 0, (400, 1)), y.name: ("activations", place, (400, 1))}
        lowering.kernel(tile(case.kernel, schedule, MACHINE, where))
    loads = [one for one in lowering.statements if one.mnemonic == "VLOAD" and one.modifiers]
    assert len(loads) == 1
    main = np.zeros(8192, np.uint8)
    main[:800] = np.ascontiguousarray(case.operands[x.name]).reshape(-1).view(np.uint8)
    main[4096:][: len(lowering.image)] = np.frombuffer(lowering.image, np.uint8)
    run(lowering.words(), MACHINE, main)
    for place in (1024, 2048):
        found = main[place : place + 800].view(np.int16)
        np.testing.assert_array_equal(found, case.expected.reshape(-1))
