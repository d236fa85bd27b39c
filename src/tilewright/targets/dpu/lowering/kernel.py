"""One kernel: the executions of its tile program in order, each as instructions.

A buffer of a tensor that is internal to a chain of computes has its rows where the compute that
reads them wants them: ``step`` of them to a bank. The compute that makes them writes them so. In a
circular buffer a compute makes what the tiles before have not left.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from tilewright.codegen.program.locations import BufferPlace, TensorPlace
from tilewright.errors import refuse
from tilewright.graph.placement import ACTIVATIONS
from tilewright.ir.types import shape_of
from tilewright.targets.dpu.core import DEPTH
from tilewright.targets.dpu.lowering.computes import COMPUTES, Execution
from tilewright.targets.dpu.lowering.dependences import Area
from tilewright.targets.dpu.lowering.epilogue import Epilogue
from tilewright.targets.dpu.lowering.program import Program
from tilewright.targets.dpu.lowering.tiles import Box, Runs, Tensor, Tile
from tilewright.targets.dpu.machine import FEW, MOST_GROUPS
from tilewright.targets.dpu.registers import BIASES, GUARD, REGISTERS
from tilewright.tile.boxes import Boxes, box_columns
from tilewright.tile.dialect import BufferOp, ComputeOp, MoveOp, ProgramOp, StageOp, TensorOp
from tilewright.tile.iteration import Order
from tilewright.tile.queues import Command, buffers_of, commands_of, wait_parts

if TYPE_CHECKING:
    from tilewright.targets.dpu.lowering.network import Bias, Lowering

ZEROS = DEPTH - MOST_GROUPS
"""First row of the bias bank that kernels without a bias fill with zeros."""


class KernelLowering:
    """One kernel being lowered into a builder."""

    def __init__(self, whole: Lowering, program: ProgramOp, build: Program) -> None:
        self.whole = whole
        self.core = whole.core
        self.program = program
        self.build = build
        self.order = Order(program)
        self._buffers: dict[BufferOp, BufferPlace] = {}
        self._parts: dict[tuple[ComputeOp, BufferOp], Boxes] = {}
        """The boxes that computes read of buffers that stay."""
        self._tensors: dict[TensorOp, Tensor] = {}
        self._readers: dict[BufferOp, ComputeOp] = {}
        """The compute that reads each buffer."""
        for op in commands_of(program):
            if isinstance(op, ComputeOp):
                self._readers |= dict.fromkeys(_inputs(op.stages[0]), op)
        self._waits: dict[tuple[Command, bool], frozenset[str]] = {}
        """The buffers for whose rows a command waits, and those for which as a whole."""
        self._ends: dict[Command, int] = {}
        """Per command, its last instruction so far."""

    def lower(self) -> None:
        """Add all instructions. Raises TilewrightError."""
        commands = commands_of(self.program)
        self._load_zeros([op for op in commands if isinstance(op, ComputeOp) and _adds_bias(op)])
        events = sorted(
            (int(key), number, row)
            for number, op in enumerate(commands)
            for row, key in enumerate(self.order.rows(op).key)
        )
        epilogues = {op: Epilogue.of(op) for op in commands if isinstance(op, ComputeOp)}
        for _, number, row in events:
            op, first = commands[number], len(self.build.statements)
            if isinstance(op, MoveOp):
                self._move(op, row)
            else:
                self._compute(op, row, epilogues[op])
            if len(self.build.statements) > first:
                self._wait(op, first)
                self._ends[op] = len(self.build.statements) - 1

    def _wait(self, op: Command, first: int) -> None:
        """Let the first instruction of a command wait for buffers as a whole, whose users end."""
        for name in self._waits_of(op, rows=False):
            for user, end in self._ends.items():
                if any(buffer.symbol.data == name for buffer in buffers_of(user)):
                    self.build.dependences.wait(first, self.build.engine(end), end)

    def _waits_of(self, op: Command, *, rows: bool) -> frozenset[str]:
        """The buffers for whose rows a command waits, or those for which as a whole."""
        if (op, rows) not in self._waits:
            waits = [wait_parts(wait) for wait in op.wait_list]
            self._waits[op, rows] = frozenset(name for _, by, name in waits if by == rows)
        return self._waits[op, rows]

    def _load_zeros(self, computes: list[ComputeOp]) -> None:
        """A LOAD of zeros for computes without a bias. A CONV reads one row of them for all of its
        groups of channels, a DWCONV a row for each."""
        rows = [
            self._groups(op) if op.stages[0].operation.data == "depthwise_conv" else 1
            for op in computes
            if self.bias_of(op) is None
        ]
        if rows:
            self.build.transfer(
                "load", [self._zeros(max(rows))], bank_id=self.core.group("bias").first,
                bank_addr=ZEROS, channel=max(rows) * self.core.channels, reg_id=REGISTERS[BIASES],
            )  # fmt: skip

    def _zeros(self, rows: int) -> Area:
        """The rows of zeros; no buffer, so whoever touches them waits for them."""
        bank = self.core.group("bias").first
        return Area(slice(bank, bank + 1), slice(ZEROS, ZEROS + rows), True)

    def _groups(self, op: ComputeOp) -> int:
        """The number of channel groups of a compute's result."""
        output = op.output.owner
        assert isinstance(output, BufferOp)
        channels = output.get("shape")[self.tensor(output.tensor_op).axes.channel]
        return -(-int(channels) // self.core.channels)

    def tensor(self, op: TensorOp) -> Tensor:
        """A tensor, in main memory unless it is internal; refuses one that lies beyond what
        addresses reach, and a single number, which has no channels."""
        shape = shape_of(op.result)
        if not shape:
            raise refuse("lower-layout", "a tensor without axes has no channels", op.symbol.data)
        if op not in self._tensors and op.arena is None:
            self._tensors[op] = Tensor(0, 0, (0,) * len(shape), shape, op.symbol.data)
        if op not in self._tensors:
            place = TensorPlace.of(op, dict.fromkeys(REGISTERS, 0))
            arena = "" if op.arena is None else op.arena.data
            if place.range[1] > 1 << 29:
                raise refuse(
                    "lower-address",
                    f"it ends {place.range[1]} bytes after its register; addresses have 29 bits",
                    op.symbol.data,
                )
            self._tensors[op] = Tensor(
                REGISTERS[arena],
                place.address + (GUARD if arena == ACTIVATIONS else 0),
                place.strides,
                place.shape,
                op.symbol.data,
            )
        return self._tensors[op]

    def buffer(self, op: BufferOp) -> BufferPlace:
        """The place of a buffer."""
        if op not in self._buffers:
            self._buffers[op] = BufferPlace(op, self.order, 1)
        return self._buffers[op]

    def tile(self, buffer: BufferOp, command: Command, row: int) -> Tile:
        """Return the tile that a buffer holds in one execution of a command, with its place."""
        place = self.buffer(buffer)
        visit = int(self.order.visit(buffer, command)[row])
        group = self.core.group(buffer.memory)
        address = place.address + visit % buffer.places * place.bytes
        tensor = self.tensor(buffer.tensor_op)
        box = _box(place.boxes, visit)
        row_bytes = group.count * self.core.channels * (4 if group.kind == "bias" else 1)
        runs = self._runs(buffer, visit)
        step = self._step(buffer, tensor)
        waited = buffer.symbol.data in self._waits_of(command, rows=True)
        tile = Tile(self.core, group, address // row_bytes, tensor, box, step, runs, waited=waited)
        if group.kind == "map" and tile.images > 1:
            raise refuse("lower-layout", "a tile holds several images", tensor.name)
        if buffer.circular is not None:
            tile = self._turned(tile, buffer, command, visit)
        taken = tile.turns * tile.turn
        if group.kind == "map" and taken * row_bytes > place.bytes:
            raise refuse(
                "lower-bank",
                f"its rows take {taken} rows of the banks, more than planned",
                tensor.name,
            )
        return tile

    def _turned(self, tile: Tile, buffer: BufferOp, command: Command, visit: int) -> Tile:
        """A tile in a circular buffer: of what a compute makes, the rows that are new there."""
        circle, (axis, *_) = self.buffer(buffer).circle, tile.tensor.axes.rows
        assert circle.axis == axis
        first, rows = tile.box[axis]
        old = 0
        if isinstance(command, ComputeOp) and command.output.owner is buffer:
            old = rows - int(circle.new[visit])
        box = (*tile.box[:axis], (first + old, rows - old), *tile.box[axis + 1 :])
        turn, shape, axes = tile.step * self.core.rows, buffer.get("shape"), tile.tensor.axes
        pixels = 1 if axes.pixel is None else shape[axes.pixel]
        return replace(
            tile,
            box=box,
            place=int(circle.places[visit]) + old,
            circle=-(-shape[axis] // turn) * turn,
            widest=tile.step * pixels * -(-shape[axes.channel] // self.core.channels),
        )

    def _step(self, buffer: BufferOp, tensor: Tensor) -> int:
        """Rows that share a bank: the stride of the windows that read them."""
        reader = self._readers.get(buffer)
        if reader is None or tensor.axes.pixel is None or buffer.get("role") != "input":
            return 1
        return int(reader.stages[0].parameters.get("strides", (1,))[0])

    def _augmented(self, buffer: BufferOp) -> ComputeOp | None:
        """The convolution with channel augmentation of which a buffer is an operand."""
        reader = self._readers.get(buffer)
        return reader if reader is not None and reader.primitive.data == FEW else None

    def _runs(self, buffer: BufferOp, visit: int) -> Runs | None:
        """The results whose windows a buffer holds, if it is the input of channel augmentation."""
        reader = self._augmented(buffer)
        if reader is None or buffer.get("role") != "input":
            return None
        if buffer.tensor_op.arena is None:
            raise refuse(
                "lower-layout",
                "channel augmentation reads main memory, and this is computed on the chip",
                buffer.tensor_op.symbol.data,
            )
        block = buffer.parent_block()
        assert block is not None
        rows, product = self.order.block(block), reader.stages[0]
        along = reader.dim_names.get("ow", "ow")
        weight = next(b for b in _inputs(product) if b.get("role") == "weight")
        return Runs(
            int(rows.start(along)[visit]),
            int(rows.size(along)[visit]),
            weight.tensor_shape[3],
            int(product.parameters.get("strides", (1, 1))[1]),
            int(product.parameters.get("pads", (0, 0, 0, 0))[1]),
        )

    def _move(self, op: MoveOp, row: int) -> None:
        buffer = op.buffer
        tile = self.tile(buffer, op, row)
        if tile.group.kind == "map":
            tile.transfer(self.build, "load" if op.loads else "save")
        elif tile.group.kind == "weights":
            self._load_weights(buffer, tile)
        elif tile.group.kind == "depthwise":
            self._load_depthwise(tile)
        else:
            self._load_bias(tile)

    def _load_weights(self, buffer: BufferOp, tile: Tile) -> None:
        """A LOAD for every output channel: its taps, of all input channels each."""
        outer, inner, taps, apart = self._weight_axes(buffer, tile)
        groups = -(-inner // self.core.channels)
        start = [first for first, _ in tile.box]
        first, count = tile.box[outer]
        for channel in range(count):
            index = list(start)
            index[outer] = first + channel
            turn, bank = divmod(channel, self.core.channels)
            address = (tile.base + turn * taps * groups) % DEPTH
            self.build.transfer(
                "load", [tile.block(address, taps * groups, bank, 1)],
                bank_id=tile.group.first + bank, bank_addr=address, length=taps, channel=inner,
                jump_read=apart, jump_write=groups, reg_id=tile.tensor.register,
                ddr_addr=tile.tensor.address(index),
            )  # fmt: skip

    def _weight_axes(self, buffer: BufferOp, tile: Tile) -> tuple[int, int, int, int]:
        """(axis of the outputs, input channels, taps, bytes from tap to tap) of weights."""
        names = self._readers[buffer].primitive_names
        axes = [{names.get(dim, dim) for dim in axis.dims} for axis in buffer.window.data]
        outer = next(i for i, dims in enumerate(axes) if "co" in dims)
        inner = next((i for i, dims in enumerate(axes) if "ci" in dims), -1)
        strides, sizes = tile.tensor.strides, [size for _, size in tile.box]
        if len(axes) == 4:
            inner = 1
            taps, apart = sizes[2] * sizes[3], strides[3]
            dense = sizes[2] == 1 or strides[2] == sizes[3] * strides[3]
            if self._augmented(buffer) and dense and strides[3] == sizes[1] and strides[1] == 1:
                return outer, sizes[3] * sizes[1], sizes[2], strides[2] if sizes[2] > 1 else 1
        else:
            taps, apart, dense = 1, 1, True
        channels = sizes[inner]
        if not dense or (channels > 1 and strides[inner] != 1):
            raise refuse(
                "lower-layout",
                "weights lie in another order than [output, tap, input] in main memory",
                tile.tensor.name,
                "constant weights, which the compiler lays out",
            )
        return outer, channels, taps, max(apart, 1) if taps > 1 else 1

    def _load_depthwise(self, tile: Tile) -> None:
        sizes, strides = [size for _, size in tile.box], tile.tensor.strides
        taps = sizes[2] * sizes[3]
        if strides[0] != 1 or (sizes[2] > 1 and strides[2] != sizes[3] * strides[3]):
            raise refuse(
                "lower-layout", "weights lie in another order than [tap, channel] in main memory",
                tile.tensor.name,
            )  # fmt: skip
        groups = -(-sizes[0] // self.core.channels)
        self.build.transfer(
            "load", [tile.block(tile.base, taps * groups)], bank_id=tile.group.first,
            bank_addr=tile.base, length=taps, channel=sizes[0],
            jump_read=strides[3] if taps > 1 else 1, jump_write=groups, reg_id=tile.tensor.register,
            ddr_addr=tile.tensor.address([start for start, _ in tile.box]),
        )  # fmt: skip

    def _load_bias(self, tile: Tile) -> None:
        bias = self.bias(tile.tensor)
        start, count = tile.box[-1]
        groups = -(-count // self.core.channels)
        self.build.transfer(
            "load", [tile.block(tile.base, groups)], bank_id=tile.group.first,
            bank_addr=tile.base, channel=count, reg_id=REGISTERS[BIASES],
            ddr_addr=bias.offset + start,
        )  # fmt: skip

    def bias(self, tensor: Tensor) -> Bias:
        """A bias as bytes; refuses one that is not the same for all rows."""
        if prod(tensor.shape) != tensor.shape[-1]:
            raise refuse("lower-bias", "rows have biases of their own", tensor.name)
        return self.whole.bias(tensor.offset, tensor.shape[-1], tensor.name)

    def bias_of(self, op: ComputeOp) -> BufferOp | None:
        """The buffer of a compute's bias, if it has one."""
        return next((b for b in _inputs(op.stages[0]) if b.get("role") == "bias"), None)

    def _input(self, buffer: BufferOp, op: ComputeOp, row: int) -> Tile:
        """Return the tile of a buffer that a compute reads: all of it, or a part if it stays."""
        tile = self.tile(buffer, op, row)
        if buffer.stays is None:
            return tile
        if (op, buffer) not in self._parts:
            stage = op.stages[0]
            window = stage.windows.data[list(stage.inputs).index(buffer.result)]
            boxes = box_columns(window.data, buffer.tensor_shape, self.order.rows(op))
            self._parts[op, buffer] = boxes
        return tile.part(_box(self._parts[op, buffer], row))

    def _compute(self, op: ComputeOp, row: int, epilogue: Epilogue) -> None:
        stage = op.stages[0]
        output = op.output.owner
        assert isinstance(output, BufferOp)
        bias = self.bias_of(op)
        groups = self._groups(op)
        shift, bias_row, bias_area = 0, ZEROS, self._zeros(groups)
        if bias is not None:
            tile = self.tile(bias, op, row)
            shift, bias_row = self.bias(tile.tensor).shift + 1, tile.base
            bias_area = tile.block(tile.base, groups)
        inputs = [self._input(buffer, op, row) for buffer in _inputs(stage) if buffer is not bias]
        lower = COMPUTES.get(stage.operation.data)
        if lower is None:
            raise refuse("lower-operation", f"{stage.operation.data} has no instruction")
        lower(
            Execution(
                self.build,
                stage,
                inputs,
                self.tile(output, op, row),
                epilogue,
                bias_row,
                [bias_area],
                shift,
            )
        )


def _box(boxes: Boxes, row: int) -> Box:
    """One of some boxes, inside the tensor."""
    ends = zip(boxes.clamped_start[:, row], boxes.clamped_size[:, row], strict=True)
    return tuple((int(start), int(size)) for start, size in ends)


def _inputs(stage: StageOp) -> list[BufferOp]:
    """The buffers that a stage reads, in the order of its operands."""
    return [value.owner for value in stage.inputs if isinstance(value.owner, BufferOp)]


def _adds_bias(op: ComputeOp) -> bool:
    """Return True if a compute's instruction always adds a bias."""
    return op.stages[0].operation.data in ("conv", "depthwise_conv", "matmul")
