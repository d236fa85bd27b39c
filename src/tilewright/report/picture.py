"""A picture of a plan of memory: a small writer of SVG.

Kernels run from left to right, bytes lie from bottom to top, and every buffer is a rectangle: as
wide as its life, as high as its size.
"""

from __future__ import annotations

from html import escape

from tilewright.graph.passes.memory_plan import PlannedBuffer
from tilewright.report.memory import MemoryReport
from tilewright.runtime.texts import printable

WIDTH, HEIGHT = 1200, 640
LEFT, TOP, RIGHT, BOTTOM = 110, 40, 20, 130
TICKS = 8
MOST_LABELS = 60
"""Kernels that are named on the axis; of more, every n-th."""

LONGEST = 60
"""Characters of the longest label."""

_PAIRS = (
    ("#9ecae1", "#3182bd"),
    ("#a1d99b", "#31a354"),
    ("#fdd0a2", "#e6550d"),
    ("#dadaeb", "#756bb1"),
    ("#fcbfd2", "#c51b8a"),
    ("#d9d9d9", "#636363"),
)
"""Fill and edge, in turn."""


def picture(report: MemoryReport) -> str:
    """The SVG text; names of the model are escaped, and nothing in it runs or refers outside."""
    return _Picture(report).text()


class _Picture:
    def __init__(self, report: MemoryReport) -> None:
        self.report = report
        self.plan = report.plan
        self.columns = {step: column for column, (step, _) in enumerate(self.plan.kernels)}
        self.count = max(len(self.plan.kernels), 1)
        self.peak = max(self.plan.peak, 1)
        self.lines: list[str] = []

    def x(self, column: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * column / self.count

    def y(self, at: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * at / self.peak

    def span(self, buffer: PlannedBuffer) -> tuple[int, int]:
        """First column and the one after the last, of the kernels during which it is live."""
        columns = [c for step, c in self.columns.items() if buffer.first <= step <= buffer.last]
        if columns:
            return columns[0], columns[-1] + 1
        # Live only between kernels: drawn where the next kernel would be.
        before = sum(step < buffer.first for step in self.columns)
        place = min(before, self.count - 1)
        return place, place + 1

    def text(self) -> str:
        plan = self.plan
        title = (
            f"{self.report.model} on {self.report.target}: {plan.peak:,} bytes, "
            f"bound {plan.lower_bound:,} ({plan.heuristic})"
        )
        self.lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
            f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="11">',
            f"<title>{_text(title)}</title>",
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
            f'<text x="{LEFT}" y="20" font-size="14">{_text(title, 150)}</text>',
        ]
        self.axes()
        for number, buffer in enumerate(plan.buffers):
            self.buffer(buffer, number)
        self.bound()
        self.lines.append("</svg>")
        return "\n".join(self.lines) + "\n"

    def axes(self) -> None:
        for tick in range(TICKS + 1):
            at = self.peak * tick // TICKS
            y = self.y(at)
            self.lines.append(
                f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" '
                'stroke="#eeeeee"/>'
            )
            self.lines.append(
                f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{at:,}</text>'
            )
        every = -(-len(self.plan.kernels) // MOST_LABELS)
        for column, (_, name) in enumerate(self.plan.kernels):
            if column % max(every, 1):
                continue
            x, y = self.x(column + 0.5), HEIGHT - BOTTOM + 10
            self.lines.append(
                f'<text x="{x:.1f}" y="{y}" transform="rotate(60 {x:.1f} {y})">'
                f"{_text(name, 24)}</text>"
            )

    def buffer(self, buffer: PlannedBuffer, number: int) -> None:
        if not buffer.bytes:
            return
        start, end = self.span(buffer)
        x, y = self.x(start), self.y(buffer.offset + buffer.bytes)
        width, height = self.x(end) - x, self.y(buffer.offset) - y
        fill, edge = _PAIRS[number % len(_PAIRS)]
        label = self.report.label(buffer)
        told = f"{label}: {buffer.bytes:,} bytes at {buffer.offset:,}"
        self.lines.append(
            f'<g><title>{_text(told, 400)}</title><rect x="{x:.1f}" y="{y:.1f}" '
            f'width="{width:.1f}" height="{height:.1f}" fill="{fill}" stroke="{edge}"/>'
        )
        room = int(width / 6)
        if height >= 12 and room >= 3:
            self.lines.append(
                f'<text x="{x + 3:.1f}" y="{y + height / 2 + 4:.1f}">'
                f"{_text(label, min(room, LONGEST))}</text>"
            )
        self.lines.append("</g>")

    def bound(self) -> None:
        y = self.y(self.plan.lower_bound)
        self.lines.append(
            f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#cb181d" '
            'stroke-dasharray="6 4"><title>the most bytes that are live at once</title></line>'
        )


def _text(text: str, longest: int = 1000) -> str:
    """Text as XML holds it: escaped, one line, without characters that XML forbids."""
    plain = printable(text)
    if len(plain) > longest:
        plain = plain[: longest - 1] + "\u2026"
    return escape(plain, quote=True)
