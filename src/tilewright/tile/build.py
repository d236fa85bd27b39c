"""From a kernel and its schedule to a tile program.

``build`` states the schedule as loops and puts every buffer and its move right around the compute;
the passes then hoist, double, peel, place and order them. The program means the kernel from here
on, after each pass.

Loops: those of ``levels[0].order`` outermost, then those of ``levels[1].order`` within, and so on.
A loop that would run once is left out. An operand that the primitive keeps in main memory is used
in place; any other gets a buffer in the memory that the primitive names for its role.

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
from tilewright.machine import Machine, Primitive
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
        slots = [
            (operand.name, self.schedule.slots(operand.name))
            for operand in kernel.operands
            if self.schedule.slots(operand.name) != 1
        ]
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
            case "fixed16" | "fixed32":
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
        output = self._place(self.kernel.output, "output")
        options = self.schedule.options
        compute = _compute(
            self.primitive,
            stages,
            self.values[self.kernel.output.name] if output is None else output.result,
            to_attribute(options) if options else None,
        )
        if output is None:
            return [*ops, compute]
        engine = self._move_engine(output.memory, self.machine.main)
        store = MoveOp.of(output.result, output.tensor, engine)
        return [*ops, output, compute, store]

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
        buffer = self._place(operand, operand.role)
        if buffer is None:
            return self.values[operand.name]
        move = MoveOp.of(
            buffer.tensor, buffer.result, self._move_engine(self.machine.main, buffer.memory)
        )
        self.buffers[key] = buffer
        partner = self._partner(operand.role, buffer, ops)
        if partner is None:
            ops += [buffer, move]
        else:
            move.joined = UnitAttr()
            at = ops.index(partner) + 1
            ops[at:at] = [buffer, move]
        return buffer.result

    def _partner(self, role: str, buffer: BufferOp, ops: Sequence[Operation]) -> MoveOp | None:
        """The move with which this role's travels, if the primitive joins them."""
        joined = self.primitive.operands[role].joined
        for op in ops:
            if isinstance(op, MoveOp) and op.joined is None and op.buffer.get("role") == joined:
                return op
        return None

    def _place(self, operand: Operand, role: str) -> BufferOp | None:
        """A buffer for an operand, or None if it is used in place."""
        storage = self.primitive.operands.get(role)
        if storage is None:
            raise self._refuse(
                f"primitive {self.primitive.name} has no place for {operand.name} ({role})"
            )
        if storage.memory == self.machine.main:
            return None
        names = [buffer.symbol.data for buffer in self.buffers.values()]
        name, number = operand.name, 2
        while name in names:
            name, number = f"{operand.name}.{number}", number + 1
        window = WindowAttr(operand.access)
        value = self.values[operand.name]
        buffer = BufferOp.of(name, value, window, storage.memory, role)
        buffer.result.name_hint = _hint(f"{name}_{storage.memory}")
        return buffer

    def _move_engine(self, source: str, target: str) -> str:
        try:
            return self.machine.move(source, target).engine
        except KeyError as error:
            raise refuse("machine-no-move", str(error.args[0]), self.kernel.symbol) from None

    def _place_output(self, body: Sequence[Operation]) -> None:
        """Move the output's buffer and its store out of the outermost reduction loop.

        The accumulators must live through the whole reduction; this is part of the meaning, not a
        matter of speed, so it is done here and not in place-moves.
        """
        if keeps_sums(self.kernel, self.primitive):
            for op in body[-1].walk():
                if isinstance(op, MoveOp) and not op.loads:
                    op.buffer.accumulates = UnitAttr()
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
        store = ops[-1]
        if not isinstance(store, MoveOp):
            return
        buffer = store.buffer
        buffer.accumulates = UnitAttr()
        buffer.detach()
        store.detach()
        if outer is not None:
            outer.insert_op_before(buffer, loop)
            outer.insert_op_after(store, loop)


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
