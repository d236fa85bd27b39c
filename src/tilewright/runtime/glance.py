"""The report for people: ten lines that fit a terminal of 80 columns, and all kernels on request.

docs/reports.md says how to read it. Every figure is one of ``summary`` (runtime/summary.py).
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Mapping
from typing import Any

from tilewright.runtime.manifest import Manifest

WIDTH = 80
SLOWEST = 5
"""Kernels that the short report lists."""

LABEL = 12
NAME = 28
_HEADS = ("time", "share", "bound", "of bound")

Row = Mapping[str, Any]


def duration(seconds: float | None) -> str:
    """A time with a unit that keeps it readable: ``1,234.5 ms``, ``56.1 us``."""
    if seconds is None:
        return "-"
    if seconds >= 10:
        return f"{seconds:,.2f} s"
    return f"{1e3 * seconds:,.3f} ms" if seconds >= 1e-3 else f"{1e6 * seconds:,.2f} us"


def size(count: int) -> str:
    """Bytes with a unit: ``285.7 KB``."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if count >= factor:
            return f"{count / factor:,.1f} {unit}"
    return f"{count} bytes"


def percent(value: float | None) -> str:
    """A part of one as a percentage."""
    return "-" if value is None else f"{100 * value:.1f} %"


def target_name(manifest: Manifest) -> str:
    """The target, and the machine where that has another name."""
    name = str(manifest.machine.get("name", manifest.target))
    return manifest.target if name == manifest.target else f"{name} (target {manifest.target})"


def report(manifest: Manifest, facts: Mapping[str, Any], *, kernels: bool = False) -> str:
    """The report of a package and of its last run; ``facts`` is what ``summary`` gives."""
    rows = sorted(facts["kernels"], key=lambda row: -(row["time"] or 0.0))
    lines = [f"{manifest.model} on {target_name(manifest)}"]
    lines += [text for label, line in summary_lines(facts, rows) for text in _entry(label, line)]
    for note in manifest.notes:
        lines += _entry("note", note)
    what = "simulated" if facts.get("cycles") is not None else "measured"
    what = what if facts["measured"] else "predicted"
    listed = rows if kernels else rows[:SLOWEST]
    title = f"kernels, {what}" if kernels else f"slowest, {what}"
    lines.append(f"  {title:<{NAME}}" + "".join(f"{head:>12}" for head in _HEADS))
    for row in listed:
        lines.append(_kernel(row))
        if kernels:
            lines += _details(row)
    hidden = len(rows) - len(listed)
    if hidden:
        lines.append(f"  and {hidden} more: --kernels lists all")
    return "\n".join(lines) + "\n"


def _entry(label: str, text: str) -> list[str]:
    first, rest = f"  {label:<{LABEL}}", " " * (LABEL + 2)
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=rest)


def summary_lines(facts: Mapping[str, Any], rows: list[Row]) -> list[tuple[str, str]]:
    """The lines of time, efficiency and memory, each with its label."""
    clock = float(facts["clock_hz"])
    on_host = [row for row in rows if row["engine"] == "host"]
    away = len(rows) - len(on_host)
    totals: list[tuple[str, str]] = []
    runs = facts.get("runs", 0)
    how = f"median of {runs} runs after the first" if runs > 1 else "the first run"
    if runs == 1:
        how = "a run after the first"
    if facts.get("cycles") is not None:
        totals.append(
            (
                "accelerator",
                f"{duration(facts['accelerator_seconds'])} simulated: {facts['cycles']:,} cycles at"
                f" {clock / 1e6:,.0f} MHz, {_count(away)}",
            )
        )
        totals.append(("host", _host(facts, on_host, how)))
    elif facts.get("seconds") is not None:
        totals.append(("time", f"{duration(facts['seconds'])} measured, {how}"))
    else:
        predicted = facts["predicted_cycles"]
        if predicted is not None:
            totals.append(
                (
                    "accelerator" if on_host else "time",
                    f"{duration(predicted / clock)} predicted: {predicted:,.0f} cycles at"
                    f" {clock / 1e6:,.0f} MHz, {_count(away)}",
                )
            )
        if on_host or facts.get("host_seconds"):
            seconds = facts.get("host_seconds")
            when = "timed by a run" if seconds is None else of_host(facts, seconds)
            totals.append(("host", f"{_count(len(on_host))}, {when}; {_reasons(on_host)}"))
    granule, physical = efficiencies(facts, facts.get("predicted_cycles"))
    where = ", accelerator only" if on_host else ""
    taken = facts.get("cycles") or facts.get("predicted_cycles")
    chip = facts.get("on_chip_bound_cycles")
    if taken and chip:
        where = (
            f", {percent(chip / taken)} of the one with all intermediates on the chip{where}: "
            f"gap at most {percent(gap(taken, chip))}; {search_text(facts)}"
        )
    totals.append(
        (
            "efficiency",
            f"{percent(granule)} of the granule bound, {percent(physical)} of the physical bound"
            + where,
        )
    )
    least = facts["lower_bound_memory_bytes"]
    totals.append(
        ("memory", f"{size(facts['peak_memory_bytes'])} at the peak (least possible {size(least)})")
    )
    if energy := facts.get("energy_pj"):
        from tilewright.machine.energy import energy_text

        totals.append(("energy", energy_text(energy)))
    return totals


