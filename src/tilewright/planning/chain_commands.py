"""The commands of a tiling of a chain, as its tile program has them, for the timing core."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from tilewright.machine import Machine, Move, parse_expression
from tilewright.planning.chain_cost import Tiling
from tilewright.planning.footprint import Ints
from tilewright.planning.row_blocks import computed_at_once, latency_of_rows, row_axis, row_dim
from tilewright.planning.windows import slides
from tilewright.simulate.commands import TIMED, TimedArray
from tilewright.simulate.timing import simulate

PARTS = 4
"""Parts of a command where instructions wait for rows."""

SPLIT = 512
"""Parts of a command's executions at most: of many tiles, whole ones overlap as well."""

LATE = 1 << 20
"""Behind everything else at a place in the program."""


@dataclass
class _Item:
    """A command of a tiling in all its executions."""

    engine: str
    amount: Ints
    """Bytes of transfers, cycles of computes."""
    move: Move | None
    unit: int
    within: int
    """Inner loops around it."""
    tile: Ints
    """The outer tile in which each execution lies."""
    place: tuple[Ints | int, ...]
    """Columns by which executions come one after the other in the program."""
    reads: tuple[int, ...] = ()
    fills: tuple[int, ...] = ()
    latency: Ints | int = 0
    """Of transfers."""
    blocks: int = PARTS
    """Blocks of rows that a compute's executions have at most, each there as a whole."""

    def meets(self, other: _Item) -> bool:
        """Whether one of the two fills what the other reads."""
        return any(index in other.fills for index in self.reads) or any(
            index in other.reads for index in self.fills
        )


