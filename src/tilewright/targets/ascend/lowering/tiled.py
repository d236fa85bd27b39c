"""Tiles of rows and columns in UB: what kernels of the vector unit have in common.

The last two axes of an operand are its rows and columns, row by row or in Nz; of one axis it is one
row. A tile has the sizes that the tile program says. What depends on them, such as a mask, is in
the code once for each (``versions``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

from tilewright.codegen.nest.value import Value
from tilewright.ir import SSAValue
from tilewright.ir.types import element_name, layout_of
from tilewright.planning.layout import Factor, Layout
from tilewright.targets.ascend import isa
from tilewright.targets.ascend.formats import padded
from tilewright.targets.ascend.isa import ELEMENTS, WIDTHS
from tilewright.targets.ascend.lowering.cube import walked
from tilewright.targets.ascend.lowering.launches import SLACK
from tilewright.targets.ascend.lowering.nest import NOTHING, Span, Spans
from tilewright.targets.ascend.lowering.walk import PARAMETERS, Chain, Forms, Home, Homes
from tilewright.targets.ascend.machine import BLOCK, MAX_FIELD, DaVinci
from tilewright.targets.ascend.program import Loop, Place, Program, Statement, Tensor
from tilewright.tile.dialect import BufferOp, ComputeOp, ProgramOp, TensorOp, enclosing_loops


class Tiled(Forms):
    """The forms of a compute of such tiles; ``names`` are those of its operands, in order."""

    def __init__(
        self,
        program: ProgramOp,
        compute: ComputeOp,
        core: DaVinci,
        homes: Homes,
        names: Sequence[str],
    ) -> None:
        super().__init__(program, compute, core, homes)
        self.flat = "e" in program.extents
        """True if tiles are runs of elements."""
        pairs = zip(names, compute.stages[0].inputs, strict=False)
        self.values: dict[str, SSAValue] = {**dict(pairs), "out": compute.output}
        """The operands of the compute, by name."""
        out = buffer_of(compute.output)
        *outer, self.columns = out.tensor_shape
        order = [loop.dim.data for loop in enclosing_loops(compute)]
        order = [dim for dim in order if dim in out.window.dims]
        ragged = prod(outer) > 1 and self.columns * WIDTHS[self.element(out)] % BLOCK > 0
        ragged = ragged and not self.flat and not layout_of(out.tensor_op.result)
        if ragged and order != sorted(order, key=list(program.extents).index):
            raise self.refusal("rows of no whole blocks are stored one after the other")

    def extents(self) -> dict[str, int]:
        """The extents of the program."""
        return dict(self.program.extents)

    def block_of(self, dim: str) -> int:
        """The multiple of indices at which tiles along ``dim`` must begin: 1 for all dims."""
        del dim
        return 1

    def column(self, home: Home) -> Span:
        """The columns of a tile."""
        return self.tile_of(home.op, home.spans)[1]

    def element(self, op: BufferOp) -> str:
        """The element type of its tensor."""
        return kind_of(op.tensor_op)

    def parameter(self, op: TensorOp) -> tuple[str, str]:
        """The recipe's name of an operand, and its element type."""
        names = (name for name, value in self.values.items() if buffer_of(value).tensor_op is op)
        return next(names, PARAMETERS[op.role.data]), kind_of(op)

    def main_bytes(self, op: TensorOp) -> int:
        """Bytes in main memory, with those after it that copies may touch."""
        shape = op.result.type.get_shape()
        size = Layout.parse(layout_of(op.result), len(shape)).size(shape)
        return size * WIDTHS[kind_of(op)] + SLACK

    def bytes(self, op: BufferOp, spans: Spans) -> int:
        """Bytes of a tile, with what whole repeats need."""
        (rows, columns), width = self.tile_of(op, spans), WIDTHS[self.element(op)]
        if self.is_single(op):
            return padded(columns.most * width, BLOCK)
        size = rows.most * self.pitch_of(op, columns)
        return padded(size, isa.LANES * width) if self.flat else size

    def load(self, home: Home, outer: Home | Tensor) -> list[Statement]:
        """A tile from main memory."""
        return self._moved(home, outer, loads=True)

    def store(self, home: Home, outer: Home | Tensor) -> list[Statement]:
        """A tile to main memory."""
        return self._moved(home, outer, loads=False)

    def buffer(self, name: str) -> BufferOp:
        """The buffer of an operand."""
        return buffer_of(self.values[name])

    def is_single(self, op: BufferOp) -> bool:
        """Return True if an operand has one element for all columns of a row."""
        return not op.tensor_shape or op.tensor_shape[-1] < self.columns

    def tile_of(self, op: BufferOp, spans: Spans) -> tuple[Span, Span]:
        """The spans of the rows and of the columns that a buffer holds. A buffer of one element for
        each row is one row, whose columns are the rows."""
        axes = [spans[axis.dims[0]] if axis.dims else NOTHING for axis in op.window.data]
        *outer, columns = [NOTHING, NOTHING, *axes]
        rows = outer[self._row_axis(op, spans)]
        if op.tensor_shape and self.is_single(op):
            return NOTHING, rows
        return rows, columns

    def _row_axis(self, op: BufferOp, spans: Spans) -> int:
        """The number of the rows' axis among the outer axes, from -1 for the last one down: a tile
        has one index of the others."""
        outer = op.window.data[:-1]
        several = (
            number - len(outer)
            for number, axis in enumerate(outer)
            if axis.dims and spans[axis.dims[0]].most > 1
        )
        return max(several, default=-1)

    def pitch_of(self, op: BufferOp, columns: Span) -> int:
        """Bytes from row to row of a buffer."""
        width, shape = WIDTHS[self.element(op)], op.tensor_shape
        if self.flat and shape and columns.most == shape[-1]:
            return columns.most * width
        return -(-columns.most // BLOCK) * BLOCK * width

    def start_of(self, op: BufferOp, spans: Spans) -> Value:
        """Bytes from the start of a tensor to the first element of a tile; in blocks to its
        row and column of blocks."""
        layout, strides = self._layout(op)
        start: Value = 0
        for number, axis in enumerate(op.window.data):
            at: Value = axis.offset
            for dim, step in axis.terms:
                at = spans[dim].start * step + at
            # Rows of a block follow each other, and a tile begins with a column of blocks.
            last = number == len(op.window.data) - 1
            near = {
                of.divisor: step
                for of, step in zip(layout, strides, strict=True)
                if of.axis == number
            }
            block = max(near) if last else 1
            start = at // block * near[block] + start
        return start

    def height_of(self, op: BufferOp) -> int:
        """Blocks of 32 bytes from one column of blocks to the next."""
        layout, strides = self._layout(op)
        block = max(range(len(layout)), key=lambda n: (layout[n].axis, layout[n].divisor))
        return strides[block] // BLOCK

    def _layout(self, op: BufferOp) -> tuple[Sequence[Factor], Sequence[int]]:
        """The axes of a tensor in memory, and the bytes from one index of each to the next."""
        shape, width = op.tensor_shape, WIDTHS[self.element(op)]
        layout = Layout.parse(layout_of(op.tensor_op.result), len(shape))
        return layout.factors, [stride * width for stride in layout.strides(shape)]

    def _moved(self, home: Home, outer: Home | Tensor, *, loads: bool) -> list[Statement]:
        """A tile from main memory, or back: bursts of whole blocks, or copies of rows."""
        assert isinstance(outer, Tensor)
        op, local, main = (
            home.op,
            Place(home.buffer),
            Place(outer, self.start_of(home.op, home.spans)),
        )
        rows, columns = self.tile_of(op, home.spans)
        width = WIDTHS[self.element(op)]
        pitch, length = self.pitch_of(op, columns), blocks_of(columns.size, width)
        if layout_of(op.tensor_op.result):
            height = self.height_of(op)
            few = rows.most * BLOCK < columns.most * width and height <= MAX_FIELD
            loop = Loop(f"block_{home.buffer.name}", rows.size if few else length)
            near, far = (pitch, BLOCK) if few else (BLOCK, height * BLOCK)
            ends = local.at(loop.variable * near), main.at(loop.variable * far)
            if few:
                loop.body.append(move(*ends, length, 1, (height - 1, 0), loads))
            else:
                loop.body.append(move(*ends, rows.size, 1, (0, pitch // BLOCK - 1), loads))
            return [loop]
        if rows.most == 1:
            return [move(local, main, 1, length, (0, 0), loads)]
        axis = self._row_axis(op, home.spans)
        ((_, step),) = op.window.data[axis - 1].terms
        apart = step * self._layout(op)[1][axis - 1]
        if apart == pitch == columns.most * width:
            return [move(local, main, 1, rows.size * (apart // BLOCK), (0, 0), loads)]
        if apart % BLOCK == 0 and columns.most * width <= apart <= MAX_FIELD * BLOCK:
            gaps = apart // BLOCK - length, pitch // BLOCK - length
            return [move(local, main, rows.size, length, gaps, loads)]
        loop = Loop(f"row_{home.buffer.name}", rows.size)
        ends = local.at(loop.variable * pitch), main.at(loop.variable * apart)
        loop.body.append(move(*ends, 1, length, (0, 0), loads))
        return [loop]

    def first_free(self) -> int:
        """The first byte of UB after all tiles."""
        ops = [op for op in self.program.walk() if isinstance(op, BufferOp) and op.memory == "ub"]
        return max(op.get("address") + op.get("bytes") * op.places for op in ops)


def tiled_kernel(
    program: ProgramOp,
    core: DaVinci,
    name: str,
    make: Callable[[ProgramOp, ComputeOp, Homes], Forms],
    ends: Mapping[str, Value] | None = None,
    longest: int = 0,
) -> Program:
    """The kernel of a tile program in the forms that ``make`` gives, without barriers; of the dims
    of ``ends`` a launch has a count of indices that follows from ``LENGTH``, which is ``longest``
    at most."""
    homes: Homes = {}
    program = program.clone() if ends else program
    forms = Chain(program, lambda compute: make(program, compute, homes))
    return walked(program, forms, homes, core, name, ends or {}, longest if ends else 0)


def move(
    local: Place, main: Place, bursts: Value, length: Value, gaps: tuple[Value, Value], loads: bool
) -> Statement:
    """Bursts of blocks from main memory to UB, or back; gaps are those of main memory and UB."""
    if loads:
        return isa.copy(local, main, bursts, length, *gaps)
    return isa.copy(main, local, bursts, length, gaps[1], gaps[0])


def blocks_of(size: Value, width: int) -> Value:
    """The blocks of 32 bytes that ``size`` elements of ``width`` bytes take."""
    return (size * width + (BLOCK - 1)) // BLOCK


def buffer_of(value: SSAValue) -> BufferOp:
    """The buffer that a value is."""
    owner = value.owner
    assert isinstance(owner, BufferOp)
    return owner


def kind_of(op: TensorOp) -> str:
    """The element type of a tensor, as in C."""
    return ELEMENTS[element_name(op.result.type.element_type)]


def has_rows(op: BufferOp) -> bool:
    """Return True if a buffer's operand has rows of its own."""
    return len(op.tensor_shape) > 1 and bool(op.window.data[-2].dims)
