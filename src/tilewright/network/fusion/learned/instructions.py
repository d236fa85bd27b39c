"""The instructions of a kernel, read off its tile program: how many, how long, what each waits for.

Where a machine's instructions wait for rows (``Synchronisation.by_rows``), a move is an
instruction for each row of its box, and a compute is one for as many rows, and as many channels of
its result, as its primitive computes in the time of one. Elsewhere each execution is one. What an
instruction touches of a buffer are its rows; that says which others it waits for. Nothing is known
of a target: how its instructions differ from this, and how long they really take, ``model.py``
learns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tilewright.ir import Operation
from tilewright.ir.types import Array, element_name, layout_of
from tilewright.machine import Expression, Machine, parse_expression
from tilewright.numerics.element_types import ELEMENT_BYTES
from tilewright.planning.domain import Affine
from tilewright.planning.layout import Layout
from tilewright.planning.row_blocks import computed_at_once, row_dim
from tilewright.tile.boxes import Boxes, box_columns
from tilewright.tile.circular import circle_of
from tilewright.tile.dialect import BufferOp, ComputeOp, MoveOp, ProgramOp
from tilewright.tile.iteration import Order, Rows, own_extents
from tilewright.tile.queues import commands_of, leader_of

Floats = NDArray[np.float64]

CHANNELS = "co"
"""The dim of channels that a result has of its own: weights of others are of others."""


@dataclass(frozen=True)
class Access:
    """What the instructions of a command touch of a memory: bytes ``begin`` to ``end - 1``."""

    memory: int
    begin: Array
    end: Array
    writes: bool


@dataclass(frozen=True)
class Work:
    """The instructions of one move or compute, in program order."""

    kind: str
    """``load.ROLE``, ``store.ROLE`` or ``compute.PRIMITIVE``."""
    engine: int
    move: int
    """In the machine; -1 for a compute."""
    execution: Array
    """Keys of the execution to which each instruction belongs."""
    known: Floats
    """Bytes, or cycles, of each."""
    accesses: Sequence[Access]
    windows: str = ""
    """The primitive whose windows a load brings."""
    apart: Floats | None = None
    """Bytes of each if it brings them one by one."""


class Reading:
    """The works of one tile program."""

    def __init__(self, program: ProgramOp, machine: Machine) -> None:
        self.program = program
        self.machine = machine
        self.order = Order(program)
        self.commands = commands_of(program)
        self.engines = [engine.name for engine in machine.engines]
        self.memories = [memory.name for memory in machine.memories]
        self._axes: dict[BufferOp, int | None] = {}
        self._places: dict[BufferOp, tuple[Boxes, Array]] = {}

    @cached_property
    def works(self) -> list[Work]:
        """What is executed, in the order of the text; joined moves with those that they are part
        of."""
        works: dict[Operation, Work] = {}
        for op in self.commands:
            work = self._move(op) if isinstance(op, MoveOp) else self._compute(op)
            leader = leader_of(op) if isinstance(op, MoveOp) else op
            if leader is not op and works[leader].known.size == work.known.size:
                together = works[leader].known + work.known
                accesses = [*works[leader].accesses, *work.accesses]
                works[leader] = replace(works[leader], known=together, accesses=accesses)
            else:
                works[op] = work
        return [work for work in works.values() if work.execution.size]

    def _axis(self, buffer: BufferOp) -> int | None:
        """The axis along which a buffer has rows: the outermost one in main memory, of those with
        more than one index along which a result does not reduce alone."""
        if buffer not in self._axes:
            self._axes[buffer] = (
                self._row_axis(buffer) if self.machine.synchronisation.by_rows else None
            )
        return self._axes[buffer]

    def _row_axis(self, buffer: BufferOp) -> int | None:
        shape = buffer.tensor_shape
        factors = Layout.parse(layout_of(buffer.tensor_op.result), len(shape)).factors
        reduced = frozenset[str]()
        for op in self._readers(buffer):
            reduced |= op.dims - op.stages[0].windows.data[-1].dims
        for factor in factors[:-1]:
            axis = buffer.window.data[factor.axis]
            if shape[factor.axis] > 1 and not reduced.issuperset(axis.dims):
                return factor.axis
        return None

    def _visits(self, buffer: BufferOp) -> tuple[Boxes, Array]:
        """The boxes of a buffer in each of its visits, and the place of each box's first row."""
        if buffer not in self._places:
            block = buffer.parent_block()
            assert block is not None
            rows = self.order.block(block)
            if buffer.circular is not None:
                circle = circle_of(buffer, rows)
                self._places[buffer] = circle.boxes, circle.places
            else:
                boxes = box_columns(buffer.window.data, buffer.tensor_shape, rows)
                self._places[buffer] = boxes, np.zeros(rows.count, np.int64)
        return self._places[buffer]

    def _touched(
        self, buffer: BufferOp, visit: Array, writes: bool, first: Array | None, size: Array | None
    ) -> Iterator[Access]:
        """Rows of a buffer's tensor, from ``first`` on, as bytes of the memory; None for all."""
        address, size_bytes = int(buffer.get("address", 0)), int(buffer.get("bytes", 1))
        memory = self.memories.index(buffer.memory)
        base = address + visit % buffer.places * size_bytes
        axis = self._axis(buffer)
        circular = buffer.circular_axis
        if axis is None or first is None or size is None or (circular not in (None, axis)):
            yield Access(memory, base, base + size_bytes, writes)
            return
        boxes, places = self._visits(buffer)
        start, held = boxes.clamped_start[axis][visit], boxes.clamped_size[axis][visit]
        low = np.clip(first - start, 0, held)
        high = np.clip(first + size - start, low, held)
        most = self._held(buffer, axis)
        place = (places[visit] + low) % most if circular is not None else low
        end = place + high - low
        for begin, beyond in ((place, np.minimum(end, most)), (0 * place, end - most)):
            beyond = np.maximum(beyond, begin)
            if (beyond > begin).any():
                begin, beyond = (base + n * size_bytes // most for n in (begin, beyond))
                yield Access(memory, begin, beyond, writes)

    def _held(self, buffer: BufferOp, axis: int) -> int:
        """Rows that a buffer has room for; circular ones turn round their memory's banks."""
        rows = max(int(buffer.get("shape")[axis]), 1)
        turn = self._turn(buffer, axis)
        return rows if buffer.circular is None else -(-rows // turn) * turn

    def _turn(self, buffer: BufferOp, axis: int) -> int:
        """Rows of a buffer in one turn round its banks: the rows of a window's step share one."""
        return self.machine.memory(buffer.memory).banks * self._step(buffer, axis)

    def _step(self, buffer: BufferOp, axis: int) -> int:
        """Rows from one window that reads a buffer to the next."""
        steps = [1]
        for op in self._readers(buffer):
            stage = op.stages[0]
            result_dims = stage.windows.data[-1].dims
            window = stage.windows.data[list(stage.inputs).index(buffer.result)].data[axis]
            steps += [abs(times) for dim, times in window.terms if dim in result_dims]
        return max(steps)

    def _move(self, op: MoveOp) -> Work:
        rows, buffer, far = self.order.rows(op), op.buffer, op.buffer.outer_buffer
        boxes = box_columns(buffer.window.data, buffer.tensor_shape, rows)
        sizes = boxes.clamped_size
        element = ELEMENT_BYTES[element_name(buffer.result.type.of.element_type)]
        moved = sizes.prod(axis=0) * element
        axis = self._axis(buffer)
        lines = np.minimum(moved, 1) if axis is None else np.minimum(sizes[axis], moved)
        at, number = _repeated(lines)
        known = (moved[at] / lines[at]).astype(np.float64)
        visit = self.order.visit(buffer, op)[at]
        first = None if axis is None else boxes.clamped_start[axis][at] + number
        single = np.ones_like(at)
        accesses = list(self._touched(buffer, visit, op.loads, first, single))
        if far is not None:
            seen = self.order.visit(far, op)[at]
            accesses += self._touched(far, seen, not op.loads, None, None)
        ends = (self.machine.main if far is None else far.memory, buffer.memory)
        move = self.machine.path(*(ends if op.loads else ends[::-1]))[0]
        role = str(buffer.get("role", ""))
        readers = self._readers(buffer) if op.loads and role == "input" else []
        if readers and self._apart(readers[0]):  # The machine says it: nothing is to be learned.
            known, readers = known * self._again(readers[0], buffer), []
        return Work(
            f"{'load' if op.loads else 'store'}.{role}",
            self.engines.index(op.engine.data),
            self.machine.moves.index(move),
            rows.key[at],
            known,
            accesses,
            readers[0].primitive.data if readers else "",
            known * self._again(readers[0], buffer) if readers else None,
        )

    def _apart(self, op: ComputeOp) -> bool:
        """Whether windows of a primitive's input are loaded one by one."""
        storage = self.machine.primitive(op.primitive.data).operands.get("input")
        return storage is not None and bool(storage.own.windows_apart())

    def _readers(self, buffer: BufferOp) -> list[ComputeOp]:
        users = (use.operation.parent_op() for use in buffer.result.uses)
        return [op for op in users if isinstance(op, ComputeOp)]

    def _again(self, op: ComputeOp, buffer: BufferOp) -> float:
        """How often a compute's windows read each pixel of a row of a buffer, side by side."""
        sizes = own_extents(op, self.program)
        rows = self.order.rows(op).renamed(op.dim_names)
        if not {"ow", "kw"} <= sizes.keys() or not rows.count:
            return 1.0
        width, window = int(rows.size("ow").max()), int(rows.size("kw").max())
        along, taps = (op.dim_names.get(dim, dim) for dim in ("ow", "kw"))
        axes = [dict(axis.terms) for axis in buffer.window.data]
        stride = next((abs(axis[along]) for axis in axes if {along, taps} <= axis.keys()), 1)
        return max(width * window / ((width - 1) * stride + window), 1.0)

    def _compute(self, op: ComputeOp) -> Work:
        primitive = self.machine.primitive(op.primitive.data)
        rows = self.order.rows(op).renamed(op.dim_names)
        sizes = {dim: rows.size(dim) for dim in own_extents(op, self.program)}
        cycles = parse_expression(primitive.cycles)
        split = _steps(cycles, sizes) if self.machine.synchronisation.by_rows and rows.count else {}
        at, parts = np.arange(rows.count), dict[str, tuple[Array, Array]]()
        mine = dict(sizes)
        for dim, step in split.items():
            known = op.dim_names.get(dim, dim)
            start, size = rows.start(dim)[at], rows.size(dim)[at]
            whole, first, length = self._runs(op, known, at, start, size)
            which, number = _repeated(-(-length // step))
            start = first[which] + number * step
            size = np.minimum(step, length[which] - number * step)
            at, which = at[whole[which]], whole[which]
            parts = {name: (a[which], n[which]) for name, (a, n) in parts.items()}
            parts[known] = start, size
            mine = {name: n[which] for name, n in mine.items()} | {dim: size}
        known = np.broadcast_to(np.asarray(cycles.evaluate(mine), np.float64), at.shape)
        touched: list[Access] = []
        for stage in op.stages:
            for value, window in zip(stage.inputs, stage.windows.data, strict=False):
                if isinstance(value.owner, BufferOp):
                    touched += self._of(value.owner, op, rows, at, window.data, parts, False)
        if isinstance(op.output.owner, BufferOp):
            window = op.stages[-1].windows.data[-1].data
            touched += self._of(op.output.owner, op, rows, at, window, parts, True)
        engine = self.engines.index(op.engine.data)
        return Work(f"compute.{primitive.name}", engine, -1, rows.key[at], np.ceil(known), touched)

    def _runs(
        self, op: ComputeOp, dim: str, at: Array, start: Array, size: Array
    ) -> tuple[Array, Array, Array]:
        """Parts of the intervals of a dim that a compute's instructions do not go beyond, since
        a circular buffer of its results ends there: which interval, first index, and size."""
        buffer = op.output.owner
        if not isinstance(buffer, BufferOp) or (axis := buffer.circular_axis) is None:
            return np.arange(at.size), start, size
        window = op.stages[-1].windows.data[-1].data[axis]
        if dim not in window.dims:
            return np.arange(at.size), start, size
        visit = self.order.visit(buffer, op)[at]
        boxes, places = self._visits(buffer)
        place = places[visit] + start - boxes.clamped_start[axis][visit]
        held = self._held(buffer, axis)
        if self._step(buffer, axis) > 1:
            held = self._turn(buffer, axis)
        which, number = _repeated((place + size - 1) // held - place // held + 1)
        begin = np.maximum(place[which], (place[which] // held + number) * held)
        end = np.minimum(place[which] + size[which], (place[which] // held + number + 1) * held)
        return which, start[which] + begin - place[which], end - begin

    def _of(
        self,
        buffer: BufferOp,
        op: ComputeOp,
        rows: Rows,
        at: Array,
        window: Sequence[Affine],
        parts: Mapping[str, tuple[Array, Array]],
        writes: bool,
    ) -> Iterator[Access]:
        """What each instruction of a compute touches of a buffer."""
        axis, visit = self._axis(buffer), self.order.visit(buffer, op)[at]
        if axis is None:
            return self._touched(buffer, visit, writes, None, None)

        def interval(dim: str) -> tuple[Array, Array]:
            return parts.get(dim) or (rows.start(dim)[at], rows.size(dim)[at])

        first, size = window[axis].interval_columns(interval)
        first, size = (np.broadcast_to(value, at.shape) for value in (first, size))
        return self._touched(buffer, visit, writes, first, size)


def _repeated(counts: Array) -> tuple[Array, Array]:
    """For each of ``counts`` parts of each execution: which execution, and number in it."""
    at = np.repeat(np.arange(len(counts)), counts)
    return at, np.arange(len(at)) - np.repeat(np.cumsum(counts) - counts, counts)


def _steps(cycles: Expression, sizes: Mapping[str, Array]) -> dict[str, int]:
    """Along a result's rows, and its own channels: how many take no longer than one."""
    steps: dict[str, int] = {}
    most = {name: int(size.max()) for name, size in sizes.items()}
    for dim in (row_dim(sizes), CHANNELS):
        if dim in sizes:
            steps[dim] = computed_at_once(cycles, most, dim)
    return steps
