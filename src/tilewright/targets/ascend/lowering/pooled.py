"""Pools of what a convolution leaves in UB: maxima of rows of pixels, tap by tap.

The result of the convolution waits there in planes of 16 channels, each of whole rows of pixels. A
plane has room for the last rows of a tile as they leave L0C, in whole blocks of positions: what
fills these up is written over by the next tile, or is behind all rows. Padding is not stored: a tap
that would read it is left out.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.codegen.nest.value import Value, more, select
from tilewright.targets.ascend import isa
from tilewright.targets.ascend.formats import padded
from tilewright.targets.ascend.isa import WIDTHS
from tilewright.targets.ascend.kernels.vectors import REPEAT, Choice, Grid, Vectors
from tilewright.targets.ascend.lowering.epilogue import placed, room_of
from tilewright.targets.ascend.lowering.images import Convolutions, plane_room
from tilewright.targets.ascend.lowering.nest import Span, Spans
from tilewright.targets.ascend.lowering.walk import Home, Homes
from tilewright.targets.ascend.machine import BLOCK, CUBE, DaVinci
from tilewright.targets.ascend.program import Loop, Place, Statement, Tensor
from tilewright.tile.dialect import BufferOp, ComputeOp, ProgramOp

LOWEST = "-1.0f / 0.0f"
"""Minus infinity, which no maximum is below."""


class Pools(Convolutions):
    """The forms of a pool."""

    result = "c"
    blocked_dims = ("c",)

    def __init__(self, program: ProgramOp, compute: ComputeOp, core: DaVinci, homes: Homes) -> None:
        super().__init__(program, compute, core, homes)
        bits = padded(-(-self.width * CUBE // isa.LANES) * isa.LANES // 8, BLOCK)
        sizes: Mapping[str, int] = {"low": BLOCK, "end0": REPEAT, "end1": REPEAT, "bits": bits}
        room = room_of(compute, program, core)
        buffers = placed("p", room, sizes, "numbers to compare with", "half")
        buffers["bits"].element = "uint8_t"
        self.work += buffers.values()
        low, *ends, mask = map(Place, self.work)
        self.low = Grid(low, spread=True)
        self.scratch = Choice(mask, (ends[0], ends[1]))
        once = Vectors(prefix="c")
        once.fill(Grid(low), 1, BLOCK // 2, LOWEST)
        for place in ends:
            once.fill(Grid(place), 1, isa.LANES, "0.0f")
        self.before += [isa.mask_of(isa.LANES, isa.LANES), *once.body]

    def spans(self, spans: Spans) -> dict[str, Span]:
        """Channels of images and results are the same."""
        named = self.own(spans)
        return {**named, "ci": named["c"], "co": named["c"]}

    def bytes(self, op: BufferOp, spans: Spans) -> int:
        """Bytes of planes of whole rows, and of those of results."""
        named = self.own(spans)
        pixels = named["oh"].most * named["ow"].most
        if op.get("role") == "input":
            pixels = plane_room(op)
        return named["n"].most * named["c"].most * pixels * WIDTHS[self.element(op)]

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
        """The maxima of every row of results, in each image and block of channels."""
        source, target = self.homes[op.stages[0].inputs[0]], self.homes[op.output]
        small, large = self.spans(spans), self.spans(source.spans)
        if small["ow"].most < self.exact["ow"]:
            raise self.refusal("tiles of parts of an image's rows have no kernel")
        rows, room = self._rows(large), plane_room(source.op)
        image, block = Loop("e", small["n"].size), Loop("h", small["co"].size // CUBE)
        number = small["n"].start - large["n"].start + image.variable
        channel = (small["co"].start - large["co"].start) // CUBE + block.variable
        pixels = (number * (large["co"].most // CUBE) + channel) * room
        pixel = Place(source.buffer, pixels * BLOCK)
        results = image.variable * (small["co"].size // CUBE) + block.variable
        result = Place(target.buffer, results * (small["oh"].size * self.exact["ow"]) * BLOCK)

        # What is no number takes no part.
        clean = Loop("r", rows.count)
        row = Grid(pixel.at(clean.variable * (self.width * BLOCK)))
        numbers = Vectors(prefix="c")
        numbers.choose("eq", row, (row, row), (row, self.low), 1, self.width * CUBE, self.scratch)
        clean.body += numbers.body

        line = Loop("s", small["oh"].size)
        first = small["oh"].start * self.strides[0] - self.pads[0] - rows.start
        self._line(
            line,
            result.at(line.variable * (self.exact["ow"] * BLOCK)),
            pixel,
            line.variable * self.strides[0] + first,
            rows.count,
        )
        block.body += [clean, line]
        image.body.append(block)
        return [isa.mask_of(isa.LANES, isa.LANES), image]

    def _line(self, line: Loop, out: Place, pixel: Place, first: Value, count: Value) -> None:
        """A row of results; ``first`` is that of its windows' rows in UB, of which ``count`` lie
        there."""
        vectors = Vectors()
        vectors.fill(Grid(out), 1, self.exact["ow"] * CUBE, LOWEST)
        line.body += vectors.body
        stride, left = self.strides[1], self.pads[1]
        for down in range(self.exact["kh"]):
            row = first + down * self.dilations[0]
            taps = Vectors()
            for right in range(self.exact["kw"]):
                begin = right * self.dilations[1] - left
                low = max(-(begin // stride), 0)
                high = min((self.width - 1 - begin) // stride + 1, self.exact["ow"])
                if low >= high:
                    continue
                greatest = Grid(out.at(low * BLOCK))
                at = (row * self.width + (low * stride + begin)) * BLOCK
                tap = Grid(pixel.at(at), blocks=stride)
                taps.operation("vmax", greatest, (greatest, tap), 1, (high - low) * CUBE)
            if self.pads[0] or self.pads[2]:
                inside = select(more(0, row), 0, select(more(count, row), 1, 0))
                line.body.append(Loop(f"t{down}", inside, taps.body))
            else:
                line.body += taps.body
