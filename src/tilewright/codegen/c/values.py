"""Columns of values as C expressions of the enclosing loops' variables.

A lowering knows what an operand's address, a size or a flag is in every execution of an operation,
as one NumPy column (tile/iteration.py). A C program has loops instead. ``Executions.expression``
finds the expression of the loops' variables that gives the column, in this order:

1. a number;
2. a sum over loops, each term affine in the loop's variable, but for a first or last run that may
   differ (the halo's edge, the tile that is cut): ``oh * 448 + (ci == 48 ? 8 : 16)``;
3. of flags, an *and* of conditions on loops: ``(ci == 0 && kh == 0)``;
4. a table by the numbers of those loops' runs on which the column depends.

Where a buffer has several slots, its addresses have ``slot * bytes`` beside. Every expression is
compared with the column in all executions before it is used: none is a guess.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.codegen.c.source import total
from tilewright.errors import refuse
from tilewright.ir.types import Array

MAX_TABLE = 1 << 16
"""Entries of the largest table of values that a function has."""


@dataclass(frozen=True)
class LoopVariable:
    """A loop as an operation within sees it."""

    name: str
    lower: int
    step: int
    runs: NDArray[np.int64]
    """Per execution of the operation: the number of the loop's run in which it lies, from 0."""

    @cached_property
    def count(self) -> int:
        """The greatest number of runs of the loop in any execution."""
        return int(self.runs.max(initial=0)) + 1

    def at(self, run: int) -> int:
        """Return the loop variable's value in a run, counted from 0."""
        return self.lower + run * self.step

    @property
    def number(self) -> str:
        """The number of the run, in C."""
        shifted = f"({self.name} - {self.lower})" if self.lower else self.name
        return shifted if self.step == 1 else f"{shifted} / {self.step}"


@dataclass(frozen=True)
class SlotTerm:
    """The part of an address that depends on a buffer's slot."""

    name: str
    """The variable that counts the slots."""
    bytes: int
    slot: Array
    role: str = ""
    """The role of the buffer, by which it comes before others of as many slots."""
    """Per execution: the slot."""


@dataclass
class Tables:
    """The tables that a function declares for what is no plain expression."""

    prefix: str
    lines: list[str] = field(default_factory=list[str])
    _names: dict[tuple[int, ...], str] = field(default_factory=dict[tuple[int, ...], str])

    def name_of(self, values: Iterable[int]) -> str:
        """The name of the table of these values; declares it where it is new."""
        entries = tuple(values)
        if len(entries) > MAX_TABLE:
            raise refuse(
                "codegen-values",
                f"{len(entries)} values follow no pattern; a table has at most {MAX_TABLE}",
                self.prefix,
                "larger tiles",
            )
        name = self._names.get(entries)
        if name is None:
            name = self._names[entries] = f"{self.prefix}_table{len(self._names)}"
            kind = "int32_t" if max(map(abs, entries)) < 1 << 31 else "int64_t"
            numbers = ", ".join(map(str, entries))
            self.lines.append(f"static const {kind} {name}[{len(entries)}] = {{{numbers}}};")
        return name


