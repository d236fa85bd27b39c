"""The parts of the page that need no script: summaries, pictures, and places for charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from tilewright.machine.energy import energy_text
from tilewright.report.page.data import Figures
from tilewright.report.page.diagram import machine_diagram
from tilewright.report.page.kernel_list import kernel_list
from tilewright.runtime.glance import (
    duration,
    efficiencies,
    gap,
    of_host,
    percent,
    search_text,
    short_reason,
    size,
)
from tilewright.runtime.texts import printable


def summary_lines(figures: Figures) -> list[tuple[str, str]]:
    """Ten lines at most, each with its label."""
    facts, machine = figures.facts, figures.machine
    clock = float(facts["clock_hz"])
    lines: list[tuple[str, str]] = [("machine", machine.description or machine.name)]
    cycles = facts.get("cycles") if facts["measured"] else facts["predicted_cycles"]
    if figures.kind == "measured":
        lines.append(("time", f"{duration(facts['seconds'])} measured"))
    elif cycles is not None:
        lines.append(
            (
                "accelerator",
                f"{duration(cycles / clock)} {figures.kind}: {cycles:,.0f} cycles at "
                f"{clock / 1e6:,.0f} MHz",
            )
        )
    lines += _host(figures)
    lines.append(("kernels", _kernels(figures)))
    granule, physical = efficiencies(facts, cycles)
    bounds = f"{percent(granule)} of the granule bound, {percent(physical)} of physical"
    chip = facts.get("on_chip_bound_cycles")
    if cycles and chip:
        bounds += (
            f", {percent(chip / cycles)} of the bound with all intermediates on the chip: "
            f"gap at most {percent(gap(cycles, chip))}; {search_text(facts)}"
        )
    lines.append(("efficiency", bounds))
    limits = _limits(figures)
    if limits:
        lines.append(("limited by", limits))
    moved = facts.get("dram_bytes") or sum(kernel.bytes or 0 for kernel in figures.kernels)
    if moved:
        lines.append(("traffic", f"{size(moved)} through {machine.main}"))
    lines.append(
        (
            "memory",
            f"{size(facts['peak_memory_bytes'])} of {machine.main} at the peak "
            f"(least possible {size(facts['lower_bound_memory_bytes'])})",
        )
    )
    chips = [
        f"{memory.name} {size(memory.peak)} of {size(memory.bytes)}"
        for memory in figures.memories
        if memory.bytes and memory.occupants and memory.name != machine.main
    ]
    if chips:
        lines.append(("on the chip", ", ".join(chips[:8]) + " at the peak"))
    energy = energy_parts(facts)
    if energy:
        lines.append(("energy", energy_text(energy)))
    return lines


def energy_parts(facts: Mapping[str, Any]) -> dict[str, float]:
    """Picojoules by what they go into; {} where the machine has no figures of energy."""
    energy = facts.get("energy_pj")
    if isinstance(energy, Mapping):
        return {
            str(name): float(value)
            for name, value in energy.items()
            if isinstance(value, int | float) and name != "total"
        }
    return {} if energy is None else {"all": float(energy)}


def _host(figures: Figures) -> list[tuple[str, str]]:
    rows = [kernel for kernel in figures.kernels if kernel.engine == "host"]
    seconds = figures.facts.get("host_seconds")
    if not rows or figures.kind == "measured":
        return []
    time = "not timed" if seconds is None else f"{duration(seconds)} measured here"
    if seconds is not None and "host" in figures.facts:
        time = of_host(figures.facts, seconds)
    reasons = list(dict.fromkeys(short_reason(kernel.reason) for kernel in rows if kernel.reason))
    why = f": {'; '.join(reasons[:2])}" if reasons else ""
    return [("host", f"{len(rows)} kernels, {time}{why}")]


def _kernels(figures: Figures) -> str:
    fused = sum(len(kernel.nodes) > 1 for kernel in figures.kernels)
    chip = sum(edge.memory != figures.machine.main for edge in figures.edges)
    nodes = len({node for kernel in figures.kernels for node in kernel.nodes})
    return (
        f"{len(figures.kernels)} for {nodes} nodes of the model, {fused} of them fused from "
        f"several; {chip} of {len(figures.edges)} tensors between kernels stay on the chip"
    )


def _limits(figures: Figures) -> str:
    """The limits of the accelerator's kernels, by their number and their part of the time."""
    counts: dict[str, tuple[int, float]] = {}
    for kernel in figures.kernels:
        if kernel.limit and kernel.limit != "host":
            count, taken = counts.get(kernel.limit, (0, 0.0))
            counts[kernel.limit] = count + 1, taken + (kernel.seconds or 0.0)
    whole = sum(taken for _, taken in counts.values())
    ordered = sorted(counts.items(), key=lambda item: (-item[1][1], item[0]))
    told = [
        f"{name} in {count} kernels" + (f" ({percent(taken / whole)} of the time)" if whole else "")
        for name, (count, taken) in ordered
    ]
    peak = sum(kernel.peak or 0.0 for kernel in figures.kernels if kernel.engine != "host")
    cycles = sum(
        kernel.simulated or kernel.planned or 0.0
        for kernel in figures.kernels
        if kernel.engine != "host"
    )
    busy = f"; multipliers {percent(peak / cycles)} busy" if cycles and peak else ""
    return ", ".join(told) + busy


