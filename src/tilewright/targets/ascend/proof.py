"""The proof that the flags and barriers of a program order everything that has to be ordered.

The model of the core: each pipe takes its commands in order, and a command reads its operands when
it starts; neighbours of one pipe may overlap until a ``pipe_barrier`` of it. ``set_flag`` takes
effect when all that its pipe was given before it has completed; ``wait_flag`` holds up what its
pipe is given after it. So what is complete when a command starts, whatever the pipes' speeds,
follows from the program alone: one vector clock a pipe, in program order. A command must find
complete

- what wrote the bytes that it reads or writes (of its own pipe, too),
- what other pipes read of the bytes that it writes.

An event must not be set again before its wait is over (where flags are binary), every wait must
have a set before it in the program, and every flag is down at the end. Every execution of every
command is looked at: the proof is exhaustive, not by samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tilewright.targets.ascend.machine import BLOCK
from tilewright.targets.ascend.program import (
    Access,
    Barrier,
    Command,
    Executed,
    Flag,
    Program,
    trace,
)

PIPES: tuple[str, ...] = ("V", "M", "MTE1", "MTE2", "MTE3", "FIX")
"""The pipes that take commands; S, the scalar unit, issues them. FIX is 910B's alone."""

PAIR = 2
"""Bytes to which accesses of main memory are told apart; on the chip it is blocks."""

MOST = 20
"""Problems that are listed."""

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Problem:
    """A fault of the program, with the statements that it concerns."""

    kind: str
    """``race``, ``uninitialised``, ``again``, ``deadlock``, ``leftover``, ``event``, or ``blocks``
    (blocks.py)."""
    text: str
    later: Command | Flag | Barrier
    earlier: Command | Flag | Barrier | None = None

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


def prove(
    program: Program,
    *,
    events: int = 4,
    binary: bool = True,
    most: int = MOST,
    trips: int | None = None,
    pipes: bool = True,
    length: int | None = None,
    block: int = 0,
) -> list[Problem]:
    """The problems of one block of a program, at most ``most`` of them; an empty list if it is
    right.

    With ``trips`` loops are cut short: no proof, but it finds soon what is wrong. What nothing
    wrote is no problem then. Without ``pipes``, order within pipes is taken for granted. ``length``
    is the kernel's parameter, if not the longest.
    """
    steps = trace(program, trips, length=length, block=block)
    return prove_trace(
        steps, events=events, binary=binary, most=most, cut=trips is not None, pipes=pipes
    )


def prove_trace(
    steps: list[Executed],
    *,
    events: int = 4,
    binary: bool = True,
    most: int = MOST,
    cut: bool = False,
    pipes: bool = True,
) -> list[Problem]:
    """The problems of a trace (``prove``), of a whole block, or of one with loops ``cut`` short."""
    return _Proof(steps, events, binary, most, cut=cut, pipes=pipes).problems


def missing_barriers(
    program: Program, trips: int | None = None, length: int | None = None, block: int = 0
) -> list[Command]:
    """The commands that need a barrier of their own pipe before them, in the order of the trace."""
    steps = trace(program, trips, length=length, block=block)
    mended: dict[Command, None] = {}
    _Proof(steps, 1 << 20, True, MOST, cut=True, pipes=True, mended=mended)
    return list(mended)


