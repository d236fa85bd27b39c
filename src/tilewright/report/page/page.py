"""The page: one HTML file with its data, its charts' library and its script.

It works from a disk without a network, and asks for nothing: its content policy forbids all
requests, and lets only the two scripts run whose digests it states. The same figures give the same
bytes.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from html import escape
from math import isfinite
from pathlib import Path
from typing import Any

from tilewright.report.page.compare import compared
from tilewright.report.page.data import Figures, MemoryFigures
from tilewright.report.page.intervals import Intervals
from tilewright.report.page.sections import energy_parts, html_sections
from tilewright.report.page.sweep import Sweep
from tilewright.runtime.texts import printable
from tilewright.system.template import filled

FOLDER = Path(__file__).parent

MOST_OCCUPANTS = 2500
"""Buffers of a memory that are drawn: those with the most bytes times cycles."""

MOST_LEVELS = 4000
"""Steps of a memory's line of taken bytes; of more, the greatest of each part of the run."""


def page(runs: Sequence[Figures], library: str, sweep: Sweep | None = None) -> str:
    """The text of the page; ``library`` is ``vega_script()``."""
    title = ", ".join(figures.name for figures in runs) or "Sweep"
    names = ("page.js.in", "timeline.js.in")
    script = "".join((FOLDER / name).read_text(encoding="utf-8") for name in names)
    links, sections = html_sections(runs, sweep is not None)
    data = {
        "runs": [_run(figures) for figures in runs],
        "compared": compared(runs) if len(runs) > 1 else [],
        "sweep": None if sweep is None else {"columns": sweep.columns, "rows": sweep.rows},
    }
    return filled(
        FOLDER / "page.html.in",
        policy=_policy(library, script),
        title=escape(printable(title), quote=True),
        links=links,
        sections=sections,
        data=_json(data),
        library=library,
        script=script,
    )


def _policy(*scripts: str) -> str:
    """The content policy: these scripts, styles of the page itself, and nothing else."""
    digests = [hashlib.sha256(script.encode()).digest() for script in scripts]
    hashes = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; "
        "connect-src 'none'; base-uri 'none'; form-action 'none'"
    )


def _json(value: Any) -> str:
    """JSON that no HTML element ends in."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _run(figures: Figures) -> dict[str, Any]:
    """The data of a run that the page's script reads."""
    numbers = {kernel.name: number for number, kernel in enumerate(figures.kernels)}
    facts = figures.facts
    words = [kernel.name for kernel in figures.kernels]
    ran = [numbers[k.name] for k in figures.kernels if k.engine == "accelerator"]
    return {
        "name": figures.name,
        "kind": figures.kind,
        "unit": figures.unit,
        "clock": float(facts["clock_hz"]),
        "end": _number(figures.end),
        "main": figures.machine.main,
        "energy": {name: _number(value) for name, value in energy_parts(facts).items()},
        "totals": _totals(figures),
        "roofs": _roofs(figures),
        "kernels": {
            "name": words,
            "nodes": [", ".join(kernel.nodes) for kernel in figures.kernels],
            "schedule": [kernel.schedule for kernel in figures.kernels],
            "note": [kernel.reason or kernel.why_low for kernel in figures.kernels],
            "limit": [kernel.limit for kernel in figures.kernels],
            **{
                field: [_number(getattr(kernel, field)) for kernel in figures.kernels]
                for field in (
                    *("seconds", "share", "bound", "granule", "planned", "simulated", "measured"),
                    *("compute", "moves", "idle", "bytes", "operations", "peak", "energy"),
                )
            },
        },
        "windows": [[_number(start), _number(end)] for _, start, end in figures.windows],
        "engines": [
            {
                "name": engine.name,
                "moves": engine.moves,
                "busy": _number(engine.busy),
                "commands": engine.commands,
                "levels": [_level(level, ran) for level in engine.levels],
            }
            for engine in figures.engines
        ],
        "memories": [
            _memory(memory, numbers, figures.end) for memory in figures.memories if memory.occupants
        ],
    }


def _level(level: Intervals, kernels: Sequence[int]) -> dict[str, Any]:
    numbers = level.kernel.tolist()
    return {
        "start": [_number(value) for value in level.start.tolist()],
        "end": [_number(value) for value in level.end.tolist()],
        "busy": [_number(value) for value in level.busy.tolist()],
        "commands": level.commands.tolist(),
        "bytes": level.bytes.tolist(),
        "kernel": [kernels[n] if n < len(kernels) else -1 for n in numbers],
    }