@dataclass
class Commands:
    """The commands of a tiling."""

    tiling: Tiling
    _visits: dict[tuple[int, int], Ints] = field(default_factory=dict[tuple[int, int], Ints])

    def cycles(self) -> float:
        """What the machine's timing core says of them."""
        return float(simulate(self.table(), self.tiling.machine).cycles)

    def table(self) -> TimedArray:
        """The commands in program order, with what each waits for.

        Where instructions wait for rows (``MachineRecord.waits_for_rows``), each command is
        several: what one reads of another's rows is there when the part of the other that makes
        them is done.
        """
        machine, items = self.tiling.machine, list(self._items())
        parts = PARTS if machine.own.waits_for_rows() and self.tiling.count * PARTS <= SPLIT else 1
        counts = [len(item.tile) * parts for item in items]
        first = np.cumsum([0, *counts]).tolist()
        rows = [slice(begin, end) for begin, end in pairwise(first)]
        depth = max(len(item.place) for item in items) + (parts > 1)
        keys = np.zeros((depth, first[-1]), np.int64)
        engines = [engine.name for engine in machine.engines]
        table = np.zeros(first[-1], TIMED)
        table["move"] = -1
        for item, own in zip(items, rows, strict=True):
            for row, column in enumerate(item.place):
                keys[row, own] = _each(column, parts)
            if parts > 1:
                keys[-1, own] = np.tile(np.arange(parts), len(item.tile))
            table["engine"][own] = engines.index(item.engine)
            if item.move is None:
                table["cycles"][own] = _shares(item.amount, parts)
            else:
                table["move"][own] = machine.moves.index(item.move)
                table["bytes"][own] = _shares(item.amount, parts)
                table["latency"][own] = _each(item.latency, parts)
        order = _in_order(keys)
        position = np.zeros(len(order), np.int64)
        ordered = table["engine"][order]
        for engine in range(len(engines)):
            mine = order[ordered == engine]
            position[mine] = np.arange(1, len(mine) + 1)
        # What is computed at once begins when the last of its rows can, and is there as a whole.
        blocks = [_last_parts(parts, min(item.blocks, parts)) for item in items]
        for own, item in enumerate(items):
            for number, other in enumerate(items):
                if other.engine == item.engine or not item.meets(other):
                    continue
                column = table["waits"][rows[own], engines.index(other.engine)]
                for needed, index in self._waits(own, item, number, other):
                    last = np.full(parts, parts - 1)
                    beyond = self._beyond(index) if parts > 1 else None
                    if beyond is not None:
                        last = blocks[number][np.minimum(blocks[own] + beyond, parts - 1)]
                    done = position[first[number] + np.maximum(needed, 0)[:, None] * parts + last]
                    known = np.where(needed[:, None] >= 0, done, 0).ravel()
                    np.maximum(column, known, out=column)
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

    def _waits(
        self, own: int, item: _Item, number: int, other: _Item
    ) -> Iterator[tuple[Ints, int]]:
        """Per execution of a command, which execution of another must be done before (-1: none),
        and the buffer that both use.

        ``own`` and ``number`` say which commands they are.
        """
        for index in item.reads:
            if index in other.fills:
                seen, mine = self._visit(index, number, other), self._visit(index, own, item)
                before = np.searchsorted(seen, mine, side="right") - 1
                yield before, index
        for index in item.fills:
            if index in other.reads:
                seen, mine = self._visit(index, number, other), self._visit(index, own, item)
                slots = self.tiling.slot_count(index)
                before = np.searchsorted(seen, mine - slots, side="right") - 1
                yield before, index

    def _beyond(self, index: int) -> int | None:
        """How many parts beyond its own each part of a command waits for, as windows read rows
        beyond; None where rows do not count."""
        place = self.tiling.places.all[index]
        extents = self.tiling.units[place.unit].kernel.anchor.extents
        return int(slides(place.operand.access, extents)) if place.has_rows else None

    def _visit(self, index: int, number: int, item: _Item) -> Ints:
        """The filling of a buffer that each execution of a command sees."""
        if (index, number) not in self._visits:
            self._visits[index, number] = self._find_visits(index, item)
        return self._visits[index, number]

    def _find_visits(self, index: int, item: _Item) -> Ints:
        tiling = self.tiling
        _, within = tiling.levels(index)
        if not within:
            return np.searchsorted(tiling.visits(index), item.tile, side="right") - 1
        nest = tiling.nest(item.unit)
        rows = np.arange(len(nest[item.within].tile))
        for depth in range(item.within, within, -1):
            parent = nest[depth].parent
            assert parent is not None
            rows = parent[rows]
        return rows

    def _items(self) -> Iterator[_Item]:
        tiling, places = self.tiling, self.tiling.places
        turns, text = tiling.machine.own.waits_for_rows(), 0
        for number, unit in enumerate(tiling.units):
            for index, place in enumerate(places.all):
                if place.unit != number or index not in tiling.transfers:
                    continue
                move = place.fill or place.drain
                assert move is not None
                text += 1
                held = [n for n, p in enumerate(places.all) if p.host == place.name]
                held = [n for n in held if places.all[n].unit == number]
                held = [n for n in held if places.all[n].memory.name == place.memory.name]
                ends = [places.all[n].source for n in (index, *held)]
                sources = tuple(end for end in ends if end is not None)
                target = () if place.target is None else (place.target,)
                yield _Item(
                    move.engine,
                    tiling.transfers[index],
                    move,
                    number,
                    tiling.levels(index)[1],
                    tiling.visits(index),
                    self._place(index, text),
                    sources if place.fill else (index,),
                    (index, *held) if place.fill else target,
                    latency=self._latency(index, move),
                )
            nest = tiling.nest(number)
            rows = nest[-1]
            result = places.makes[number]
            yield _Item(
                unit.primitive.engine,
                tiling.computing(number),
                None,
                number,
                len(nest) - 1,
                rows.tile,
                self._inside(number, 1, np.arange(len(rows.tile)), LATE),
                tuple(places.reads[number]),
                () if result is None else (result,),
                blocks=self._blocks(number) if turns else PARTS,
            )

    def _latency(self, index: int, move: Move) -> Ints:
        """Of each transfer of a buffer, of whose rows each has one where instructions are of rows.

        Parts of a command are as many as transfers in flight: they have theirs at once.
        """
        size, operand = self.tiling.transfers[index], self.tiling.places.all[index].operand
        axis = row_axis(operand) if self.tiling.machine.own.waits_for_rows() else None
        if axis is None:
            return np.full(len(size), int(move.latency))
        lines = self.tiling.lengths(index)[axis]
        return latency_of_rows(move, lines, size).astype(np.int64)

    def _blocks(self, number: int) -> int:
        """Blocks of rows that a kernel's primitive computes at once, in an execution at most."""
        sizes = {dim: int(s.max(initial=1)) for dim, s in self.tiling.nest(number)[-1].size.items()}
        rows = row_dim(sizes)
        if not rows:
            return PARTS
        cycles = parse_expression(self.tiling.units[number].primitive.cycles)
        return -(-sizes[rows] // computed_at_once(cycles, sizes, rows))

    def _inside(
        self, number: int, stage: int, row: Ints | int, place: int, tile: Ints | None = None
    ) -> tuple[Ints | int, ...]:
        """Where something of a kernel stands: before its loops (0), in them (1), behind (2)."""
        depth = self.tiling.unit_depth(number)
        tiles = self.tiling.nest(number)[-1].tile if tile is None else tile
        return tiles, 2 * depth, number, stage, row, place

    def _place(self, index: int, text: int) -> tuple[Ints | int, ...]:
        """Where a transfer stands in the program."""
        tiling = self.tiling
        place, (depth, within) = tiling.places.all[index], tiling.levels(index)
        number, tiles = place.unit, tiling.visits(index)
        outer = depth < tiling.unit_depth(number)
        if within:
            rows = self._ends(number, within, last=place.drain is not None)
            at = within * LATE // 64 + text
            return self._inside(number, 1, rows, at if place.fill else 2 * LATE - at, tiles)
        if place.drain is not None:
            if not outer:
                return self._inside(number, 2, 0, text, tiles)
            # Sums leave once the last tile of their reduction is computed.
            ends = np.append(tiles[1:], tiling.count) - 1
            return ends, LATE - depth, number, 2, 0, text
        if self._is_ahead(index):
            before = np.append(tiles[:1], tiles[:-1])
            late = np.where(np.arange(len(tiles)) > 0, LATE, 0) + text
            if outer:
                return before, 2 * depth + 1, np.where(late >= LATE, LATE, number), 0, 0, late
            return before, 2 * depth, number, 0, 0, late
        if outer:
            return tiles, 2 * depth + 1, number, 0, 0, text
        return self._inside(number, 0, 0, text, tiles)

    def _ends(self, number: int, within: int, *, last: bool) -> Ints:
        """Of each execution of some inner loops, the first or last one of all of them."""
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
        """Whether loads of a buffer are issued one run of their block earlier (tile/prefetch)."""
        tiling, place = self.tiling, self.tiling.places.all[index]
        if tiling.machine.synchronisation.signals:
            return False
        staged = place.staged and place.fill is not None and not place.host
        if not staged or tiling.slot_count(index) < 2:
            return False
        depth, _ = tiling.levels(index)
        if place.source is not None and tiling.levels(place.source)[0] == depth:
            return False
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


def _shares(amount: Ints, parts: int) -> Ints:
    """What each part of each execution of a command has of its amount."""
    if parts == 1:
        return amount
    part, whole = np.arange(parts), amount[:, None]
    return (whole * (part + 1) // parts - whole * part // parts).ravel()


def _in_order(keys: Ints) -> Ints:
    """The places of columns when these are sorted by rows of keys, the first row first."""
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


def _last_parts(parts: int, blocks: int) -> Ints:
    """Of each part of a command, the last part of the block in which it lies."""
    block = (np.arange(parts) * blocks) // parts
    return -(-(block + 1) * parts // blocks) - 1


def with_hand_overs(table: TimedArray, machine: Machine) -> TimedArray:
    """The commands with the instructions that only order engines, which take places in queues.

    Where engines raise flags, one sets and another waits for each hand-over that no earlier wait
    of that engine covers; where they count up words, commands do that, and others wait.
    """
    style = machine.synchronisation.style
    if style not in ("flags", "replies"):
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
    # What waited for so many commands of an engine waits for those in between, too.
    for number, rows in enumerate(mine):
        every = np.flatnonzero(complete["engine"] == number)
        ends = np.append(0, np.searchsorted(every, place[rows]) + 1)
        for other in range(len(mine)):
            waiting = place[mine[other]]
            complete["waits"][waiting, number] = ends[table["waits"][mine[other], number]]
    return complete


__all__ = ["Commands", "with_hand_overs"]
