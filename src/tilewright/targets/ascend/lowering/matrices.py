"""Products: matrices in Nz in main memory, L1 and UB, in Zz and Zn next to the cube.

The last two axes of an operand are a matrix's rows and columns, those before them count matrices.
A block of 16 x 16 lies in rows everywhere; an operand whose rows are summed is transposed block by
block on its way to the cube.

Of integers of 8 bits a block has 32 along the dim that is summed, which lies along the columns of
both operands: no transposition turns such blocks. Their sums are of 32 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from tilewright.codegen.nest.value import Value, least
from tilewright.errors import refuse
from tilewright.ir.types import layout_of
from tilewright.planning.layout import Layout
from tilewright.targets.ascend import isa
from tilewright.targets.ascend.formats import heads, matrices, padded
from tilewright.targets.ascend.isa import WIDTHS
from tilewright.targets.ascend.lowering.epilogue import Epilogue
from tilewright.targets.ascend.lowering.nest import NOTHING, Span, Spans, first_of
from tilewright.targets.ascend.lowering.walk import (
    Forms,
    Home,
    Homes,
    column_of,
    element_of,
    is_row,
    summed_dims,
)
from tilewright.targets.ascend.machine import BLOCK, CUBE, FRACTAL, DaVinci
from tilewright.targets.ascend.program import Loop, Place, Statement, Tensor
from tilewright.tile.dialect import BufferOp, ComputeOp, ProgramOp, WindowAttr

HEADS = (0, 2, 1, 3)
"""The order of axes in which [batch, tokens, heads, columns] lie as matrices; see ``heads``."""

Indices = dict[str, Value]
"""The index of a tile's matrix along each batch dim of which the tile has several."""


@dataclass(frozen=True)
class Axes:
    """The dims of an operand's axes; "" where an axis has one index."""

    batch: tuple[str, ...]
    rows: str
    columns: str
    extents: tuple[int, ...]
    """The extents of the batch axes."""
    height: int
    """Rows of a matrix, padded."""
    width: int
    """The number of columns, padded to whole blocks."""
    block: int = CUBE
    """Columns of a block."""

    @classmethod
    def of(cls, window: WindowAttr, shape: Sequence[int], turned: bool, block: int = CUBE) -> Axes:
        """The axes of an operand in memory, transposed if ``turned``; refuses windows
        that are no dims."""
        dims: list[str] = []
        for axis in window.data:
            if axis.offset or len(axis.terms) > 1 or any(step != 1 for _, step in axis.terms):
                raise refuse("lower-operation", f"an operand of a product reads [{axis}]")
            dims.append(axis.terms[0][0] if axis.terms else "")
        *batch, rows, columns = dims
        *counts, height, width = shape
        if turned:
            rows, columns, height, width = columns, rows, width, height
        high, wide = padded(height), padded(width, block)
        return cls(tuple(batch), rows, columns, tuple(counts), high, wide, block)


def span(spans: Spans, dim: str, block: int = CUBE) -> Span:
    """The span of an axis."""
    return spans[dim] if dim else Span(NOTHING.start, block, block)


