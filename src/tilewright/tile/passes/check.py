"""Check everything about a program that can be known before it runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod

import numpy as np

from tilewright.errors import Problem, TilewrightError
from tilewright.ir import Operation, SSAValue, to_text
from tilewright.ir.types import shape_of, tensor_type
from tilewright.machine import Machine
from tilewright.tile.attributes import Axes
from tilewright.tile.boxes import Boxes, box_columns
from tilewright.tile.circular import circle_of
from tilewright.tile.dialect import (
    BufferOp,
    ComputeOp,
    MoveOp,
    ProgramOp,
    buffer_of,
    scopes_of,
)
from tilewright.tile.iteration import Order, Rows, block_of, nest_rows, reduced_dims
from tilewright.tile.machine_parts import absent_parts
from tilewright.tile.operations import EventOp
from tilewright.tile.passes.allocate import live_spans, slot_bytes
from tilewright.tile.passes.base import TilePass
from tilewright.tile.queues import ROWS, Command, Queues, fills, is_ahead, wait_parts
from tilewright.tile.races import Proof, share_addresses


@dataclass(frozen=True)
class Check(TilePass):
    """Refuses a program that would not compute its kernel, with every reason found.

    - ``tile-machine``: the machine has the memories, moves, engines and primitives that are named.
    - ``tile-capacity``, ``tile-alignment``: buffers lie within their memory, on its granules, do
      not share addresses while both are alive, and hold their largest box.
    - ``tile-bounds``: what a compute reads and writes lies in the buffers' boxes.
    - ``tile-uninitialised``: what is read was filled in the same visit.
    - ``tile-coverage``: every point of the domain is computed once, every element of the output is
      stored once, and an output's box has no holes.
    - ``tile-limits``: tiles respect the primitive's limits and dims that it needs whole.
    - ``tile-race``: waits order every fill before its reads and every reuse of a slot after its
      last use; names the missing wait and both operations. Not on machines without engines to
      order, nor without ``waits``.
    - ``tile-event``: where signals order the engines, each has a wait that takes it and each wait
      a signal before it, ids are within the machine's, and none is signalled more often than it
      holds.

    Every execution is checked, as columns. The program is not changed.
    """

    name = "check"
    waits: bool = True
    """True if the order of operations is checked; False for targets that decide their own."""

    def run(self, program: ProgramOp, machine: Machine) -> None:
        """Check one program; raises TilewrightError."""
        checker = _Checker(program, machine, self.waits)
        problems = list(checker.problems())
        if problems:
            raise TilewrightError(problems)


class _Checker:
    def __init__(self, program: ProgramOp, machine: Machine, waits: bool) -> None:
        self.program = program
        self.waits = waits and machine.synchronisation.style != "none"
        self.machine = machine
        self.extents = program.extents
        self.order = Order(program)
        self.queues = Queues(self.order)
        self.proof = Proof(self.order, self.queues)
        self.computes = [op for op in self.queues.commands if isinstance(op, ComputeOp)]
        self._boxes: dict[tuple[Operation, int], Boxes] = {}

    def problems(self) -> Iterator[Problem]:
        """Everything that is wrong."""
        absent = list(absent_parts(self.program, self.machine))
        for part in absent:
            yield self.problem("tile-machine", part.reason, part.op, help=part.help)
        if absent:
            return
        yield from self.capacity()
        for compute in self.computes:
            yield from self.limits(compute)
            yield from self.bounds(compute)
        for buffer in self.queues.buffers:
            yield from self.filled(buffer)
        yield from self.coverage()
        if self.waits:
            yield from self.events()
            yield from self.races()

    def problem(
        self,
        code: str,
        reason: str,
        op: Operation,
        row: int | None = None,
        help: str = "",
        rows: Rows | None = None,
    ) -> Problem:
        """A problem with an operation, in one of its executions (a row of ``rows``)."""
        place = f"{self.program.symbol.data}: {headline(op)}"
        if row is not None:
            place += f" at {self.iteration(rows or self.order.rows(op), row)}"
        return Problem(code, reason, place, help)

    def iteration(self, rows: Rows, row: int) -> str:
        """The loops' intervals in one execution."""
        dims = [
            f"{dim} {start}:{start + size}"
            for dim, (start, size) in rows.at(row, rows.dims).items()
            if size != self.extents[dim]
        ]
        return ", ".join(dims) or "the only iteration"

    def along(self, op: Operation, dims: Iterable[str]) -> Rows:
        """The iterations of the loops over some dims alone: all that those dims' intervals need.

        So a program with millions of executions is checked dim by dim.
        """
        return nest_rows(scopes_of(op, dims), self.extents)

    def capacity(self) -> Iterator[Problem]:
        """Addresses, alignment and sizes of the buffers."""
        placed = [buffer for buffer in self.queues.buffers if buffer.address is not None]
        for buffer in placed:
            memory = self.machine.memory(buffer.memory)
            address, size = buffer.get("address"), buffer.get("bytes")
            shape: tuple[int, ...] = buffer.get("shape", ())
            end = address + size * buffer.places
            room = self.program.room_of.get(memory.name, memory.bytes)
            limit = room if buffer.stays is None else memory.bytes
            if limit is not None and end > limit:
                yield self.problem(
                    "tile-capacity", f"ends at byte {end}, {memory.name} has {limit}", buffer
                )
            if buffer.stays is not None and address < (room or 0):
                yield self.problem(
                    "tile-capacity",
                    f"begins at byte {address}, and other buffers have {room} of {memory.name}",
                    buffer,
                )
            if address % memory.granule or (size % memory.granule and buffer.places > 1):
                yield self.problem(
                    "tile-alignment",
                    f"address {address} or slots of {size} bytes miss the granule "
                    f"{memory.granule} of {memory.name}",
                    buffer,
                )
            rows = self.order.block(block_of(buffer))
            largest = box_columns(buffer.window.data, buffer.tensor_shape, rows).clamped_size
            needed = tuple(int(n) for n in largest.max(axis=1, initial=0))
            if buffer.circular is not None:
                needed = circle_of(buffer, rows).shape
            if len(shape) != len(needed) or any(a < b for a, b in zip(shape, needed, strict=True)):
                yield self.problem(
                    "tile-capacity",
                    f"shape {list(shape)} is less than the largest box {list(needed)}",
                    buffer,
                )
                continue
            wanted = slot_bytes(buffer, needed, self.machine)
            if size < wanted:
                yield self.problem(
                    "tile-capacity",
                    f"{size} bytes a slot cannot hold {list(needed)}, which takes {wanted}",
                    buffer,
                )
        spans = live_spans(placed, self.program)
        for i, first in enumerate(placed):
            for j, other in enumerate(placed[:i]):
                together = spans[i][0] <= spans[j][1] and spans[j][0] <= spans[i][1]
                if together and share_addresses(first, other):
                    yield self.problem(
                        "tile-capacity",
                        f"shares addresses with {other.symbol.data}, which is alive with it",
                        first,
                    )

    def limits(self, compute: ComputeOp) -> Iterator[Problem]:
        """The primitive's limits, and dims that it needs whole."""
        primitive = self.machine.primitive(compute.primitive.data)
        for dim in sorted(compute.dims, key=list(self.extents).index):
            extent, name = self.extents[dim], compute.primitive_names.get(dim, dim)
            rows = self.along(compute, (dim,))
            sizes = rows.size(dim)
            limit = primitive.limits.get(name, extent)
            if not rows.count:
                continue
            if sizes.max() > limit:
                row = int(sizes.argmax())
                reason = f"{primitive.name} takes at most {limit} of {name}, not {int(sizes[row])}"
                yield self.problem("tile-limits", reason, compute, row, rows=rows)
            if name in primitive.whole and sizes.min() < extent:
                row = int(sizes.argmin())
                reason = (
                    f"{primitive.name} takes the whole of {name}, {extent}, not {int(sizes[row])}"
                )
                yield self.problem("tile-limits", reason, compute, row, rows=rows)

    def bounds(self, compute: ComputeOp) -> Iterator[Problem]:
        """Yield computes that touch elements outside of the buffers' boxes, or leave holes in the
        output's."""
        for stage in compute.stages:
            for value, window in zip(stage.inputs, stage.windows.data, strict=False):
                yield from self.within(compute, value, window.data)
        window = compute.stages[-1].windows.data[-1]
        names = compute.dim_names
        whole = self.machine.primitive(compute.primitive.data).whole
        blocks = {names.get(dim, dim) for dim in whole}
        yield from self.within(compute, compute.output, window.data)
        for axis, extent in zip(window.data, _shape(compute.output), strict=True):
            rows = self.along(compute, axis.dims)
            box = box_columns((axis,), (extent,), rows)
            points = np.ones(rows.count, np.int64)
            for dim in axis.dims:
                points = points * rows.size(dim)
            covered = box.clamped_size[0]
            if buffer_of(compute.output) is None or blocks.intersection(axis.dims):
                # Written in place, or in whole blocks: the primitive cuts off what lies after the
                # tensor's end.
                covered = np.where(covered > 0, covered + box.pad_after[0], 0)
            wrong = np.flatnonzero(points != covered)
            if len(wrong):
                yield self.problem(
                    "tile-coverage",
                    f"the box {window} of the output has holes or leaves the tensor along {axis}",
                    compute,
                    int(wrong[0]),
                    "tile an outer dim of the axis by 1, or keep its inner dims whole",
                    rows,
                )

    def within(self, compute: ComputeOp, value: SSAValue, window: Axes) -> Iterator[Problem]:
        """The box that a compute touches lies in the buffer's box at that time."""
        buffer = buffer_of(value)
        if buffer is None:
            return
        inner = box_columns(window, buffer.tensor_shape, self.order.rows(compute))
        outer = box_columns(
            buffer.window.data, buffer.tensor_shape, self.order.block(block_of(buffer))
        )
        visit = self.order.visit(buffer, compute)
        low, high = outer.clamped_start[:, visit], outer.clamped_size[:, visit]
        inside = (inner.clamped_start >= low) & (
            inner.clamped_start + inner.clamped_size <= low + high
        )
        empty = (inner.clamped_size == 0).any(axis=0)
        wrong = np.flatnonzero(~(inside.all(axis=0) | empty))
        if len(wrong):
            row = int(wrong[0])
            yield self.problem(
                "tile-bounds",
                f"touches {_text(inner, row)} of {buffer.tensor_op.symbol.data}, "
                f"buffer {buffer.symbol.data} holds {_text(outer, int(visit[row]))}",
                compute,
                row,
            )

    def filled(self, buffer: BufferOp) -> Iterator[Problem]:
        """Yield reads of a buffer that was not filled in the same visit."""
        users = self.queues.users_of(buffer)
        fillers = [op for op in users if fills(op, buffer)]
        if buffer.stays is not None and not fillers:
            return  # An earlier kernel has filled it.
        for reader in users:
            if fills(reader, buffer):
                continue
            visit = self.order.visit(buffer, reader)
            latest = np.full(len(visit), -1, np.int64)
            for filler in fillers:
                if is_ahead(filler):
                    row = self.order.last_use(buffer, filler, reader, 0)
                else:
                    row = self.order.last_before(filler, reader)
                seen = np.append(self.order.visit(buffer, filler), -1)[row]
                latest = np.maximum(latest, seen)
            boxes = self.order.block(block_of(buffer))
            sizes = box_columns(buffer.window.data, buffer.tensor_shape, boxes).clamped_size
            reads = np.all(sizes > 0, axis=0, keepdims=True)[0, visit]
            if buffer.circular is not None:  # Without new rows, all is from visits before.
                reads = reads & (circle_of(buffer, boxes).new > 0)[visit]
            wrong = np.flatnonzero(reads & (latest != visit))
            if len(wrong):
                yield self.problem(
                    "tile-uninitialised",
                    f"reads buffer {buffer.symbol.data}, which nothing has filled",
                    reader,
                    int(wrong[0]),
                )

    def coverage(self) -> Iterator[Problem]:
        """Every point is computed once, every output element stored once.

        So it is by the computes of the tiles, and by those after them, each kind on its own.
        """
        kinds: dict[str, list[ComputeOp]] = {}
        for compute in self.computes:
            if internal(compute.output):
                yield from self.internal_coverage(compute)
            else:
                kinds.setdefault(compute.stages[0].operation.data, []).append(compute)
        stored = 0
        for computes in kinds.values():
            # Loops over one dim do not depend on those over another: points are a product.
            points = sum(
                prod(int(self.along(compute, (dim,)).size(dim).sum()) for dim in compute.dims)
                for compute in computes
            )
            whole = prod(self.extents[dim] for dim in computes[0].dims)
            if points != whole:
                yield self.problem(
                    "tile-coverage",
                    f"{points} points are computed, the domain has {whole}",
                    computes[0],
                )
        for tensor in self.program.tensors.values():
            if tensor.get("role") != "output":
                continue
            stores = [
                op
                for op in self.queues.commands
                if isinstance(op, MoveOp) and op.target is tensor.result
            ]
            if any(op.output is tensor.result or _stays(op.output) for op in self.computes):
                continue
            shape = shape_of(tensor.result)
            for op in stores:
                boxes = box_columns(op.buffer.window.data, shape, self.order.rows(op))
                stored += int(boxes.clamped_size.prod(axis=0).sum())
            if stored != prod(shape):
                yield self.problem(
                    "tile-coverage",
                    f"{stored} elements are stored, the tensor has {prod(shape)}",
                    tensor,
                )

    def internal_coverage(self, compute: ComputeOp) -> Iterator[Problem]:
        """In each visit of the buffer, a compute makes all of the internal tensor's box, once; of a
        circular one, its new rows."""
        buffer, window = buffer_of(compute.output), compute.stages[-1].windows.data[-1]
        if buffer is None:
            return
        rows, visit = self.order.rows(compute), self.order.visit(buffer, compute)
        shape, reduced = buffer.tensor_shape, reduced_dims(compute, self.program)
        points = box_columns(window.data, shape, rows).clamped_size.prod(axis=0)
        for dim in reduced:
            points = points * rows.size(dim)
        block = self.order.block(block_of(buffer))
        outer = box_columns(buffer.window.data, shape, block)
        counts = np.bincount(visit, points, outer.clamped_size.shape[1]).astype(np.int64)
        sizes = outer.clamped_size.copy()
        if buffer.circular_axis is not None:
            sizes[buffer.circular_axis] = circle_of(buffer, block).new
        whole = sizes.prod(axis=0) * prod(self.extents[dim] for dim in reduced)
        wrong = np.flatnonzero(counts != whole)
        if len(wrong):
            at = int(wrong[0])
            yield self.problem(
                "tile-coverage",
                f"{counts[at]} points are computed of {_text(outer, at)}, which needs {whole[at]}",
                compute,
            )

    def events(self) -> Iterator[Problem]:
        """Signals and waits that do not go together, or that the machine lacks."""
        limits = self.machine.synchronisation
        for op in self.queues.orderings:
            if not limits.signals:
                yield self.problem("tile-event", f"the machine has {limits.style}", op)
            elif isinstance(op, EventOp) and max(op.id_list) >= limits.count:
                reason = f"there are ids 0 to {limits.count - 1}"
                yield self.problem("tile-event", reason, op)
        for fault in self.proof.faults(limits):
            yield self.problem("tile-event", fault.reason, fault.op, fault.row)

    def races(self) -> Iterator[Problem]:
        """Dependences between engines that no wait orders."""
        for race in self.proof.races():
            wait = race.wait
            if self.machine.synchronisation.by_rows and self._uses(race.later, wait):
                wait = wait.replace(" ", f" {ROWS}")
            yield self.problem(
                "tile-race",
                f"may start before '{headline(race.earlier)}' at "
                f"{self.iteration(self.order.rows(race.earlier), race.earlier_row)} is done",
                race.later,
                race.later_row,
                f"it must wait for '{wait}'",
            )

    def _uses(self, op: Command, wait: str) -> bool:
        """Return True if an operation uses the buffer that a wait names."""
        name = wait_parts(wait)[-1]
        return any(
            op in self.queues.users_of(buffer)
            for buffer in self.queues.buffers
            if buffer.symbol.data == name
        )


def headline(op: Operation | Command) -> str:
    """The first line of an operation's text."""
    return to_text(op).splitlines()[0].rstrip(" {")


def internal(value: SSAValue) -> bool:
    """Return True if a value is a buffer of an internal tensor."""
    buffer = buffer_of(value)
    return buffer is not None and buffer.tensor_op.role.data == "internal"


def _stays(value: SSAValue) -> bool:
    """Return True if a value is a buffer that stays for other kernels."""
    buffer = buffer_of(value)
    return buffer is not None and buffer.stays is not None


def _shape(value: SSAValue) -> tuple[int, ...]:
    buffer = buffer_of(value)
    return tensor_type(value).get_shape() if buffer is None else buffer.tensor_shape


def _text(boxes: Boxes, row: int) -> str:
    pairs = zip(boxes.clamped_start[:, row], boxes.clamped_size[:, row], strict=True)
    return "[" + ", ".join(f"{start}:{start + size}" for start, size in pairs) + "]"
