"""Execution of one command of a tile program on NumPy arrays, with every access checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from tests.tile.iterations import Box
from tests.tile.meaning import ANCHORS, Anchor, Tile, apply_map, view_by_dims
from tests.tile.storage import Circular, Content, Index, Storage
from tilewright.errors import TilewrightError, refuse
from tilewright.ir import SSAValue, to_text
from tilewright.ir.types import (
    Array,
    FixedType,
    element_dtype,
    element_name,
    element_size,
    fraction_of,
    shape_of,
    tensor_type,
)
from tilewright.machine import Machine
from tilewright.numerics import fixed
from tilewright.numerics.element_types import ELEMENTS, rounded, widened
from tilewright.planning.domain import Affine, Interval
from tilewright.tile.circular import Circle, circle_of
from tilewright.tile.iteration import Order, reduced_dims
from tilewright.tile.operations import (
    BufferOp,
    ComputeOp,
    MoveOp,
    ProgramOp,
    StageOp,
    TensorOp,
)
from tilewright.tile.queues import Command

Dims = Mapping[str, Interval]


@dataclass(frozen=True)
class Step:
    """One execution of a command."""

    op: Command
    dims: Dims
    visits: Mapping[BufferOp, int]
    outer: Mapping[BufferOp, Dims]
    """The dims' intervals where each buffer stands."""


