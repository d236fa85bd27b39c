"""Loops peeled and macros moved: the same results, fewer cycles, and a report."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.targets.cambricon.hlal.running import arrays

from tilewright.targets.cambricon.hlal.assemble import Program, assemble
from tilewright.targets.cambricon.hlal.machines import machine_named
from tilewright.targets.cambricon.hlal.run import execute, sizes_of
from tilewright.targets.cambricon.statements import mnemonic_text

NAIVE = Path(__file__).parents[5] / "examples" / "hlal" / "naive_layer.hlal"


def both(text: str, target: str = "cambricon") -> tuple[Program, Program]:
    """A program as it is written, and behind the parallel model."""
    sizes = sizes_of(machine_named(target))
    plain, moved = (
        assemble(text, "p.hlal", sizes, parallel=parallel) for parallel in (False, True)
    )
    return plain, moved


def cycles(text: str, target: str = "cambricon") -> tuple[float, float]:
    """Of both, whose results are compared and in which no barrier is missing."""
    plain, moved = both(text, target)
    machine = machine_named(target)
    given = arrays(plain, np.random.default_rng(1), 300)
    one, two = (execute(program, machine, given, check=True) for program in (plain, moved))
    for name, values in one.outputs.items():
        assert values.any()
        np.testing.assert_array_equal(values, two.outputs[name])
    return one.result.cycles, two.result.cycles


def test_a_plain_loop_is_peeled_and_gets_faster() -> None:
    text = NAIVE.read_text()
    _, moved = both(text)
    (report,) = moved.overlaps
    assert report.done and report.where.startswith("p.hlal:58:3")
    assert "iom_load_input, iom_load_weight of the next round beside cm_multiply" in report.what
    before, after = cycles(text)
    assert after < 0.97 * before


def test_computes_and_loads_of_one_length_hide_one_another() -> None:
    """On 8 lanes a product takes as long as its weights: both at once halve the time."""
    text = NAIVE.read_text().replace("2048, 512, 1, 1, 256", "2048, 256, 1, 1, 128")
    text = text.replace("1024, 1, 1, 1, 512", "1024, 1, 1, 1, 256").replace(
        "2048, 1, 1, 1, 256", "2048, 1, 1, 1, 128"
    )
    before, after = cycles(text, "cambricon-m")
    assert after < 0.6 * before


BODY = """
.code
  VOA fix16 in[64]
  VOA fix16 out[64]
  REG $in, $out, $size, $x, $y, $i
  smove $in, in
  smove $out, out
  smove $size, #64
  smove $x, x
  smove $y, y
  smove $i, #4
LOOP:
  @iom_load $in, $size, $x
  @barrier
  @cm_double $out, $size, $in
  @barrier
  {update}
  CB LOOP, $i
  @iom_store $out, $size, $y
@IO-Macro iom_load to, size, at
  vload to, size, at, #0
mend
@C-Macro cm_double to, size, from
  {compute}
mend
@IO-Macro iom_store from, size, at
  vstore from, size, at, #0
mend
.static_ro
  @tensor x, 256, 64
.static_rw
  @tensor y, 64, 64
"""
COUNT = "sadd $x, $x, #128\n  ssub $i, #1"


@pytest.mark.parametrize("rounds", [1, 2, 4])
def test_every_number_of_rounds_is_right(rounds: int) -> None:
    text = BODY.format(update=COUNT, compute="vav to, size, from, from")
    text = text.replace("smove $i, #4", f"smove $i, #{rounds}")
    before, after = cycles(text)
    assert rounds == 1 or after < before


@pytest.mark.parametrize(
    ("update", "compute", "reason"),
    [
        (COUNT, "vav to, size, from, from\n  sadd $R7, $R7, #1\n smove $R8, $R7", None),
        (f"{COUNT}\n  smove $in, #0", "vav to, size, from, from", "is not one that an SMOVE set"),
        (f"{COUNT}\n  vav $out, $size, $out, $out", "vav to, size, from, from", "more than scalar"),
        (COUNT, "vav to, size, from, from\n  REG $other\n  smove $other, #0\n"
         "  vav to, size, $other, to", "from elsewhere"),
        (f"{COUNT}\n@barrier", "vav to, size, from, from", "barriers"),
    ],
)  # fmt: skip
def test_what_cannot_be_peeled_is_left_and_said(
    update: str, compute: str, reason: str | None
) -> None:
    text = BODY.format(update=update, compute=compute)
    _, moved = both(text)
    (report,) = [overlap for overlap in moved.overlaps if "loop" in overlap.what]
    assert report.done == (reason is None)
    if reason is not None:
        assert reason in report.what
    else:
        cycles(text)


def test_programs_that_name_addresses_themselves_are_left() -> None:
    _, moved = both((NAIVE.parent / "own_block.hlal").read_text())
    assert [overlap.done for overlap in moved.overlaps] == [False]


def test_loads_go_before_computes_that_they_need_not_wait_for() -> None:
    text = """
.code
  VOA fix16 a[64]
  VOA fix16 b[64]
  smove $R1, a
  smove $R2, b
  smove $R3, #64
  smove $R4, x
  @iom_load $R1
  @barrier
  @cm_double $R1
  @iom_load $R2
  @cm_double $R1
  @barrier
  @iom_store $R1
@IO-Macro iom_load to
  vload to, $R3, $R4, #0
mend
@C-Macro cm_double to
  vav to, $R3, to, to
mend
@IO-Macro iom_store from
  smove $R5, y
  vstore from, $R3, $R5, #0
mend
.static_ro
  @tensor x, 64, 64
.static_rw
  @tensor y, 64, 64
"""
    plain, moved = both(text)
    names = [mnemonic_text(one) for one in moved.statements if one.mnemonic[0] == "V"]
    assert names == ["VLOAD", "VLOAD.barrier", "VLOAD", "VAV", "VAV", "VAV.barrier", "VSTORE"]
    assert [overlap.what for overlap in moved.overlaps] == ["iom_load goes before cm_double"]
    assert len(moved.words) == len(plain.words)
    cycles(text)
