"""The rows of a sweep: one machine each, as CSV."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from tilewright.errors import refuse
from tilewright.system.files import need_file

MOST_ROWS = 20_000
"""Rows that a page draws: the first ones."""

Cell = float | str | None


@dataclass(frozen=True)
class Sweep:
    """A table of points; numbers are numbers, and what is empty is None."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    @property
    def numeric(self) -> tuple[str, ...]:
        """The columns with numbers alone, and with two different ones at least."""
        found: list[str] = []
        for number, name in enumerate(self.columns):
            values = [row[number] for row in self.rows if row[number] is not None]
            if len(set(values)) > 1 and all(isinstance(value, float) for value in values):
                found.append(name)
        return tuple(found)


def read_sweep(path: Path) -> Sweep:
    """Read a sweep's rows; refuses (``report-sweep``) a file that has no two figures to draw."""

    def refused(reason: str) -> Exception:
        return refuse(
            "report-sweep", reason, str(path),
            "give the CSV of tilewright sweep: a line of names, then a line of figures per point",
        )  # fmt: skip

    need_file(path, "report-sweep")
    try:
        with path.open(newline="", encoding="utf-8") as file:
            table = [row for _, row in zip(range(MOST_ROWS + 1), csv.reader(file), strict=False)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise refused(f"cannot be read: {error}") from None
    table = [row for row in table if row]
    if len(table) < 2:
        raise refused("has no rows")
    head, *body = table
    uneven = next((n for n, row in enumerate(body, 2) if len(row) != len(head)), None)
    if uneven is not None:
        raise refused(f"line {uneven} has another number of cells than the first")
    sweep = Sweep(tuple(head), tuple(tuple(map(_cell, row)) for row in body))
    if len(sweep.numeric) < 2:
        raise refused("has no two columns of different numbers")
    return sweep


def _cell(text: str) -> Cell:
    if not text.strip():
        return None
    try:
        value = float(text)
    except ValueError:
        return text
    return value if isfinite(value) else None
