"""Convolutions: images in NC1HWC0, weights in FRACTAL_Z, a product of each tap next to the cube.

L1 holds whole rows of an image, those that a tile's windows touch; what lies outside of the image
is padding that img2col knows of, and takes no room. L0A holds a row of 16 channels for each
position and tap, in the order of L0B's rows: 16 channels at a time, then taps by row and column.

Channels come padded to blocks of 16. Weights have zeros there, and images finite numbers. Of
integers of 8 bits a block has 32 channels of the image, and 16 of the result, whose halves are what
the sums are worth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tilewright.codegen.nest.value import Value
from tilewright.ir.types import layout_of
from tilewright.machine.dims import DIMS
from tilewright.targets.ascend import isa
from tilewright.targets.ascend.formats import convolution_weight, image, padded
from tilewright.targets.ascend.isa import WIDTHS
from tilewright.targets.ascend.kernels.vectors import fill
from tilewright.targets.ascend.lowering.epilogue import Epilogue
from tilewright.targets.ascend.lowering.nest import Span, Spans, first_of
from tilewright.targets.ascend.lowering.walk import (
    Forms,
    Home,
    Homes,
    element_of,
    is_row,
)
from tilewright.targets.ascend.lowering.windows import Rows, touched
from tilewright.targets.ascend.machine import BLOCK, CUBE, FRACTAL, DaVinci
from tilewright.targets.ascend.program import Barrier, Buffer, Loop, Place, Statement, Tensor
from tilewright.tile.dialect import BufferOp, ComputeOp, ProgramOp, StageOp


class Convolutions(Forms):
    """The forms of a convolution."""

    result = "co"
    """The dim of the results' channels."""
    blocked_dims: tuple[str, ...] = ("co", "ci")

    def __init__(self, program: ProgramOp, compute: ComputeOp, core: DaVinci, homes: Homes) -> None:
        super().__init__(program, compute, core, homes)
        self.epilogue = Epilogue.of(compute, self)
        anchor: StageOp = compute.stages[0]
        names = {dim: compute.dim_names.get(dim, dim) for dim in DIMS[anchor.operation.data]}
        self.names = {dim: name for dim, name in names.items() if name in program.extents}
        """The program's names of the convolution's dims."""
        self.exact = {dim: program.extents[name] for dim, name in self.names.items()}
        for name, (op, role) in self.operands.items():
            width = WIDTHS[element_of(op)]
            wanted = convolution_weight(width) if role == "weight" else image(width)
            if is_row(op) or (role == "weight" and self.result == "c"):
                continue
            if layout_of(op.result) != wanted:
                raise self.refusal(f"{name} lies in {layout_of(op.result) or 'rows'}")
        parameters = {str(key): value for key, value in anchor.get("parameters", ())}
        self.strides = self._pair(parameters, "strides")
        self.dilations = self._pair(parameters, "dilations")
        pads = parameters.get("pads", (0, 0, 0, 0))
        assert isinstance(pads, tuple | list)
        self.pads = tuple(int(pad) for pad in pads)
        """Above, left, below, right."""
        owner = anchor.inputs[0].owner
        assert isinstance(owner, BufferOp)
        _, channels, self.height, self.width = owner.tensor_shape
        self.channels = padded(channels, self.block("ci")) // self.block("ci")
        self.fill = int(str(parameters.get("fill", 0)))
        self.groups = self.exact.get("g", 1)
        if self.groups > 1 and any(self.exact[dim] % self.block(dim) for dim in ("co", "ci")):
            raise self.refusal("groups of a number of channels that are no whole blocks")
        self.results = self.groups * (padded(self.exact[self.result]) // CUBE)

    def _pair(self, parameters: dict[str, object], name: str) -> tuple[int, int]:
        pair = parameters.get(name, (1, 1))
        assert isinstance(pair, tuple | list)
        down, across = (int(number) for number in pair)
        return down, across

    def extents(self) -> dict[str, int]:
        """Extents, those of channels padded."""
        exact = {name: self.exact[dim] for dim, name in self.names.items()}
        return {name: padded(extent, self.block_of(name)) for name, extent in exact.items()}

    def block_of(self, dim: str) -> int:
        """The indices of a block of a dim of the program: of channels; of others 1."""
        known = next((known for known, name in self.names.items() if name == dim), "")
        return self.block(known) if known in self.blocked_dims else 1

    def block(self, dim: str) -> int:
        """16 channels, of images of integers 32."""
        return 2 * CUBE if self.integers and dim == "ci" else CUBE

    def own(self, spans: Spans) -> dict[str, Span]:
        """The spans by the names that a convolution's dims have."""
        return {dim: spans[name] for dim, name in self.names.items()}

    def spans(self, spans: Spans) -> dict[str, Span]:
        """Spans by the convolution's dims; channels are those of the images, of all groups of a
        tile."""
        named = self.own(spans)
        if self.groups == 1:
            return named
        return {**named, **{dim: self._all_channels(dim, named) for dim in ("co", "ci")}}

    def _all_channels(self, dim: str, spans: Spans) -> Span:
        """Channels of a tile's groups as an interval of the image's."""
        group, part, extent = spans["g"], spans[dim], self.exact[dim]
        if group.most > 1 and part.most < extent:
            raise self.refusal("tiles of parts of several groups have no kernel")
        start = group.start * extent + part.start
        if group.most == 1:
            return replace(part, start=start)
        return Span(start, group.size * extent, group.most * extent)

    def _weight_spans(self, spans: Spans) -> Spans:
        """Return the spans of weights, which have the image's channels of one group."""
        named = self.own(spans)
        return {**self.spans(spans), "ci": named["ci"]} if self.groups > 1 else self.spans(spans)

    # Sizes.

    def bytes(self, op: BufferOp, spans: Spans) -> int:
        """Bytes of whole blocks of channels, of positions, and of rows of the image."""
        weights = self._weight_spans(spans)
        spans = self.spans(spans)
        role, width = op.get("role"), WIDTHS[self.element(op)]
        if is_row(op.tensor_op):
            return spans["co"].most * width
        if role == "weight":
            return weights["co"].most * self._depth(weights) * width
        if role != "input":
            return spans["co"].most * self._most(spans) * width
        if op.memory == "ca":
            return self._most(spans) * self._depth(spans) * width
        return spans["n"].most * self._image_bytes(op, spans)

    def _image_bytes(self, op: BufferOp, spans: Spans) -> int:
        """Bytes of an image's rows and channels in L1, from one image of a tile to the next."""
        width = WIDTHS[self.element(op)]
        return spans["ci"].most * op.get("shape")[2] * self.width * width

    def _depth(self, spans: Spans) -> int:
        return spans["ci"].most * spans["kh"].most * spans["kw"].most

    def _most(self, spans: Spans) -> int:
        """Positions of a tile, in whole blocks, at most."""
        return padded(spans["oh"].most * spans["ow"].most)

    def _positions(self, spans: Spans) -> tuple[Value, Value]:
        """Positions of a tile: of the image, and in whole blocks."""
        rows, columns = spans["oh"].size, spans["ow"].size
        if spans["ow"].most < self.exact["ow"]:
            raise self.refusal("tiles of parts of an image's rows have no kernel")
        count = rows * columns
        whole: Value = padded(count) if isinstance(count, int) else (count + 15) // 16 * 16
        return count, whole

    def column(self, home: Home) -> Span:
        """The channels of a row."""
        return self.spans(home.spans)["co"]

    def _rows(self, spans: Spans) -> Rows:
        """The rows that a tile's windows touch; refuses windows that touch none."""
        (stride, _), (dilation, _) = self.strides, self.dilations
        rows = touched(spans, stride, dilation, self.pads[0], self.height, self.exact["oh"])
        if rows is None:
            raise self.refusal("windows that see nothing but padding have no kernel")
        return rows

    # Moves.

    def load(self, home: Home, outer: Home | Tensor) -> list[Statement]:
        """Main memory to L1 and UB, L1 to L0."""
        role = home.op.get("role")
        if is_row(home.op.tensor_op):
            return self.load_row(home, outer)
        if role == "weight":
            return self._weights(home, outer)
        if role != "input":
            assert isinstance(outer, Tensor)
            return self._summand(home, outer)
        return self._image(home, outer) if isinstance(outer, Tensor) else self._taps(home, outer)

    def _image(self, home: Home, tensor: Tensor) -> list[Statement]:
        """Whole rows of some channels of each image."""
        spans = self.spans(home.spans)
        images = Loop("p", spans["n"].size)
        number = images.variable
        rows = self._rows(spans)
        channel = spans["ci"].start // self.block("ci")
        plane = self.height * self.width
        at = ((spans["n"].start + number) * self.channels + channel) * plane
        inner = Place(home.buffer, number * self._image_bytes(home.op, spans))
        outer = Place(tensor, (at + rows.start * self.width) * BLOCK)
        count, size = spans["ci"].size // self.block("ci"), rows.count * self.width
        images.body.append(isa.copies(inner, outer, count, size, plane - size, 0, plane))
        return [images]

    def _weights(self, home: Home, outer: Home | Tensor) -> list[Statement]:
        """Fractals of FRACTAL_Z, which are those of L0B; of a tap's row those of a tile."""
        spans = self._weight_spans(home.spans)
        co, ci, kh, kw = (spans[dim] for dim in ("co", "ci", "kh", "kw"))
        if isinstance(outer, Tensor):
            kernel = self.exact["kh"], self.exact["kw"]
            if (kh.most, kw.most) != kernel:
                return [self._weight_parts(home, outer)]
            taps = kernel[0] * kernel[1]
            at = ci.start // self.block("ci") * taps * self.results + co.start // CUBE
            size = co.size // CUBE
            gap, rest = (self.results - size) * 16, (co.most - co.size) // CUBE * 16
            bursts = ci.size // self.block("ci") * taps
            source = Place(outer, at * FRACTAL)
            return [isa.copy(Place(home.buffer), source, bursts, size * 16, gap, rest)]
        large = self._weight_spans(outer.spans)

        def load(i: Value, p: Value, q: Value) -> Statement:
            block = (ci.start - large["ci"].start) // self.block("ci") + i
            row = kh.start - large["kh"].start + p
            column = kw.start - large["kw"].start + q
            at = (block * large["kh"].most + row) * large["kw"].most + column
            at = at * (large["co"].most // CUBE) + (co.start - large["co"].start) // CUBE
            to = ((i * kh.size + p) * kw.size + q) * (co.size // CUBE)
            ends = Place(home.buffer, to * FRACTAL), Place(outer.buffer, at * FRACTAL)
            return isa.load(*ends, co.size // CUBE, 1, transpose=False)

        return [self._each_tap(spans, load)]

    def _each_tap(self, spans: Spans, make: Callable[[Value, Value, Value], Statement]) -> Loop:
        """A statement for each block of channels, and each row and column of the window."""
        i, p, q = (
            Loop("i", spans["ci"].size // self.block("ci")),
            Loop("p", spans["kh"].size),
            Loop("q", spans["kw"].size),
        )
        q.body.append(make(i.variable, p.variable, q.variable))
        p.body.append(q)
        i.body.append(p)
        return i

    def _weight_parts(self, home: Home, tensor: Tensor) -> Statement:
        """Weights of some taps, tap by tap."""
        spans = self._weight_spans(home.spans)
        co, ci, kh, kw = (spans[dim] for dim in ("co", "ci", "kh", "kw"))

        def copy(i: Value, p: Value, q: Value) -> Statement:
            block = ci.start // self.block("ci") + i
            tap = (block * self.exact["kh"] + (kh.start + p)) * self.exact["kw"]
            at = (tap + (kw.start + q)) * self.results + co.start // CUBE
            to = ((i * kh.most + p) * kw.most + q) * (co.most // CUBE)
            target, source = Place(home.buffer, to * FRACTAL), Place(tensor, at * FRACTAL)
            return isa.copy(target, source, 1, co.size // CUBE * 16)

        return self._each_tap(spans, copy)

    def _taps(self, home: Home, outer: Home) -> list[Statement]:
        """img2col: a column of fractals for each 16 channels and tap."""
        spans, large = self.spans(home.spans), self.spans(outer.spans)
        feature_map, corner = self._map(outer, spans)
        ci, kh, kw = (spans[dim] for dim in ("ci", "kh", "kw"))
        _, whole = self._positions(spans)
        jump = ci.size // self.block("ci") * kh.size * kw.size

        def load(i: Value, p: Value, q: Value) -> Statement:
            place = Place(home.buffer, ((i * kh.size + p) * kw.size + q) * FRACTAL)
            tap = kh.start - large["kh"].start + p, kw.start + q
            channel = (ci.start - large["ci"].start) // self.block("ci") + i
            return isa.img2col(place, feature_map, tap, corner, channel, whole // 16, jump)

        return self._filled(feature_map, self._each_tap(spans, load))

    def _filled(self, feature_map: isa.FeatureMap, taps: Loop) -> list[Statement]:
        """The taps of an image, with what its padding holds."""
        if self.fill:
            # Other kernels rely on padding of zeros.
            return [feature_map.settings(), isa.padding(self.fill), taps, isa.padding(0)]
        return [feature_map.settings(), taps]

    def _map(self, outer: Home, spans: Spans) -> tuple[isa.FeatureMap, tuple[Value, Value]]:
        """The image in L1, and where the window of a tile's first position begins there."""
        large = self.spans(outer.spans)
        rows = self._rows(large)
        _, left, _, right = self.pads
        number = spans["n"].start - large["n"].start
        feature_map = isa.FeatureMap(
            Place(outer.buffer, number * self._image_bytes(outer.op, large)),
            rows.count,
            self.width,
            (rows.above, rows.below, left, right),
            # Rows of the window are those of L1's tile; the image has all columns.
            (large["kh"].most, self.exact["kw"]),
            self.strides,
            self.dilations,
        )
        down = (spans["oh"].start - large["oh"].start) * self.strides[0]
        return feature_map, (down - rows.above, -left)

    def _plane(self, spans: Spans) -> Value:
        """Return the first position of a tile in main memory, in positions."""
        result = self.exact["oh"] * self.exact["ow"]
        channel = spans["co"].start // CUBE
        first = (spans["n"].start * self.results + channel) * result
        return first + spans["oh"].start * self.exact["ow"]

    def _result(self, outer: Home | Tensor, spans: Spans) -> tuple[Place, Value]:
        """Return the start of a tile of the result, in main memory or in the buffer in which it
        waits, and the positions between two blocks of channels there."""
        if isinstance(outer, Tensor):
            return Place(outer, self._plane(spans) * BLOCK), self.exact["oh"] * self.exact["ow"]
        whole, (_, channels, rows, columns) = self.spans(outer.computed), outer.op.get("shape")
        size = padded(channels) * rows * columns * WIDTHS[self.element(outer.op)]
        plane = whole["oh"].size * self.exact["ow"]
        if outer.memory == "ub":
            plane, size = plane_room(outer.op), padded(channels) * plane_room(outer.op) * 2
        first = (spans["oh"].start - whole["oh"].start) * self.exact["ow"]
        channel = (spans["co"].start - whole["co"].start) // CUBE
        number = spans["n"].start - whole["n"].start
        return Place(outer.buffer, (channel * plane + first) * BLOCK + number * size), plane

    def _summand(self, home: Home, tensor: Tensor) -> list[Statement]:
        """The tile of a second summand. The padding of its last block is filled once, before."""
        spans = self.spans(home.spans)
        count, whole = self._positions(spans)
        if not isinstance(count, int) or count != whole:
            buffer = home.buffer
            size = buffer.bytes * buffer.slots
            all_slots = Buffer(f"{buffer.name}_slots", "ub", buffer.address, size)
            self.before.append(isa.mask_of(isa.LANES, isa.LANES))
            self.before.append(fill(Place(all_slots), -(-size // 256), "j"))
            self.before.append(Barrier("ALL"))
        plane = self.exact["oh"] * self.exact["ow"]
        source = Place(tensor, self._plane(spans) * BLOCK)
        blocks = spans["co"].size // CUBE
        return self._planes(
            Place(home.buffer), source, blocks, count, (plane - count, whole - count)
        )

    def _planes(
        self,
        dst: Place,
        src: Place,
        blocks: Value,
        count: Value,
        gaps: tuple[Value, Value],
    ) -> list[Statement]:
        """A copy of some positions of each block of channels; ``gaps`` are those of the source and
        of the target."""
        plane = self.exact["oh"] * self.exact["ow"]
        return [isa.copies(dst, src, blocks, count, *gaps, plane)]

    def store(self, home: Home, outer: Home | Tensor) -> list[Statement]:
        """L0C to UB with what follows the convolution, and UB to main memory."""
        spans = self.spans(home.spans)
        count, whole = self._positions(spans)
        blocks = spans["co"].size // CUBE
        if home.memory == "ub":
            target, plane = self._result(outer, spans)
            gaps = whole - count, plane - count
            return self._planes(target, Place(home.buffer), blocks, count, gaps)
        assert isinstance(outer, Home)
        if outer.op.get("role") != "output":
            return self._left_in_ub(home, outer)
        target = Place(outer.buffer)
        rows = whole, self._most(spans)
        if self.integers:
            return self.epilogue.dequantised(target, Place(home.buffer), spans["co"], rows)
        copy = isa.cc_to_ub(target, Place(home.buffer), blocks, whole // 16, self.epilogue.mode)
        return [copy, *self.epilogue.statements(target, spans["co"], rows)]

    def _left_in_ub(self, home: Home, outer: Home) -> list[Statement]:
        """L0C to where another compute reads the result in UB, a block of channels at a time; what
        fills a tile's last block of positions up is written over by the next tile."""
        if self.integers:
            raise self.refusal("sums of integers are left in UB by no kernel")
        spans = self.spans(home.spans)
        _, whole = self._positions(spans)
        target, plane = self._result(outer, spans)
        block = Loop("h", spans["co"].size // CUBE)
        place = target.at(block.variable * (plane * BLOCK))
        source = Place(home.buffer, block.variable * (whole * CUBE * 4))
        copy = isa.cc_to_ub(place, source, 1, whole // 16, self.epilogue.mode)
        columns = Span(spans["co"].start + block.variable * CUBE, CUBE, CUBE)
        rows = whole, self._most(spans)
        block.body += [copy, *self.epilogue.statements(place, columns, rows)]
        return [block]

    # Products.

    def compute(self, op: ComputeOp, spans: Spans, loops: list[Loop]) -> list[Statement]:
        """The product of a tile's positions and channels."""
        left, right, sums = (self.homes[v] for v in (*op.stages[0].inputs[:2], op.output))
        first, spans = first_of(loops), self.own(spans)
        _, whole = self._positions(spans)
        return [
            isa.mad(
                Place(sums.buffer),
                Place(left.buffer),
                Place(right.buffer),
                whole,
                spans["ci"].size * spans["kh"].size * spans["kw"].size,
                spans["co"].size,
                first,
                int(self.core.barrier_blocks),
            )
        ]


def plane_room(op: BufferOp) -> int:
    """Positions of a block of channels of what waits in UB: with each row in whole blocks."""
    _, _, rows, columns = op.get("shape")
    return rows * padded(columns)