class Products(Forms):
    """The forms of a product."""

    def __init__(self, program: ProgramOp, compute: ComputeOp, core: DaVinci, homes: Homes) -> None:
        super().__init__(program, compute, core, homes)
        self.epilogue = Epilogue.of(compute, self)
        self.exact: dict[str, Value] = {**program.extents}
        """Extents; of a dim that is summed, a launch's own length where it has one."""
        self.turned: set[str] = set()
        """Tensors that lie with rows and columns exchanged."""
        self.orders: dict[str, tuple[int, ...]] = {}
        """The axes of tensors that lie in the order batch, rows, columns, where that is not
        theirs."""
        for name, (tensor, role) in self.operands.items():
            rank = len(tensor.result.type.get_shape())
            if is_row(tensor):
                continue
            layout = Layout.parse(layout_of(tensor.result), rank)
            bytes_each = WIDTHS[element_of(tensor)]
            blocks = matrices(rank, element_bytes=bytes_each) if rank > 1 else None
            turnable = role in ("input", "weight") and not self.integers
            if rank > 1 and layout == matrices(rank, turned=True) and turnable:
                self.turned.add(name)
            elif rank == 4 and layout == Layout.parse(heads(), rank):
                self.orders[name] = HEADS
            elif tensor.role.data == "internal" and layout == matrices(rank):
                continue
            elif bytes_each > 2 or layout != blocks:
                raise refuse("lower-operation", f"{name} lies in {layout}")
        self.axes: dict[str, Axes] = {}
        """Axes by the names of tensors."""
        for op in program.walk():
            name = op.tensor_op.symbol.data if isinstance(op, BufferOp) else ""
            if isinstance(op, BufferOp) and name in self.operands and not is_row(op.tensor_op):
                block = max(BLOCK // WIDTHS[element_of(op.tensor_op)], CUBE)
                order = self.orders.get(name, range(len(op.tensor_shape)))
                window = WindowAttr(tuple(op.window.data[axis] for axis in order))
                shape = [op.tensor_shape[axis] for axis in order]
                self.axes[name] = Axes.of(window, shape, name in self.turned, block)
        sides = [dim for axes in self.axes.values() for dim in (axes.rows, axes.columns)]
        self.dims = {dim for dim in sides if dim}
        self.summed = next(iter(summed_dims(compute)), "")
        self.own = compute.dims

    def extents(self) -> dict[str, int]:
        """Extents, those of rows and columns padded."""
        extents = self.program.extents
        return {dim: padded(extents[dim], self.block_of(dim)) for dim in self.own}

    def block(self, dim: str) -> int:
        """Indices of a block: 16, of integers 32 along what is summed."""
        return 2 * CUBE if self.integers and dim == self.summed else CUBE

    def block_of(self, dim: str) -> int:
        """The multiple of indices at which tiles along a dim must begin: a block of rows or
        columns, else 1."""
        return self.block(dim) if dim in self.dims else 1

    def column(self, home: Home) -> Span:
        """The columns of a row's last axis."""
        return span(home.spans, column_of(home.op))

    def bytes(self, op: BufferOp, spans: Spans) -> int:
        """Bytes of whole matrices."""
        width = WIDTHS[self.element(op)]
        if is_row(op.tensor_op):
            return span(spans, column_of(op)).most * width
        axes = self._axes(op)
        count = prod(spans[dim].most for dim in axes.batch if dim)
        size = span(spans, axes.rows).most * span(spans, axes.columns, axes.block).most
        return count * size * width

    def _axes(self, op: BufferOp) -> Axes:
        return self.axes[op.tensor_op.symbol.data]

    # Moves.

    def load(self, home: Home, outer: Home | Tensor) -> list[Statement]:
        """Main memory to L1 and UB, and L1 to L0."""
        if is_row(home.op.tensor_op):
            return self.load_row(home, outer)
        if isinstance(outer, Tensor):
            return self._copy(home, outer, inwards=True)
        return self._fractals(home, outer)

    def store(self, home: Home, outer: Home | Tensor) -> list[Statement]:
        """L0C to UB with what follows the product, and UB to main memory."""
        if isinstance(outer, Tensor):
            return self._copy(home, outer, inwards=False)
        if home.memory == "ub":
            return self._handed_on(home, outer)
        axes, spans = self._axes(home.op), home.spans
        rows, columns = span(spans, axes.rows), span(spans, axes.columns)
        batch, most = self._count(axes, spans)
        blocks = columns.size // CUBE * batch
        source, target = Place(home.buffer), Place(outer.buffer)
        if self.integers:
            sizes = (rows.size, rows.most), (batch, most)
            return self.epilogue.dequantised(target, source, columns, *sizes)
        if any(outer.spans[dim].most != spans[dim].most for dim in self.own if dim != self.summed):
            return self._gathered(home, outer)
        mode = "CRMODE_NONE" if outer.buffer.element == "float" else self.epilogue.mode
        copy = isa.cc_to_ub(target, source, blocks, rows.size // CUBE, mode)
        sizes = (rows.size, rows.most), (batch, most)
        return [copy, *self.epilogue.statements(target, columns, *sizes)]

    def _count(self, axes: Axes, spans: Spans) -> tuple[Value, int]:
        """Return the number of matrices of a tile, now and at most."""
        count: Value = 1
        for dim in axes.batch:
            if dim and spans[dim].most > 1:
                count = spans[dim].size * count
        return count, prod(spans[dim].most for dim in axes.batch if dim)

    def _gathered(self, home: Home, outer: Home) -> list[Statement]:
        """A tile of the result on its way to where all of a row waits in UB."""
        axes, spans, whole = self._axes(home.op), home.spans, outer.spans
        rows, columns = span(spans, axes.rows), span(spans, axes.columns)
        high, wide = span(whole, axes.rows), span(whole, axes.columns)
        width = WIDTHS[outer.buffer.element]
        mode = "CRMODE_NONE" if width == 4 else self.epilogue.mode
        blocks, row = columns.size // CUBE, (rows.start - high.start) * CUBE
        column = (columns.start - wide.start) * high.size
        gap = (high.size - rows.size) * (CUBE * width // BLOCK)

        def copy(indices: Indices) -> list[Statement]:
            matrix_start = self._matrix(axes, spans, indices, whole) * (wide.size * high.size)
            here = self._matrix(axes, spans, indices, spans) * (columns.size * rows.size)
            target = Place(outer.buffer, (column + row + matrix_start) * width)
            source = Place(home.buffer, here * 4)
            return [isa.cc_to_ub(target, source, blocks, rows.size // CUBE, mode, gap)]

        return self._matrices(axes, spans, copy)

    def _handed_on(self, home: Home, outer: Home) -> list[Statement]:
        """A tile of the result on its way from UB to where it waits in L1."""
        axes, spans, whole = self._axes(home.op), home.spans, outer.computed
        rows, columns = span(spans, axes.rows), span(spans, axes.columns)
        pitch, width = span(whole, axes.rows).most, span(whole, axes.columns).size // CUBE
        column = (columns.start - span(whole, axes.columns).start) // CUBE
        row = rows.start - span(whole, axes.rows).start
        blocks = columns.size // CUBE

        def copy(indices: Indices) -> list[Statement]:
            matrix_start = self._matrix(axes, spans, indices, whole) * (width * pitch)
            here = self._matrix(axes, spans, indices, spans) * (blocks * rows.size)
            target = Place(outer.buffer, (column * pitch + row + matrix_start) * BLOCK)
            source = Place(home.buffer, here * BLOCK)
            return [isa.copy(target, source, blocks, rows.size, 0, pitch - rows.size)]

        return self._matrices(axes, spans, copy)

    def _copy(self, home: Home, tensor: Tensor, *, inwards: bool) -> list[Statement]:
        """Between main memory and a buffer in Nz; L1's blocks of columns keep their distance."""
        axes, spans = self._axes(home.op), home.spans
        rows, columns = span(spans, axes.rows), span(spans, axes.columns, axes.block)
        pitch: Value = rows.most if home.memory == "cbuf" else rows.size
        gaps = axes.height - rows.size, pitch - rows.size
        bursts = columns.size // axes.block

        def copy(indices: Indices) -> list[Statement]:
            matrix = self._matrix(axes, spans, indices)
            local = self._matrix(axes, spans, indices, spans)
            column = (columns.start // axes.block) * axes.height
            row = rows.start
            at = (column + row + matrix * (axes.width // axes.block * axes.height)) * BLOCK
            inner = Place(home.buffer, local * (columns.size // axes.block * pitch * BLOCK))
            main = Place(tensor, at)
            ends = (inner, main) if inwards else (main, inner)
            source_gap, target_gap = gaps if inwards else gaps[::-1]
            sizes = bursts, rows.size, source_gap, target_gap
            return [isa.copies(*ends, *sizes, axes.height)]

        return self._matrices(axes, spans, copy)

    def _matrices(
        self, axes: Axes, spans: Spans, make: Callable[[Indices], list[Statement]]
    ) -> list[Statement]:
        """Statements for every matrix of a tile."""
        outer: list[Statement] = []
        body = outer
        indices: Indices = {}
        for number, dim in enumerate(axes.batch):
            if dim and spans[dim].most > 1:
                loop = Loop(f"e{number}", spans[dim].size)
                body.append(loop)
                body, indices[dim] = loop.body, loop.variable
        body += make(indices)
        return outer

    def _matrix(
        self, axes: Axes, spans: Spans, indices: Indices, outer: Spans | None = None
    ) -> Value:
        """The number of a tile's matrix, in a buffer that holds those of the spans ``outer``, or in
        the tensor."""
        number: Value = 0
        for dim, extent in zip(axes.batch, axes.extents, strict=True):
            if not dim:
                continue
            start, count = spans[dim].start, outer[dim].size if outer is not None else extent
            if outer is not None:
                start = start - outer[dim].start
            number = number * count + (start + indices.get(dim, 0))
        return number

    def _fractals(self, home: Home, outer: Home) -> list[Statement]:
        """L1 to L0A or L0B, block row by block row of what is made."""
        axes, spans = self._axes(home.op), home.spans
        left, block = home.memory == "ca", axes.block
        rows, columns = span(spans, axes.rows), span(spans, axes.columns, block)
        row = (rows.start - span(outer.spans, axes.rows).start) // CUBE
        within = span(outer.spans, axes.columns, block)
        column = (columns.start - within.start) // block
        pitch = span(outer.spans, axes.rows).most // CUBE
        size = within.size // block * pitch
        # What is summed lies along columns of Zz and rows of Zn; a block transposed turns it.
        along_rows = axes.rows == self.summed
        count = columns.size // block, rows.size // CUBE
        i = Loop("i", count[0] if along_rows == left else count[1])
        repeat = count[1] if along_rows == left else count[0]
        if left == along_rows:
            at, stride = (column + i.variable) * pitch + row, 1
        else:
            at, stride = column * pitch + (row + i.variable), pitch
        transpose = along_rows

        def load(indices: Indices) -> list[Statement]:
            matrix = self._matrix(axes, spans, indices, outer.spans)
            source = Place(outer.buffer, (matrix * size + at) * FRACTAL)
            offset = (
                self._matrix(axes, spans, indices, spans)
                * (rows.size // CUBE * (columns.size // block))
            ) * FRACTAL
            target = Place(home.buffer, i.variable * repeat * FRACTAL + offset)
            i.body.append(isa.load(target, source, repeat, stride, transpose=transpose))
            return [i]

        return self._matrices(axes, spans, load)

    # Products.

    def compute(self, op: ComputeOp, spans: Spans, loops: list[Loop]) -> list[Statement]:
        """One ``mad`` for each matrix of the tile."""
        values = (*op.stages[0].inputs[:2], op.output)
        left, right, sums = (self.homes[value] for value in values)
        a, b, c = (self._axes(home.op) for home in (left, right, sums))
        rows, columns = span(spans, c.rows), span(spans, c.columns)
        depth = spans[self.summed]
        n0, exact = depth.size, self.exact[self.summed]
        if not isinstance(exact, int) or exact % self.block(self.summed):
            n0 = least(n0, exact - depth.start)
        first = first_of(loops)

        def product(indices: Indices) -> list[Statement]:
            def part(home: Home, of: Axes, size: Value) -> Place:
                number = self._matrix(of, spans, indices, home.spans)
                return Place(home.buffer, number * (size * WIDTHS[self.element(home.op)]))

            return [
                isa.mad(
                    part(sums, c, rows.size * columns.size),
                    part(left, a, rows.size * depth.size),
                    part(right, b, depth.size * columns.size),
                    rows.size,
                    n0,
                    columns.size,
                    first,
                    int(self.core.barrier_blocks),
                )
            ]

        return self._matrices(c, spans, product)