@dataclass
class Executions:
    """The executions of an operation in the loops around it, outermost first."""

    loops: Sequence[LoopVariable]
    count: int
    tables: Tables

    def expression(self, value: Any, slots: Sequence[SlotTerm] = ()) -> str:
        """C for a column (or one number for all executions); "0" for no executions."""
        column = np.broadcast_to(np.asarray(value, np.int64), (self.count,))
        if not column.size:
            return "0"
        if int(column.min()) == int(column.max()):
            return str(int(column[0]))
        choices: list[tuple[str, Array]] = [("", column)]
        for slot in slots:
            choices.append((f"{slot.name} * {slot.bytes}", column - slot.slot * slot.bytes))
        for attempt in (self._sum, self._conditions):
            terms = [(shift, attempt(rest)) for shift, rest in choices]
            texts = [
                f"{shift} + {text}" if shift and text != "0" else shift or text
                for shift, text in terms
                if text is not None
            ]
            if texts:
                return min(texts, key=lambda text: text.count("?"))
        tables = [(shift, *self._table(rest)) for shift, rest in choices]
        shift, entries, index = min(tables, key=lambda table: len(table[1]))
        text = f"{self.tables.name_of(entries)}[{index}]"
        return f"{shift} + {text}" if shift else text

    def _sum(self, column: Array) -> str | None:
        """A sum of one term for each loop; None where it is no such sum, or a term has no form."""
        functions = self._additive(column)
        if functions is None:
            return None
        constant, terms, ends = int(column[0]), list[tuple[int, str]](), list[Ends]()
        for loop, values in zip(self.loops, functions, strict=True):
            if not values.any():
                continue
            shape = _shape(values)
            if shape is None:
                return None
            slope, offset, others = shape
            constant += offset
            if slope:
                terms.append(_product(loop, slope))
            if others:
                ends.append((loop, others))
        if len(ends) == 1 and not terms:
            return _choice(*ends[0], constant)
        plain = [total(terms, constant)] if terms or constant or not ends else []
        return " + ".join([*plain, *(_choice(loop, others, 0) for loop, others in ends)])

    def _additive(self, column: Array) -> list[Array] | None:
        """Per loop, what its runs add to the first execution's value; None if that is no sum.

        Each loop's function is read where all others are in their first run.
        """
        functions: list[Array] = []
        whole = np.full(column.shape, int(column[0]), np.int64)
        for loop in self.loops:
            others = [other.runs == 0 for other in self.loops if other is not loop]
            alone = np.logical_and.reduce(others) if others else np.ones(self.count, np.bool_)
            values = np.zeros(loop.count, np.int64)
            values[loop.runs[alone]] = column[alone] - column[0]
            functions.append(values)
            whole += values[loop.runs]
        return functions if np.array_equal(whole, column) else None

    def _conditions(self, column: Array) -> str | None:
        """``a && b ? value : other`` for columns of two values."""
        values = np.unique(column)
        if values.size != 2:
            return None
        for chosen, other in (values[::-1], values):
            holds = column == chosen
            texts: list[str] = []
            whole = np.ones(self.count, np.bool_)
            for loop in self.loops:
                allowed = np.zeros(loop.count, np.bool_)
                allowed[loop.runs[holds]] = True
                whole &= allowed[loop.runs]
                if not allowed.all():
                    text = _condition(loop, allowed)
                    if text is None:
                        break
                    texts.append(text)
            else:
                if np.array_equal(whole, holds):
                    joined = " && ".join(texts)
                    if (chosen, other) == (1, 0):
                        return f"({joined})"
                    return f"({joined} ? {chosen} : {other})"
        return None

    def _table(self, column: Array) -> tuple[list[int], str]:
        """A table by the runs of the fewest loops on which the column depends, and its index."""
        numbers = range(len(self.loops))
        for size in range(1, len(self.loops) + 1):
            for chosen in combinations(numbers, size):
                loops = [self.loops[number] for number in chosen]
                index = np.zeros(self.count, np.int64)
                text = ""
                for loop in loops:
                    index = index * loop.count + loop.runs
                    text = f"({text}) * {loop.count} + {loop.number}" if text else loop.number
                entries = np.zeros(prod(loop.count for loop in loops), np.int64)
                entries[index] = column
                if np.array_equal(entries[index], column):
                    return entries.tolist(), text
        raise AssertionError("the runs of all loops tell every execution apart")


def _product(loop: LoopVariable, slope: int) -> tuple[int, str]:
    """``slope`` for each run of a loop, as a coefficient and what it multiplies."""
    if slope % loop.step == 0 and not loop.lower:
        return slope // loop.step, loop.name
    return slope, loop.number if "/" not in loop.number else f"({loop.number})"


Shape = tuple[int, int, dict[int, int]]
"""Slope for each run, the offset added to it, and what the first or last run has more."""

Ends = tuple[LoopVariable, dict[int, int]]
"""A loop, and what its first or last run has more than the others."""


def _shape(values: Array) -> Shape | None:
    """A function of a loop's run: affine, but for its first or last run or both."""
    last = values.size - 1
    for low, high in ((0, last), (0, last - 1), (1, last), (1, last - 1)):
        if low > high:
            continue
        slope = int(values[low + 1] - values[low]) if low < high else 0
        start = int(values[low]) - slope * low
        rest = values - (start + slope * np.arange(values.size))
        if rest[low : high + 1].any():
            continue
        return slope, start, {run: int(rest[run]) for run in (0, last) if rest[run]}
    return None


def _condition(loop: LoopVariable, allowed: NDArray[np.bool_]) -> str | None:
    """The runs of a loop in which something holds, as a condition; None for mixed ones."""
    last = allowed.size - 1
    some = np.flatnonzero(allowed)
    if some.size == 1:
        return f"{loop.name} == {loop.at(int(some[0]))}"
    if some.size == last:
        missing = int(np.flatnonzero(~allowed)[0])
        return f"{loop.name} != {loop.at(missing)}"
    first, end = int(some[0]), int(some[-1])
    if some.size == end - first + 1 and end == last:
        return f"{loop.name} >= {loop.at(first)}"
    if some.size == end - first + 1 and first == 0:
        return f"{loop.name} <= {loop.at(end)}"
    return None


def _choice(loop: LoopVariable, more: dict[int, int], plain: int) -> str:
    """A number that some runs of a loop have more of."""
    cases = "".join(f"{loop.name} == {loop.at(run)} ? {plain + by} : " for run, by in more.items())
    return f"({cases}{plain})"