@dataclass(eq=False)
class _Proof:
    steps: list[Executed]
    events: int
    binary: bool
    most: int
    cut: bool
    pipes: bool
    mended: dict[Command, None] | None = None
    """The commands before which a barrier is taken for granted where one is missing, if any."""

    def __post_init__(self) -> None:
        self.problems: list[Problem] = []
        self.known = {pipe: np.zeros(len(PIPES), np.int64) for pipe in PIPES}
        self.numbers = np.zeros(len(PIPES), np.int64)
        # For each step, from 1: its pipe, and its number in the pipe. Step 0 stands for no step.
        self.pipe_of = np.zeros(len(self.steps) + 1, np.int64)
        self.number_of = np.zeros(len(self.steps) + 1, np.int64)
        self.written: dict[str, Ints] = {}
        self.read: dict[str, Ints] = {}
        self.raised: dict[tuple[str, str, int], list[tuple[Ints, Flag]]] = {}
        self.waited: dict[tuple[str, str, int], int] = {}
        self.stored = {
            access.home
            for step in self.steps
            for access in step.writes
            if access.home.startswith("gm ")
        }
        sizes: dict[str, int] = {}
        for step in self.steps:
            for access in (*step.reads, *step.writes):
                sizes[access.home] = max(sizes.get(access.home, 0), access.end)
        for home, size in sizes.items():
            blocks = -(-size // _granule(home))
            self.written[home] = np.zeros(blocks, np.int64)
            self.read[home] = np.zeros((len(PIPES), blocks), np.int64)
        for number, step in enumerate(self.steps, 1):
            self._step(number, step)
            if len(self.problems) >= self.most:
                return
        for (source, target, event), sets in self.raised.items():
            for _, flag in sets:
                text = f"set_flag({source}, {target}, {event}) is never waited for"
                self.problems.append(Problem("leftover", text, flag))

    def _step(self, number: int, step: Executed) -> None:
        statement = step.statement
        if isinstance(statement, Flag):
            self._flag(statement, step.event)
            return
        pipe = statement.pipe
        if pipe == "S":
            return
        if isinstance(statement, Barrier):
            if pipe == "ALL":
                self.numbers += 1
                for known in self.known.values():
                    known[:] = self.numbers
            else:
                place = PIPES.index(pipe)
                self.numbers[place] += 1
                self.known[pipe][place] = self.numbers[place]
            return
        place = PIPES.index(pipe)
        self.numbers[place] += 1
        self.pipe_of[number], self.number_of[number] = place, self.numbers[place]
        if self.mended is not None and statement in self.mended:
            self.known[pipe][place] = self.numbers[place] - 1
        for region in step.reads:
            self._access(number, step, region, writes=False)
        for region in step.writes:
            self._access(number, step, region, writes=True)
        for regions, table in ((step.reads, self.read), (step.writes, self.written)):
            for access in regions:
                home, index = access.home, touched(access)
                if home.startswith("gm ") and home not in self.stored:
                    continue
                if table is self.read:
                    table[home][place, index] = number
                else:
                    table[home][index] = number

    def _access(
        self,
        number: int,
        step: Executed,
        access: Access,
        *,
        writes: bool,
    ) -> None:
        home, statement = access.home, step.statement
        assert isinstance(statement, Command)
        if home.startswith("gm ") and home not in self.stored:
            return
        index, known = touched(access), self.known[statement.pipe]
        place = PIPES.index(statement.pipe)
        last = self.written[home][index]
        stale = self.number_of[last] > known[self.pipe_of[last]]
        if step.spaced or not self.pipes:
            stale &= self.pipe_of[last] != place
        verb = "writes" if writes else "reads"
        if self.mended is not None and (stale & (self.pipe_of[last] == place)).any():
            self.mended[statement] = None
            known[place] = self.numbers[place] - 1
            stale = self.number_of[last] > known[self.pipe_of[last]]
        self._stale(statement, home, verb, "written", last[stale])
        if not writes and not self.cut and not home.startswith("gm ") and not last.all():
            text = f"{statement.name} reads {home}, which nothing wrote"
            self.problems.append(Problem("uninitialised", text, statement))
        if writes:
            for other in range(len(PIPES)):
                if other != place:
                    last = self.read[home][other, index]
                    stale = self.number_of[last] > known[other]
                    self._stale(statement, home, verb, "read", last[stale])

    def _stale(self, statement: Command, home: str, verb: str, done: str, steps: Ints) -> None:
        if steps.size:
            earlier = self.steps[int(steps[0]) - 1].statement
            assert isinstance(earlier, Command)
            text = (
                f"{statement.name} ({statement.pipe}) {verb} {home}, which {earlier.name} "
                f"({earlier.pipe}) may not have {done}"
            )
            self.problems.append(Problem("race", text, statement, earlier))

    def _flag(self, flag: Flag, event: int) -> None:
        key = (flag.source, flag.target, event)
        name = f"{flag.kind}_flag({flag.source}, {flag.target}, {event})"
        if not 0 <= event < self.events:
            self.problems.append(Problem("event", f"{name}: a pair has {self.events} events", flag))
        sets = self.raised.setdefault(key, [])
        source, target = PIPES.index(flag.source), PIPES.index(flag.target)
        if flag.kind == "set":
            self.numbers[source] += 1
            if self.binary and (sets or self.known[flag.source][target] < self.waited.get(key, 0)):
                self.problems.append(
                    Problem("again", f"{name} while its last wait may be still to come", flag)
                )
            clock = self.known[flag.source].copy()
            clock[source] = self.numbers[source]
            sets.append((clock, flag))
            return
        self.numbers[target] += 1
        self.waited[key] = int(self.numbers[target])
        if not sets:
            self.problems.append(Problem("deadlock", f"{name}: nothing before has set it", flag))
            return
        np.maximum(self.known[flag.target], sets.pop(0)[0], out=self.known[flag.target])


def _granule(home: str) -> int:
    return PAIR if home.startswith("gm ") else BLOCK


@lru_cache(maxsize=1 << 15)
def touched(access: Access) -> Ints:
    """The blocks of memory that an access touches, and pairs of bytes of main memory."""
    granule = _granule(access.home)
    first, rest = divmod(access.start, granule)
    return first + _offsets(granule, rest, access.bytes, access.counts, access.strides)


@lru_cache(maxsize=4096)
def _offsets(
    granule: int, rest: int, size: int, counts: tuple[int, ...], strides: tuple[int, ...]
) -> Ints:
    starts = np.array([rest], np.int64)
    for count, stride in zip(counts, strides, strict=True):
        starts = (starts[:, None] + np.arange(count, dtype=np.int64) * stride).ravel()
    blocks = -(-(rest % granule + size) // granule)
    offsets = (starts[:, None] // granule + np.arange(blocks, dtype=np.int64)).ravel()
    return np.unique(offsets)
