"""The cores' sizes and peaks."""

import pytest
from tests.targets.ascend.fixed_point_machine import fixed_point_machine

from tilewright.machine import Machine
from tilewright.planning.space.levels import is_deep
from tilewright.targets.ascend.machine import (
    ASCEND_310,
    ASCEND_910,
    ASCEND_910B1,
    CORES,
    DaVinci,
    machine_of,
)


@pytest.mark.parametrize("core", CORES, ids=lambda core: core.name)
def test_machines_are_consistent_and_have_two_levels(core: DaVinci) -> None:
    machine = fixed_point_machine(core)
    assert Machine.from_json(machine.to_json()) == machine
    assert is_deep(machine, machine.primitive("mad"))


def test_sizes() -> None:
    machine = machine_of(ASCEND_910)
    sizes = {memory.name: memory.bytes for memory in machine.memories}
    assert sizes == {
        "gm": None,
        "cbuf": 1_048_576,
        "ca": 65_536,
        "cb": 65_536,
        "cc": 262_144,
        "ub": 262_144,
    }
    assert [move.engine for move in machine.path("gm", "ca")] == ["mte2", "mte1"]
    assert [move.engine for move in machine.path("cc", "gm")] == ["v", "mte3"]
    assert {e.name for e in machine.engines} == {"m", "v", "mte1", "mte2", "mte3"}
    assert machine_of(ASCEND_310).memory("ub").bytes == 253_952
    assert machine_of(ASCEND_910B1).memory("cc").bytes == 131_072


def test_peaks_are_the_vendors() -> None:
    for core, tflops in ((ASCEND_910, 256), (ASCEND_910B1, 364)):
        assert abs(core.cores * 8192 * core.clock_hz / 1e12 / tflops - 1) < 0.03
