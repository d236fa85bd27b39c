"""The commands of a tiling of a chain, as its tile program has them, for the timing core."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import numpy as np

from tilewright.machine import Machine, parse_expression
from tilewright.planning.chains.cost import Tiling
from tilewright.planning.chains.once import once
from tilewright.planning.chains.parts import (
    Filled,
    Parts,
    Touched,
    in_blocks,
    in_shares,
    row_axis,
    rows_latency,
)
from tilewright.planning.chains.units import CommandKind
from tilewright.planning.cost.row_blocks import ROWS, computed_at_once, row_dim
from tilewright.planning.space.footprint import Ints
from tilewright.simulate.commands import TIMED, TimedArray
from tilewright.simulate.timing import simulate

SHARES = 4
"""Parts of a transfer without rows that others wait for."""

LAST = 1 << 20
"""A sort key after everything else at a place in the program."""


@dataclass
class _Item:
    """A command of a tiling in all its executions."""

    kind: CommandKind
    amount: Ints
    """Bytes of transfers, cycles of computes."""
    within: int
    """Inner loops around it."""
    tile: Ints
    """The outer tile in which each execution lies."""
    place: tuple[Ints | int, ...]
    """Columns by which executions come one after the other in the program."""
    touched: dict[int, Touched] = field(default_factory=dict[int, Touched])
    """The range of each buffer that the command accesses."""
    seen: dict[int, Ints] = field(default_factory=dict[int, Ints])
    """By buffer, the filling that each execution sees."""


@dataclass
class Commands:
    """The commands of a tiling."""

    tiling: Tiling

    @property
    def by_rows(self) -> bool:
        """True if the machine's instructions are of rows."""
        return self.tiling.machine.synchronisation.by_rows

    def cycles(self, table: TimedArray) -> float:
        """Return the cycles that the machine's timing core takes for the commands."""
        machine = self.tiling.machine
        if self.by_rows:
            # Instructions are dispatched in the order in which they can begin, so that none finds a
            # full queue before it.
            engines = tuple(e.model_copy(update={"queue": len(table)}) for e in machine.engines)
            machine = machine.model_copy(update={"engines": engines, "issue_cycles": 0})
        return float(simulate(table, machine).cycles)

    def table(self) -> TimedArray:
        """The commands in program order, with what each waits for; those of several parts (see
        parts.py) are as many commands."""
        machine, items = self.tiling.machine, list(self._items())
        every = [self._parts(item) for item in items]
        first = [0, *accumulate(parts.amount.size for parts in every)]
        rows = [slice(begin, end) for begin, end in pairwise(first)]
        several = max(parts.count for parts in every) > 1
        keys = np.zeros((max(len(item.place) for item in items) + several, first[-1]), np.int64)
        engines = {engine.name: number for number, engine in enumerate(machine.engines)}
        moves = {move.name: number for number, move in enumerate(machine.moves)}
        table = np.zeros(first[-1], TIMED)
        table["move"] = -1
        for item, parts, places in zip(items, every, rows, strict=True):
            for row, column in enumerate(item.place):
                keys[row, places] = _each(column, parts.count)
            if several:
                keys[-1, places] = np.tile(np.arange(parts.count), len(item.tile))
            table["engine"][places] = engines[item.kind.engine]
            if item.kind.move is None:
                table["cycles"][places] = parts.amount.ravel()
            else:
                table["move"][places] = moves[item.kind.move.name]
                table["bytes"][places] = parts.amount.ravel()
                table["latency"][places] = self._latency(item, parts)
        order = _in_order(keys)
        position = _positions(table["engine"], order)
        for number, other, buffers in self.tiling.places.meetings:
            engine = engines[items[other].kind.engine]
            column = table["waits"][rows[number], engine]
            for index, fills in buffers:
                pair = items[number], every[number], items[other], every[other]
                needed = self._done_before(index, *pair, fills=fills).ravel()
                # A row before the first one is the last of the whole table.
                done = position[first[other] + needed - 1]
                np.maximum(column, np.where(needed > 0, done, 0), out=column)
        ordered = with_hand_overs(table[order], machine)
        self._fetch(ordered)
        return ordered

    def _fetch(self, table: TimedArray) -> None:
        """Charge main memory for the instruction words, as the generic target does: each of its
        transfers carries those since the one before it."""
        machine = self.tiling.machine
        main = np.array([machine.main in (m.source, m.target) for m in machine.moves] + [False])
        transfers = np.flatnonzero(main[table["move"]])
        if transfers.size:
            words = np.diff(transfers, prepend=-1)
            words[-1] += len(table) - 1 - transfers[-1]
            table["bytes"][transfers] += words * machine.instruction_bytes

    def _done_before(
        self, index: int, item: _Item, parts: Parts, other: _Item, others: Parts, *, fills: bool
    ) -> Ints:
        """Per execution and part of a command, how many parts of another one must be done before,
        by one buffer, which the command fills or else reads; all of those before these are, too. Of
        whole fillings it follows from their numbers."""
        if parts.count == others.count == 1 and self._axis(index) is None:
            slots = self.tiling.slot_count(index) if fills else 0
            fillings = self._visit(index, item) - slots
            return np.searchsorted(self._visit(index, other), fillings, side="right")
        touched = self._touched(item, parts, index)
        theirs = self._touched(other, others, index)
        return touched.until_read(theirs) if fills else touched.until_made(theirs)

    def _parts(self, item: _Item) -> Parts:
        """The parts of a command."""
        tiling = self.tiling
        if not self.by_rows:
            return in_shares(item.amount, 1)
        if item.kind.buffer is not None:
            axis = self._axis(item.kind.buffer)
            if axis is None:
                return in_shares(item.amount, SHARES)
            return in_blocks(item.amount, tiling.lengths(item.kind.buffer)[axis], 1)
        nest = tiling.nest(item.kind.unit)[-1]
        sizes = {dim: int(np.max(size, initial=1)) for dim, size in nest.size.items()}
        rows = row_dim(sizes)
        if not rows:
            return in_shares(item.amount, 1)
        cycles = parse_expression(tiling.units[item.kind.unit].primitive.cycles)
        block, left = computed_at_once(cycles, sizes, rows), np.zeros_like(nest.tile)
        for index in item.kind.fills:
            left = self._filled(index).left(self._visit(index, item), nest.start[rows])
        count = np.broadcast_to(nest.size[rows], nest.tile.shape)
        return in_blocks(item.amount, count, block, left)

    @once
    def _axis(self, index: int) -> int | None:
        """The axis of a buffer along which computes make and read its rows; None where there is
        none, or nothing waits for rows."""
        place = self.tiling.places.all[index]
        if not self.by_rows or not place.has_rows:
            return None
        if self.tiling.levels(index)[1]:
            return None
        ends = [(place.operand, self.tiling.units[place.unit])]
        if place.made_by is not None:
            maker = self.tiling.units[place.made_by]
            ends.append((maker.kernel.output, maker))
        steps_by_axis = [
            [row_dim(unit.kernel.anchor.extents) in axis.dims for axis in operand.access]
            for operand, unit in ends
        ]
        return next(
            (n for n, along in enumerate(zip(*steps_by_axis, strict=True)) if all(along)), None
        )

    @once
    def _filled(self, index: int) -> Filled:
        """The rows of a buffer's fillings."""
        tiling, axis, slots = self.tiling, self._axis(index), self.tiling.slot_count(index)
        place, visits = tiling.places.all[index], tiling.visits(index)
        if axis is None:
            return Filled.whole(len(visits), slots)
        span = tiling.boxes(place, tiling.slides)[axis]
        start, size = (tiling.column(span, column, visits) for column in (span.start, span.size))
        slide = tiling.slide(place.name) if place.made_by is not None else None
        if slide is None:
            return Filled.apart(start, size, slots)
        run = np.cumsum(tiling.steps[tiling.order.index(slide.loop)][visits] == 0)
        steps = [abs(c) for name, c in place.operand.access[axis].terms if name in ROWS]
        step = max(steps, default=1)
        return Filled.circular(start, size, run, slots, place.memory.banks, step)

    def _touched(self, item: _Item, parts: Parts, index: int) -> Touched:
        """Return the part of a buffer that a command's parts access."""
        if index not in item.touched:
            filled, filling = self._filled(index), self._visit(index, item)
            first, rows = self._rows(item, parts, index)
            ends = filled.positions(filling, first, rows)
            begin, end = (np.broadcast_to(column, parts.amount.shape) for column in ends)
            item.touched[index] = Touched(filled, filling, begin, end)
        return item.touched[index]

    def _rows(self, item: _Item, parts: Parts, index: int) -> tuple[Ints, Ints]:
        """The rows of a buffer's tensor that each part touches: the first, and how many."""
        tiling, axis, filled = self.tiling, self._axis(index), self._filled(index)
        filling = self._visit(index, item)
        if item.kind.buffer == index and axis is not None:
            return filled.start[filling][:, None] + parts.first, parts.rows
        unit, place = tiling.units[item.kind.unit], tiling.places.all[index]
        if axis is None or item.kind.buffer is not None:
            return filled.start[filling][:, None], filled.size[filling][:, None]
        nest = tiling.nest(item.kind.unit)[-1]
        dim = row_dim(nest.size)
        produced = place.made_by == item.kind.unit
        access = (unit.kernel.output if produced else place.operand).access[axis]
        intervals = {
            name: (np.reshape(nest.start[name], (-1, 1)), np.reshape(nest.size[name], (-1, 1)))
            for name in nest.start
        }
        intervals[dim] = intervals[dim][0] + parts.first, parts.rows
        first, rows = access.interval_columns(intervals.__getitem__)
        return first, rows

    def _visit(self, index: int, item: _Item) -> Ints:
        """The filling of a buffer that each execution of a command sees."""
        if index not in item.seen:
            item.seen[index] = self._find_visit(index, item)
        return item.seen[index]

    def _find_visit(self, index: int, item: _Item) -> Ints:
        tiling = self.tiling
        _, within = tiling.levels(index)
        if not within:
            return np.searchsorted(tiling.visits(index), item.tile, side="right") - 1
        nest = tiling.nest(item.kind.unit)
        rows = np.arange(len(nest[item.within].tile))
        for depth in range(item.within, within, -1):
            parent = nest[depth].parent
            assert parent is not None
            rows = parent[rows]
        return rows

    def _items(self) -> Iterator[_Item]:
        tiling, text = self.tiling, 0
        for kind in tiling.places.commands:
            if kind.buffer is not None:
                text += 1
                yield _Item(
                    kind,
                    tiling.transfers[kind.buffer],
                    tiling.levels(kind.buffer)[1],
                    tiling.visits(kind.buffer),
                    self._place(kind.buffer, text),
                )
                continue
            nest, number = tiling.nest(kind.unit), kind.unit
            tiles = nest[-1].tile
            place = self._inside(number, 1, np.arange(len(tiles)), LAST)
            yield _Item(kind, tiling.computing(number), len(nest) - 1, tiles, place)

    def _latency(self, item: _Item, parts: Parts) -> Ints | int:
        """Return the latency of each part of a transfer in turn; where instructions are of rows,
        each of its rows has one, and parts have theirs at once, as many as are in flight."""
        move, shape = item.kind.move, parts.amount.shape
        assert move is not None and item.kind.buffer is not None
        if not self.by_rows:
            return int(move.latency)
        together = min(parts.count, move.in_flight)
        lines = parts.rows * together
        if self._axis(item.kind.buffer) is None:
            axis = row_axis(self.tiling.places.all[item.kind.buffer].operand)
            rows = self.tiling.lengths(item.kind.buffer)[axis] if axis is not None else 1
            lines = np.broadcast_to(np.reshape(rows, (-1, 1)), shape)
        latency = rows_latency(move, lines, parts.amount * together)
        return np.where(parts.amount > 0, latency, 0).astype(np.int64).ravel()

    def _inside(
        self, number: int, stage: int, row: Ints | int, place: int, tile: Ints | None = None
    ) -> tuple[Ints | int, ...]:
        """Return the sort key of a command of a kernel: before its loops (0), in them (1), or after
        (2)."""
        depth = self.tiling.unit_depth(number)
        tiles = self.tiling.nest(number)[-1].tile if tile is None else tile
        return tiles, 2 * depth, number, stage, row, place

    def _place(self, index: int, text: int) -> tuple[Ints | int, ...]:
        """Return the sort key of a transfer: its position in the program."""
        tiling = self.tiling
        place, (depth, within) = tiling.places.all[index], tiling.levels(index)
        number, tiles = place.unit, tiling.visits(index)
        outer = depth < tiling.unit_depth(number)
        if within:
            rows = self._ends(number, within, last=place.flush is not None)
            at = within * LAST // 64 + text
            if self._is_ahead(index):
                early = np.where(np.arange(len(rows)) > 0, at + LAST // 128, at)
                rows, tiles = (np.append(column[:1], column[:-1]) for column in (rows, tiles))
                return tiles, 2 * depth, number, 1, rows, early
            return self._inside(number, 1, rows, at if place.fill else 2 * LAST - at, tiles)
        if place.flush is not None:
            if not outer:
                return self._inside(number, 2, 0, text, tiles)
            # Sums leave once the last tile of their reduction is computed.
            ends = np.append(tiles[1:], tiling.count) - 1
            return ends, LAST - depth, number, 2, 0, text
        if self._is_ahead(index):
            before = np.append(tiles[:1], tiles[:-1])
            at_end = np.where(np.arange(len(tiles)) > 0, LAST, 0) + text
            if outer:
                return before, 2 * depth + 1, np.where(at_end >= LAST, LAST, number), 0, 0, at_end
            return before, 2 * depth, number, 0, 0, at_end
        if outer:
            return tiles, 2 * depth + 1, number, 0, 0, text
        return self._inside(number, 0, 0, text, tiles)

    def _ends(self, number: int, within: int, *, last: bool) -> Ints:
        """Return, for each execution of some inner loops, the first or last iteration of all of
        them."""
        nest = self.tiling.nest(number)
        rows = np.arange(len(nest[-1].tile))
        for depth in range(len(nest) - 1, within, -1):
            parent = nest[depth].parent
            assert parent is not None
            rows = parent[rows]
        places = np.searchsorted(
            rows, np.arange(len(nest[within].tile)), "right" if last else "left"
        )
        return places - 1 if last else places

    def _is_ahead(self, index: int) -> bool:
        """Return True if loads of a buffer are issued one run of their block earlier
        (tile/prefetch)."""
        tiling, place = self.tiling, self.tiling.places.all[index]
        if (asked := tiling.machine.synchronisation).signals and asked.stalls:
            return False
        staged = place.staged and place.fill is not None and not place.host
        if not staged or tiling.slot_count(index) < 2:
            return False
        depth, within = tiling.levels(index)
        if place.source is not None and tiling.levels(place.source) == (depth, within):
            return False
        if within:
            return within < len(tiling.inner[place.unit].loops)
        block = ("loop", depth)
        if depth == tiling.unit_depth(place.unit):
            block = self._block(place.unit)
        inside = [n for n in range(len(tiling.units)) if self._block(n) == block]
        loops = sum(bool(tiling.inner[n].order) for n in inside)
        loops += block[0] == "loop" and depth < len(tiling.order)
        return loops == 1 and all(tiling.inner[n].order for n in inside)

    def _block(self, number: int) -> tuple[str, int]:
        """The block in which a kernel's loops stand: a domain of its own, or its reader's block."""
        tiling = self.tiling
        unit = tiling.units[number]
        if unit.bound:
            return "domain", number
        if number < len(tiling.units) - 1:
            home = tiling.places.all[tiling.places.homes[unit.kernel.output.name]]
            if home.unit < len(tiling.units) - 1:
                return self._block(home.unit)
        return "loop", tiling.unit_depth(number)


def _each(column: Ints | int, parts: int) -> Ints | int:
    """A column over the executions of a command, as one over their parts."""
    return column if parts == 1 or isinstance(column, int) else np.repeat(column, parts)


def _in_order(keys: Ints) -> Ints:
    """The places of columns when these are sorted by rows of keys, the first row first: by all rows
    in one number, or in as few as there must be."""
    packed: list[Ints] = []
    spread = 1
    for row in keys:
        low = int(row.min())
        span = int(row.max()) - low + 1
        if span == 1:
            continue
        if packed and spread * span < 1 << 62:
            packed[-1] = packed[-1] * span + (row - low)
            spread *= span
        else:
            packed.append(row - low)
            spread = span
    if not packed:
        return np.arange(keys.shape[1])
    return np.argsort(packed[0], kind="stable") if len(packed) == 1 else np.lexsort(packed[::-1])


def _positions(engine: Ints, order: Ints) -> Ints:
    """Return each command's number within its engine, from 1 on, in a program's order."""
    by_engine = order[np.argsort(engine[order], kind="stable")]
    counts = np.bincount(engine)
    before = np.repeat(np.cumsum(counts) - counts, counts)
    position = np.empty(len(order), np.int64)
    position[by_engine] = np.arange(1, len(order) + 1) - before
    return position


def with_hand_overs(table: TimedArray, machine: Machine) -> TimedArray:
    """The commands with the instructions that only order engines, which take places in queues.

    Where engines raise flags, one sets and another waits for each hand-over that no earlier wait
    of that engine covers; where they count up words, commands do that, and others wait.
    """
    style = machine.synchronisation.style
    if style not in ("flags", "replies") or not machine.synchronisation.stalls:
        return table
    mine = [np.flatnonzero(table["engine"] == number) for number in range(len(machine.engines))]
    where, engine = [np.arange(len(table)) * 2], [table["engine"].astype(np.int64)]
    for number, rows in enumerate(mine):
        for other, theirs in enumerate(mine):
            counts = table["waits"][rows, other]
            new = np.flatnonzero(np.diff(np.maximum.accumulate(counts), prepend=0) > 0)
            where.append(rows[new] * 2 - 1)
            engine.append(np.full(len(new), number))
            if style == "flags":
                where.append(theirs[counts[new] - 1] * 2 + 1)
                engine.append(np.full(len(new), other))
    order = np.argsort(np.concatenate(where), kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    complete = np.zeros(len(order), TIMED)
    complete["move"] = -1
    complete["engine"] = np.concatenate(engine)[order]
    complete[place[: len(table)]] = table
    # Waits count commands of an engine: those that are added in between are counted, too.
    for number, rows in enumerate(mine):
        every = np.flatnonzero(complete["engine"] == number)
        ends = np.append(0, np.searchsorted(every, place[rows]) + 1)
        for other in range(len(mine)):
            waiting = place[mine[other]]
            complete["waits"][waiting, number] = ends[table["waits"][mine[other], number]]
    return complete
