"""What the cycles of a kernel depend on, read off its tile program; no command is simulated.

The **floor** of a kernel is how long its busiest engine, or main memory, has to do if nothing ever
waits. Around it stand the ends, in which the engines cannot all be busy: the head, until the first
compute can begin, and the tail behind the last one. Between them the kernel runs in **steps**, one
for each execution of its last compute, with the loads of the next step and the stores of this one
beside it. Features are logarithms of such estimates over what planning predicts (``base``), or
shares of it, so that kernels of all sizes are alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log

import numpy as np
from numpy.typing import NDArray

from tilewright.ir.types import Array, element_name, layout_of
from tilewright.machine import Machine, parse_expression
from tilewright.numerics.element_types import ELEMENT_BYTES
from tilewright.planning import Plan
from tilewright.planning.bounds import main_bandwidth
from tilewright.planning.domain import Kernel
from tilewright.planning.layout import Layout
from tilewright.tile.boxes import box_columns
from tilewright.tile.dialect import BufferOp, ComputeOp, MoveOp, ProgramOp
from tilewright.tile.iteration import Order, own_extents
from tilewright.tile.lower import tile
from tilewright.tile.queues import commands_of

Floats = NDArray[np.float64]

ROWS = ("oh", "d2", "m", "n")
"""The dims of primitives that run along the rows of a result; the first that there is."""

POWERS = (2, 6)
"""Norms of the engines' shares: several that are busy for about as long wait for one another."""


@dataclass(frozen=True)
class Work:
    """The executions of one move or compute, in program order."""

    kind: str
    """``load``, ``store`` or ``compute``."""
    name: str
    """The role of what is moved, or the primitive that computes."""
    engine: str
    keys: Array
    """Places in the program."""
    cycles: Floats
    """How long each execution keeps its engine busy, at least."""
    bytes: Floats
    """Through main memory."""
    lines: Array
    """Rows of each, at least 1: what a machine whose instructions wait for rows has one for."""
    slots: int = 1
    """Of the buffer that is moved."""
    block: int = 1
    """Rows of a compute that are made at once."""
    ahead: int = 1
    """Rows that it reads for the first of these."""
    again: float = 1.0
    """How often the windows of a compute read each pixel of a row."""


def work_of(program: ProgramOp, machine: Machine) -> list[Work]:
    """The moves and computes of a tile program that are executed, in the order of its text."""
    order = Order(program)
    works = [
        _move(op, order, machine)
        if isinstance(op, MoveOp)
        else _compute(op, order, program, machine)
        for op in commands_of(program)
    ]
    return [work for work in works if work.keys.size]


def _move(op: MoveOp, order: Order, machine: Machine) -> Work:
    rows, buffer, far = order.rows(op), op.buffer, op.buffer.outer_buffer
    sizes = box_columns(buffer.window.data, buffer.tensor_shape, rows).clamped_size
    moved = sizes.prod(axis=0) * ELEMENT_BYTES[element_name(buffer.result.type.of.element_type)]
    ends = (machine.main if far is None else far.memory, buffer.memory)
    move = machine.path(*(ends if op.loads else ends[::-1]))[0]
    lines = _lines(buffer, sizes) if machine.row_waits else np.ones_like(moved)
    return Work(
        "load" if op.loads else "store",
        str(buffer.get("role", "")),
        op.engine.data,
        rows.key,
        np.maximum(moved / move.bytes_per_cycle, lines * (move.latency / move.in_flight)),
        moved.astype(np.float64) if machine.main in ends else np.zeros(rows.count),
        lines,
        buffer.slot_count,
    )


def _lines(buffer: BufferOp, sizes: Array) -> Array:
    """Indices along the outermost axis in main memory that has more than one; at least 1."""
    shape = buffer.tensor_shape
    factors = Layout.parse(layout_of(buffer.tensor_op.result), len(shape)).factors
    outer = next((f.axis for f in factors[:-1] if shape[f.axis] > 1), None)
    return np.ones_like(sizes[0]) if outer is None else np.maximum(sizes[outer], 1)


