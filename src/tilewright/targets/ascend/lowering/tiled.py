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
from tilewright.targets.ascend import isa
from tilewright.targets.ascend.formats import padded
from tilewright.targets.ascend.isa import ELEMENTS, WIDTHS
from tilewright.targets.ascend.kernels.transfers import SLACK, move
from tilewright.targets.ascend.lowering.cube import walked
from tilewright.targets.ascend.lowering.nest import NOTHING, Span, Spans
from tilewright.targets.ascend.lowering.walk import PARAMETERS, Chain, Forms, Home, Homes
from tilewright.targets.ascend.machine import BLOCK, CUBE, DaVinci
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
        """Operands by name."""
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
        """One: tiles begin at any index."""
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
        """Bytes in main memory, with those behind it that copies may touch."""
        shape = op.result.type.get_shape()
        size = prod(shape)
        if layout_of(op.result):
            size = prod(shape[:-2]) * padded(shape[-2]) * padded(shape[-1])
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

    def is_single(self, op: BufferOp) -> bool:
        """Return True if an operand has one element for all columns of a row."""
        return not op.tensor_shape or op.tensor_shape[-1] < self.columns

    def tile_of(self, op: BufferOp, spans: Spans) -> tuple[Span, Span]:
        """The rows and the columns that a buffer holds; of one element a row the rows are its
        columns."""
        axes = [spans[axis.dims[0]] if axis.dims else NOTHING for axis in op.window.data]
        rows, columns = [NOTHING, NOTHING, *axes][-2:]
        if op.tensor_shape and self.is_single(op):
            return NOTHING, rows
        return rows, columns

    def pitch_of(self, op: BufferOp, columns: Span) -> int:
        """Bytes from row to row of a buffer."""
        width, shape = WIDTHS[self.element(op)], op.tensor_shape
        if self.flat and shape and columns.most == shape[-1]:
            return columns.most * width
        return -(-columns.most // BLOCK) * BLOCK * width

    def _moved(self, home: Home, outer: Home | Tensor, *, loads: bool) -> list[Statement]:
        """A tile from main memory, or back: bursts of whole blocks, or copies of rows."""
        assert isinstance(outer, Tensor)
        op, local = home.op, Place(home.buffer)
        rows, columns = self.tile_of(op, home.spans)
        width, shape = WIDTHS[self.element(op)], op.tensor_shape
        starts = [home.spans[axis.dims[0]].start if axis.dims else 0 for axis in op.window.data]
        pitch, blocks = self.pitch_of(op, columns), bool(layout_of(op.tensor_op.result))
        inner = list(map(padded, shape[-2:])) if blocks else shape[-2:]
        start: Value = 0
        step = width
        for at, size in zip(reversed(starts), reversed((*shape[:-2], *inner)), strict=True):
            start = start + (0 if blocks and step < prod(inner) * width else at * step)
            step *= size
        if blocks:
            loop = Loop(f"block_{home.buffer.name}", (columns.size + (CUBE - 1)) // CUBE)
            block = columns.start // CUBE + loop.variable
            main = Place(outer, start + block * (inner[0] * BLOCK) + rows.start * BLOCK)
            part, gaps = local.at(loop.variable * BLOCK), (0, pitch // BLOCK - 1)
            loop.body.append(move(part, main, rows.size, 1, gaps, loads))
            return [loop]
        main, apart = Place(outer, start), (shape[-1] if shape else 1) * width
        length: Value = (columns.size * width + (BLOCK - 1)) // BLOCK
        if rows.most == 1:
            return [move(local, main, 1, length, (0, 0), loads)]
        if apart == pitch:
            return [move(local, main, 1, rows.size * (apart // BLOCK), (0, 0), loads)]
        if apart % BLOCK == 0:
            gaps = apart // BLOCK - length, pitch // BLOCK - length
            return [move(local, main, rows.size, length, gaps, loads)]
        loop = Loop(f"row_{home.buffer.name}", rows.size)
        ends = local.at(loop.variable * pitch), main.at(loop.variable * apart)
        loop.body.append(move(*ends, 1, length, (0, 0), loads))
        return [loop]

    def first_free(self) -> int:
        """The first byte of UB behind all tiles."""
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
    of ``ends`` a launch has so many indices, by ``LENGTH``, which is ``longest`` at most."""
    homes: Homes = {}
    program = program.clone() if ends else program
    forms = Chain(program, lambda compute: make(program, compute, homes))
    return walked(program, forms, homes, core, name, ends or {}, longest if ends else 0)


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