def html_sections(runs: Sequence[Figures], sweep: bool) -> tuple[str, str]:
    """The links to the parts, and the parts."""
    parts: list[tuple[str, str, str]] = []
    if runs:
        parts.append(("summary", "Summary", _for_each(runs, _summary)))
        if len(runs) > 1:
            parts.append(("runs", "Runs compared", _COMPARED))
    if sweep:
        parts.append(("sweep", "Sweep", _SWEEP))
    if runs:
        if any(figures.machine.primitives for figures in runs):
            parts.append(("machine", "Machine", _for_each(runs, _machine)))
        parts += [
            ("roofline", "Roofline", _ROOFLINE),
            ("bounds", "Bound, planned, simulated, measured", _BOUNDS),
            ("layers", "Layers by time", _LAYERS),
            ("timeline", "Timeline of engines and memories", _TIMELINE),
        ]
        if any(energy_parts(figures.facts) for figures in runs):
            parts.append(("energy", "Energy", '<div class="chart" id="energy-chart"></div>'))
        if any(figures.edges for figures in runs):
            parts.append(("graph", "Fusion and residency", _GRAPH + _for_each(runs, _graph)))
    links = "\n".join(f'<a href="#{name}">{heading}</a>' for name, heading, _ in parts)
    texts = [
        f'<section id="{name}" aria-labelledby="{name}-heading">\n'
        f'<h2 id="{name}-heading">{heading}</h2>\n{body}\n</section>'
        for name, heading, body in parts
    ]
    return links, "\n".join(texts)


def _for_each(runs: Sequence[Figures], part: Any) -> str:
    hidden = ("" if number == 0 else " hidden" for number in range(len(runs)))
    return "\n".join(
        f'<div data-run="{number}"{hide}>{part(figures)}</div>'
        for number, (figures, hide) in enumerate(zip(runs, hidden, strict=True))
    )


def _summary(figures: Figures) -> str:
    lines = [*summary_lines(figures), *(("note", note) for note in figures.notes[:2])]
    rows = "\n".join(f"<dt>{_text(label)}</dt><dd>{_text(text)}</dd>" for label, text in lines)
    return f'<dl class="summary">\n{rows}\n</dl>'


def _machine(figures: Figures) -> str:
    if not figures.machine.primitives:
        return "<p>A run's JSON does not hold the machine.</p>"
    return f'<div class="wide">{machine_diagram(figures.machine)}</div>'


def _graph(figures: Figures) -> str:
    return f'<div class="wide tall">{kernel_list(figures)}</div>'


def _text(text: str) -> str:
    return escape(printable(text), quote=True)


_COMPARED = """<div class="wide"><table id="totals"></table></div>
<h3>Kernels that compute the same nodes of the model</h3>
<div class="wide tall"><table id="compared"></table></div>"""

_SWEEP = """<p>Each point is one machine. Those on the line are the Pareto front: none other is at
least as good in both figures and better in one. Less is better.</p>
<div class="tools"><label for="sweep-x">Across</label><select id="sweep-x"></select>
<label for="sweep-y">Upwards</label><select id="sweep-y"></select>
<output id="sweep-count"></output></div><div class="chart" id="sweep-chart"></div>"""

_ROOFLINE = """<p>Each kernel by its operations per byte of main memory. A kernel below the slope
waits for main memory, one below a level for the computes; its distance is what is left to gain.</p>
<div class="chart" id="roofline-chart"></div>"""

_BOUNDS = """<p>Cycles of each kernel on a logarithmic scale, in the order of the run. What the host
measures is in cycles of the machine's clock.</p>
<div class="wide"><div class="chart" id="bounds-chart"></div></div>"""

_LAYERS = """<p><span class="key" style="--of: var(--compute)">an engine computes</span>
<span class="key" style="--of: var(--moves)">only data move</span>
<span class="key" style="--of: var(--idle)">nothing runs</span>.
A kernel's name shows it on the timeline; columns sort; <kbd>/</kbd> goes to the filter.</p>
<div class="tools"><label for="filter">Filter</label>
<input id="filter" type="search" placeholder="node, kernel, limit" autocomplete="off">
<output id="layers-count" aria-live="polite"></output></div>
<div class="wide tall"><table id="layers-table"></table></div>"""

_TIMELINE = """<p>Drag to move, Ctrl and wheel to zoom, or with the keyboard, once the timeline has
the focus: <kbd>+</kbd> <kbd>-</kbd> zoom, <kbd>&larr;</kbd> <kbd>&rarr;</kbd> move,
<kbd>0</kbd> shows all. Paler parts are less busy. A memory's boxes are buffers at their addresses
with all their slots, from their kernel's start to its end; the line is how many of its bytes are
taken.</p>
<div class="tools" role="toolbar" aria-label="Timeline">
<button type="button" data-zoom="in">Zoom in</button>
<button type="button" data-zoom="out">Zoom out</button>
<button type="button" data-zoom="left" aria-label="Move left">&larr;</button>
<button type="button" data-zoom="right" aria-label="Move right">&rarr;</button>
<button type="button" data-zoom="all">Show all</button>
<output id="window" aria-live="polite"></output></div>
<div class="chart" id="timeline-chart" tabindex="0" role="group" aria-label="Timeline of engines">
</div>
<div id="memories"></div>"""

_GRAPH = """<p><span class="key" style="--of: var(--compute)">several nodes computed as one
kernel</span> <span class="key" style="--of: var(--e0)">one node</span>
<span class="key" style="--of: var(--moves)">on the host</span>
<span class="key" style="--of: var(--chip)">a tensor that stays on the chip</span>
<span class="key" style="--of: var(--quiet)">one in main memory</span></p>"""