def _compute(op: ComputeOp, order: Order, program: ProgramOp, machine: Machine) -> Work:
    primitive = machine.primitive(op.primitive.data)
    rows = order.rows(op).renamed(op.dim_names)
    sizes = {dim: rows.size(dim) for dim in own_extents(op, program)}
    cycles = np.asarray(parse_expression(primitive.cycles).evaluate(sizes), np.float64)
    along = next((dim for dim in ROWS if dim in sizes), "")
    block = int(primitive.multiples.get(along, 1))
    stride = [int(n) for n in op.stages[0].parameters.get("strides", (1, 1))]
    height, (width, window) = 1, (int(sizes[d].max()) if d in sizes else 1 for d in ("ow", "kw"))
    height = int(sizes["kh"].max()) if "kh" in sizes and rows.count else 1
    return Work(
        "compute",
        primitive.name,
        op.engine.data,
        rows.key,
        np.ceil(np.broadcast_to(cycles, rows.count)),
        np.zeros(rows.count),
        sizes[along] if along else np.ones(rows.count, np.int64),
        1,
        block,
        (block - 1) * stride[0] + height,
        width * window / ((width - 1) * stride[-1] + window),
    )


@dataclass(frozen=True)
class Estimates:
    """Cycles of a kernel's works if each engine only waits as far as the estimate says."""

    works: Sequence[Work]
    machine: Machine

    @property
    def first(self) -> Work:
        """The compute that begins first."""
        return next(work for work in self.works if work.kind == "compute")

    @property
    def last(self) -> Work:
        """The compute that makes the kernel's result."""
        return [work for work in self.works if work.kind == "compute"][-1]

    def sums(self) -> dict[str, float]:
        """Cycles of every engine, and those that all bytes take through main memory (``""``)."""
        busy = {engine.name: 0.0 for engine in self.machine.engines}
        for work in self.works:
            busy[work.engine] += float(work.cycles.sum())
        moved = sum(float(work.bytes.sum()) for work in self.works)
        return busy | {"": moved / main_bandwidth(self.machine)}

    def ends(self) -> tuple[list[tuple[Work, int, float]], list[tuple[Work, int, float]]]:
        """What happens before the first compute begins, and once the last one is nearly done: the
        work, which execution, and what share of it."""
        first, last = self.first, self.last
        head = [
            (work, 0, min(first.ahead / int(work.lines[0]), 1.0) if work.name == "input" else 1.0)
            for work in self.works
            if work.kind == "load" and work.keys[0] < first.keys[0]
        ]
        rest = min(last.block / int(last.lines[-1]), 1.0)
        tail = [(work, -1, rest) for work in self.works if work is last or work.kind == "store"]
        return head, tail

    def with_ends(self) -> tuple[float, float, float]:
        """Head, tail, and both with what the busiest engine has left to do."""
        head, tail = self.ends()
        left = self.sums()
        bandwidth = main_bandwidth(self.machine)
        for work, at, share in (*head, *tail):
            left[work.engine] -= share * float(work.cycles[at])
            left[""] -= share * float(work.bytes[at]) / bandwidth
        begin, end = (sum(s * float(w.cycles[n]) for w, n, s in part) for part in (head, tail))
        return begin, end, max(begin + end + max(left.values()), *self.sums().values(), 1.0)

    def apart(self) -> Estimates:
        """The same if the windows of the first compute are loaded one by one, as some cores do it
        that put the pixels of a window side by side."""
        first, bandwidth = self.first, main_bandwidth(self.machine)

        def read_again(work: Work) -> Work:
            if (work.kind, work.name) != ("load", "input") or work.keys[0] > first.keys[0]:
                return work
            moved = work.bytes * first.again
            return replace(work, bytes=moved, cycles=np.maximum(work.cycles, moved / bandwidth))

        return replace(self, works=[read_again(work) for work in self.works])

    def waited(self) -> float:
        """Cycles of loads into buffers of one slot, which wait for the compute before."""
        single = [work for work in self.works if work.kind == "load" and work.slots == 1]
        return sum(float(work.cycles[1:].sum()) for work in single)

    def in_steps(self) -> tuple[float, float]:
        """Sums over the steps of the longest of its computes, its bytes, the stores of the step and
        the loads of the next: if these are issued at once, and if the dispatcher gets to them only
        when the queue has room for all the stores before them."""
        count, keys = self.last.keys.size, self.last.keys
        bandwidth = main_bandwidth(self.machine)
        engines = {engine.name: np.zeros(count) for engine in self.machine.engines}
        loaded, flow, lines = np.zeros(count), np.zeros(count), np.zeros(count)
        for work in self.works:
            step = np.searchsorted(keys, work.keys)
            step = step - 1 if work.kind != "compute" else step
            known = (step >= 0) & (step < count)
            step = np.clip(step, 0, count - 1)
            target = loaded if work.kind == "load" else engines[work.engine]
            np.add.at(target, step, np.where(known, work.cycles, 0.0))
            np.add.at(flow, step, np.where(known, work.bytes, 0.0) / bandwidth)
            if work.kind == "store":
                np.add.at(lines, step, work.lines)
        longest = np.maximum(flow, np.max([*engines.values()], axis=0))
        queue = {engine.name: engine.queue for engine in self.machine.engines}
        stores = [work.engine for work in self.works if work.kind == "store"]
        room = min((queue[engine] for engine in stores), default=1)
        late = longest * (1 - np.minimum(room / np.maximum(lines, 1), 1.0))
        return (
            float(np.maximum(longest, loaded).sum()),
            float(np.maximum(longest, late + loaded).sum()),
        )


