"""The rows of a sweep as the lines of a table, for terminals and notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.machine.energy import joules
from tilewright.runtime.glance import duration

if TYPE_CHECKING:
    from tilewright.sweeps.rows import Row

SHOWN = 40
"""The number of rows up to which all are shown; of more, the Pareto front alone."""


def shown_rows(rows: Sequence[Row]) -> list[Row]:
    """All of a few rows, of many those that no other row betters."""
    return list(rows) if len(rows) <= SHOWN else [row for row in rows if row.pareto]


def lines_of(rows: Sequence[Row], shown: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """The heads of the columns in which some of the rows differ or have a figure, and the texts of
    those that are shown."""
    keys = list(dict.fromkeys(key for row in rows for key in row.values))
    models = len({row.model for row in rows}) > 1
    planners = len({row.planner for row in rows}) > 1
    heads = [*(["model"] * models), *(["planner"] * planners), *keys]
    heads += ["cycles", "seconds", "of bound", "moved bytes"]
    lines = [[*_settings(row, keys, models, planners), *_costs(row)] for row in shown]

    def add(head: str, texts: Sequence[str]) -> None:
        heads.append(head)
        for line, text in zip(lines, texts, strict=True):
            line.append(text)

    if any(row.total_seconds is not None for row in rows):
        add("with host", [_or_dash(row.total_seconds, duration) for row in shown])
    if any(row.energy_pj is not None for row in rows):
        add("energy", [_or_dash(row.energy_pj, joules) for row in shown])
    if any(row.area_mm2 is not None for row in rows):
        add("mm2", [_or_dash(row.area_mm2, "{:.3g}".format) for row in shown])
    if len({row.host_kernels for row in rows if row.status == "planned"}) > 1:
        add("on host", [_or_dash(row.host_kernels, str) for row in shown])
    return heads, lines


def html_of(rows: Sequence[Row]) -> str:
    """The rows that are shown, at most ``SHOWN``, as a table of HTML."""
    from tilewright.runtime.notebook import columns

    shown = shown_rows(rows)[:SHOWN]
    heads, lines = lines_of(rows, shown)
    title = f"{len(shown):,} of {len(rows):,} points"
    if any(row.pareto for row in shown):
        title += "; * no other row is better in one objective and as good in all"
    for row, line in zip(shown, lines, strict=True):
        line.insert(0, "*" if row.pareto else "")
        line.append(row.code)
    refused = any(row.code for row in shown)
    if not refused:
        lines = [line[:-1] for line in lines]
    return columns(title, ["", *heads, *(["code"] * refused)], lines)


def _or_dash(value: Any, text: Any) -> str:
    return "-" if value is None else text(value)


def _settings(row: Row, keys: list[str], models: bool, planners: bool) -> list[str]:
    """The choices of a row, as text."""
    first = [*([Path(row.model).name] * models), *([row.planner] * planners)]
    return [*first, *(_text(row.values.get(key)) for key in keys)]


def _costs(row: Row) -> list[str]:
    """The costs of a row, as text."""
    if row.cycles is None or row.seconds is None:
        return [row.status, "-", "-", "-"]
    bound = (row.granule_bound_cycles or 0.0) / row.cycles if row.cycles else 1.0
    moved = f"{row.moved_bytes or 0:,}"
    return [f"{row.cycles:,.0f}", duration(row.seconds), f"{bound:.1%}", moved]


def _text(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
