"""Every execution of an operation at once, as NumPy columns.

A tile program keeps its loops, and a kernel may run an operation hundreds of thousands of times.
Whoever needs all executions (instruction targets, the static checks, the reports) asks ``Order``
for columns instead of walking the loops:

    order = Order(program)
    rows = order.rows(move)               # one row per execution, in program order
    rows.start("oh"), rows.size("oh")     # the interval of a dim in each
    rows.key                              # sorts executions of all operations into program order
    order.visit(buffer, compute)          # which filling of the buffer each execution sees
    order.reduction(compute)              # is it the first / the last part of its reduction

``boxes.py`` turns a window and rows into boxes; ``queues.py`` turns waits into counts of commands.
All columns are int64 and read-only by convention (rows of one block share them).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tilewright.errors import refuse
from tilewright.ir import Block, Operation
from tilewright.ir.types import Array
from tilewright.memory.alignment import ceil_div
from tilewright.planning.domain import Affine, Interval
from tilewright.tile.dialect import (
    BufferOp,
    ComputeOp,
    DomainOp,
    LoopOp,
    ProgramOp,
    Scope,
    TensorOp,
    enclosing_loops,
    part_block,
)
from tilewright.tile.issue_order import steps_of

Split = tuple[str, int, int, int]
"""A loop's effect on a dim: the dim, lower bound, upper bound, step."""

MAXIMUM_EXECUTIONS = 1 << 23
"""Executions of one operation beyond which columns (64 MB each) are refused."""


@dataclass(eq=False)
class Rows:
    """One row per execution of the operations of one block, in program order.

    ``key`` belongs to one operation: keys of different operations of a program compare by program
    order. ``count`` is the number of rows.
    """

    count: int
    base: Array
    """Key of the block's first operation in each row."""
    key: Array
    parent: Rows | None
    """Rows of the block around the loop, None for the program's own."""
    parent_row: Array
    """Row of ``parent`` in which each row lies."""
    trip: Array
    """Number of the loop's iteration within its parent row, from 0."""
    run: Array
    """Number of the run of the innermost loop around, over all of its runs."""
    intervals: dict[str, tuple[Array, Array]]
    """Start and size of the dims that were asked for, or that the block's loop gives."""

    def of(self, offset: int) -> Rows:
        """Return the same rows with the keys of the operation ``offset`` keys into the block."""
        return replace(self, key=self.base + offset if offset else self.base)

    def _interval(self, dim: str) -> tuple[Array, Array]:
        interval = self.intervals.get(dim)
        if interval is None:
            if self.parent is None:
                raise KeyError(dim)
            start, size = self.parent._interval(dim)
            interval = self.intervals[dim] = (start[self.parent_row], size[self.parent_row])
        return interval

    @property
    def dims(self) -> tuple[str, ...]:
        """The dims whose intervals are known here."""
        outer = () if self.parent is None else self.parent.dims
        return tuple(dict.fromkeys((*outer, *self.intervals)))

    def start(self, dim: str) -> Array:
        """First index of a dim in each row; raises KeyError for a dim the program lacks."""
        return self._interval(dim)[0]

    def size(self, dim: str) -> Array:
        """Number of indices of a dim in each row; raises KeyError as ``start`` does."""
        return self._interval(dim)[1]

    def interval(self, axis: Affine) -> tuple[Array, Array]:
        """Start and size of an affine expression in each row."""
        start, size = axis.interval_columns(lambda name: (self.start(name), self.size(name)))
        shape = (self.count,)
        return np.broadcast_to(start, shape), np.broadcast_to(size, shape)

    def renamed(self, names: Mapping[str, str]) -> Rows:
        """Return the same rows, in which some dims have other names, too: new name -> known one."""
        named = {name: self._interval(known) for name, known in names.items()}
        return replace(self, intervals=self.intervals | named)

    def at(self, row: int, dims: Iterator[str] | tuple[str, ...]) -> dict[str, Interval]:
        """The intervals of some dims in one row."""
        return {dim: (int(self.start(dim)[row]), int(self.size(dim)[row])) for dim in dims}


