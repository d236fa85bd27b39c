"""Vector kernels and attention on several cores: iterations of their outermost loops as blocks.

Such a kernel sets up, and then loops over tiles that have nothing to do with one another: each is
loaded, computed and stored. Its outermost loop is cut into runs of iterations, and so is the next
one where it is the last that the outermost does. A block is one run of each; what else stands in a
body, which stores nothing, every block does for itself. Nothing is summed across iterations: a
kernel that writes within its loops what it has set up before is left to one core, as is one whose
blocks would store the same elements.

Where a last tile begins earlier, so that it ends with the extent (kernels/tiles.py), it stores
again what the one before has stored. Runs are then of two iterations at least, and the last two
belong to one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import Any, cast

from tilewright.targets.ascend.blocks import conflicts, traces
from tilewright.targets.ascend.program import (
    BLOCK_INDEX,
    Command,
    Expr,
    Loop,
    Place,
    Program,
    Region,
    Statement,
    Value,
    least,
    of,
    statements,
    variable,
)

TRIED = 6
"""Ways to cut loops that are looked at."""

LOOPS = 2
"""Loops that are cut."""


def parted(program: Program, cores: int) -> Program:
    """The kernel as blocks for so many cores, as many as there are runs; as it is where its
    iterations are none that cores could share."""
    if program.blocks > 1:
        return program
    nest = _nest(program)
    for runs in islice(_runs(nest, cores), TRIED):
        blocks = _cut(program, nest, runs)
        if not conflicts(traces(blocks)):
            return blocks
    return program


def _nest(program: Program) -> list[Loop]:
    """The loops whose iterations may be blocks, outermost first."""
    nest: list[Loop] = []
    body: Sequence[Statement] = program.body
    while len(nest) < LOOPS:
        loops = [
            statement for statement in body if isinstance(statement, Loop) and _stores([statement])
        ]
        others = [statement for statement in body if statement not in loops]
        if len(loops) != 1 or not isinstance(loops[0].count, int) or _stores(others):
            break
        (loop,) = loops
        if (nest and body[-1] is not loop) or _written(others) & _written([loop]):
            break
        nest.append(loop)
        body = loop.body
    return nest


def _written(body: Sequence[Statement]) -> set[object]:
    """Buffers and tensors that statements write."""
    commands = (statement for statement in statements(body) if isinstance(statement, Command))
    return {region.place.home for command in commands for region in command.writes}


def _stores(body: Sequence[Statement]) -> bool:
    commands = (statement for statement in statements(body) if isinstance(statement, Command))
    return any(region.place.memory == "gm" for command in commands for region in command.writes)


def _runs(nest: Sequence[Loop], cores: int) -> Iterator[tuple[int, ...]]:
    """How many iterations of each loop a block has: those with the fewest first."""
    counts = [cast("int", loop.count) for loop in nest]
    ways: list[tuple[int, int, tuple[int, ...]]] = []
    for runs in product(*(_sizes(count, cores) for count in counts)):
        blocks = longest = 1
        for count, run in zip(counts, runs, strict=True):
            blocks, longest = blocks * -(-count // run), longest * run
        if 1 < blocks <= cores:
            ways.append((longest, blocks, runs))
    return (runs for *_, runs in sorted(ways))


def _sizes(count: int, cores: int) -> set[int]:
    return {-(-count // parts) for parts in range(1, min(count, cores) + 1)}


def _cut(program: Program, nest: Sequence[Loop], runs: Sequence[int]) -> Program:
    """The program as blocks of so many iterations."""
    whole, loops = deepcopy((program, tuple(nest)))
    constants: list[tuple[str, Value]] = []
    blocks = 1
    for loop, run in reversed(list(zip(loops, runs, strict=True))):
        assert isinstance(loop.count, int)
        parts = -(-loop.count // run)
        if parts == 1:
            continue
        place: Value = BLOCK_INDEX // blocks
        if loop is not loops[0]:
            place = place % parts
        blocks *= parts
        first = variable(f"{loop.name}_first")
        constants.insert(0, (first.text, place * run))
        loop.count = run if loop.count % run == 0 else least(run, loop.count - first)
        inner = loop.variable
        _Replaced(loop.name, of(first + inner)).within(loop.body)
        if inner == 0:
            # Slots turn with the iterations of a block.
            turned = _Replaced(loop.name, of(0))
            for buffer in whole.buffers:
                buffer.slot = turned.value(buffer.slot)
                if isinstance(buffer.slot, Expr) and not re.search("[a-z]", buffer.slot.text):
                    buffer.slot, buffer.slots = 0, 1
    return replace(whole, blocks=blocks, constants=tuple(constants))


@dataclass(frozen=True)
class _Replaced:
    """A loop's variable replaced by an expression, in values and what has some."""

    name: str
    by: Expr

    def value(self, value: Value) -> Value:
        """In a value."""
        if isinstance(value, int):
            return value
        text = re.sub(rf"\b{self.name}\b", f"({self.by.text})", value.text)
        if text == value.text:
            return value
        name = of(variable(self.name)).python
        return Expr(text, re.sub(rf"\b{name}\b", f"({self.by.python})", value.python), value.level)

    def within(self, body: Sequence[Statement]) -> None:
        """In all statements of a body."""
        for statement in statements(body):
            if isinstance(statement, Loop):
                statement.count = self.value(statement.count)
            elif isinstance(statement, Command):
                statement.arguments = tuple(self._argument(each) for each in statement.arguments)
                statement.reads = tuple(self._region(each) for each in statement.reads)
                statement.writes = tuple(self._region(each) for each in statement.writes)
                statement.cycles = self.value(statement.cycles)
                if statement.spaced is not None:
                    statement.spaced = of(self.value(statement.spaced))

    def _argument(self, argument: Any) -> Any:
        if isinstance(argument, Place):
            return self._place(argument)
        if isinstance(argument, tuple):
            parts = cast("tuple[Any, ...]", argument)
            return tuple(self._argument(part) for part in parts)
        return self.value(argument) if isinstance(argument, Expr) else argument

    def _place(self, place: Place) -> Place:
        return replace(place, offset=self.value(place.offset))

    def _region(self, region: Region) -> Region:
        place, size, counts, strides = region
        return Region(
            self._place(place),
            self.value(size),
            tuple(self.value(count) for count in counts),
            tuple(self.value(stride) for stride in strides),
        )


__all__ = ["parted"]
