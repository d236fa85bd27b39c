"""Axes of boxes, computed by words: the indices of a tile that lie in the tensor."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.planning.domain import Affine
from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.boxes import Spans, axis_of
from tilewright.targets.cambricon.lowering.emitter import Emitter, Value
from tilewright.targets.cambricon.machine import MACHINE
from tilewright.targets.cambricon.simulate import run
from tilewright.targets.cambricon.statements import assemble_statements


def registers_of(e: Emitter) -> list[int]:
    """What the registers hold when the statements have run."""
    words = assemble_statements(e.statements)
    return run(words, MACHINE, np.zeros(64, np.uint8)).registers.tolist()


def held(value: Value, registers: list[int]) -> int:
    """A number, or what its register holds."""
    return registers[value.number] if isinstance(value, Register) else value


@pytest.mark.parametrize(
    ("extent", "step", "kernel", "stride", "pad"),
    [
        (224, 2, 3, 1, 1),  # tiles alike: only the first and the last one are cut
        (224, 112, 3, 1, 1),
        (12, 3, 5, 1, 2),
        (12, 1, 5, 1, 2),  # more than one tile is cut at each end
        (20, 4, 7, 2, 3),
        (20, 2, 7, 2, 3),
        (20, 3, 3, 1, 1),  # the last tile is a short one
        (16, 4, 3, 2, 0),
    ],
)
def test_axes_hold_what_lies_in_the_tensor(
    extent: int, step: int, kernel: int, stride: int, pad: int
) -> None:
    """Every tile of a window's axis, against a search through its indices."""
    size = (extent - 1) * stride + kernel - 2 * pad
    axis = Affine((("oh", stride), ("kh", 1)), -pad)
    for start in range(0, extent, step):
        e = Emitter("test", "test")
        at = e.variable(start)
        length: Value = step
        if extent % step:
            length = e.minimum(e.subtract(extent, at), step)
        spans = Spans({"oh": at, "kh": 0}, {"oh": length, "kh": kernel})
        found = axis_of(e, axis, size, spans, {"oh": extent, "kh": kernel})
        tile = min(step, extent - start)
        first = start * stride - pad
        met = range(first, first + (tile - 1) * stride + kernel)
        inside = [index for index in met if 0 <= index < size]
        registers = registers_of(e)
        assert held(found.low, registers) == inside[0]
        assert held(found.size, registers) == len(inside)
        assert held(found.before, registers) == inside[0] - first
