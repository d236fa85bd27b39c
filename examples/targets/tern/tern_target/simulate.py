"""What the words do to memories, when, and in which order."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tern_target.isa import ENGINES, LOOPS, MOST_STEPS, SLOTS, STEPS
from tern_target.machine import MACHINE
from tilewright.codegen.program.transfers import AXES
from tilewright.codegen.program.word_files import Part
from tilewright.machine.expression import parse_expression
from tilewright.numerics import fixed, pointwise
from tilewright.simulate import access_table, timed_table, transfer_bytes
from tilewright.simulate.commands import AccessArray, TimedArray
from tilewright.simulate.ordering import Ordering, Signals, ordered

MOVES = {move.name: move for move in MACHINE.moves}
PRIMITIVES = {primitive.name: primitive for primitive in MACHINE.primitives}
MEMORIES = [memory.name for memory in MACHINE.memories]


class Core:
    """The memories, and what instructions do to them; ``touched`` has what they read and wrote."""

    def __init__(self, memories: Mapping[str, Any]) -> None:
        self.memories = memories
        self.touched: list[tuple[int, int, bool, int, int]] = []
        """Command, memory, whether it is written, address and length of each run of bytes."""

    def at(self, v: Mapping[str, int], name: str, step: str = "", size: str = "n") -> Any:
        """The addresses of an operand: an array with an axis for each loop, 1 where it rests."""
        steps = [v[f"{name}.{step}{n}"] for n in range(AXES if step else LOOPS)]
        axes = np.ix_(*(np.arange(v[f"{size}{n}"] if by else 1) for n, by in enumerate(steps)))
        return sum((axis * by for axis, by in zip(axes, steps, strict=True)), v[f"{name}.address"])

    def touch(self, memory: str, at: Any, width: int, write: bool) -> Any:
        """The places of elements in the memory's array; remembers the bytes."""
        starts = np.unique(at)
        firsts = np.flatnonzero(np.diff(starts, prepend=-width - 1) != width)
        for first, end in zip(firsts, [*firsts[1:], len(starts)], strict=True):
            run = int(starts[first]), int(end - first) * width
            self.touched.append((self.command, MEMORIES.index(memory), write, *run))
        return at // width

    def read(self, memory: str, at: Any, width: int = 2) -> Any:
        """Elements of a memory."""
        return self.memories[memory].view(f"i{width}")[self.touch(memory, at, width, False)]

    def write(self, memory: str, at: Any, width: int, value: Any) -> None:
        """Put elements into a memory."""
        self.memories[memory].view(f"i{width}")[self.touch(memory, at, width, True)] = value

    def execute(self, command: int, mnemonic: str, v: Mapping[str, int]) -> None:
        """Run one instruction with these fields."""
        self.command = command
        if mnemonic in MOVES:
            move, width = MOVES[mnemonic], v["element"]
            source, target = (self.at(v, end, "stride", "size") for end in ("source", "target"))
            self.write(move.target, target, width, self.read(move.source, source, width))
        elif mnemonic in PRIMITIVES:
            self._compute(mnemonic, v)

    def _compute(self, name: str, v: Mapping[str, int]) -> None:
        summed, place = tuple(n for n in range(LOOPS) if not v[f"y.{n}"]), self.at(v, "y")
        products = name in ("conv", "product")
        value = self._input(v, -(1 << 15) if name == "pool" else 0)
        if products:
            value = (value * self.read("taps", self.at(v, "w"))).sum(summed, keepdims=True)
        elif name == "pool":
            value = value.max(summed, keepdims=True)
        if not v["first"]:
            before = self.read("tile", place, 4)
            value = value + before if products else np.maximum(value, before)
        elif v["bias"]:
            value = value + self.read("tile", self.at(v, "b"), 4)
        value = value.astype(np.int32)
        for number in range(MOST_STEPS if v["last"] else 0):
            step, p, q = STEPS[v[f"f{number}"]], v[f"p{number}"], v[f"q{number}"]
            arrays = [value]
            if step in ("add", "sub", "mul"):
                second = "w" if name == "map" and number == 0 else "r"
                arrays.append(self.read("tile", self.at(v, second)))
            if step == "softmax":
                value = fixed.softmax(value, SLOTS["axis"], p, q)
            elif step == "clip":
                value = np.clip(value, p, q)
            elif step != "none":
                points = {"fractions": (p, q), "result_fraction": q}
                value = pointwise.evaluate(step, arrays, fixed=True, **points)
        self.write("tile", place, 2 if v["last"] else 4, value)

    def _input(self, v: Mapping[str, int], padding: int) -> Any:
        """The elements of x, or of its windows; ``padding`` where an image has none."""
        sizes = np.ix_(*(np.arange(v[f"n{n}"]) for n in range(4)), *[np.arange(1)] * 4)
        row = v["row"] + sizes[0] * v["stride.h"] + sizes[2] * v["dilation.h"]
        column = v["column"] + sizes[1] * v["stride.w"] + sizes[3] * v["dilation.w"]
        inside = (row >= 0) & (row < v["rows"]) & (column >= 0) & (column < v["columns"])
        at = self.at(v, "x") + row * v["x.h"] + column * v["x.w"]
        inside = np.broadcast_to(inside, at.shape)
        value = np.full(at.shape, padding, np.int64)
        value[inside] = self.read("tile", at[inside])
        return value

    def accesses(self) -> AccessArray:
        """All that was touched, for the search for races."""
        table = access_table(len(self.touched))
        names = ["command", "memory", "write", "address", "run"]
        table[names] = np.array(self.touched, table[names].dtype)
        return table


def timed(parts: Sequence[Part], size: int) -> tuple[TimedArray, Ordering]:
    """The records of the timing core, and the flags that were matched."""
    table = timed_table(size)
    for mnemonic, v, rows in parts:
        if mnemonic in MOVES:
            move = MOVES[mnemonic]
            table["engine"][rows] = ENGINES.index(move.engine)
            table["move"][rows], table["latency"][rows] = MACHINE.moves.index(move), move.latency
            box = np.prod([v[f"size{axis}"] for axis in range(AXES)], axis=0)
            table["bytes"][rows] = transfer_bytes(move, v["element"] * box)
        elif mnemonic in PRIMITIVES:
            table["engine"][rows] = ENGINES.index("core")
            cycles = parse_expression(PRIMITIVES[mnemonic].cycles)
            sizes = {dim: v[f"n{SLOTS[dim]}"] for dim in cycles.names}
            table["cycles"][rows] = np.ceil(cycles.evaluate(sizes))
        elif mnemonic != "barrier":
            table["engine"][rows] = v["signal" if mnemonic == "set" else "wait"]
    signals = Signals(table["engine"], MACHINE)
    for mnemonic, v, rows in parts:
        if mnemonic in ("set", "await"):
            signals.add(rows, v["signal"], v["wait"], v["flag"], signal=mnemonic == "set")
        elif mnemonic == "barrier":
            signals.barriers.append(rows)
    ordering = signals.ordering()
    return ordered(table, ordering, lambda row: f"instruction {row}"), ordering