def expand(scope: Scope, outer: Rows) -> Rows:
    """One row per run of a loop's or a domain's body, from those of the block around it; without
    keys."""
    return _bind(scope, outer) if isinstance(scope, DomainOp) else _repeat(scope, outer)


def _bind(domain: DomainOp, outer: Rows) -> Rows:
    dims: dict[str, tuple[Array, Array]] = {}
    for dim, axis in domain.bound.items():
        (start, size), low, extent = outer.interval(axis), outer.start(dim), outer.size(dim)
        first = np.clip(start, low, low + extent)
        end = np.clip(start + size, first, low + extent)
        if dim in domain.sliding_dims:
            first = _following(first, end, outer.run)
        dims[dim] = first, end - first
    sizes = [size for _, size in dims.values()]
    rows = np.flatnonzero(np.min(sizes, axis=0) > 0)
    dims = {dim: (start[rows], size[rows]) for dim, (start, size) in dims.items()}
    trip, base = np.zeros(len(rows), np.int64), outer.base
    return Rows(len(rows), base, base, outer, rows, trip, outer.run[rows], dims)


def _following(first: Array, end: Array, run: Array) -> Array:
    """Return the starts of intervals without what earlier ones of the same run cover."""
    moved = np.clip(end[:-1], first[1:], end[1:])
    return np.append(first[:1], np.where(run[1:] == run[:-1], moved, first[1:]))


