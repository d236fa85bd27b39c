"""Moves of elements, from their tile programs: transposes, slices, changes of format, look-ups and
padding.

A tile lies row by row in UB, whatever the orders in main memory are. Tiles whose operands have the
same innermost dim are copied there; others are transposed, 16 x 16 elements at a time.

Within a block of Nz a row of 16 elements is 32 contiguous bytes, as it is in row-major order, so
that rows of matrices become Nz, and rows again, by copies in bursts of one block.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tilewright.codegen.nest.value import Value, equal, greatest, least, more, select, variable
from tilewright.ir.types import layout_of
from tilewright.planning.domain import Kernel
from tilewright.targets.ascend import isa
from tilewright.targets.ascend.formats import padded
from tilewright.targets.ascend.isa import WIDTHS
from tilewright.targets.ascend.kernels.transposing import (
    GROUP,
    SCRATCH,
    SIDE,
    turn_floats,
    turn_halves,
)
from tilewright.targets.ascend.kernels.vectors import (
    ALL,
    REPEAT,
    Grid,
    Vectors,
    fill,
    number,
)
from tilewright.targets.ascend.lowering.launches import SLACK, Launches
from tilewright.targets.ascend.lowering.nest import Span, Spans, when
from tilewright.targets.ascend.lowering.tiled import Tiled, blocks_of, tiled_kernel
from tilewright.targets.ascend.lowering.walk import Home, Homes
from tilewright.targets.ascend.machine import BLOCK, CUBE, MAX_REPEAT, DaVinci
from tilewright.targets.ascend.program import (
    Barrier,
    Buffer,
    Loop,
    Place,
    Statement,
    Tensor,
    element_at,
    scalar,
)
from tilewright.targets.ascend.vector_primitives import BESIDE
from tilewright.tile.dialect import BufferOp, ComputeOp, ProgramOp, TensorOp


class Moved(Tiled):
    """The forms of a move by copies or transposes."""

    whole_tiles = True

    def __init__(self, core: DaVinci, program: ProgramOp, compute: ComputeOp, homes: Homes) -> None:
        super().__init__(program, compute, core, homes, ("x",))
        x, out = (self.buffer(name) for name in ("x", "out"))
        self.turned = x.window.data[-1].dims != out.window.data[-1].dims
        self.width = WIDTHS[self.element(out)]
        self.side = SIDE if self.width == 4 else CUBE
        self.group = CUBE if layout_of(out.tensor_op.result) else 1
        """The columns of a result that are written together, however many there are."""
        self.scratch: Buffer | None = None

    def is_single(self, op: BufferOp) -> bool:
        """No: operands have as many elements as each other."""
        del op
        return False

    def bytes(self, op: BufferOp, spans: Spans) -> int:
        """Bytes of a tile; of one that is transposed, whole blocks of rows."""
        rows, columns = self.tile_of(op, spans)
        return padded(rows.most, self.side if self.turned else 1) * self.pitch_of(op, columns)

    def pitch_of(self, op: BufferOp, columns: Span) -> int:
        """Whole blocks; of what is transposed, whole squares of elements."""
        size = padded(columns.most, SIDE) if self.turned else columns.most
        return padded(size * self.width, BLOCK)

    @property
    def _is_exact(self) -> bool:
        """True if rows are no whole blocks, but the last block of a tile ends with the row: nothing
        is written after it."""
        return self.turned and self.width == 2 and self.program.extents.get("w", 0) >= CUBE

    def ended(self, spans: Spans) -> Spans:
        """The spans of a tile of rows that are no whole blocks. The last part of an exact one has a
        block at least. Others come from the last to the first: what is written after a row the
        first part of the next overwrites."""
        whole = self.program.extents.get("w", 0)
        if not whole or (step := spans["w"].most) == whole:
            return spans
        at = spans["w"]
        if self._is_exact:
            start = least(at.start, whole - CUBE)
            return {**spans, "w": Span(start, at.start + at.size - start, step)}
        start = (whole - 1) // step * step - at.start
        return {**spans, "w": Span(start, least(step, whole - start), step)}

    def load(self, home: Home, outer: Home | Tensor) -> list[Statement]:
        """A tile from main memory."""
        return super().load(replace(home, spans=self.ended(home.spans)), outer)

    def store(self, home: Home, outer: Home | Tensor) -> list[Statement]:
        """A tile to main memory."""
        home = replace(home, spans=self.ended(home.spans))
        if not self._is_exact:
            return super().store(home, outer)
        assert isinstance(outer, Tensor)
        main, length = Place(outer, self.start_of(home.op, home.spans)), self.program.extents["w"]
        rows, columns = self.tile_of(home.op, home.spans)
        pitch = self.pitch_of(home.op, columns)

        def rows_of(local: int, at: int, blocks: int) -> Loop:
            """Copy ``blocks`` blocks of each row, from block ``local`` in UB to element ``at``."""
            loop = Loop("row", rows.size)
            place = Place(home.buffer, loop.variable * pitch + local * BLOCK)
            to = main.at(loop.variable * (length * 2) + at * 2)
            loop.body.append(isa.copy(to, place, 1, blocks))
            return loop

        def part(sizes: tuple[int, ...]) -> list[Statement]:
            whole, rest = divmod(sizes[0], CUBE)
            body: list[Statement] = [rows_of(0, 0, whole)]
            if rest:
                body += [Barrier("MTE3"), rows_of(whole, sizes[0] - CUBE, 1)]
            return body

        return self.versions([(columns.size, self._sizes("out"))], part)

    def compute(self, op: ComputeOp, spans: Spans, loops: list[Loop]) -> list[Statement]:
        """The tile of the result from that of the source."""
        spans = self.ended(spans)
        x, out = self.homes[self.values["x"]], self.homes[op.output]
        rows, columns = self.tile_of(out.op, spans)
        ends = Place(out.buffer), Place(x.buffer)
        if not self.turned:
            length = blocks_of(columns.size, self.width)
            gap = self.pitch_of(out.op, columns) // BLOCK - length
            return [isa.copy(*ends, rows.size, length, gap, gap)]
        pitches = self.pitch_of(out.op, columns), self.pitch_of(x.op, rows)
        lengths, group = self._sizes("out"), GROUP if self.width == 4 else self.group
        if any(size % group for size in lengths) and not self.before:
            # Rows that no load brings are transposed, too, and have to be numbers.
            slots = replace(x.buffer, name="x_slots", bytes=x.buffer.bytes * x.buffer.slots)
            slots = replace(slots, slots=1, slot=0, scope=None)
            self.work.append(slots)
            self.before += [ALL, fill(Place(slots), -(-slots.bytes // REPEAT), "z"), Barrier("ALL")]
        if self.width == 4 and not self.scratch:
            self.scratch = Buffer("scratch", "ub", self.first_free(), SCRATCH, element="float")
            self.work.append(self.scratch)

        def tile(sizes: tuple[int, ...]) -> list[Statement]:
            vectors, (high, wide) = Vectors(), sizes
            if self._is_exact and high % CUBE:
                near, far = ends[0].at(high // CUBE * BLOCK), ends[1].at((high - CUBE) * pitches[1])
                self._turn(vectors, near, far, pitches, CUBE, wide)
                high -= high % CUBE
            self._turn(vectors, *ends, pitches, padded(high, group), wide)
            return vectors.body

        several = (columns.size, lengths), (rows.size, self._sizes("x"))
        return self.versions(several, tile)

    def _sizes(self, name: str) -> set[int]:
        """The sizes of tiles along the innermost dim of an operand."""
        dims = self.buffer(name).window.data[-1].dims
        sizes = self.sizes(dims[0]) if dims else {1}
        return {max(size, CUBE) for size in sizes} if self._is_exact and dims == ("w",) else sizes

    def _turn(
        self,
        vectors: Vectors,
        out: Place,
        source: Place,
        pitches: tuple[int, int],
        rows: int,
        columns: int,
    ) -> None:
        """Transpose ``rows`` rows and ``columns`` columns of the source, some columns at a time."""
        side, (pitch, other) = self.side, pitches
        most = side if self.width == 4 else CUBE * MAX_REPEAT
        whole = columns // side * side
        for first, count in ((0, whole // side), (whole, int(whole < columns))):
            size = min(side, columns - first)
            for top in range(0, rows, most) if count else ():
                with vectors.loop(count) as number:
                    left = number * side + first
                    to = out.at(left * pitch + top * self.width)
                    part = source.at(left * self.width + top * other)
                    high = min(most, rows - top)
                    if self.width == 2:
                        turn_halves(vectors, to, part, pitches, high, size)
                        continue
                    assert self.scratch is not None
                    groups = -(-high // GROUP), -(-size // GROUP)
                    turn_floats(vectors, to, part, Place(self.scratch), pitches, groups)


class LookedUp(Moved):
    """The forms of a look-up of rows of a table by the indices of ``indices``."""

    def __init__(
        self,
        core: DaVinci,
        extent: int,
        indices: Tensor,
        program: ProgramOp,
        compute: ComputeOp,
        homes: Homes,
    ) -> None:
        super().__init__(core, program, compute, homes)
        self.extent, self.indices = extent, indices

    def load(self, home: Home, outer: Home | Tensor) -> list[Statement]:
        """A row of the table for each index: a negative one counts from the end, and what is out
        of range is cut, so no index reads outside of the table. Nothing else depends on it
        (look_ups.py)."""
        assert isinstance(outer, Tensor)
        spans, width = self.ended(home.spans), self.width
        rows, columns = self.tile_of(home.op, spans)
        loop = Loop("row", rows.size)
        given, wrapped, kept, at = (variable(word) for word in ("given", "wrapped", "kept", "at"))
        table: Value = spans["d0"].start if "d0" in spans else 0
        length = home.op.tensor_shape[-1]
        main = ((table * self.extent + at) * length + columns.start) * width
        pitch = self.pitch_of(home.op, columns)
        inner = Place(home.buffer, loop.variable * pitch)
        loop.body += [
            scalar(
                "given",
                element_at(self.indices, rows.start + loop.variable),
                int(self.core.latency),
            ),
            scalar("wrapped", select(more(0, given), given + self.extent, given)),
            scalar("kept", greatest(wrapped, 0)),
            scalar("at", least(kept, self.extent - 1)),
            isa.copy(inner, Place(outer, main), 1, blocks_of(columns.size, width)),
        ]
        return [loop]

    def main_bytes(self, op: TensorOp) -> int:
        """Bytes in main memory, of the whole table."""
        count = op.result.type.get_shape()[-2] if op.role.data != "output" else 1
        rows = 1 if op.role.data == "output" else self.extent
        return super().main_bytes(op) // count * rows + SLACK


class Padded(Moved):
    """The forms of a padding with a number: runs of it around those of the source.

    Runs are stored in ascending order: what is written after one the next overwrites."""

    def __init__(
        self,
        core: DaVinci,
        value: str,
        program: ProgramOp,
        compute: ComputeOp,
        homes: Homes,
    ) -> None:
        super().__init__(core, program, compute, homes)
        x, out = self.buffer("x"), self.buffer("out")
        self.count, self.length = x.tensor_shape[-1], out.tensor_shape[-1]
        self.first = -x.window.data[-1].offset
        outer = zip(x.window.data[:-1], x.tensor_shape, out.tensor_shape, strict=False)
        self.outer = [(axis, inner) for axis, inner, extent in outer if inner < extent]
        """The outer axes that are padded, and how many indices the source has."""
        longest = max(self.first, self.length - self.count - self.first)
        self.most = min(self.length if self.outer else longest, BESIDE // self.width)
        size = padded(self.most * self.width, BLOCK)
        self.alike = Buffer("alike", "ub", self.first_free(), size, element=self.element(out))
        vectors = Vectors(prefix="c")
        vectors.fill(Grid(Place(self.alike)), 1, self.most, f"({value})")
        self.before += [ALL, *vectors.body]
        self.work.append(self.alike)

    def bytes(self, op: BufferOp, spans: Spans) -> int:
        """Bytes of a run of the source."""
        del op, spans
        return padded(self.count * self.width, BLOCK)

    def _inside(self, spans: Spans) -> Value:
        """The condition that a run has elements of the source."""
        inside: Value = 1
        for axis, extent in self.outer:
            at = spans[axis.dims[0]].start + axis.offset
            inside = select(more(0, at), 0, select(more(extent, at), inside, 0))
        return inside

    def load(self, home: Home, outer: Home | Tensor) -> list[Statement]:
        """A run of the source."""
        assert isinstance(outer, Tensor)
        main = Place(outer, self.start_of(home.op, home.spans) + self.first * self.width)
        copy = isa.copy(Place(home.buffer), main, 1, blocks_of(self.count, self.width))
        return when("inside", self._inside(home.spans), [copy])

    def compute(self, op: ComputeOp, spans: Spans, loops: list[Loop]) -> list[Statement]:
        """The run as it is."""
        x, out = self.homes[self.values["x"]], self.homes[op.output]
        length = blocks_of(self.count, self.width)
        copy = isa.copy(Place(out.buffer), Place(x.buffer), 1, length)
        return when("inside", self._inside(spans), [copy])

    def store(self, home: Home, outer: Home | Tensor) -> list[Statement]:
        """Store the padding before the run, the run, and the padding after it; or padding alone."""
        assert isinstance(outer, Tensor)
        main = Place(outer, self.start_of(home.op, home.spans))
        end, inside = self.first + self.count, self._inside(home.spans)
        target = main.at(self.first * self.width)
        run = isa.copy(target, Place(home.buffer), 1, blocks_of(self.count, self.width))
        after = self._filled(main, end, self.length)
        body = when("inside", inside, [*self._filled(main, 0, self.first), run, *after])
        if isinstance(inside, int):
            return body
        return [*body, *when("outside", equal(inside, 0), self._filled(main, 0, self.length))]

    def _filled(self, main: Place, first: int, end: int) -> list[Statement]:
        """The number in place of some elements."""
        return [
            isa.copy(
                *(main.at(at * self.width), Place(self.alike), 1),
                blocks_of(min(self.most, end - at), self.width),
            )
            for at in range(first, end, max(self.most, 1))
        ]


def moved(launches: Launches, program: ProgramOp, original: Kernel) -> None:
    """The launch of a kernel that moves elements: its tile program."""
    anchor, core = launches.kernel.anchor, launches.core
    source, *indices = original.anchor.inputs
    x, result = launches.operand(source), launches.result()
    if x.element != result.element or not anchor.extents.keys() & {"r", "c", "w"}:
        near, far = (each.layout or "rows" for each in (source, original.output))
        raise launches.refusal(
            f"{anchor.operation} from {x.element} in {near} to {result.element} in {far} has no "
            "kernel"
        )
    pads = anchor.attribute("pads", ())
    name, ends = launches.name(anchor.operation), (launches.ends, launches.longest)
    if anchor.operation == "gather":
        places = launches.operand(indices[0], indices=True)
        at = Tensor("i", places.argument.bytes, places.element)
        axis = next(
            n for n, of in enumerate(source.access) if {*of.dims} & {*original.anchor.reduction}
        )
        made = tiled_kernel(program, core, name, partial(LookedUp, core, source.shape[axis], at))
        table, out = made.tensors
        launches.launch(replace(made, tensors=(table, at, out)), x, places, result)
        return
    if isinstance(pads, tuple) and any(pads):
        value = number(float(str(anchor.attribute("value", 0.0))))
        made = tiled_kernel(program, core, name, partial(Padded, core, value))
    else:
        made = tiled_kernel(program, core, name, partial(Moved, core), *ends)
    launches.launch(made, x, result)
