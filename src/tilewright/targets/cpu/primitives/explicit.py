"""Explicit convolution: lay out what the windows of a block of points read, and multiply.

Scratch holds, row after row of the block and part after part of a row, ``[block of the reduction]
[point][lane]``: what one register tile reads lies from end to end, and has no borders. The
reduction runs over channels, rows and columns of the window as the weights lie: by blocks of
channels first (NCHW16c images), or channel by channel (NCHW images of few channels).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.codegen.c.address import Address
from tilewright.codegen.c.source import Writer, plus, total
from tilewright.planning.domain import Affine
from tilewright.targets.cpu.instance import Instance
from tilewright.targets.cpu.planning.blocks import register_tiles
from tilewright.targets.cpu.primitives.block_products import write_first, write_steps
from tilewright.targets.cpu.primitives.chain import PositionOf, store_at, vector_at, write_chain
from tilewright.targets.cpu.primitives.code import NAME, KernelCode, call


def emit(instance: Instance, code: KernelCode, writer: Writer) -> None:
    """Write the calls: the layout with the first of the output channels, then the products."""
    block = _Explicit.of(instance)
    x, s = block.x, block.scratch
    with writer.block():
        n, c, _, _ = x.window
        origin = replace(x, window=(n, c, Affine(), Affine()))
        image = plus(x.pointer, origin.offset(instance.dims))
        place = [x.index(axis, instance.dims, {}) for axis in (2, 3)]
        name = code.function("explicit_input", _input_text(block))
        write_first(instance, call(name, [image, s.pointer, *place]), writer)
        name = code.function("explicit_products", _products_text(block, code))
        pointers = [plus(a.pointer, a.offset(instance.dims)) for a in block.outside]
        writer.line(call(name, [s.pointer, *pointers]))


@dataclass(frozen=True)
class _Explicit:
    """One instance: its operands, and sizes."""

    instance: Instance
    x: Address
    w: Address
    scratch: Address
    bias: Address | None

    @classmethod
    def of(cls, instance: Instance) -> _Explicit:
        if instance.split or instance.size("n") != 1:
            raise instance.cannot("a block is of one image and the whole reduction")
        x, w, scratch, *bias = instance.tensors
        return cls(instance, x, w, scratch, bias[0] if bias else None)

    @property
    def blocked(self) -> bool:
        """True if the lanes of the image are channels."""
        return self.instance.primitive == "conv_explicit"

    @property
    def window(self) -> tuple[int, int]:
        """Rows and columns of the window."""
        return self.instance.size("kh"), self.instance.size("kw")

    @property
    def depth(self) -> int:
        """Elements of the reduction as it lies in scratch, whole blocks of channels."""
        channels, lanes = self.instance.size("ci"), self.instance.lanes
        if self.blocked:
            channels = -(-channels // lanes) * lanes
        return channels * self.window[0] * self.window[1]

    @property
    def blocks(self) -> int:
        """Blocks of the reduction, the last perhaps not full."""
        return -(-self.depth // self.instance.lanes)

    @property
    def rows(self) -> int:
        """The rows of the block of points."""
        return self.instance.size("oh")

    @property
    def parts(self) -> list[int]:
        """Points of each register tile of a row."""
        return register_tiles(self.instance.size("ow"), self.instance.options["points"])

    @property
    def row(self) -> int:
        """Elements of scratch from one row of the block to the next."""
        return self.instance.size("ow") * self.blocks * self.instance.lanes

    @property
    def outside(self) -> list[Address]:
        """Tensors that products read or write, each pointer once, the output last."""
        return [
            a
            for a in self.instance.addresses
            if a.pointer != self.scratch.pointer and (a.pointer != self.x.pointer or self.again)
        ]

    @property
    def again(self) -> bool:
        """True if the chain of later steps reads the image, too."""
        later = [o for step in self.instance.steps[1:] for o in step.inputs]
        return any(isinstance(o, Address) and o.pointer == self.x.pointer for o in later)

    def step(self, operand: Address, dim: str) -> int:
        """Return an operand's constant stride along a dim; refuse operands that have none."""
        stride = operand.stride(dim, self.instance.size(dim), self.instance.dims)
        if stride is None:
            raise self.instance.cannot(f"operand {operand.pointer} has no stride along {dim}")
        return stride


def _taps(block: _Explicit, dim: str) -> tuple[int, int]:
    """Stride and dilation of the window along one axis of the image."""
    axis = 2 if dim == "kh" else 3
    terms = dict(block.x.window[axis].terms)
    return terms.get("oh" if dim == "kh" else "ow", 1), terms.get(dim, 1)


