"""HIVM with flags that AscendNPU-IR has put in, as executions that our proof and timing take.

Read is what its passes ``hivm-plan-memory`` and one that synchronises print of loops over loads,
vector operations, products and stores. A buffer of several addresses takes them in turn. What
``mmadL1`` does by itself is written out: it waits for its operands, loads them into L0 (in halves
by turns), tells that L1 is free, and multiplies, by events between MTE1 and M that it is given, or
(-1) by its own, which it takes back before it ends.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from tilewright.codegen.nest.value import Expr
from tilewright.targets.ascend.program import Access, Barrier, Command, Executed, Flag

WIDTHS = {"f16": 2, "f32": 4}
LANES = 128
"""Halves of a repeat of the vector unit."""

PIPES = {"load": "MTE2", "nd2nz": "MTE2", "store": "MTE3", "fixpipe": "FIX"}
"""Moves; all others are of the vector unit."""

HELD = Expr("1", "True")
"""Products of many blocks into the same sums need no barrier between them."""

L0 = 32 << 10
"""Bytes of half of L0A, and of L0B."""


@dataclass
class _View:
    """A memref: its memory, first byte, sizes, and bytes between indices."""

    home: str
    start: int
    sizes: list[int]
    strides: list[int]
    width: int

    @property
    def access(self) -> Access:
        """Its bytes: rows, and how far these are apart."""
        sizes, strides, run = list(self.sizes), list(self.strides), self.width
        while sizes and strides[-1] == run:
            run *= sizes.pop()
            strides.pop()
        return Access(self.home, self.start, run, tuple(sizes), tuple(strides))


@dataclass
class Injected:
    """A function's executions."""

    text: str
    steps: list[Executed] = field(default_factory=list[Executed])
    statements: dict[object, Command | Flag | Barrier] = field(
        default_factory=dict[object, Command | Flag | Barrier]
    )
    """By place in the text: each line is one statement, however often it is executed."""
    turns: dict[int, int] = field(default_factory=dict[int, int])
    maps: dict[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def of(cls, text: str) -> Injected:
        """Run a module's one function."""
        whole = cls(text)
        for name, arguments, result in re.findall(
            r"(#\w+) = affine_map<\(\)\[([^\]]*)\] -> \((.*)\)>", text
        ):
            body = result.replace("floordiv", "//").replace("mod", "%")
            whole.maps[name] = f"lambda {arguments}: {body}"
        lines = [line.strip() for line in text.splitlines()]
        begin = next(n for n, line in enumerate(lines) if line.startswith("func.func"))
        values: dict[str, Any] = {
            name: _view(kind, f"gm {name[1:]}")
            for name, kind in re.findall(r"(%arg\d+): (memref<[^>]*>+)", lines[begin])
        }
        whole._run(lines, begin + 1, lines.index("return"), values)
        return whole

    def _run(self, lines: list[str], first: int, end: int, values: dict[str, Any]) -> None:
        at = first
        while at < end:
            line = lines[at]
            loop = re.fullmatch(r"scf\.for (\S+) = (\S+) to (\S+) step (\S+) +\{", line)
            if loop:
                depth, close = 1, at
                while depth:
                    close += 1
                    depth += lines[close].endswith("{") - (lines[close] == "}")
                for index in range(*(values[loop[n]] for n in (2, 3, 4))):
                    self._run(lines, at + 1, close, {**values, loop[1]: index})
                at = close
            elif line.startswith("hivm.hir."):
                self._execute(at, line.removeprefix("hivm.hir."), values)
            elif line.startswith("%"):
                name, definition = line.split(" = ", 1)
                values[name] = self._value(at, definition, values)
            at += 1

    def _value(self, at: int, text: str, values: Mapping[str, Any]) -> Any:
        used = [values[word] for word in re.findall(r"%[\w-]+", text)]
        match text.split("(")[0].split(" ")[0]:
            case "arith.constant":
                word = text.split(" ")[1]
                return int(word) if word.lstrip("-").isdigit() else word == "true"
            case "arith.cmpi":
                assert text.startswith("arith.cmpi eq")
                return used[0] == used[1]
            case "arith.select":
                return used[1] if used[0] else used[2]
            case "arith.index_cast":
                return used[0]
            case "affine.apply":
                return eval(self.maps[text.split(" ")[1].split("(")[0]])(*used)
            case "memref.subview":
                return _part(text, values)
            case "hivm.hir.pointer_cast":
                turn = self.turns[at] = self.turns.get(at, -1) + 1
                view = _view(text.rsplit(" : ", 1)[1], "")
                view.start = used[turn % len(used)]
                return view
            case name:
                raise ValueError(f"no meaning for {name}")

    def _add(self, key: object, statement: Command | Flag | Barrier, event: int = 0) -> None:
        self.steps.append(Executed(self.statements.setdefault(key, statement), event, *_NOTHING))

    def _flag(self, key: object, kind: str, source: str, target: str, event: int) -> None:
        self._add((key, kind, source, target), Flag(kind, source, target, 0), event)

    def _command(
        self,
        key: object,
        name: str,
        pipe: str,
        reads: list[Access],
        write: Access,
        cycles: int = 0,
    ) -> None:
        statement = self.statements.setdefault(key, Command(name, pipe, (), spaced=HELD))
        spaced = name == "mad"
        self.steps.append(Executed(statement, 0, spaced, cycles, tuple(reads), (write,)))

    def _execute(self, at: int, text: str, values: Mapping[str, Any]) -> None:
        name = re.split(r"\W", text, maxsplit=1)[0]
        if name in ("set_flag", "wait_flag"):
            source, target, event = re.findall(r"<PIPE_(\w+)>|<EVENT_ID(\d)>|(%[\w-]+)", text)
            number = int(event[1]) if event[1] else values[event[2]]
            self._flag(at, name.removesuffix("_flag"), source[0], target[0], number)
        elif name == "pipe_barrier":
            self._add(at, Barrier(text.split("PIPE_", 1)[1].rstrip(">]")))
        else:
            inputs = [values[word] for word in _operands(text, "ins")]
            (output,) = (values[word] for word in _operands(text, "outs"))
            if name == "mmadL1":
                given = [values[word] for word in _operands(text, "sync_related_args")]
                self._product(at, inputs, output, given)
                return
            pipe = PIPES.get(name, "V")
            halves = sum(1 for _ in range(0, prod(output.sizes), LANES))
            cycles = VECTOR_HEAD + halves * COSTS.get(name, 1) if pipe == "V" else 0
            reads = [one.access for one in inputs]
            if name == "fixpipe":
                # A transfer of sums takes what the halves that arrive do.
                reads = [reads[0]._replace(bytes=reads[0].bytes // 2)]
            self._command(at, name, pipe, reads, output.access, cycles)

    def _product(self, at: int, inputs: list[Any], output: _View, events: list[int]) -> None:
        left, right, _, m, k, n = inputs[:6]
        ready, free, (turn, *between) = events[:2], events[2:4], events[4:7]
        own = -1 in between
        assert max(m, n) * k * 2 <= L0, "a product of several loads"
        half = 0 if own else turn % 2
        if own:
            for event in (0, 1):
                self._flag((at, "own", event), "set", "M", "MTE1", event)
        event = half if own else between[half]
        self._flag((at, 0), "wait", "M", "MTE1", event)
        places = [
            Access(home, half * L0, size * k * 2, (), ()) for home, size in (("ca", m), ("cb", n))
        ]
        for side, (view, place) in enumerate(zip((left, right), places, strict=True)):
            if ready[side] >= 0:
                self._flag((at, 1, side), "wait", "MTE2", "MTE1", ready[side])
            self._command((at, 2, side), "load", "MTE1", [view.access], place)
            if free[side] >= 0:
                self._flag((at, 3, side), "set", "MTE1", "MTE2", free[side])
        self._flag((at, 4), "set", "MTE1", "M", half)
        self._flag((at, 5), "wait", "MTE1", "M", half)
        cycles = prod(-(-size // 16) for size in (m, k, n))
        self._command((at, 6), "mad", "M", places, output.access, cycles)
        self._flag((at, 7), "set", "M", "MTE1", event)
        if own:
            for event in (0, 1):
                self._flag((at, "end", event), "wait", "M", "MTE1", event)


VECTOR_HEAD = 16
COSTS = {"vexp": 2}
"""Assumed of the vector unit: cycles ahead of an operation, and of a repeat where that is not 1."""

_NOTHING = (False, 0, (), ())


def _operands(text: str, group: str) -> list[str]:
    found = re.search(rf"{group}\(([^:]*) :", text)
    return found[1].split(", ") if found else []


def _view(kind: str, home: str) -> _View:
    """A dense one of a type."""
    found = re.match(
        r"memref<([0-9x]+)x(f16|f32)(?:, strided<.*>)?, #hivm.address_space<(\w+)>>", kind
    )
    assert found is not None, kind
    sizes, width = [int(n) for n in found[1].split("x")], WIDTHS[found[2]]
    strides = [width * prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    return _View(home or found[3], 0, sizes, strides, width)


def _part(text: str, values: Mapping[str, Any]) -> _View:
    source: _View = values[text.split(" ")[1].split("[")[0]]
    boxes = re.findall(r"\[([^\]]*)\]", text.split(" : ", 1)[0])
    starts, sizes, _ = (
        [values[n] if n.startswith("%") else int(n) for n in box.split(", ")] for box in boxes
    )
    start = source.start + sum(a * b for a, b in zip(starts, source.strides, strict=True))
    return _View(source.home, start, sizes, source.strides, source.width)
