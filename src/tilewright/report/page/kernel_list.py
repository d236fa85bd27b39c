"""The kernels of a network as a list with the tensors that go between them: a small SVG.

A tensor for the next kernel is a short line, every other one an arc at the left, in the first lane
that is free::

    image
    |
    k0_conv1   conv1, relu1
    |  \\
    k1_pool1   pool1

Tensors that stay on the chip are drawn in another colour than those that pass through main memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from tilewright.report.page.data import Figures
from tilewright.report.page.network import Edge
from tilewright.runtime.glance import size
from tilewright.runtime.texts import printable

ROW, LANE, LEFT = 26, 9, 14
MOST_ROWS = 1500
"""Kernels that are drawn; of more, the others are counted."""

MOST_LANES = 24
"""Arcs beside each other; further ones share the last lane."""

WIDTH = 900
LONGEST = 90


def kernel_list(figures: Figures) -> str:
    """The SVG text; names of the model are escaped, and nothing in it runs or refers outside."""
    main = figures.machine.main
    names = ["", *(kernel.name for kernel in figures.kernels[:MOST_ROWS])]
    rows = {name: number for number, name in enumerate(names)}
    last = len(names)
    edges = [
        (rows[edge.source], rows.get(edge.target, last) if edge.target else last, edge)
        for edge in figures.edges
        if edge.source in rows and (not edge.target or edge.target in rows)
    ]
    lanes = _lanes([(start, end) for start, end, _ in edges if end - start > 1])
    indent = LEFT + LANE * (1 + max(lanes.values(), default=0))
    height = ROW * (last + 1) + 8
    lines = [
        f'<svg class="kernels" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'role="img" aria-label="Kernels and the tensors between them">'
    ]
    for start, end, edge in edges:
        lines.append(_edge(start, end, edge, indent, lanes, edge.memory != main))
    lines.append(_row(0, indent, "inputs", "", "end"))
    for number, kernel in enumerate(figures.kernels[:MOST_ROWS], 1):
        several = len(kernel.nodes) > 1
        nodes = f"{len(kernel.nodes)} fused: " if several else ""
        text = nodes + ", ".join(kernel.nodes)
        kind = "host" if kernel.engine == "host" else "fused" if several else "alone"
        lines.append(_row(number, indent, kernel.name, text, kind))
    more = len(figures.kernels) - MOST_ROWS
    lines.append(
        _row(last, indent, f"and {more} more kernels" if more > 0 else "outputs", "", "end")
    )
    lines.append("</svg>")
    return "\n".join(lines) + "\n"


def _lanes(spans: Sequence[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """The lane of each arc, shorter ones further in; those with the same ends share one."""
    taken: list[list[tuple[int, int]]] = []
    lanes: dict[tuple[int, int], int] = {}
    for span in sorted(set(spans), key=lambda span: (span[1] - span[0], span)):
        for number in range(MOST_LANES):
            if number == len(taken):
                taken.append([])
            free = all(span[1] <= low or span[0] >= high for low, high in taken[number])
            if free or number == MOST_LANES - 1:
                taken[number].append(span)
                lanes[span] = number
                break
    return lanes


def _middle(row: int) -> float:
    return 4 + ROW * (row + 0.5)


def _edge(
    start: int,
    end: int,
    edge: Edge,
    indent: float,
    lanes: dict[tuple[int, int], int],
    on_chip: bool,
) -> str:
    kind = "edge on-chip" if on_chip else "edge"
    title = f"{edge.tensor}: {size(edge.bytes)} in {edge.memory}"
    top, bottom = _middle(start), _middle(end)
    if end - start <= 1:
        path = f"M {indent} {top + 8:.1f} V {bottom - 8:.1f}"
    else:
        x = indent - LANE * (lanes[start, end] + 1)
        path = f"M {indent - 3} {top + 3:.1f} H {x} V {bottom - 3:.1f} H {indent - 3}"
    return f'<path class="{kind}" d="{path}"><title>{_text(title)}</title></path>'


def _row(row: int, indent: float, name: str, about: str, kind: str) -> str:
    y = _middle(row)
    full = f"{name}: {about}" if about else name
    shown = printable(about)
    shown = shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "\u2026"
    short = name if len(name) <= 34 else name[:33] + "\u2026"
    return (
        f'<g class="row {kind}"><title>{_text(full)}</title>'
        f'<circle cx="{indent}" cy="{y:.1f}" r="4"/>'
        f'<text x="{indent + 12}" y="{y + 4:.1f}" class="name">{_text(short)}</text>'
        f'<text x="{indent + 230}" y="{y + 4:.1f}">{_text(shown)}</text></g>'
    )


def _text(text: str) -> str:
    return escape(printable(text), quote=True)
