"""One convolution or matrix product in pieces of bfloat16: its operands, and its points.

Inputs are split as they are laid out in scratch (targets/cpu/planning/pieces.py), two vectors of
channels at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tilewright.codegen.c.address import Address
from tilewright.codegen.c.source import plus, total
from tilewright.numerics.pieces import THREE, groups
from tilewright.targets.cpu.instance import Instance
from tilewright.targets.cpu.planning.pieces import POINTS, TILE_WORDS, Geometry, pieces_of
from tilewright.targets.cpu.primitives.code import function

FEW = 4
"""The most register tiles that count as few."""

LINE_WORDS = 16
"""Words of a cache line."""

STORED_WORDS = 4 * TILE_WORDS
"""Words of the weights of two vectors of output channels in a step of the reduction: they lie in
one stream, [step][piece][vector][row of the tile][word] of two pieces; else floats, which become
such a stream, [step][vector][row of the tile][half of its words][output channel]."""


SPLIT = {False: "split_pair", True: "split_three"}
"""C functions that split two vectors of inputs; True: in three pieces, not two."""


@dataclass(frozen=True)
class Pieces:
    """One instance: its operands, and how its points lie."""

    instance: Instance
    x: Address
    w: Address
    scratch: Address
    bias: Address | None

    @classmethod
    def of(cls, instance: Instance) -> Pieces:
        """Check that the operands are tensors, and the block one image's."""
        x, w, scratch, *bias = instance.tensors
        pieces = cls(instance, x, w, scratch, bias[0] if bias else None)
        outer = [d for d in instance.dims if d not in (*pieces.grid, "co", *instance.reduction)]
        if instance.split or any(instance.size(dim) != 1 for dim in outer):
            raise instance.cannot("a block is of one image and the whole reduction")
        return pieces

    @property
    def windows(self) -> bool:
        """True if the operation is a convolution."""
        return "kh" in self.instance.dims

    @property
    def grid(self) -> tuple[str, str]:
        """The dims of a block's points, rows and columns; a matrix product has columns alone."""
        if self.windows:
            return "oh", "ow"
        return "", "m" if "m" in self.instance.dims else "n"

    @cached_property
    def geometry(self) -> Geometry:
        """The geometry of the block's points in scratch."""
        sizes = {dim: self.instance.size(dim) for dim in self.instance.dims}
        return Geometry.of(self.x.window, sizes, pieces_of(self.w.element))

    @property
    def whole(self) -> bool:
        """True if pieces are three: weights are floats, and split here."""
        return self.geometry.pieces == THREE

    @property
    def vectors(self) -> int:
        """The vectors of output channels."""
        return -(-self.instance.size("co") // POINTS)

    @property
    def couple_words(self) -> int:
        """Words of the weights of two vectors of output channels, as they are stored."""
        return self.geometry.steps * STORED_WORDS

    @property
    def share(self) -> int:
        """Words of the next weights that each step of a register tile asks for; 0 of few tiles."""
        parts = -(-self.geometry.tiles // 2)
        return 0 if parts <= FEW else -(-STORED_WORDS // (parts * LINE_WORDS)) * LINE_WORDS

    @property
    def outside(self) -> list[Address]:
        """Tensors that products read or write, each pointer once, the output last."""
        return self.instance.outside(self.scratch, self.x)

    @property
    def results(self) -> list[Address]:
        """The tensors from which results are computed, which the weights are not."""
        return [a for a in self.outside if a.pointer != self.w.pointer]


def windows_text(block: Pieces) -> str:
    """Split what a block's windows read; positions outside the image are zero."""
    x, instance, geometry = block.x, block.instance, block.geometry
    channels = instance.size("ci")
    between = x.block_stride("ci", POINTS, channels, instance.dims)
    if between is None or x.stride("ci", min(POINTS, channels), instance.dims) not in (0, 1):
        raise instance.cannot("the image does not lie in blocks of channels")
    (height, width), (sh, sw) = x.shape[2:], geometry.strides
    pixel = total([(x.part(2, 1), "h"), (x.part(3, 1), "v")])
    low, high = (_channels(block, between, number, pixel) for number in ("2 * c", "(2 * c + 1)"))
    split = SPLIT[block.whole]
    remark = f"what windows of {geometry.rows} x {geometry.columns} points read, in pieces"
    with function(remark, "const float *x, float *s, long row, long column") as writer:
        writer.line("uint32_t *o = (uint32_t *)s;")
        writer.line(f"for (long c = 0; c < {groups(channels)}; c++)")
        with writer.block():
            for down, across in geometry.phases:
                with writer.block(f"for (long y = 0; y < {geometry.height}; y++)"):
                    writer.line(f"const long h = row + {total([(sh, 'y')], down)};")
                    writer.line(f"const int inside = h >= 0 && h < {height};")
                    head = f"for (long z = 0; z < {geometry.pitch}; z++, o += {POINTS})"
                    with writer.block(head):
                        writer.line(f"const long v = column + {total([(sw, 'z')], across)};")
                        with writer.block(f"if (inside && v >= 0 && v < {width})"):
                            writer.line(f"{split}(o, {geometry.plane}, {low}, {high});")
                        with writer.block("else"):
                            writer.line(f"{split}(o, {geometry.plane}, splat(0.0f), splat(0.0f));")
                rest = geometry.pieces * geometry.plane - geometry.height * geometry.pitch * POINTS
                writer.line(f"o += {rest};")
    return str(writer)


def _channels(block: Pieces, between: int, number: str, pixel: str) -> str:
    """C expression of a vector of channels at a pixel; what is no channel is 0."""
    channels = block.instance.size("ci")
    whole, rest = divmod(channels, POINTS)
    at = f"x + {total([(between, number)])} + {pixel}"
    value = f"load({at})"
    if rest:
        value = f"({number} < {whole} ? {value} : load_part({at}, {rest}))"
    if number != "2 * c" and (whole + bool(rest)) % 2:
        value = f"({number} < {whole + bool(rest)} ? {value} : splat(0.0f))"
    return value


def rows_text(block: Pieces) -> str:
    """Split the rows of a matrix product."""
    instance, x, geometry = block.instance, block.x, block.geometry
    depth = geometry.channels
    row = x.stride(block.grid[1], geometry.columns, instance.dims)
    if row is None or x.stride("ci", depth, instance.dims) not in (0, 1):
        raise instance.cannot("rows must lie at a fixed distance, and their inputs side by side")
    whole, rest = divmod(depth, 2 * POINTS)
    split = SPLIT[block.whole]
    remark = f"{geometry.columns} rows of {depth} inputs, in pieces"
    with function(remark, "const float *x, float *s") as writer:
        writer.line("uint32_t *o = (uint32_t *)s;")
        head = f"for (long p = 0; p < {geometry.columns}; p++, o += {POINTS})"
        with writer.block(head):
            writer.line(f"const float *i = x + {total([(row, 'p')])};")
            with writer.block(f"for (long c = 0; c < {whole}; c++, i += {2 * POINTS})"):
                place = f"o + {total([(geometry.group, 'c')])}"
                values = f"load(i), load(i + {POINTS})"
                writer.line(f"{split}({place}, {geometry.plane}, {values});")
            if rest:
                halves = (min(rest, POINTS), max(rest - POINTS, 0))
                values = ", ".join(
                    f"load_part({plus('i', str(POINTS * n))}, {half})" if half else "splat(0.0f)"
                    for n, half in enumerate(halves)
                )
                place = plus("o", str(geometry.group * whole))
                writer.line(f"{split}({place}, {geometry.plane}, {values});")
    return str(writer)
