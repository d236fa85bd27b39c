"""Parts of commands, where instructions are of rows (``Synchronisation.by_rows``).

A transfer is then an instruction for each row of its box, a compute one for each block of rows that
its primitive computes at once, and each waits for no more than the rows that it touches. Rows have
positions: those of a buffer's fillings are counted on from one filling to the next, so that a row
takes the place of the one that is ``room`` positions before it. What reads up to some position
waits for the part that makes the row there; what fills up to it, for the parts that still read what
was there before.

Elsewhere a command has one part, and a filling one row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.machine import Move
from tilewright.planning.chains.circular import first_places, rows_in_buffer
from tilewright.planning.domain import Operand
from tilewright.planning.layout import Layout
from tilewright.planning.space.footprint import Counts, Floats, Ints

SPLIT = 512
"""Parts of all of a command's executions at most: of many tiles, whole ones overlap as well."""


@dataclass(frozen=True)
class Parts:
    """The parts of a command's executions; columns of [execution, part]."""

    amount: Ints
    """Bytes of transfers, cycles of computes."""
    first: Ints
    """The first row of each part, counted from that of its execution."""
    rows: Ints

    @property
    def count(self) -> int:
        """The number of parts of one execution."""
        return self.amount.shape[1]


def in_blocks(amount: Ints, rows: Ints, block: int, room: Ints | int = 0) -> Parts:
    """Executions of ``rows`` rows each in parts of ``block`` rows, or of more where they are many.

    ``amount`` is that of whole blocks: a block takes its time whether it is full or not. A new one
    begins after the first ``room`` rows, where a circular buffer ends.
    """
    head = np.minimum(room, rows)[:, None]
    before, whole = -(-head // block), np.maximum(-(-rows // block), 1)[:, None]
    count = np.maximum(before - (head - rows[:, None]) // block, 1)
    most = int(count.max(initial=1))
    blocks = -(-most // min(most, max(SPLIT // max(len(rows), 1), 1)))
    ends = np.arange(-(-most // blocks) + 1) * blocks
    done = amount[:, None] * np.minimum(ends, count) // whole
    reached = np.where(
        ends > before, head + (ends - before) * block, np.minimum(ends * block, head)
    )
    reached = np.minimum(reached, rows[:, None])
    return Parts(np.diff(done), reached[:, :-1], np.diff(reached))


def in_shares(amount: Ints, count: int) -> Parts:
    """Executions in equal parts, none of which has rows of its own."""
    if len(amount) * count > SPLIT:
        count = 1
    if count == 1:
        none = np.zeros((len(amount), 1), np.int64)
        return Parts(amount[:, None], none, none)
    done = amount[:, None] * np.arange(count + 1) // count
    none = np.zeros((len(amount), count), np.int64)
    return Parts(np.diff(done), none, none)


def row_axis(operand: Operand) -> int | None:
    """The axis along which a move has an instruction for each index: the outermost one in main
    memory that has several."""
    factors = Layout.parse(operand.layout, len(operand.shape)).factors
    return next((f.axis for f in factors[:-1] if operand.shape[f.axis] > 1), None)


def rows_latency(move: Move, rows: Ints, size: Ints) -> Floats:
    """The cycles of latency of a transfer of ``rows`` rows and ``size`` bytes in all, where each
    row has its own, beside the time in which its bytes flow."""
    flow = size / move.bytes_per_cycle
    return np.maximum(move.latency, (rows * move.latency + flow) / move.in_flight - flow)


@dataclass(frozen=True)
class Filled:
    """The rows of a buffer in each of its fillings."""

    start: Ints
    """The first row, in the tensor."""
    size: Ints
    place: Ints
    """The position of the first row."""
    room: int
    """Positions after which a row takes the place of another one."""
    turn: int = 0
    """Rows at the end of which computes begin a further block; 0 if nowhere."""

    @classmethod
    def whole(cls, count: int, slots: int) -> Filled:
        """Return ``count`` fillings of which no rows are known."""
        return cls(np.zeros(count, np.int64), np.ones(count, np.int64), np.arange(count), slots)

    @classmethod
    def apart(cls, start: Ints, size: Ints, slots: int) -> Filled:
        """Fillings that each take the next slot in turn."""
        most = int(size.max(initial=1))
        return cls(start, size, np.arange(len(start)) * most, slots * most)

    @classmethod
    def circular(
        cls, start: Ints, size: Ints, run: Ints, slots: int, banks: int, step: int
    ) -> Filled:
        """Fillings that keep rows of the ones before. The buffer has whole turns of its banks, in
        each of which ``step`` rows lie side by side; where that is more than one, an instruction
        writes into one turn alone."""
        place, turn = first_places(start, size, run), banks * step
        room = -(-rows_in_buffer(place, size, slots) // turn) * turn
        return cls(start, size, place, room, room if step == 1 else turn)

    def positions(self, filling: Ints, first: Ints, rows: Ints) -> tuple[Ints, Ints]:
        """Return the first and the end position of rows of the tensor, in fillings' boxes."""
        start, size, place = (c[filling][:, None] for c in (self.start, self.size, self.place))
        low = np.clip(first - start, 0, size)
        return place + low, place + np.clip(first + rows - start, low, size)

    def left(self, filling: Ints, first: Counts) -> Ints:
        """Rows from one on, of some fillings, to where a further block begins."""
        place = self.place[filling] + np.maximum(first - self.start[filling], 0)
        return self.turn - place % self.turn if self.turn else np.zeros_like(place)

    def ends(self, filling: Ints) -> Ints:
        """The end positions of the fillings with these numbers."""
        return (self.place + self.size)[filling]


@dataclass(frozen=True)
class Touched:
    """The range of a buffer that a command's parts access; columns of [execution, part]."""

    filled: Filled
    filling: Ints
    """The filling that each execution accesses."""
    begin: Ints
    """The first position that each part accesses."""
    end: Ints

    def until_made(self, other: Touched) -> Ints:
        """Return how many parts of the buffer's filler must be done before each of these reading
        parts."""
        last = np.append(other.filling[1:] != other.filling[:-1], True)
        ends = np.where(last[:, None], other.end, other.filled.place[other.filling][:, None])
        ends[last, -1] = other.filled.ends(other.filling[last])
        needed = np.searchsorted(np.maximum.accumulate(ends.ravel()), self.end) + 1
        seen = np.searchsorted(other.filling, self.filling, side="right") * ends.shape[1]
        return np.minimum(needed, seen[:, None])

    def until_read(self, other: Touched) -> Ints:
        """Return how many parts of the buffer's reader must be done before each of these filling
        parts."""
        still = np.minimum.accumulate(other.begin.ravel()[::-1])[::-1]
        return np.searchsorted(still, self.end - self.filled.room)