def _repeat(loop: LoopOp, outer: Rows) -> Rows:
    dim, lower, step = loop.dim.data, loop.lower_bound, loop.step_size
    start, size = outer.start(dim), outer.size(dim)
    upper = np.minimum(loop.upper_bound, size)
    trips = np.maximum(-((lower - upper) // step), 0)
    ends = np.cumsum(trips)
    count = int(ends[-1]) if outer.count else 0
    if count > MAXIMUM_EXECUTIONS:
        raise refuse(
            "tile-too-many",
            f"the body of the loop over {dim} runs {count} times; "
            f"at most {MAXIMUM_EXECUTIONS} are handled",
            help="choose larger tiles",
        )
    parent_row = np.repeat(np.arange(outer.count, dtype=np.int64), trips)
    trip = np.arange(count, dtype=np.int64) - (ends - trips)[parent_row]
    shift = lower + trip * step
    sizes = np.minimum(step, upper[parent_row] - shift)
    interval = (start[parent_row] + shift, sizes)
    base, dims = outer.base, {dim: interval}
    return Rows(count, base, base, outer, parent_row, trip, parent_row, dims)


def whole_rows(extents: Mapping[str, int]) -> Rows:
    """The one row in which every dim runs through its whole extent."""
    origin = np.zeros(1, np.int64)
    dims = {dim: (origin, np.full(1, extent, np.int64)) for dim, extent in extents.items()}
    return Rows(1, origin, origin, None, origin, origin, origin, dims)


def nest_rows(scopes: Sequence[Scope], extents: Mapping[str, int]) -> Rows:
    """One row per run of the innermost of some loops and domains, taken as a nest of their own; no
    keys."""
    rows = whole_rows(extents)
    for scope in scopes:
        rows = expand(scope, rows)
    return rows


class Order:
    """The executions of one program, in program order; columns are computed once per block.

    ``extents`` are those of dims that end early in a run.
    """

    def __init__(self, program: ProgramOp, extents: Mapping[str, int] | None = None) -> None:
        self.program = program
        self._weights: dict[Block, int] = {}
        self._offsets: dict[Operation, int] = {}
        self._ahead: dict[Operation, int] = {}
        """For what is issued ahead: keys from the start of a block's run to their own."""
        self._first: dict[Operation, int] = {}
        """For what an issuer issues ahead: keys from the start of a part to the first of it."""
        self._blocks: dict[Block, Rows] = {}
        weight = self._weigh(program.body.block)
        if weight >= 1 << 62:
            raise refuse("tile-too-many", "the loops run too often", program.symbol.data)
        self._blocks[program.body.block] = whole_rows({**program.extents, **(extents or {})})

    def _weigh(self, block: Block) -> int:
        """Give every operation its offset in keys, in the order of issue (issue_order.py); returns
        the keys that one run takes.

        A loop takes as many keys as its longest run, so keys are comparable, not dense.
        """
        weight = 0
        for step in steps_of(self.program, block):
            op, offsets = step.op, {"first": self._first, "next": self._ahead}.get(step.run)
            (self._offsets if offsets is None else offsets)[op] = weight
            if isinstance(op, LoopOp):
                trips = max(0, ceil_div(op.upper_bound - op.lower_bound, op.step_size))
                weight += trips * self._weigh(op.body.block)
            elif isinstance(op, DomainOp):
                weight += self._weigh(op.body.block)
            elif not isinstance(op, (BufferOp, TensorOp)):
                weight += 1
        self._weights[block] = weight
        return weight

    def block(self, block: Block) -> Rows:
        """One row per run of a block (the program's body, a loop's or a domain's)."""
        rows = self._blocks.get(block)
        if rows is None:
            scope = block.parent_op()
            if not isinstance(scope, (LoopOp, DomainOp)):
                raise KeyError("the block is not part of the program")
            outer = self.block(block_of(scope))
            rows = self._blocks[block] = expand(scope, outer)
            offset, weight = self._offsets[scope], self._weights[block]
            rows.base = rows.key = outer.base[rows.parent_row] + offset + rows.trip * weight
        return rows

    def rows(self, op: Operation) -> Rows:
        """One row per execution of an operation; raises KeyError if it is not in the program."""
        if op not in self._offsets and op not in self._first:
            raise KeyError("the operation is not part of the program")
        block = self.block(block_of(op))
        rows = block.of(self._offsets.get(op, 0))
        if op in self._ahead:
            rows.key = np.append(rows.key[:1], block.base[:-1] + self._ahead[op])
        if op in self._first:
            part = part_block(self.program)
            place = self.enclosing(part, op)
            first = np.flatnonzero(np.diff(place, prepend=-1))
            rows.key[first] = self.block(part).base[place[first]] + self._first[op]
        return rows

    def outwards(self, block: Block) -> Iterator[tuple[Block, Rows, Array]]:
        """Yield a block and those around it, with their rows, and for each row of the first the row
        in which it lies."""
        rows = self.block(block)
        index = np.arange(rows.count, dtype=np.int64)
        yield block, rows, index
        while rows.parent is not None:
            index, rows, block = rows.parent_row[index], rows.parent, block_of(block.parent_op())
            yield block, rows, index

    def enclosing(self, block: Block, op: Operation) -> Array:
        """For each execution of ``op``: the row of an enclosing ``block`` in which it lies.

        Raises KeyError if the block does not enclose the operation.
        """
        for around, _, index in self.outwards(block_of(op)):
            if around is block:
                return index
        raise KeyError("the block does not enclose the operation")

    def visit(self, buffer: BufferOp, op: Operation) -> Array:
        """For each execution of ``op``: how often the buffer was filled before, from 0.

        A buffer is visited once per run of the block in which it stands; the slot of a visit is
        ``visit % slots``.
        """
        return self.enclosing(block_of(buffer), op)

    def slot(self, buffer: BufferOp, op: Operation) -> Array:
        """For each execution of ``op``: the slot of the buffer that it uses."""
        return self.visit(buffer, op) % buffer.slot_count

    def part(self, buffer: BufferOp, op: Operation) -> tuple[tuple[Split, ...], Array]:
        """The loops that cut a buffer's box for an operation, and for each of its executions the
        number of its part.

        Two operations whose loops are the same touch the same elements where the numbers agree,
        and none in common where they differ.
        """
        block, number, splits = block_of(buffer), np.zeros(1, np.int64), list[Split]()
        for around, rows, index in self.outwards(block_of(op)):
            if around is block:
                return tuple(splits), number + np.zeros_like(index)
            loop = around.parent_op()
            if isinstance(loop, LoopOp) and loop.dim.data in buffer.window.dims:
                splits.append((loop.dim.data, loop.lower_bound, loop.upper_bound, loop.step_size))
                trips = ceil_div(loop.upper_bound - loop.lower_bound, loop.step_size)
                number = number * trips + rows.trip[index]
        raise KeyError("the block does not enclose the operation")

    def last_use(self, buffer: BufferOp, other: Operation, op: Operation, ago: int) -> Array:
        """For each execution of ``op``: the last one of ``other`` that uses the same elements of a
        buffer, or of its slot ``ago`` visits before or earlier; -1 if there is none.

        Where the two cut the buffer's box differently, and in circular buffers, all its elements
        count.
        """
        visit, seen = self.visit(buffer, op) - ago, self.visit(buffer, other)
        if buffer.circular is not None:
            return np.searchsorted(seen, visit, side="right") - 1
        (mine, part), (theirs, others) = self.part(buffer, op), self.part(buffer, other)
        if mine != theirs or not mine:
            return np.searchsorted(seen, visit, side="right") - 1
        span = int(max(seen.max(initial=0), visit.max(initial=0))) + 2
        keys = others * span + seen
        sort = np.argsort(keys, kind="stable")
        at = np.searchsorted(keys[sort], part * span + visit, side="right") - 1
        row = sort[np.maximum(at, 0)]
        return np.where((at >= 0) & (others[row] == part), row, -1)

    def last_before(self, other: Operation, op: Operation) -> Array:
        """For each execution of ``op``: the last one of ``other`` before it; -1 if there is none.

        The index counts the executions of ``other`` in program order.
        """
        return np.searchsorted(self.rows(other).key, self.rows(op).key) - 1

    def reduction(self, compute: ComputeOp) -> tuple[Array, Array]:
        """For each execution of a compute: is it the first, is it the last part of its reduction.

        The reduction is that over the loops between the output's buffer (the program, for a
        tensor in place) and the compute: the first part starts the accumulators, after the last
        the later stages apply.
        """
        rows = self.rows(compute)
        owner = compute.output.owner
        block = owner.parent_block() if isinstance(owner, BufferOp) else None
        block = block or self.program.body.block
        first = np.ones(rows.count, np.bool_)
        last = np.ones(rows.count, np.bool_)
        split = reduction_loops(compute, block, self.program)
        if split:
            outer, index = self.block(block), self.enclosing(block, compute)
            for dim in dict.fromkeys(loop.dim.data for loop in split):
                start, size = outer.start(dim)[index], outer.size(dim)[index]
                first &= rows.start(dim) == start
                last &= rows.start(dim) + rows.size(dim) == start + size
        return first, last


def block_of(op: Operation | None) -> Block:
    """The block of an operation; raises KeyError where it is in none."""
    block = None if op is None else op.parent_block()
    if block is None:
        raise KeyError("the operation is not part of the program")
    return block


def reduced_dims(compute: ComputeOp, program: ProgramOp) -> tuple[str, ...]:
    """The dims over which a compute reduces; other computes of the program may have others."""
    reduced = compute.dims - compute.stages[0].windows.data[-1].dims
    return tuple(dim for dim in program.reduction_dims if dim in reduced)


def own_extents(compute: ComputeOp, program: ProgramOp) -> dict[str, int]:
    """Extents of a compute's dims by the primitive's names: the program's, without those on which
    other computes alone depend."""
    names, dims = compute.primitive_names, compute.dims
    others = [op for op in program.walk() if isinstance(op, ComputeOp) and op is not compute]
    foreign = frozenset[str]().union(*(op.dims for op in others)) - dims
    return {names.get(dim, dim): n for dim, n in program.extents.items() if dim not in foreign}


def reduction_loops(op: ComputeOp, block: Block, program: ProgramOp) -> list[LoopOp]:
    """The loops over dims that ``op`` reduces, inside ``block`` and around it, outermost first."""
    reduced = reduced_dims(op, program)
    loops: list[LoopOp] = []
    for loop in reversed(enclosing_loops(op)):
        if loop.body.block is block:
            break
        if loop.dim.data in reduced:
            loops.append(loop)
    return loops[::-1]
