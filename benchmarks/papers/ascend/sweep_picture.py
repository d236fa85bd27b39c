"""The sweeps as a picture: for each mode and n a grid of tiles (m, k), dark where they are fast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

CELL, GAP, LEFT, TOP = 22, 26, 150, 40


def draw(
    points: Sequence[Mapping[str, Any]],
    modes: Sequence[str],
    depths: Sequence[int],
    rows: Sequence[int],
    columns: Sequence[int],
) -> str:
    """SVG; of each mode the fastest tile is black, tiles of ten times its time are white, and those
    that do not fit have no cell."""
    wide, high = len(columns) * CELL + GAP, len(rows) * CELL + GAP
    width, height = LEFT + wide * len(depths), TOP + high * len(modes) + GAP
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="9">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]

    def text(x: float, y: float, words: object, anchor: str = "start") -> None:
        lines.append(f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}">{words}</text>')

    for line, mode in enumerate(modes):
        mine = [point for point in points if point["mode"] == mode]
        fastest = min(point["cycles"] for point in mine)
        y = TOP + line * high
        text(4, y + 12, mode)
        text(4, y + 24, f"best: {fastest:,.0f} cycles")
        for place, n in enumerate(depths):
            x = LEFT + place * wide
            if line == 0:
                text(x, TOP - 22, f"n = {n}; k to the right, m down")
                for at, k in enumerate(columns):
                    text(x + (at + 0.5) * CELL, TOP - 6, k, "middle")
            for at, m in enumerate(rows):
                if place == 0:
                    text(x - 4, y + (at + 0.65) * CELL, m, "end")
            for point in mine:
                if point["n"] != n:
                    continue
                shade = min(255, int(255 * (point["cycles"] / fastest - 1) / 9))
                left = x + columns.index(point["k"]) * CELL
                down = y + rows.index(point["m"]) * CELL
                name = f"({point['m']},{n},{point['k']}): {point['cycles']:,.0f}"
                lines.append(
                    f'<rect x="{left}" y="{down}" width="{CELL - 1}" height="{CELL - 1}" '
                    f'fill="rgb({shade},{shade},{shade})" stroke="#999" stroke-width="0.5">'
                    f"<title>{name}</title></rect>"
                )
    return "\n".join([*lines, "</svg>"]) + "\n"
