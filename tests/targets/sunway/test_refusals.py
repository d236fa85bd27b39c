"""What the emitted C cannot say."""

from __future__ import annotations

import pytest

from tilewright.errors import TilewrightError
from tilewright.planning.domain import Affine, Dim, Kernel, Operand, Stage
from tilewright.planning.schedule import Level, Schedule
from tilewright.targets.sunway.emit.nest import Nest
from tilewright.targets.sunway.emit.transfers import place_of, transfer_function
from tilewright.targets.sunway.machine import MACHINE
from tilewright.tile.build import build
from tilewright.tile.dialect import BufferOp, programs_of


def two_rows(gap: int) -> str:
    """C that fetches tiles of two rows, which begin so many bytes apart."""
    extents = {"d0": 1, "d1": 2, "d2": gap // 4}
    access = tuple(Affine(((dim, 1),)) for dim in extents)
    shape = tuple(extents.values())
    x, y = Operand("x", shape, access), Operand("y", shape, access, role="output")
    dims = tuple(Dim(*pair) for pair in extents.items())
    kernel = Kernel("wide", (Stage("relu", dims, (x,), y, node="wide"),), ("wide",))
    level = Level("ldm", (("d0", 1), ("d1", 2), ("d2", 64)), ("d2",))
    (program,) = programs_of(build(kernel, Schedule("vector", (level,)), MACHINE))
    buffer = next(op for op in program.walk() if isinstance(op, BufferOp))
    return transfer_function(place_of(Nest(program), buffer, "input"), "wide", get=True)


def test_the_longest_gap_of_a_descriptor() -> None:
    assert "536870908 - block" in two_rows((1 << 31) - 16)
    with pytest.raises(TilewrightError) as raised:
        two_rows(1 << 31)
    (problem,) = raised.value.problems
    assert problem.code == "lower-descriptor"
    assert "2147483648 bytes apart" in problem.reason and problem.help