class Execution:
    """The memories of one run of a program, and what each command does to them."""

    def __init__(
        self, program: ProgramOp, tensors: Mapping[str, Array], machine: Machine | None
    ) -> None:
        self.program = program
        self.machine = machine
        self.extents = program.extents
        self.storage = Storage()
        self.arrays: dict[TensorOp, Array] = {}
        self.written: dict[TensorOp, NDArray[np.bool_]] = {}
        self.partial: dict[TensorOp, Content] = {}
        self._order: Order | None = None
        self._circles: dict[BufferOp, Circle] = {}
        for name, op in program.tensors.items():
            if op.role.data == "internal":
                continue
            shape = shape_of(op.result)
            dtype = element_dtype(tensor_type(op.result).element_type)
            if op.role.data == "output":
                self.arrays[op] = np.zeros(shape, dtype)
                self.written[op] = np.zeros(shape, np.bool_)
                continue
            array = tensors.get(name)
            if array is None:
                raise refuse("tile-run", f"tensor {name} is not given", program.symbol.data)
            if array.shape != shape or array.dtype != dtype:
                raise refuse(
                    "tile-run",
                    f"tensor {name} is {array.dtype}{list(array.shape)}, "
                    f"the program has {dtype}{list(shape)}",
                    program.symbol.data,
                )
            self.arrays[op] = array

    def outputs(self) -> dict[str, Array]:
        """The outputs; refuses those that were not written in full."""
        for op, written in self.written.items():
            if not written.all():
                at = tuple(int(i) for i in np.argwhere(~written)[0])
                raise refuse(
                    "tile-run",
                    f"element {at} of output {op.symbol.data} was never written",
                    self.program.symbol.data,
                )
        return {op.symbol.data: self.arrays[op] for op in self.written}

    def error(self, step: Step, reason: str) -> TilewrightError:
        """The refusal of one execution."""
        line = to_text(step.op).splitlines()[0].rstrip(" {")
        dims = ", ".join(
            f"{dim} {start}:{start + size}"
            for dim, (start, size) in step.dims.items()
            if size != self.extents[dim]
        )
        place = f"{self.program.symbol.data}: {line}" + (f" at {dims}" if dims else "")
        return refuse("tile-run", reason, place)

    def execute(self, step: Step) -> None:
        """Run one command on the arrays."""
        if isinstance(step.op, ComputeOp):
            self.compute(step, step.op)
        elif step.op.loads:
            self.load(step, step.op)
        else:
            self.store(step, step.op)

    def load(self, step: Step, op: MoveOp) -> None:
        """Fill a buffer's slot with its box."""
        buffer = op.buffer
        content = self.fresh(step, buffer)
        if buffer.gathers is None:
            content.values[...], _ = self.read_box(step, op.source, content.box)
        else:
            content.values[...] = self.gathered(step, op)
        content.valid[...] = True
        self.storage.fill(buffer, content)

    def gathered(self, step: Step, op: MoveOp) -> Array:
        """The windows that a move gathers, an axis for each dim, the fill for what is padding."""
        buffer, dims = op.buffer, step.outer[op.buffer]
        window = buffer.outer_window
        part, box = self.read_box(step, op.source, Box.of(window, buffer.outer_shape, dims))
        names = [axis.dims[0] for axis in buffer.window.data]
        padded = np.pad(part, box.padding, constant_values=buffer.padding)
        return view_by_dims(padded, window, names, dims)

    def store(self, step: Step, op: MoveOp) -> None:
        """Write a buffer's box outwards, or the part of it that the dims span here."""
        buffer = op.buffer
        content = self.content_of(step, buffer)
        while content.waiting:
            content.waiting.pop()()
        box = Box.of(buffer.window.data, buffer.tensor_shape, step.dims)
        part = content.part(box)
        if not content.holds(part):
            raise self.error(step, f"buffer {buffer.symbol.data} is stored before it is complete")
        outer = buffer.outer_buffer
        if outer is not None:
            target = self.started(step, outer)
            if not target.box.contains(box):
                raise self.error(
                    step, f"writes {box} to buffer {outer.symbol.data}, which holds {target.box}"
                )
            inner = target.part(box)
            target.overwrite(inner)
            target.values[inner] = self.leaving(op, content.values[part])
            target.valid[inner] = True
            return
        tensor = buffer.tensor_op
        if tensor not in self.written:
            raise self.error(step, f"tensor {tensor.symbol.data} is no output")
        self.arrays[tensor][box.slices] = self.leaving(op, content.values[part])
        self.written[tensor][box.slices] = True

    def leaving(self, op: MoveOp, values: Array) -> Array:
        """Return the values that a store writes: the buffer's own, or what it converts them to."""
        if op.transform is None:
            return values
        inner, outer = op.buffer.result.type.of, op.buffer.outer_type
        element = ELEMENTS[element_name(outer.element_type)]
        if element.kind == "fixed":
            return fixed.requantise(values, fraction_of(inner), fraction_of(outer), element.dtype)
        saturate = self.machine is not None and self.machine.overflow == "saturate"
        return rounded(values, element, saturate=saturate)

    def fresh(self, step: Step, buffer: BufferOp) -> Content:
        """An empty slot for this visit; checks that its box fits."""
        if buffer.circular is not None:
            return self.turned(step, buffer)
        box = Box.of(buffer.window.data, buffer.tensor_shape, step.outer[buffer])
        dtype = element_dtype(buffer.result.type.of.element_type)
        size = tuple(n for _, n in box.clamped)
        shape: tuple[int, ...] = buffer.get("shape", ())
        if shape and any(n > limit for n, limit in zip(size, shape, strict=True)):
            raise self.error(
                step, f"box {box} of {buffer.symbol.data} exceeds its shape {list(shape)}"
            )
        self.check_size(step, buffer, size)
        return Content.empty(step.visits[buffer], box, dtype)

    def check_size(self, step: Step, buffer: BufferOp, size: Sequence[int]) -> None:
        """Refuse more elements than a slot, or the memory, has room for."""
        item = element_size(buffer.result.type.of.element_type)
        if buffer.accumulates is not None:
            item = max(item, 4)
        need, room = prod(size) * item, buffer.get("bytes", 0)
        limit = None if self.machine is None else self.machine.memory(buffer.memory).bytes
        end = buffer.get("address", 0) + buffer.places * max(room, need)
        if (room and need > room) or (limit is not None and end > limit):
            raise self.error(
                step,
                f"box {list(size)} of {buffer.symbol.data} takes {need} bytes; a slot has "
                f"{room or 'no size'}, {buffer.memory} has {limit}",
            )

    def turned(self, step: Step, buffer: BufferOp) -> Circular:
        """A circular buffer as this visit sees it, with what the visits before have left."""
        if self._order is None:
            self._order = Order(self.program)
        if buffer not in self._circles:
            block = buffer.parent_block()
            assert block is not None
            self._circles[buffer] = circle_of(buffer, self._order.block(block))
        circle, visit = self._circles[buffer], step.visits[buffer]
        box = Box.of(buffer.window.data, buffer.tensor_shape, step.outer[buffer])
        before = self.storage.latest(buffer)
        if isinstance(before, Circular):
            values, valid, started, rows = before.values, before.valid, before.started, before.rows
        else:
            shape: tuple[int, ...] = buffer.get("shape", ()) or circle.shape
            self.check_size(step, buffer, shape)
            values = np.zeros(shape, element_dtype(buffer.result.type.of.element_type))
            valid, started = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
            rows = np.full(shape[circle.axis], -1)
        if any(n > limit for (_, n), limit in zip(box.clamped, values.shape, strict=True)):
            raise self.error(
                step, f"box {box} of {buffer.symbol.data} exceeds its shape {list(values.shape)}"
            )
        first = int(circle.places[visit])
        return Circular(
            visit, box, values, valid, started, axis=circle.axis, first=first, rows=rows
        )

    def content_of(self, step: Step, buffer: BufferOp) -> Content:
        """Return the content of a buffer, which must be of this visit."""
        visit = step.visits[buffer]
        content = self.storage.find(buffer, visit)
        name = buffer.symbol.data
        if content is None and buffer.stays is not None and buffer.tensor_op not in self.written:
            # Earlier kernels have left it: what it holds is its tensor.
            content = self.fresh(step, buffer)
            content.values[...] = self.arrays[buffer.tensor_op][content.box.slices]
            content.valid[...] = True
            self.storage.fill(buffer, content)
        if content is None or content.of_visit(visit) is None:
            empty = self.fresh(step, buffer)
            if empty.box.empty or buffer.circular is not None:
                # Of a circular buffer, what is read may have been written in visits before.
                return empty
        if content is None:
            raise self.error(step, f"buffer {name} is read before anything is written to it")
        of_visit = content.of_visit(visit)
        if of_visit is None:
            raise self.error(
                step,
                f"buffer {name} is stale: its slot holds visit {content.visit}, not {visit}",
            )
        return of_visit

    def started(self, step: Step, buffer: BufferOp) -> Content:
        """Return what this visit has written to a buffer so far; an empty slot if nothing."""
        before = self.storage.find(buffer, step.visits[buffer])
        if before is not None and before.visit == step.visits[buffer]:
            return before
        content = self.fresh(step, buffer)
        if before is not None:
            content.follow(before)
        self.storage.fill(buffer, content)
        return content

    def read(self, step: Step, value: SSAValue, window: tuple[Affine, ...]) -> tuple[Array, Box]:
        """The part inside the tensor of the box that a compute reads, and the box."""
        owner = value.owner
        shape = owner.tensor_shape if isinstance(owner, BufferOp) else shape_of(value)
        return self.read_box(step, value, Box.of(window, shape, step.dims))

    def read_box(self, step: Step, value: SSAValue, box: Box) -> tuple[Array, Box]:
        """The part inside the tensor of a box of a buffer or a tensor in place, and the box."""
        owner = value.owner
        if isinstance(owner, BufferOp):
            content = self.content_of(step, owner)
            if not content.box.contains(box):
                raise self.error(
                    step, f"reads {box} of buffer {owner.symbol.data}, which holds {content.box}"
                )
            if box.empty:
                return np.zeros([n for _, n in box.clamped], content.values.dtype), box
            part = content.part(box)
            if not content.holds(part):
                raise self.error(step, f"reads {box} of buffer {owner.symbol.data} uninitialised")
            return content.values[part], box
        assert isinstance(owner, TensorOp)
        if owner in self.written and not self.written[owner][box.slices].all():
            raise self.error(step, f"reads {box} of tensor {owner.symbol.data} uninitialised")
        return self.arrays[owner][box.slices], box

    def compute(self, step: Step, op: ComputeOp) -> None:
        """Run the stages on one tile."""
        stages = op.stages
        first, last, content = self.output(step, op)
        window = stages[0].windows.data[-1].data
        target = Box.of(stages[-1].windows.data[-1].data, content.box.shape, step.dims)
        # What whole blocks of an axis have after the tensor's end is cut off.
        cut = any(after for _, after in target.padding)
        blocks = cut and any(len(axis.terms) > 1 for axis in stages[-1].windows.data[-1].data)
        before = any(ahead for ahead, _ in target.padding)
        if not content.box.contains(target) or before or (cut and not blocks):
            raise self.error(step, f"writes {target} outside of its output's {content.box}")
        points = prod(size for name, (_, size) in step.dims.items() if name in _names(window))
        if points != prod(target.size):
            raise self.error(step, f"the box {target} of its output has holes")
        part = content.part(target)
        content.overwrite(part)
        anchor = ANCHORS.get(stages[0].operation.data)
        stored = [value for stage in stages for value in stage.inputs if _is_read_at_store(value)]
        tile = self.tile(step, stages[0], {}, stored)
        total = None
        if anchor is not None:
            shape = tuple(inside for _, inside in target.clamped)
            total = self.reduce(step, anchor, tile, content, part, shape, first, last)
            if not last:
                return

        def finish() -> None:
            windows = [window.data for window in stages[0].windows.data]
            read = [
                self.read(step, value, window)
                for value, window in zip(stages[0].inputs, windows, strict=False)
                if value in stored
            ]
            arrays = [*tile.arrays, *widened([array for array, _ in read])]
            whole = replace(tile, arrays=arrays, boxes=[*tile.boxes, *(box for _, box in read)])
            if anchor is None or total is None:
                value = self.map(step, stages[0], whole)
            else:
                value = anchor.finish(whole, total)
            values: dict[SSAValue, tuple[Array, Box]] = {stages[0].result: (value, target)}
            for stage in stages[1:]:
                value = self.map(step, stage, self.tile(step, stage, values))
                values[stage.result] = (value, target)
            value = value[tuple(slice(0, inside) for _, inside in target.clamped)]
            content.values[part] = value
            content.valid[part] = True
            tensor = op.output.owner
            if isinstance(tensor, BufferOp) and tensor.stays is not None:
                tensor = tensor.tensor_op  # Later kernels read it there.
            if isinstance(tensor, TensorOp):
                self.arrays[tensor][target.slices] = value
                self.written[tensor][target.slices] = True

        if stored:
            content.valid[part] = False
            content.waiting.append(finish)
        else:
            finish()

    def output(self, step: Step, op: ComputeOp) -> tuple[bool, bool, Content]:
        """Return whether the tile starts, and ends, its reduction; and the output's content."""
        owner = op.output.owner
        whole = {dim: (0, extent) for dim, extent in self.extents.items()}
        outer = step.outer[owner] if isinstance(owner, BufferOp) else whole
        starts, ends = True, True
        for dim in reduced_dims(op, self.program):
            start, size = step.dims[dim]
            starts &= start == outer[dim][0]
            ends &= start + size == sum(outer[dim])
        if isinstance(owner, BufferOp):
            return starts, ends, self.started(step, owner)
        assert isinstance(owner, TensorOp)
        if owner not in self.partial:
            shape = shape_of(op.output)
            box = Box((0,) * len(shape), shape, shape)
            self.partial[owner] = Content.empty(0, box, self.arrays[owner].dtype)
        return starts, ends, self.partial[owner]

    def tile(
        self,
        step: Step,
        stage: StageOp,
        values: Mapping[SSAValue, tuple[Array, Box]],
        without: Sequence[SSAValue] = (),
    ) -> Tile:
        """A stage's operands on this tile; ``without`` some of the last."""
        windows = [window.data for window in stage.windows.data]
        read = [
            values[value] if value in values else self.read(step, value, window)
            for value, window in zip(stage.inputs, windows, strict=False)
            if value not in without
        ]
        types = [_tensor_of(value) for value in stage.inputs]
        result = tensor_type(stage.result)
        kinds = [kind.element_type for kind in (*types, result)]
        return Tile(
            widened([array for array, _ in read]),
            [box for _, box in read],
            windows,
            step.dims,
            self.extents,
            stage.parameters,
            any(isinstance(kind, FixedType) for kind in kinds[:1]),
            [fraction_of(kind) for kind in types],
            fraction_of(result),
            element_dtype(result.element_type),
        )

    def reduce(
        self,
        step: Step,
        anchor: Anchor,
        tile: Tile,
        content: Content,
        part: Index,
        shape: tuple[int, ...],
        first: bool,
        last: bool,
    ) -> Array:
        """Add a tile to its reduction, of which ``shape`` lies in the tensor; returns the sum."""
        own = whole = anchor.part(tile)
        if not (first and last):
            own = whole[tuple(slice(0, inside) for inside in shape)]
            if anchor.combine is None:
                raise self.error(step, "the operation needs its reduction whole")
            if content.partial is None:
                content.partial = np.zeros(content.valid.shape, own.dtype)
            if not first:
                if not content.started[part].all():
                    raise self.error(step, "adds to accumulators that were never started")
                own = anchor.combine(content.partial[part], own)
            content.partial[part] = own
            content.started[part] = True
            content.valid[part] = False
            if own.shape != whole.shape:
                own = np.pad(own, [(0, n - m) for n, m in zip(whole.shape, shape, strict=True)])
        return own

    def map(self, step: Step, stage: StageOp, tile: Tile) -> Array:
        """The result of a map."""
        try:
            return apply_map(stage.operation.data, tile)
        except KeyError:
            raise self.error(step, f"operation {stage.operation.data} has no meaning") from None


def _is_read_at_store(value: SSAValue) -> bool:
    owner = value.owner
    return isinstance(owner, BufferOp) and owner.at_store is not None


def _names(window: tuple[Affine, ...]) -> set[str]:
    return {name for axis in window for name, c in axis.terms if c}


def _tensor_of(value: SSAValue):
    owner = value.owner
    return owner.result.type.of if isinstance(owner, BufferOp) else tensor_type(value)