def features_of(kernel: Kernel, plan: Plan, machine: Machine) -> tuple[float, dict[str, float]]:
    """The ``base`` of a kernel under a plan, in cycles, and its features by name.

    Raises TilewrightError where the plan has no tile program.
    """
    works = work_of(tile(kernel, plan.schedule, machine, check=False), machine)
    plain = Estimates(works, machine)
    apart, sums, bandwidth = plain.apart(), plain.sums(), main_bandwidth(machine)
    # Short rows take longer than their bytes, of which planning knows only beside computes.
    short = sum(
        share * float(work.cycles[at] - work.bytes[at] / bandwidth)
        for work, at, share in plain.ends()[0]
    )
    floor = max(*sums.values(), 1.0)
    base = max(plan.predicted_cycles + max(short, 0.0), floor)
    head, tail, ends = plain.with_ends()
    at_once, late = plain.in_steps()
    computes = [work for work in works if work.kind == "compute"]
    values = {
        "floor": log(floor / base),
        "ends": log(ends / base),
        "head": head / base,
        "tail": tail / base,
        "steps": beyond(at_once, base),
        "late": beyond(late, base),
        "turns": beyond(_total(computes), base) if len(computes) > 1 else 0.0,
        "single": plain.waited() / base,
        "tile": 1 / plain.last.keys.size,
        "lines": sum(float(work.lines.sum()) for work in works) / base,
        "chain": float(len(computes) - 1),
    }
    values |= {f"busy.{name}" if name else "bytes": cycles / base for name, cycles in sums.items()}
    for power in POWERS:
        norm = sum((cycles / base) ** power for cycles in sums.values())
        values[f"norm.{power}"] = log(max(norm, 1e-9)) / power
    # Whether a primitive loads windows apart, training tells.
    name, windows = plain.first.name, max(apart.with_ends()[2], base)
    waited = base + apart.waited() - plain.waited()
    values[f"{name}.apart"] = beyond(windows, base)
    values[f"{name}.apart.late"] = beyond(apart.in_steps()[1], windows)
    values[f"{name}.apart.single"] = beyond(waited, windows)
    return base, values


def beyond(estimate: float, other: float) -> float:
    """The logarithm of an estimate over another, 0 where it is less."""
    return log(max(estimate / other, 1.0))


def _total(works: Sequence[Work]) -> float:
    return sum(float(work.cycles.sum()) for work in works)
