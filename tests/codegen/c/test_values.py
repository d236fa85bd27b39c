"""Columns as C expressions: compiled, they give the column again."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tilewright.codegen.c.compiler import find_compiler
from tilewright.codegen.c.values import Executions, LoopVariable, SlotTerm, Tables
from tilewright.errors import TilewrightError

LOOPS = (("co", 0, 16, 4), ("oh", 2, 3, 5), ("ow", 0, 1, 4))
"""Name, lower, step, runs."""


def nest() -> Executions:
    runs = np.indices([count for *_, count in LOOPS]).reshape(len(LOOPS), -1)
    loops = [LoopVariable(n, lo, step, runs[i]) for i, (n, lo, step, _) in enumerate(LOOPS)]
    return Executions(loops, runs.shape[1], Tables("t"))


def compiled(texts: list[str], around: Executions, folder: Path) -> NDArray[np.int64]:
    """What C makes of expressions: a row for each, a column for each execution."""
    lines = ["#include <stdint.h>", *around.tables.lines, "void all(int64_t *to) {"]
    for name, lower, step, runs in LOOPS:
        head = f"for (int64_t {name} = {lower}; {name} < {lower + step * runs}; {name} += {step})"
        lines.append(head)
    lines += ["{ static int64_t run; int64_t slot = run++ % 2; (void)slot;"]
    lines += [f"to[{number} * {around.count} + run - 1] = {t};" for number, t in enumerate(texts)]
    (folder / "all.c").write_text("\n".join([*lines, "}", "}"]))
    library = folder / "all.so"
    command = [*find_compiler(), "-shared", "-fPIC", str(folder / "all.c"), "-o", str(library)]
    subprocess.run(command, check=True)
    found = np.zeros((len(texts), around.count), np.int64)
    ctypes.CDLL(str(library)).all(ctypes.c_void_p(found.ctypes.data))
    return found


def test_the_forms_of_expressions(tmp_path: Path) -> None:
    around = nest()
    co, oh, ow = (loop.runs for loop in around.loops)
    slot = np.arange(around.count) % 2
    cases = (
        (oh * 0 + 7, "7"),
        (co * 32 + 5, "co * 2 + 5"),
        (oh * 6, "((oh - 2) / 3) * 6"),
        (np.where(co == 3, 8, 16), "(co == 48 ? 8 : 16)"),
        (np.maximum(ow * 10 - 3, 0), "ow * 10 - 3 + (ow == 0 ? 3 : 0)"),
        ((ow == 0) & (oh == 0), "(oh == 2 && ow == 0)"),
        (np.where((ow == 2) & (co > 1), 3, 9), "(co >= 32 && ow == 2 ? 3 : 9)"),
        (slot * 64 + co * 16, "slot * 64 + co"),
    )
    texts = [around.expression(column, [SlotTerm("slot", 64, slot)]) for column, _ in cases]
    assert texts == [text for _, text in cases]
    assert not around.tables.lines
    for got, (column, _) in zip(compiled(texts, around, tmp_path), cases, strict=True):
        np.testing.assert_array_equal(got, column)


def test_every_column_has_an_expression(tmp_path: Path) -> None:
    around, random, columns = nest(), np.random.default_rng(5), list[NDArray[np.int64]]()
    for number in range(120):
        a, b, c = (
            np.cumsum(random.choice([0, 3, 3, 3, -8], loop.count))[loop.runs]
            if number % 3
            else random.integers(-9, 9, loop.count)[loop.runs]
            for loop in around.loops
        )
        columns.append((a + b + c, a + b * c, (a > 0) * 5 * (c > 3) - 2, a * b * c)[number % 4])
    texts = [around.expression(column) for column in columns]
    assert sum("table" in text for text in texts) < 100
    np.testing.assert_array_equal(compiled(texts, around, tmp_path), np.stack(columns))


def test_tables_have_a_bound() -> None:
    count = 70_000
    runs = np.arange(count)
    around = Executions([LoopVariable("i", 0, 1, runs)], count, Tables("t"))
    with pytest.raises(TilewrightError, match="codegen-values"):
        around.expression(runs * runs % 1009)