def _memory(memory: MemoryFigures, numbers: Mapping[str, int], end: float) -> dict[str, Any]:
    whole_run = [each for each in memory.occupants if not each.kernels]
    fixed = sum(each.bytes for each in whole_run)
    occupants = [each for each in memory.occupants if each.kernels]
    ordered = sorted(occupants, key=lambda each: -each.bytes * (each.end - each.start))
    shown = [each for each in ordered[:MOST_OCCUPANTS] if each.bytes and each.end > each.start]
    times, levels = _thinned(*memory.taken, end)
    return {
        "name": memory.name,
        "bytes": memory.bytes,
        "peak": memory.peak,
        "fixed": fixed,
        "left": len(occupants) - min(len(occupants), MOST_OCCUPANTS),
        "tensor": [each.tensor for each in shown],
        "role": [each.role for each in shown],
        "address": [each.address for each in shown],
        "size": [each.bytes for each in shown],
        "slots": [each.slots for each in shown],
        "stays": [each.stays for each in shown],
        "start": [_number(each.start) for each in shown],
        "end": [_number(each.end) for each in shown],
        "kernel": [numbers.get(each.kernels[0], -1) if each.kernels else -1 for each in shown],
        "times": [_number(time) for time in times],
        "taken": [max(level - fixed, 0) for level in levels],
    }


def _thinned(
    times: Sequence[float], levels: Sequence[int], end: float
) -> tuple[list[float], list[int]]:
    """Few enough steps of a line: of each part of the run, the greatest level."""
    if len(times) <= MOST_LEVELS or end <= 0:
        return list(times), list(levels)
    parts: dict[int, tuple[float, int]] = {}
    for time, level in zip(times, levels, strict=True):
        part = min(int(time / end * MOST_LEVELS), MOST_LEVELS - 1)
        if part not in parts or level > parts[part][1]:
            parts[part] = time, level
    parts[MOST_LEVELS] = times[-1], levels[-1]
    return [time for time, _ in parts.values()], [level for _, level in parts.values()]


def _totals(figures: Figures) -> dict[str, float | None]:
    """Figures of the whole run, for comparisons."""
    facts, kernels = figures.facts, figures.kernels
    energy = energy_parts(facts)
    clock = float(facts["clock_hz"])
    cycles = facts.get("cycles") if facts["measured"] else facts["predicted_cycles"]
    seconds = facts.get("seconds") if cycles is None else cycles / clock
    totals: dict[str, float | None] = {
        "time, us": None if seconds is None else seconds * 1e6,
        "cycles": cycles,
        "granule bound, cycles": facts["granule_bound_cycles"],
        "physical bound, cycles": facts["bound_cycles"],
        "bound with intermediates on the chip, cycles": facts.get("on_chip_bound_cycles"),
        "host, us": (facts.get("host_seconds") or 0.0) * 1e6 or None,
        "kernels": len(kernels),
        "bytes through main memory": facts.get("dram_bytes") or sum(k.bytes or 0 for k in kernels),
        "peak of main memory, bytes": facts["peak_memory_bytes"],
        "energy, uJ": sum(energy.values()) / 1e6 if energy else None,
    }
    for memory in figures.memories:
        if memory.occupants and memory.name != figures.machine.main:
            totals[f"peak of {memory.name}, bytes"] = memory.peak
    return {name: _number(value) for name, value in totals.items()}


def _roofs(figures: Figures) -> dict[str, Any]:
    """Main memory's slope in bytes a cycle, and the levels of the primitives in operations a cycle.

    A primitive's level is its kernels' best ratio of operations to cycles at peak.
    """
    machine = figures.machine
    rates: dict[str, float] = {}
    for kernel in figures.kernels:
        if kernel.operations and kernel.peak:
            name = kernel.schedule.partition(" ")[0]
            rates[name] = max(rates.get(name, 0.0), kernel.operations / kernel.peak)
    main = next((m for m in machine.memories if m.name == machine.main), None)
    slope = None
    if main is not None:
        moves = [m.bytes_per_cycle for m in machine.moves if machine.main in (m.source, m.target)]
        slope = main.bytes_per_cycle or (sum(moves) or None)
    return {
        "slope": _number(slope),
        "levels": {name: _number(rate) for name, rate in sorted(rates.items())},
    }


def _number(value: float | None) -> float | int | None:
    """A number as short as six digits make it, or null."""
    if value is None or not isfinite(value):
        return None
    if value == int(value):
        return int(value)
    rounded = round(value, 2) if abs(value) >= 1000 else float(f"{value:.6g}")
    return int(rounded) if rounded == int(rounded) else rounded