def gap(taken: float, bound: float) -> float:
    """The part of a bound by which cycles exceed it: no other fusion, residency or schedules save
    more."""
    return max(taken / bound - 1.0, 0.0)


def search_text(facts: Mapping[str, Any]) -> str:
    """For how many kernels the search for schedules finished, in words; limits cut the others'."""
    every = sum(row["engine"] == "accelerator" for row in facts["kernels"])
    finished = every - facts["search_cut_kernels"]
    return f"the search for schedules finished for {finished} of {_count(every)}"


def efficiencies(
    facts: Mapping[str, Any], taken: float | None
) -> tuple[float | None, float | None]:
    """Return the parts of the granule and of the physical bound that are reached, or would be with
    ``taken`` cycles."""
    if facts["measured"]:
        return facts["efficiency"], facts["physical_efficiency"]
    bounds = facts["granule_bound_cycles"], facts["bound_cycles"]
    granule, physical = (None if bound is None or not taken else bound / taken for bound in bounds)
    return granule, physical


def _host(facts: Mapping[str, Any], rows: list[Row], how: str) -> str:
    """The host's time, its share, and why kernels are there."""
    seconds = facts["host_seconds"]
    if not rows and not seconds:
        return "nothing runs there"
    time = "not measured" if seconds is None else f"{duration(seconds)} measured ({how})"
    if seconds is not None and "host" in facts:
        time = of_host(facts, seconds)
    share = "" if facts["host_share"] is None else f", {percent(facts['host_share'])} of the time"
    whole = facts.get("elapsed_seconds")
    if whole is not None and rows:
        share += f" (both at once: {duration(whole)})"
    return f"{time}{share}, {_count(len(rows))}{': ' + _reasons(rows) if rows else ''}"


def of_host(facts: Mapping[str, Any], seconds: float) -> str:
    """The predicted time of the host that the machine file describes."""
    host = facts["host"]
    clock = float(host["clock_hz"]) / 1e6
    return f"{duration(seconds)} predicted for {host['name']} at {clock:,.0f} MHz"


def _reasons(rows: list[Row]) -> str:
    """Reasons why kernels are on the host, the most frequent first."""
    counted = Counter(row.get("reason") or "no reason is recorded" for row in rows)
    listed = [
        short_reason(reason) + (f" ({n} kernels)" if n > 1 else "")
        for reason, n in counted.most_common(2)
    ]
    more = len(counted) - len(listed)
    return "; ".join(listed) + (f"; and {more} more" if more > 0 else "")


def short_reason(reason: str) -> str:
    """A reason without what it says in brackets, which may be long, and cut where that is not."""
    return textwrap.shorten(re.sub(r" \([^()]*\)", "", reason), 100, placeholder=" ...")


def _count(kernels: int) -> str:
    return "1 kernel" if kernels == 1 else f"{kernels} kernels"


def _kernel(row: Row) -> str:
    name = row["name"] if len(row["name"]) <= NAME else row["name"][: NAME - 3] + "..."
    bound = "host" if row["engine"] == "host" else duration(row["bound_time"])
    cells = (duration(row["time"]), percent(row["share"]), bound, percent(row.get("of_bound")))
    return f"  {name:<{NAME}}" + "".join(f"{cell:>12}" for cell in cells)


def _details(row: Row) -> list[str]:
    """Return the lines below a kernel's row: its nodes, schedule and limits."""
    rounds = f"{row['rounds']} of a loop, counted together" if "rounds" in row else ""
    facts = [("nodes", ", ".join(row["nodes"])), ("rounds", rounds)]
    facts += [("why", row.get("reason", ""))]
    facts += [("schedule", row["schedule"]), ("bound by", row.get("slow_move", ""))]
    facts += [("limited by", row.get("why_low", ""))]
    facts += [("not balanced", row.get("unbalanced", ""))]
    return [
        line
        for label, text in facts
        if text
        for line in textwrap.wrap(
            f"{label}: {text}", WIDTH, initial_indent="    ", subsequent_indent="      "
        )
    ]
