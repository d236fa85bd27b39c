"""Operands whose pixels begin at multiples of channels: words, tile programs and C agree."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.targets.generic import test_real_scales as scales
from tests.targets.generic.c.c_kernels import emitted, with_c
from tests.targets.generic.kernel_cases import Case, lower_case
from tests.tile.interpreter import run

from tilewright.errors import TilewrightError
from tilewright.machine import Machine
from tilewright.machine.load import load_machine
from tilewright.planning import Planner
from tilewright.targets.generic.isa import derive
from tilewright.targets.generic.timing import check_races
from tilewright.tile.dialect import BufferOp

ROOT = Path(__file__).parents[3]
GEMMINI = load_machine(ROOT / "examples" / "gemmini" / "gemmini.toml", complete=True)
PADDED = {"input", "weight", "output"}


def apart(machine: Machine) -> Machine:
    """The machine of int8 with operands in whole rows of 16."""
    primitives = [
        one.model_copy(
            update={
                "operands": {
                    role: storage.model_copy(
                        update={"padded": True, "multiples": dict.fromkeys(one.multiples, 16)}
                    )
                    if role in PADDED
                    else storage
                    for role, storage in one.operands.items()
                }
            }
        )
        for one in machine.primitives
    ]
    memories = tuple(m.model_copy(update={"resident": ()}) for m in machine.memories)
    return machine.model_copy(update={"primitives": tuple(primitives), "memories": memories})


MACHINE = apart(scales.MACHINE)
WITH_C = with_c(MACHINE)


@pytest.mark.few(3)
@pytest.mark.parametrize("kind", [scales.convolution, scales.depthwise, scales.pool])
@pytest.mark.parametrize("seed", range(4))
def test_rows_begin_at_multiples(kind: Callable[[int], Case], seed: int, tmp_path: Path) -> None:
    case = kind(seed)
    schedule = Planner(MACHINE).plan(case.kernel).schedule
    lowered = lower_case(case, schedule, MACHINE, derive(MACHINE))
    np.testing.assert_array_equal(lowered.run(), case.expected)
    tiles = run(lowered.tiles, case.operands, MACHINE)[case.kernel.output.name]
    np.testing.assert_array_equal(tiles, case.expected)
    report = check_races(lowered.program, np.zeros(lowered.program.size, np.int64))
    assert report.complete and not report.races and not report.unwritten
    images = [
        op
        for op in lowered.tiles.walk()
        if isinstance(op, BufferOp) and op.get("role", "") == "input"
    ]
    assert images and all(op.get("shape")[1] % 16 == 0 for op in images)
    for group in lowered.program.groups:
        if group.instruction.primitive is not None:
            assert (group.columns["input.w"] % 16 == 0).all()
    kernel = emitted(case, WITH_C)
    np.testing.assert_array_equal(kernel.run(kernel.build(tmp_path / "kernel"), 3), case.expected)


def test_nothing_stays_where_operands_are_padded() -> None:
    assert all(not memory.resident for memory in GEMMINI.memories)
    text = (ROOT / "examples" / "gemmini" / "gemmini.toml").read_text()
    implied = load_machine(text.replace(", resident = []", ""), complete=True)
    assert implied.memory("scratchpad").resident == ()
    with pytest.raises(TilewrightError, match=r"input.padded: operands that stay on the chip lie"):
        load_machine(
            text.replace("granule = 16, resident = []", 'granule = 16, resident = ["inputs"]')
        )