def _input_text(block: _Explicit) -> str:
    """Lay out the inputs of a block of points; positions outside the image are zero."""
    x, instance, lanes = block.x, block.instance, block.instance.lanes
    height, width = x.shape[2:]
    (sh, dh), (sw, dw) = _taps(block, "kh"), _taps(block, "kw")
    (kh, kw), channels = block.window, instance.size("ci")
    steps = [(x.part(2, 1), "h"), (x.part(3, 1), "v")]
    starts = [sum(block.parts[:number]) for number in range(len(block.parts) + 1)]
    writer = Writer()
    writer.line(f"/* what {kh} x {kw} windows of {block.rows} x {starts[-1]} points read */")
    writer.line(f"static void {NAME}(const float *x, float *s, long row, long column)")
    with writer.block():
        writer.line("/* the first point of each part of a row */")
        listed = ", ".join(map(str, starts))
        writer.line(f"static const int first[{len(starts)}] = {{{listed}}};")
        writer.line(f"for (long y = 0; y < {block.rows}; y++)")
        writer.line(f"for (long p = 0; p < {len(block.parts)}; p++)")
        count = -(-channels // lanes) if block.blocked else channels
        writer.line(f"for (long c = 0; c < {count}; c++)")
        with writer.block(f"for (long i = 0; i < {kh}; i++)"):
            writer.line(f"const long h = row + {total([(sh, 'y'), (dh, 'i')])};")
            writer.line(f"const long step = {lanes} * (first[p + 1] - first[p]);")
            writer.line(f"const int inside = h >= 0 && h < {height};")
            with writer.block(f"for (long j = 0; j < {kw}; j++)"):
                writer.line(f"const long k = (c * {kh} + i) * {kw} + j;")
                where = f"s + y * {block.row}L + first[p] * {block.blocks * lanes}L"
                index = "k * step" if block.blocked else f"k / {lanes} * step + k % {lanes}"
                writer.line(f"float *o = {where} + {index};")
                with writer.block(f"for (long z = first[p]; z < first[p + 1]; z++, o += {lanes})"):
                    writer.line(f"const long v = column + {total([(sw, 'z'), (dw, 'j')])};")
                    writer.line(f"const int in = inside && v >= 0 && v < {width};")
                    if block.blocked:
                        _write_vector(writer, block, steps, channels)
                    else:
                        at = total([(block.step(x, "ci"), "c"), *steps])
                        writer.line(f"*o = in ? x[{at}] : 0.0f;")
    return str(writer)


def _write_vector(
    writer: Writer, block: _Explicit, steps: Sequence[tuple[int, str]], channels: int
) -> None:
    """Copy one block of channels of one tap; lanes past the last channel are zero."""
    x, instance, lanes = block.x, block.instance, block.instance.lanes
    between = x.block_stride("ci", lanes, channels, instance.dims)
    if between is None or x.stride("ci", min(lanes, channels), instance.dims) not in (0, 1):
        raise instance.cannot("the image does not lie in blocks of channels")
    at = f"x + {total([(between, 'c'), *steps])}"
    value = f"load({at})"
    if rest := channels % lanes:
        value = f"c < {channels // lanes} ? {value} : load_part({at}, {rest})"
    writer.line("vec d = splat(0.0f);")
    writer.line("if (in)")
    writer.line(f"    d = {value};")
    writer.line("store(o, d);")


def _products_text(block: _Explicit, code: KernelCode) -> str:
    """Multiply every register tile of the block, and write its results."""
    lanes, parts = block.instance.lanes, block.parts
    names = ", ".join(a.pointer for a in block.outside)
    writer = Writer()
    writer.line(
        f"/* products of {block.rows} rows of {sum(parts)} points x {block.depth} inputs */"
    )
    writer.line(f"static void {NAME}({_parameters(block)})")
    with writer.block(), writer.block(f"for (long row = 0; row < {block.rows}; row++)"):
        start = 0
        for size in sorted(set(parts), reverse=True):
            times = parts.count(size)
            name = code.function("explicit_part", _part_text(block, size))
            step = size * block.blocks * lanes
            s = f"s + row * {block.row}L + {start * block.blocks * lanes}"
            if times > 1:
                writer.line(f"for (long p = 0; p < {times}; p++)")
                writer.line(f"    {name}({s} + p * {step}, {names}, row, {start} + p * {size});")
            else:
                writer.line(f"{name}({s}, {names}, row, {start});")
            start += size * times
    return str(writer)


def _parameters(block: _Explicit) -> str:
    output = block.instance.output
    pointers = [f"{'' if a == output else 'const '}{a.c_type} *{a.pointer}" for a in block.outside]
    return ", ".join(["const float *s", *pointers])


def _part_text(block: _Explicit, size: int) -> str:
    """One register tile: ``size`` points x all vectors of output channels."""
    instance, w, lanes = block.instance, block.w, block.instance.lanes
    vectors = -(-instance.size("co") // lanes)
    between = w.block_stride("co", lanes, instance.size("co"), instance.dims)
    # One tap after another; an axis of one tap has no stride.
    taps = next((block.step(w, d) for d in ("kw", "kh") if instance.size(d) > 1), None)
    if between is None or taps not in (None, lanes * lanes if block.blocked else lanes):
        raise instance.cannot("the weights do not lie in the order of the reduction")
    writer = Writer()
    writer.line(f"/* {size} points x {vectors} vectors of output channels */")
    writer.line(f"static void {NAME}({_parameters(block)}, long row, long first)")
    with writer.block():
        writer.line(f"vec a[{size}][{vectors}];")
        writer.line(f"const float *u = {w.pointer}, *v = s;")
        loop = f"UNROLL for (int j = 0; j < {size}; j++)"

        def position(number: int) -> PositionOf:
            moves = [("oh", 2, "row"), ("ow", 2, "(first + j)")]
            return PositionOf(instance, "co", str(number), moves)

        for number in range(vectors):
            count = min(lanes, instance.size("co") - number * lanes)
            value = "splat(0.0f)"
            if block.bias is not None:
                value = vector_at(instance, block.bias, "co", position(number)(block.bias), count)
            writer.line(f"{loop} a[j][{number}] = {value};")
        places = [number * between for number in range(vectors)]
        write_steps(writer, size, places, block.depth, lanes)
        for number in range(vectors):
            count = min(lanes, instance.size("co") - number * lanes)
            with writer.block(loop):
                writer.line(f"const vec t = a[j][{number}];")
                name = write_chain(writer, instance, "t", "co", position(number), count)
                at = position(number)(instance.output)
                writer.line(store_at(instance, name, "co", at, count))
    return str(writer)
