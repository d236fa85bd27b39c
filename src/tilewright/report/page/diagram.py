"""A machine as a picture: memories, the moves between them, and what computes.

Memories stand in columns by how many moves they are from main memory; between two columns every
move has a line of its own, with its name and rate; primitives stand on the right, joined to the
memories of their operands. Colours come from the page's style sheet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from html import escape

from tilewright.machine import Machine, Memory, Move, Primitive
from tilewright.runtime.glance import size
from tilewright.runtime.texts import printable

BOX, GAP, SIDE = 150, 190, 12
"""Widths of a column of boxes and of a gap between columns, and the margin."""

LINE, MEMORY, PRIMITIVE = 34, 58, 44
"""Heights of a move's line, of a memory's place and of a primitive's place."""

MOST_PRIMITIVES = 14
"""Primitives that are drawn; of more, the others are counted."""

COLOURS = 8
"""Colours of engines, in turn: classes ``engine0`` to ``engine7``."""


def machine_diagram(machine: Machine) -> str:
    """The SVG text; names are escaped, and nothing in it runs or refers outside."""
    return _Diagram(machine).text()


class _Diagram:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.depths = _depths(machine)
        self.columns = 1 + max(self.depths.values(), default=0)
        self.primitives = machine.primitives[:MOST_PRIMITIVES]
        gaps = [len(self.moves_after(column)) for column in range(self.columns)]
        tallest = max((len(self.memories(c)) for c in range(self.columns)), default=1)
        places = len(self.primitives) + (len(machine.primitives) > MOST_PRIMITIVES)
        self.height = 2 * SIDE + max(
            tallest * MEMORY, max(gaps, default=0) * LINE, places * PRIMITIVE, 120
        )
        self.width = 2 * SIDE + (self.columns + 1) * BOX + self.columns * GAP
        engines = [engine.name for engine in machine.engines]
        self.colours = {name: number % COLOURS for number, name in enumerate(engines)}
        self.lines: list[str] = []

    def memories(self, column: int) -> list[Memory]:
        return [m for m in self.machine.memories if self.depths[m.name] == column]

    def moves_after(self, column: int) -> list[Move]:
        """The moves that are drawn in the gap after a column."""
        depths = self.depths
        return [
            move
            for move in self.machine.moves
            if min(depths[move.source], depths[move.target]) == column
        ]

    def x(self, column: int) -> float:
        return SIDE + column * (BOX + GAP)

    def y(self, number: int, count: int) -> float:
        """The middle of a place in a column."""
        return SIDE + (self.height - 2 * SIDE) * (number + 0.5) / count

    def middle(self, memory: str) -> float:
        beside = [m.name for m in self.memories(self.depths[memory])]
        return self.y(beside.index(memory), len(beside))

    def text(self) -> str:
        name = f"The machine {self.machine.name}: memories, moves and primitives"
        self.lines = [
            f'<svg class="machine" viewBox="0 0 {self.width} {self.height}" role="img" '
            f'width="{self.width}" aria-label="{_text(name)}">'
        ]
        for column in range(self.columns):
            moves = self.moves_after(column)
            for number, move in enumerate(moves):
                self.move(move, column, self.y(number, len(moves)))
        for number, primitive in enumerate(self.primitives):
            self.operands(primitive, self.place(number))
        for memory in self.machine.memories:
            self.memory(memory)
        for number, primitive in enumerate(self.primitives):
            self.primitive(primitive, self.place(number))
        more = len(self.machine.primitives) - len(self.primitives)
        if more > 0:
            self.label(
                self.x(self.columns) + 8, self.place(len(self.primitives)), f"and {more} more"
            )
        self.lines.append("</svg>")
        return "\n".join(self.lines) + "\n"

    def place(self, number: int) -> float:
        count = len(self.primitives) + (len(self.machine.primitives) > MOST_PRIMITIVES)
        return self.y(number, count)

    def memory(self, memory: Memory) -> None:
        x, y = self.x(self.depths[memory.name]), self.middle(memory.name)
        facts = [size(memory.bytes) if memory.bytes else "no limit"]
        if memory.bytes_per_cycle:
            facts.append(f"{memory.bytes_per_cycle:g} B/cycle")
        self.box("memory", x, y, memory.name, ", ".join(facts), 40)

    def primitive(self, primitive: Primitive, y: float) -> None:
        colour = self.colours.get(primitive.engine, 0)
        about = ", ".join(primitive.operations)
        kind = f"primitive engine{colour}"
        self.box(kind, self.x(self.columns), y, primitive.name, about, 36, f"on {primitive.engine}")

    def box(
        self, kind: str, x: float, y: float, name: str, about: str, high: int, more: str = ""
    ) -> None:
        title = "; ".join(part for part in (name, about, more) if part)
        self.lines.append(
            f'<g class="{kind}"><title>{_text(title)}</title>'
            f'<rect x="{x:.1f}" y="{y - high / 2:.1f}" width="{BOX}" height="{high}" rx="5"/>'
        )
        self.label(x + 8, y - 3, _short(name, 18), "name")
        self.label(x + 8, y + 12, _short(about, 24))
        self.lines.append("</g>")

    def move(self, move: Move, column: int, y: float) -> None:
        """From the edge of one box by the move's own line to the edge of the other."""
        left = self.x(column) + BOX
        ends = [(self.depths[name], self.middle(name)) for name in (move.source, move.target)]
        inwards = ends[1][0] >= ends[0][0]
        (_, near), (depth, far) = ends if inwards else ends[::-1]
        # Where both are in one column, the line comes back to it.
        right = left if depth == column else self.x(depth)
        a, b = left + 30, left + GAP - 30
        bend = f"C {b + 20:.1f} {y:.1f} {b + 10:.1f} {far:.1f} {right:.1f} {far:.1f}"
        if right == left:
            bend = f"C {b + 40:.1f} {y:.1f} {b + 40:.1f} {far:.1f} {right:.1f} {far + 6:.1f}"
        path = (
            f"M {left:.1f} {near:.1f} C {a - 10:.1f} {near:.1f} {a - 20:.1f} {y:.1f} "
            f"{a:.1f} {y:.1f} L {b:.1f} {y:.1f} {bend}"
        )
        colour = self.colours.get(move.engine, 0)
        rate = f"{move.bytes_per_cycle:g} B/cycle"
        title = f"{move.name}: {move.source} to {move.target} on {move.engine}, {rate}"
        title += f", latency {move.latency}, {move.in_flight} in flight"
        tip = f"M {b:.1f} {y:.1f} l -7 -4 v 8 z" if inwards else f"M {a:.1f} {y:.1f} l 7 -4 v 8 z"
        self.lines.append(
            f'<g class="move engine{colour}"><title>{_text(title)}</title><path d="{path}"/>'
            f'<path class="tip" d="{tip}"/>'
        )
        self.label((a + b) / 2, y - 4, f"{_short(move.name, 18)}", "on-line")
        self.label((a + b) / 2, y + 12, rate, "on-line rate")
        self.lines.append("</g>")

    def operands(self, primitive: Primitive, y: float) -> None:
        for memory in dict.fromkeys(s.memory for s in primitive.operands.values()):
            if memory not in self.depths:
                continue
            left, right = self.x(self.depths[memory]) + BOX, self.x(self.columns)
            start, bend = self.middle(memory), (left + right) / 2
            self.lines.append(
                f'<path class="operand" d="M {left:.1f} {start:.1f} C {bend:.1f} {start:.1f} '
                f'{bend:.1f} {y:.1f} {right:.1f} {y:.1f}"/>'
            )

    def label(self, x: float, y: float, text: str, kind: str = "") -> None:
        named = f' class="{kind}"' if kind else ""
        self.lines.append(f'<text x="{x:.1f}" y="{y:.1f}"{named}>{_text(text)}</text>')


def _depths(machine: Machine) -> dict[str, int]:
    """The number of moves from main memory to each memory; 0 where no move leads there."""
    depths = {machine.main: 0}
    waiting = deque([machine.main])
    while waiting:
        here = waiting.popleft()
        for other in _neighbours(machine.moves, here):
            if other not in depths:
                depths[other] = depths[here] + 1
                waiting.append(other)
    return {memory.name: depths.get(memory.name, 0) for memory in machine.memories}


def _neighbours(moves: Sequence[Move], memory: str) -> list[str]:
    onwards = [move.target for move in moves if move.source == memory]
    return onwards + [move.source for move in moves if move.target == memory]


def _short(text: str, longest: int) -> str:
    plain = printable(text)
    return plain if len(plain) <= longest else plain[: longest - 1] + "\u2026"


def _text(text: str) -> str:
    return escape(printable(text), quote=True)
