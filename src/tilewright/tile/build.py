"""From a kernel and its schedule to a tile program.

``build`` states the schedule as loops and puts every buffer and its move right around the compute;
the passes then hoist, double, peel, place and order them. The program means the kernel from here
on, after each pass.

Loops: those of ``levels[0].order`` outermost, then those of ``levels[1].order`` within, and so on.
A loop that would run once is left out. An operand that the primitive keeps in main memory is used
in place; any other gets a buffer in the memory that the primitive names for its role, and one in
each memory on the way there (``Machine.path``), each of the one further out. The buffer next to the
primitive has the operand's name, those on the way ``NAME.MEMORY``::

    %x_l1 = tile.buffer "x.l1" of %x [m, ci] in "l1" slots 2
    tile.move %x to %x_l1 on "mte2"
    %x_l0a = tile.buffer "x" of %x_l1 [m, ci] in "l0a" slots 2
    tile.move %x_l1 to %x_l0a on "mte1"

Stages behind the tiles (``Kernel.behind``) are a second compute. It stands within the loops that
lie around all loops over dims of which it needs everything, and after these; the other loops run
again around it, in the same steps, so that cores which share one have the same part of both::

    tile.loop "co" { tile.loop "m" step 8 { tile.compute "matmul" ... to %y } }
    tile.loop "m" step 8 { tile.loop "m" step 1 { tile.compute "layer_norm" ... %y to %y } }
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.errors import refuse
from tilewright.ir import (
    ArrayAttr,
    Attribute,
    Block,
    ModuleOp,
    Operation,
    Region,
    SSAValue,
    StringAttr,
    UnitAttr,
    f32,
    integer,
    to_attribute,
)
from tilewright.ir.types import FixedType, element_of, tensor
from tilewright.machine import Machine, Move, Primitive
from tilewright.planning.domain import Kernel, Operand, Stage
from tilewright.planning.footprint import keeps_sums
from tilewright.planning.schedule import Schedule
from tilewright.tile.attributes import WindowAttr
from tilewright.tile.operations import (
    BufferOp,
    ComputeOp,
    LoopOp,
    MoveOp,
    ProgramOp,
    StageOp,
    TensorOp,
)

Placement = tuple[str, int, Sequence[int]]
"""Where a tensor lies: arena, offset in bytes, strides in elements of its physical axes."""


def build(
    kernel: Kernel,
    schedule: Schedule,
    machine: Machine,
    placements: Mapping[str, Placement] | None = None,
) -> ModuleOp:
    """A module with one ``tile.program`` that runs ``kernel`` as ``schedule`` says.

    ``placements`` gives, by operand name, where the tensors lie in main memory. Raises
    TilewrightError (``schedule-invalid``) if the schedule does not fit the kernel.
    """
    return ModuleOp([build_program(kernel, schedule, machine, placements)])


def build_program(
    kernel: Kernel,
    schedule: Schedule,
    machine: Machine,
    placements: Mapping[str, Placement] | None = None,
) -> ProgramOp:
    """The program alone; see ``build``."""
    return _Builder(kernel, schedule, machine, placements or {}).program()


class _Builder:
    def __init__(
        self,
        kernel: Kernel,
        schedule: Schedule,
        machine: Machine,
        placements: Mapping[str, Placement],
    ) -> None:
        self.kernel = kernel
        self.schedule = schedule
        self.machine = machine
        self.placements = placements
        self.primitive: Primitive = self._primitive()
        self.values: dict[str, SSAValue] = {}
        self.buffers: dict[tuple[str, WindowAttr, str], BufferOp] = {}

    def _primitive(self) -> Primitive:
        for primitive in self.machine.primitives:
            if primitive.name == self.schedule.primitive:
                return primitive
        raise self._refuse(f"the machine has no primitive {self.schedule.primitive}")

    def _refuse(self, reason: str) -> Exception:
        return refuse("schedule-invalid", reason, self.kernel.symbol)

    def program(self) -> ProgramOp:
        """The whole program."""
        kernel, dims = self.kernel, self.kernel.anchor.dims
        ordered = sorted(dims, key=lambda dim: dim.kind == "reduction")
        top: list[Operation] = [self._tensor(operand) for operand in kernel.operands]
        body = self._body()
        loops = self._loops()
        around = next((n for n, loop in enumerate(loops) if loop[0] in kernel.awaited), len(loops))
        for number in reversed(range(len(loops) + 1)):
            if number < len(loops):
                dim, upper, step, memory = loops[number]
                body = [LoopOp.of(dim, 0, upper, step, Block(body), memory)]
            if number == around and kernel.behind:
                body += self._behind(loops, around)
        # In its block first: an outermost reduction loop's surroundings are the program's own.
        block = Block([*top, *body])
        self._place_output(body)
        slots: list[tuple[str | int, ...]] = [
            (operand.name, self.schedule.slots(operand.name))
            for operand in kernel.operands
            if self.schedule.slots(operand.name) != 1
        ]
        slots += [(name, n, memory) for name, memory, n in self.schedule.staged if n != 1]
        return ProgramOp.build(
            properties={
                "symbol": StringAttr(kernel.symbol),
                "machine": StringAttr(self.machine.name),
                "dims": to_attribute(tuple((dim.name, dim.extent) for dim in ordered)),
                "reduction": to_attribute([dim.name for dim in ordered if dim.kind == "reduction"]),
                "nodes": to_attribute(kernel.nodes),
                "levels": to_attribute(tuple(level.memory for level in self.schedule.levels))
                if len(self.schedule.levels) > 1
                else None,
                "slots": to_attribute(tuple(slots)) if slots else None,
                "shared": StringAttr(self.schedule.shared) if self.schedule.shared else None,
            },
            regions=[Region(block)],
        )

    def _loops(self) -> list[tuple[str, int, int, str]]:
        """Dim, end, step and memory of every loop, outermost first."""
        size = self.kernel.anchor.extents.copy()
        loops: list[tuple[str, int, int, str]] = []
        for level in self.schedule.levels:
            for dim, _ in level.tile:
                if dim not in size:
                    raise self._refuse(f"the kernel has no dim {dim}")
            if len(set(level.order)) != len(level.order):
                raise self._refuse(f"a dim occurs twice in the order {level.order}")
            for dim in level.order:
                if dim not in size:
                    raise self._refuse(f"the kernel has no dim {dim}")
                step = level.size(dim, size[dim])
                if step < 1:
                    raise self._refuse(f"the tile of {dim} has size {step}")
                if step < size[dim]:
                    loops.append((dim, size[dim], step, level.memory))
                    size[dim] = step
            for dim, extent in size.items():
                if level.size(dim, extent) < extent:
                    raise self._refuse(
                        f"dim {dim} is tiled by {level.size(dim, extent)} "
                        f"but has no loop in {level.order}"
                    )
        return loops

    def _tensor(self, operand: Operand) -> TensorOp:
        properties: dict[str, Attribute] = {
            "symbol": StringAttr(operand.name),
            "role": StringAttr(operand.role),
        }
        placement = self.placements.get(operand.name)
        if placement is not None:
            arena, offset, strides = placement
            properties["arena"] = StringAttr(arena)
            properties["offset"] = integer(offset)
            properties["strides"] = to_attribute([int(stride) for stride in strides])
        op = TensorOp.build(result_types=[self._type(operand)], properties=properties)
        op.result.name_hint = _hint(operand.name)
        if operand.name in self.values:
            raise self._refuse(f"two operands are named {operand.name}")
        self.values[operand.name] = op.result
        return op

    def _type(self, operand: Operand) -> Attribute:
        match operand.element:
            case "float32":
                element: Attribute = f32
            case "fixed8" | "fixed16" | "fixed32":
                element = FixedType.of(operand.element_bytes * 8, operand.fraction)
            case _:
                element = element_of(np.dtype(operand.element))
        return tensor(operand.shape, element, operand.layout)

    def _behind(self, loops: Sequence[tuple[str, int, int, str]], around: int) -> list[Operation]:
        """The loops and the compute of the stages behind the tiles, a row at a time."""
        kernel, output = self.kernel, self.values[self.kernel.output.name]
        operation = kernel.behind[0].operation
        primitive = next(iter(self.machine.primitives_for(operation)), None)
        if primitive is None:
            raise self._refuse(f"the machine has no primitive for {operation}")
        places = {storage.memory for storage in primitive.operands.values()}
        places |= {storage.memory for storage in self.primitive.operands.values()}
        if places != {self.machine.main}:
            raise self._refuse(f"{operation} behind tiles needs its operands in main memory")
        # What the tiles have left in the output is what these stages read.
        self.values[kernel.front.output.name] = output
        stages = self._stages(kernel.behind, [])
        body: list[Operation] = [_compute(primitive, stages, output)]
        steps = kernel.anchor.extents | {dim: step for dim, _, step, _ in loops}
        rows = [
            (dim, steps[dim], 1, self.schedule.levels[-1].memory)
            for dim in kernel.anchor.extents
            if dim not in kernel.awaited and steps[dim] > 1
        ]
        kept = [loop for loop in loops[around:] if loop[0] not in kernel.awaited]
        for dim, upper, step, memory in reversed([*kept, *rows]):
            body = [LoopOp.of(dim, 0, upper, step, Block(body), memory)]
        return body

    def _stages(self, stages: Sequence[Stage], ops: list[Operation]) -> list[StageOp]:
        """The stages of one compute; adds buffers and moves to ``ops``."""
        made: list[StageOp] = []
        for stage in stages:
            inputs = [self._input(operand, ops) for operand in stage.inputs]
            made.append(self._stage(stage, inputs))
            if stage is not stages[-1]:
                self.values[stage.output.name] = made[-1].result
        return made

    def _body(self) -> list[Operation]:
        """Buffers, moves in, the compute of the tile, the move out."""
        ops: list[Operation] = []
        stages = self._stages(self.kernel.front.stages, ops)
        buffers = self._place(self.kernel.output, "output")
        options = self.schedule.options
        compute = _compute(
            self.primitive,
            stages,
            buffers[-1].result if buffers else self.values[self.kernel.output.name],
            to_attribute(options) if options else None,
        )
        stores = [
            MoveOp.of(buffer.result, buffer.outer, move.engine)
            for buffer, move in zip(reversed(buffers), self._path("output"), strict=True)
        ]
        return [*ops, *buffers, compute, *stores]

    def _stage(self, stage: Stage, inputs: Sequence[SSAValue]) -> StageOp:
        windows = [WindowAttr(operand.access) for operand in (*stage.inputs, stage.output)]
        return StageOp.build(
            operands=[inputs],
            result_types=[self._type(stage.output)],
            properties={
                "operation": StringAttr(stage.operation),
                "windows": ArrayAttr(windows),
                "parameters": to_attribute(stage.attributes) if stage.attributes else None,
                "node": StringAttr(stage.node) if stage.node else None,
            },
        )

    def _input(self, operand: Operand, ops: list[Operation]) -> SSAValue:
        """The value that a stage reads; adds a buffer and a move to ``ops`` if it needs them."""
        if operand.name in self.kernel.internal:
            return self.values[operand.name]
        window = WindowAttr(operand.access)
        key = (operand.name, window, operand.role)
        if key in self.buffers:
            return self.buffers[key].result
        buffers = self._place(operand, operand.role)
        if not buffers:
            return self.values[operand.name]
        self.buffers[key] = buffers[-1]
        for buffer, path in zip(buffers, self._path(operand.role), strict=True):
            move = MoveOp.of(buffer.outer, buffer.result, path.engine)
            partner = self._partner(operand.role, buffer, ops)
            if partner is None:
                ops += [buffer, move]
            else:
                move.joined = UnitAttr()
                at = ops.index(partner) + 1
                ops[at:at] = [buffer, move]
        return buffers[-1].result

    def _partner(self, role: str, buffer: BufferOp, ops: Sequence[Operation]) -> MoveOp | None:
        """The move with which this role's travels, if the primitive joins them."""
        joined = self.primitive.operands[role].joined
        for op in ops:
            if not isinstance(op, MoveOp) or op.joined is not None:
                continue
            if op.buffer.get("role") == joined and op.buffer.memory == buffer.memory:
                return op
        return None

    def _place(self, operand: Operand, role: str) -> list[BufferOp]:
        """The buffers of an operand, outermost first: one in each memory on the way to the
        primitive's, and there; none if it is used in place."""
        if role not in self.primitive.operands:
            raise self._refuse(
                f"primitive {self.primitive.name} has no place for {operand.name} ({role})"
            )
        path = self._path(role)
        if not path:
            return []
        names = [buffer.symbol.data for buffer in self.buffers.values()]
        name, number = operand.name, 2
        while name in names:
            name, number = f"{operand.name}.{number}", number + 1
        window = WindowAttr(operand.access)
        outputs = role == "output"
        memories = [move.source for move in reversed(path)] if outputs else [m.target for m in path]
        value, buffers = self.values[operand.name], list[BufferOp]()
        for number, memory in enumerate(memories, 1):
            own = name if number == len(memories) else f"{name}.{memory}"
            buffers.append(BufferOp.of(own, value, window, memory, role))
            value = buffers[-1].result
            value.name_hint = _hint(f"{name}_{memory}")
        return buffers

    def _path(self, role: str) -> tuple[Move, ...]:
        """The moves between main memory and the primitive's memory, in the order in which data
        takes them."""
        ends = (self.machine.main, self.primitive.operands[role].memory)
        try:
            return self.machine.path(*(ends[::-1] if role == "output" else ends))
        except KeyError as error:
            raise refuse("machine-no-move", str(error.args[0]), self.kernel.symbol) from None

    def _place_output(self, body: Sequence[Operation]) -> None:
        """Move the output's buffers and their stores out of the outermost reduction loop.

        The accumulators must live through the whole reduction; this is part of the meaning, not a
        matter of speed, so it is done here and not in place-moves.
        """
        if keeps_sums(self.kernel, self.primitive):
            for op in (inner for outer in body for inner in outer.walk()):
                if isinstance(op, ComputeOp) and isinstance(op.output.owner, BufferOp):
                    op.output.owner.accumulates = UnitAttr()
        reduced = self.kernel.anchor.reduction
        loop = body[0] if body else None
        while isinstance(loop, LoopOp) and loop.dim.data not in reduced:
            loop = loop.body.block.first_op
        if not isinstance(loop, LoopOp):
            return
        inner: Operation | None = loop
        while isinstance(inner, LoopOp):
            inner = inner.body.block.first_op
        block = None if inner is None else inner.parent_block()
        outer = loop.parent_block()
        ops = [] if block is None else list(block.ops)
        stores = [op for op in ops if isinstance(op, MoveOp) and not op.loads]
        if not stores or outer is None:
            return
        stores[0].buffer.accumulates = UnitAttr()
        # From main memory inwards: a buffer stands behind what it is of.
        for store in reversed(stores):
            store.detach()
            outer.insert_op_after(store, loop)
            store.buffer.detach()
            outer.insert_op_before(store.buffer, loop)


def _compute(
    primitive: Primitive,
    stages: Sequence[StageOp],
    output: SSAValue,
    options: Attribute | None = None,
) -> ComputeOp:
    """The compute of some stages."""
    return ComputeOp.build(
        operands=[output],
        properties={
            "primitive": StringAttr(primitive.name),
            "engine": StringAttr(primitive.engine),
            "options": options,
        },
        regions=[Region(Block(stages))],
    )


def _hint(name: str) -> str:
    """A value's name in the text: letters, digits and underscores."""
    text = re.sub(r"\W", "_", name, flags=re.ASCII)
    return text if text and not text[0].isdigit() else f"t_{text}"
