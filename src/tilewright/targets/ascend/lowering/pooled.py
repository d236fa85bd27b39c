"""Pools of images in NC1HWC0: planes of 16 channels, row by row of pixels, tap by tap.

A pixel is a block, a repeat has eight of them: a stride of the window is the operand's stride
between blocks, and a tap a place where the operand begins. Rows of results whose windows lie alike
are computed at once. Padding is not stored: a tap that would read it is left out.

Maxima of what is no number leave it out. Averages are sums of floats, which lie after the results
of a tile, and the taps as floats after them; windows at the edges may count fewer elements.

What a convolution leaves in UB waits there in planes that have room for the last rows of a tile as
they leave L0C, in whole blocks of positions: what fills these up is written over by the next tile,
or is after all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from tilewright.codegen.nest.value import Value, more, select
from tilewright.numerics.reference import axis_counts
from tilewright.targets.ascend import isa
from tilewright.targets.ascend.formats import padded
from tilewright.targets.ascend.isa import WIDTHS
from tilewright.targets.ascend.kernels.choices import LOWEST, Numbers
from tilewright.targets.ascend.kernels.vectors import ALL, Grid, Room, Vectors, number
from tilewright.targets.ascend.lowering.epilogue import room_of
from tilewright.targets.ascend.lowering.images import Convolutions, plane_room
from tilewright.targets.ascend.lowering.nest import Span, Spans
from tilewright.targets.ascend.lowering.walk import Home, Homes
from tilewright.targets.ascend.machine import BLOCK, CUBE, DaVinci
from tilewright.targets.ascend.program import Loop, Place, Statement, Tensor
from tilewright.tile.dialect import BufferOp, ComputeOp, ProgramOp

PIXEL = BLOCK
"""Bytes of a pixel of 16 halves."""


class Pools(Convolutions):
    """The forms of a pool."""

    result = "c"
    blocked_dims = ("c",)

    def __init__(self, program: ProgramOp, compute: ComputeOp, core: DaVinci, homes: Homes) -> None:
        super().__init__(program, compute, core, homes)
        anchor = compute.stages[0]
        self.numbers: Numbers | None = None
        self.before.append(ALL)
        if anchor.operation.data == "max_pool":
            bits = padded(-(-self.width * CUBE // isa.LANES) * isa.LANES // 8, BLOCK)
            first, end = room_of(compute, program, core)
            self.numbers = Numbers(Room(end, program.symbol.data, first), bits)
            self.work += self.numbers.buffers
            self.before += self.numbers.before
        parameters = {str(key): value for key, value in anchor.get("parameters", ())}
        counted = parameters.get("counted", (0,) * 4)
        assert isinstance(counted, tuple | list)
        self.counts = axis_counts(
            (self.height, self.width),
            (self.exact["kh"], self.exact["kw"]),
            *(self.strides, self.pads, self.dilations, tuple(map(int, counted))),
        )
        """The number of elements that each window counts along rows and columns."""
        alike = len({*self.counts[0].tolist()}) == 1 or self.numbers is not None
        self.alike = alike and not self.pads[0] and not self.pads[2]
        """True if the windows of all rows have all their taps, and count alike."""

    def spans(self, spans: Spans) -> dict[str, Span]:
        """Channels of images and results are the same."""
        named = self.own(spans)
        return {**named, "ci": named["c"], "co": named["c"]}

    def _plane_room(self, op: BufferOp) -> int:
        """Positions of a plane of an image's tile."""
        _, _, rows, columns = op.get("shape")
        return plane_room(op) if waits(op) else rows * columns

    def load(self, home: Home, outer: Home | Tensor) -> list[Statement]:
        """The columns of an image that windows touch, from its first on."""
        columns = home.op.get("shape")[3]
        if columns == self.width:
            return super().load(home, outer)
        assert isinstance(outer, Tensor)
        spans = self.spans(home.spans)
        rows, plane = self._rows(spans), Loop("p", spans["ci"].size // CUBE)
        channel = spans["n"].start * self.channels + spans["ci"].start // CUBE + plane.variable
        main = Place(outer, ((channel * self.height + rows.start) * self.width) * PIXEL)
        place = Place(home.buffer, plane.variable * (rows.count * columns) * PIXEL)
        plane.body.append(isa.copy(place, main, rows.count, columns, self.width - columns))
        return [plane]

    def bytes(self, op: BufferOp, spans: Spans) -> int:
        """Bytes of planes of whole rows, and of those of results, with their sums and taps."""
        named = self.own(spans)
        pixels, width = named["oh"].most * named["ow"].most, WIDTHS[self.element(op)]
        if op.get("role") == "input":
            pixels = self._plane_room(op)
        elif self.numbers is None:
            width += 8
        return named["n"].most * named["c"].most * pixels * width

    def store(self, home: Home, outer: Home | Tensor) -> list[Statement]:
        """UB to main memory."""
        assert isinstance(outer, Tensor)
        spans = self.spans(home.spans)
        count, blocks = spans["oh"].size * self.exact["ow"], spans["co"].size // CUBE
        plane = self.exact["oh"] * self.exact["ow"]
        image = Loop("e", spans["n"].size)
        at = self._plane(spans) + image.variable * (self.results * plane)
        source = Place(home.buffer, image.variable * (blocks * count * BLOCK))
        gaps = 0, plane - count
        image.body += self._planes(Place(outer, at * BLOCK), source, blocks, count, gaps)
        return [image]

    def compute(self, op: ComputeOp, spans: Spans, loops: list[Loop]) -> list[Statement]:
        """The results in each image and block of channels."""
        source, target = self.homes[op.stages[0].inputs[0]], self.homes[op.output]
        small, large = self.spans(spans), self.spans(source.spans)
        if small["ow"].most < self.exact["ow"]:
            raise self.refusal("tiles of parts of an image's rows have no kernel")
        rows, room = self._rows(large), self._plane_room(source.op)
        image, block = Loop("e", small["n"].size), Loop("h", small["co"].size // CUBE)
        number = small["n"].start - large["n"].start + image.variable
        channel = (small["co"].start - large["co"].start) // CUBE + block.variable
        wide = self.width if waits(source.op) else source.op.get("shape")[3]
        # What is loaded has no gaps between its planes.
        plane: Value = room if waits(source.op) else rows.count * wide
        pixels = number * (large["co"].most // CUBE * room) + channel * plane
        pixel = Place(source.buffer, pixels * PIXEL)
        lines, size = small["oh"], self.exact["ow"] * PIXEL
        results = image.variable * (small["co"].size // CUBE) + block.variable
        after = small["n"].most * small["co"].most // CUBE * lines.most * size
        ends = (
            Place(target.buffer, results * lines.size * size),
            Place(target.buffer, after, "float"),
            Place(target.buffer, after + 2 * lines.most * size, "float"),
        )
        if self.numbers is not None:
            clean = Loop("r", rows.count)
            row = Grid(pixel.at(clean.variable * (wide * PIXEL)))
            numbers = Vectors(prefix="c")
            self.numbers.keep(numbers, row, 1, wide * CUBE)
            clean.body += numbers.body
            block.body.append(clean)
        first = lines.start * self.strides[0] - self.pads[0] - rows.start

        def part(count: int, number: Value = 0) -> list[Statement]:
            """``count`` lines of results, from line ``number`` on."""
            out, sums, taps = ends
            places = out.at(number * size), sums, taps
            row = number * self.strides[0] + first
            return self._lines(
                count, places, Grid(pixel, wide * PIXEL), (row, rows.count), lines.start + number
            )

        fixed = all(isinstance(each, int) for each in (lines.start, lines.size, first, rows.count))
        if self.alike or fixed:
            sizes = {lines.size} if isinstance(lines.size, int) else self.sizes(self.names["oh"])
            block.body += self.versions([(lines.size, sizes)], lambda sizes: part(*sizes))
        else:
            line = Loop("s", lines.size)
            line.body += part(1, line.variable)
            block.body.append(line)
        image.body.append(block)
        return [ALL, image]

    def _lines(
        self,
        lines: int,
        places: tuple[Place, Place, Place],
        image: Grid,
        rows: tuple[Value, Value],
        start: Value,
    ) -> list[Statement]:
        """Lines of results, from ``start`` on; ``rows`` are the first that the first one's
        windows touch, of those of the image in UB, and how many lie there."""
        (out, sums, wide), (first, count) = places, rows
        columns, maximum = self.exact["ow"], self.numbers is not None
        pixels = PIXEL if maximum else 2 * PIXEL
        begin, found = Vectors(), Grid(out if maximum else sums, columns * pixels)
        begin.fill(found, lines, columns * CUBE, LOWEST if maximum else "0.0f")
        body = begin.body
        stride, left = self.strides[1], self.pads[1]
        for down in range(self.exact["kh"]):
            row = first + down * self.dilations[0]
            low_line, high_line, inside = self._inside(lines, row, count)
            vectors, several = Vectors(), high_line - low_line
            for right in range(self.exact["kw"] if several > 0 else 0):
                start_column = right * self.dilations[1] - left
                low = max(-(start_column // stride), 0)
                high = min((self.width - 1 - start_column) // stride + 1, columns)
                if low >= high:
                    continue
                size = several, (high - low) * CUBE
                to = found.at(low_line * found.pitch + low * pixels)
                line = row + low_line * self.strides[0]
                at = line * image.pitch + (low * stride + start_column) * PIXEL
                tap = Grid(image.place.at(at), self.strides[0] * image.pitch, blocks=stride)
                if maximum:
                    vectors.operation("vmax", to, (to, tap), *size)
                    continue
                widened = Grid(wide, (high - low) * pixels)
                vectors.operation("cast", widened, (tap,), *size)
                vectors.operation("vadd", to, (to, widened), *size)
            body += vectors.body if inside is None else [Loop(f"t{down}", inside, vectors.body)]
        return (
            body
            if maximum
            else [*body, *self._means(lines, Grid(out, columns * PIXEL), found, start)]
        )

    def _inside(self, lines: int, row: Value, count: Value) -> tuple[int, int, Value | None]:
        """The lines, from one to before another, of which a row of taps lies in the image, with the
        condition that it does where that is not known."""
        stride = self.strides[0]
        if isinstance(row, int) and isinstance(count, int):
            return max(-(row // stride), 0), min(-((row - count) // stride), lines), None
        if not self.pads[0] and not self.pads[2]:
            return 0, lines, None
        return 0, lines, select(more(0, row), 0, select(more(count, row), 1, 0))

    def _means(self, lines: int, out: Grid, sums: Grid, start: Value) -> list[Statement]:
        """Sums over the number of elements that windows count."""
        body: list[Statement] = []
        down, across = (_runs(counts.tolist()) for counts in self.counts)
        for first, end, high in down:
            low_line, high_line, inside = 0, lines, None
            if isinstance(start, int):
                low_line, high_line = max(first - start, 0), min(end - start, lines)
            elif len(down) > 1:
                inside = select(more(first, start), 0, select(more(end, start), 1, 0))
            vectors = Vectors()
            for left, right, wide in across if high_line > low_line else ():
                part = sums.at(low_line * sums.pitch + left * 2 * PIXEL)
                factor = number(1 / max(high * wide, 1))
                size = high_line - low_line, (right - left) * CUBE
                vectors.operation("vmuls", part, (part,), *size, factor)
            body += vectors.body if inside is None else [Loop(f"f{first}", inside, vectors.body)]
        rounded = Vectors()
        rounded.operation("cast", out, (sums,), lines, self.exact["ow"] * CUBE)
        return [*body, *rounded.body]


def waits(op: BufferOp) -> bool:
    """Return True if a buffer has what another compute leaves."""
    return op.tensor_op.role.data == "internal"


def _runs(counts: Sequence[int]) -> list[tuple[int, int, int]]:
    """Runs of equal numbers: the first of each, the one after it, and the number."""
    runs: list[tuple[int, int, int]] = []
    for value, run in groupby(counts):
        first = runs[-1][1] if runs else 0
        runs.append((first, first + len(list(run)), value))
    return runs
