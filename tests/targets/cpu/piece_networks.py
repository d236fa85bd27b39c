"""Convolutions and matrix products in pieces, each as a kernel of one network, and their oracles.

An output is a sum of K products. With u = 2**-24, S the sum of the products' magnitudes (and of
bias and residual), and x0 + x1 the pieces of x, |x - x0| <= 2**-8 |x| and |x - x0 - x1| <= 2**-17
|x|, as a bfloat16 has 8 bits. What is left out of a product is x1 w1 and what pieces lack of x and
of w: (2**-16 + 2 * 2**-17) |x w| to first order. Products of pieces are exact in float32; each of
the 3 K is rounded at most once in every sum behind it, whatever the order: 3 K u S, and three more
roundings for bias, residual and further sums. Padding adds exact zeros.

Three pieces are the number. Of a product x1 w2 + x2 w1 + x2 w2 are left out; |x1| < 2**-7 |x|, as
x0 is cut, and |x2| <= 2**-16 |x|: 2**-22 |x w| to first order. Six products are rounded: 6 K u S.
That is no more than a bound: what float32 makes of such sums is held against the same sums in
float32, one product after another.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import copytree

import numpy as np
from numpy.typing import NDArray
from tests.targets.cpu.kernel_harness import Maker

from tilewright.codegen.c.compiler import FLAGS
from tilewright.codegen.program.interface import MANIFEST
from tilewright.graph.dialect import WeightOp
from tilewright.graph.operations.binary import AddOp
from tilewright.graph.operations.pieces import PieceConvOp, PieceMatMulOp
from tilewright.graph.operations.pointwise import ReluOp
from tilewright.ir import PythonValue, SSAValue, bf16, f32
from tilewright.ir.types import shape_of, tensor
from tilewright.numerics.pieces import PRODUCTS, THREE, TWO, split_weights
from tilewright.planning.schedule import Level, Schedule
from tilewright.targets.cpu.builds import cpuinfo, listed_flags
from tilewright.targets.cpu.machine import machine
from tilewright.targets.cpu.piece_primitives import PIECE_PRIMITIVES
from tilewright.targets.cpu.processors import PROCESSORS, Processor
from tilewright.targets.cpu.tiles import tiles_granted

Array = NDArray[np.float32]
Wide = NDArray[np.float64]

UNIT = 2.0**-24
"""Unit roundoff of float32."""

SPLIT = {TWO: 2.0**-16 + 2 * 2.0**-17, THREE: 2 * 2.0**-23}
"""What the products of pieces lack of one, of its magnitude."""

SLACK = 1 + 2.0**-6
"""Terms of higher order: pieces are up to 1 + 2**-8 of their number."""

AMX = PROCESSORS["amx"]
PLANNED = replace(PROCESSORS["avx512"], block_cycles=AMX.block_cycles)
"""A processor with tiles, whose packages are built for AVX-512 unless they are told otherwise."""

EVERYWHERE = machine(PLANNED).with_values({"own.cpu.pieces": "all"})
"""The same, where every convolution and product may be in pieces."""

EMULATED = (*FLAGS, "-Werror", *PROCESSORS["avx512"].flags)
"""Flags of a build without the instructions: pieces.h computes what the tiles do."""
TILES = (*FLAGS, "-Werror", *AMX.flags)

BUILDS = {"emulated": (EMULATED, PROCESSORS["avx512"].needs), "tiles": (TILES, AMX.needs)}

LOWERED = "lowered"
"""A build of ``lowered``."""


def lowered(program: Path, folder: Path) -> tuple[Path, tuple[str, ...]]:
    """A copy that AVX2 can run, whose vectors of 16 floats the compiler takes apart, and its flags.

    Its kernels must be without maps, which have instructions of AVX-512.
    """
    copytree(program, folder)
    (vectors,) = (folder / "src").glob("*vectors.h")
    vectors.write_text(re.sub("^#error.*", "", vectors.read_text(), flags=re.MULTILINE))
    manifest = folder / MANIFEST
    text = manifest.read_text()
    assert f'"processor": "{PLANNED.name}"' in text
    manifest.write_text(text.replace(f'"{PLANNED.name}"', f'"{PROCESSORS["avx2"].name}"'))
    return folder, (*FLAGS, "-O1", "-Werror", "-Wno-psabi", *PROCESSORS["avx2"].flags)


def lacking(build: str) -> str:
    """Why a build does not run here; "" if it does."""
    needs = PROCESSORS["avx2"].needs if build == LOWERED else BUILDS[build][1]
    missing = sorted(set(needs) - listed_flags(cpuinfo()))
    if missing:
        return f"this processor lacks {', '.join(missing)}"
    return "" if build != "tiles" or tiles_granted() else "the system refuses the tiles"


@dataclass(frozen=True)
class Case:
    """A piece_conv of an image [n, c, h, w] and window [kh, kw], or a piece_matmul of rows."""

    shape: tuple[int, ...]
    co: int
    window: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilations: tuple[int, int] = (1, 1)
    bias: bool = False
    rest: bool = False
    """Whether a residual is added, and relu applied."""
    rows: bool = False
    """Whether it is a product of rows, [..., m, k]."""
    tile: tuple[tuple[str, int], ...] = ()
    """A forced block: extents of dims; the planner's if empty."""
    pieces: int = TWO
    equal: bool = False
    """Whether all output channels have the weights of the first."""

    @property
    def primitive(self) -> str:
        """The name of what computes it."""
        return PIECE_PRIMITIVES[self.pieces][self.rows]

    @property
    def windows(self) -> bool:
        """Whether it is a convolution."""
        return not self.rows

    @property
    def channels(self) -> int:
        """Inputs of a point."""
        return self.shape[1] if self.windows else self.shape[-1]


_CASES: Mapping[str, Case] = {
    "1x1": Case((1, 64, 9, 11), 48),
    "1x1 few": Case((1, 5, 3, 7), 16, bias=True),
    "1x1 strided": Case((1, 40, 11, 9), 33, strides=(2, 2), rest=True),
    "1x1 deep": Case((1, 528, 4, 4), 32, bias=True, rest=True),
    "3x3": Case((1, 40, 13, 14), 56, (3, 3), pads=(1, 1, 1, 1), bias=True, rest=True),
    "3x3 bare": Case((1, 33, 10, 10), 17, (3, 3)),
    "3x3 batch": Case((3, 16, 7, 9), 96, (3, 3), pads=(1, 1, 1, 1), bias=True),
    "3x3 strided": Case((1, 48, 15, 17), 80, (3, 3), (2, 2), (0, 1, 2, 1), bias=True, rest=True),
    "3x3 by 3": Case((2, 24, 16, 19), 24, (3, 3), (3, 3), (1, 0, 0, 2)),
    "5x5": Case((1, 32, 9, 12), 16, (5, 5), pads=(2, 2, 2, 2), bias=True, rest=True),
    "2x4": Case((1, 20, 14, 15), 64, (2, 4), (3, 2), (1, 3, 0, 0), rest=True),
    "1x2 by 3": Case((1, 72, 8, 20), 40, (1, 2), (1, 3), bias=True),
    "7x1": Case((1, 17, 12, 8), 31, (7, 1), pads=(3, 0, 3, 0)),
    "dilated": Case((1, 32, 13, 12), 48, (3, 3), pads=(2, 2, 2, 2), dilations=(2, 2), bias=True),
    "dilated, strided": Case((2, 31, 17, 19), 20, (3, 2), (2, 3), (3, 0, 1, 4), (3, 2), rest=True),
    "a row": Case((1, 96, 1, 33), 112, bias=True),
    "a column": Case((1, 64, 35, 1), 64, (3, 1), pads=(1, 0, 1, 0)),
    "mostly padding": Case((1, 64, 2, 2), 32, (3, 3), pads=(3, 4, 2, 1), bias=True),
    "blocks of rows": Case(
        *((1, 48, 14, 10), 112, (3, 3), (1, 1), (1, 1, 1, 1)),
        bias=True,
        rest=True,
        tile=(("oh", 4), ("ow", 10), ("co", 32)),
    ),
    "blocks of strided rows": Case(
        *((2, 20, 19, 12), 40, (5, 3), (3, 2), (1, 1, 2, 0)),
        rest=True,
        tile=(("oh", 2), ("ow", 6), ("co", 40)),
    ),
    "blocks of dilated rows": Case(
        *((1, 16, 23, 14), 72, (3, 3), (2, 1), (2, 2, 3, 2), (2, 2)),
        bias=True,
        tile=(("oh", 5), ("ow", 14), ("co", 64)),
    ),
    "equal channels": Case((1, 40, 5, 7), 48, (3, 1), equal=True),
    "rows": Case((37, 70), 50, bias=True, rest=True, rows=True),
    "rows of a tile": Case((16, 32), 16, rows=True),
    "rows of a batch": Case((2, 19, 33), 80, bias=True, rows=True),
    "rows of batches": Case((2, 3, 9, 48), 35, rest=True, rows=True),
    "many rows": Case((100, 129), 47, bias=True, rows=True, tile=(("n", 32), ("co", 32))),
    "many rows of a batch": Case(
        (2, 70, 80), 96, rest=True, rows=True, tile=(("m", 48), ("co", 64))
    ),
}


IN_THREE = (
    *("1x1", "1x1 few", "1x1 strided", "1x1 deep", "3x3", "3x3 strided", "2x4", "dilated, strided"),
    *("mostly padding", "blocks of rows", "equal channels", "rows", "rows of batches", "many rows"),
)
"""Cases that are computed in three pieces, too."""

CASES: Mapping[str, Case] = {
    **_CASES,
    **{f"{name}, whole": replace(_CASES[name], pieces=THREE) for name in IN_THREE},
}


@dataclass(frozen=True)
class Expected:
    """A case's outputs, and what bounds of their errors are made of; all of the output's shape."""

    exact: Wide
    """In float64, of the numbers themselves."""
    pieces: Wide
    """In float64, of the products of pieces that are taken."""
    magnitude: Wide
    """Sums of the magnitudes of the products, the bias and the residual."""
    products: int
    """Products of an output."""
    count: int
    """Pieces of a number."""
    sequential: Wide | None = None
    """Of sums in float32, one product after another."""

    @property
    def rounding(self) -> Wide:
        """Bound of what float32 makes of the sums of pieces."""
        taken = len(PRODUCTS[self.count]) * self.products
        return (taken + 3) * UNIT * SLACK * self.magnitude

    @property
    def bound(self) -> Wide:
        """Bound of the error of each output."""
        return SPLIT[self.count] * SLACK * self.magnitude + self.rounding


@dataclass(frozen=True)
class Network:
    """A network of one kernel for each case, planned for a processor with tiles."""

    maker: Maker
    expected: Mapping[str, Expected]

    def emit(self, folder: Path) -> Path:
        """Write the package's program."""
        from tilewright.targets.cpu import TARGET

        TARGET.emit(self.maker.compilation(), folder)
        return folder


def network(cases: Mapping[str, Case], processor: Processor = PLANNED) -> Network:
    """Kernels of these cases on random data, with outputs out0, out1, ..."""
    maker = Maker(machine(processor))
    results: list[SSAValue] = []
    expected: dict[str, Expected] = {}
    for number, (name, case) in enumerate(cases.items()):
        result, found = _kernel(maker, case)
        results.append(result)
        expected[name] = found
        if case.tile:
            maker.schedules[f"k{number}"] = _schedule(case)
    maker.finish(*results)
    return Network(maker, expected)


def _schedule(case: Case) -> Schedule:
    """A case's block, and one of each other dim that is no reduction."""
    sizes = dict(case.tile)
    outer = ["n"] if case.windows else [f"b{axis}" for axis in range(len(case.shape) - 2)]
    order = (*outer, *(d for d in sizes if d != "co"), "co")
    tile = {"co": sizes["co"], **dict.fromkeys(outer, 1), **sizes}
    return Schedule(case.primitive, (Level("registers", tuple(tile.items()), order),))


def _kernel(maker: Maker, case: Case) -> tuple[SSAValue, Expected]:
    layout, random = "NCHW16c" if case.windows else "", maker.random
    x = maker.input(case.shape, layout)
    image = maker.inputs[f"in{len(maker.inputs) - 1}"]
    taps = case.window if case.windows else ()
    depth = case.channels * int(np.prod(taps, dtype=np.int64))
    w = (random.standard_normal((case.co, case.channels, *taps)) * depth**-0.5).astype(np.float32)
    w = np.repeat(w[:1], case.co, 0) if case.equal else w
    split = split_weights(w, case.pieces)
    element = bf16 if case.pieces == TWO else f32
    primitive = maker.machine.primitive(case.primitive)
    kept = tensor(split.shape, element, maker.machine.layout_of(primitive, "weight", 2))
    op = WeightOp.of(maker.weights.add(split, "w"), kept)
    maker.network.block.add_op(op)
    operands = [x, op.result, maker.scratch(1 << 18)]
    bias = np.zeros(case.co, np.float32)
    if case.bias:
        operands.append(maker.weight((case.co,), "O16o"))
        bias = maker.weights.get(operands[-1].owner.symbol.data)  # type: ignore[union-attr]
    names = ("window", "strides", "pads", "dilations") if case.windows else ()
    attributes: dict[str, PythonValue] = {name: getattr(case, name) for name in names}
    kind = PieceConvOp if case.windows else PieceMatMulOp
    made = kind.build_from(operands, attributes)
    shape = shape_of(made.result)
    made.erase(safe_erase=False)
    residual = np.zeros(shape, np.float32)
    chain: list[tuple] = [(kind, operands, attributes)]
    if case.rest:
        r = maker.input(shape, layout)
        residual = maker.inputs[f"in{len(maker.inputs) - 1}"]
        chain += [(AddOp, [0, r], {}), (ReluOp, [1], {})]
    result = maker.kernel(chain, layout)
    found = expected_of(case, image, w, bias, residual)
    if case.pieces == TWO:
        return result, found
    sums = one_by_one(case, image, w)
    sums = sums + (bias[:, None, None] if case.windows else bias) + residual
    return result, replace(found, sequential=np.maximum(sums, 0) if case.rest else sums)


def expected_of(
    case: Case, x: Array, w: Array, bias: Array, residual: Array | float = 0.0
) -> Expected:
    """What a case's output is, and how far float32 in pieces may be from it."""
    b = bias.astype(np.float64)[:, None, None] if case.windows else bias.astype(np.float64)

    def end(sums: Wide) -> Wide:
        sums = sums + b + residual
        return np.maximum(sums, 0) if case.rest else sums

    given = (halves(x, even=False), halves(w, even=True))
    if case.pieces == THREE:
        given = (thirds(x), thirds(w))
    pairs = PRODUCTS[case.pieces]
    taken = np.sum([product(case, given[0][i], given[1][j]) for i, j in pairs], axis=0)
    magnitude = product(case, np.abs(x), np.abs(w)) + np.abs(b) + np.abs(residual)
    count = int(np.prod(w.shape[1:]))
    exact = end(product(case, x, w))
    return Expected(exact, end(taken), magnitude, count, case.pieces)


def halves(values: Array, *, even: bool) -> tuple[Array, Array]:
    """The nearest bfloat16 and the nearest to the rest, by arithmetic alone.

    Of two equally near ones the even one, as of weights, or the greater, as pieces.h takes.
    """

    def nearest(one: Wide) -> Wide:
        fraction, exponent = np.frexp(one)
        whole = fraction * 256
        away = np.copysign(np.floor(np.abs(whole) + 0.5), whole)
        return np.ldexp(np.rint(whole) if even else away, exponent - 8)

    first = nearest(values.astype(np.float64))
    second = nearest(values.astype(np.float64) - first)
    return first.astype(np.float32), second.astype(np.float32)


def thirds(values: Array) -> tuple[Array, Array, Array]:
    """The first 8 bits, the nearest 8 of the rest, the greater of two, and what is left."""
    fraction, exponent = np.frexp(values.astype(np.float64))
    first = np.ldexp(np.trunc(fraction * 256), exponent - 8).astype(np.float32)
    second, third = halves(values - first, even=False)
    assert np.array_equal(first.astype(np.float64) + second + third, values.astype(np.float64))
    return first, second, third


def one_by_one(case: Case, x: Array, w: Array) -> Wide:
    """The same in float32, each product added to the sum of those before, and rounded once."""
    sums = np.zeros((), np.float64)
    for part, tap in taps(case, x, w):
        for channel in range(w.shape[1]):
            sums = sums + multiplied(case, part, tap, slice(channel, channel + 1))
            sums = sums.astype(np.float32).astype(np.float64)
    return sums


def product(case: Case, x: Array, w: Array) -> Wide:
    """The convolution or product in float64, one tap after another."""
    found = [multiplied(case, part, tap, slice(None)) for part, tap in taps(case, x, w)]
    return np.sum(found, axis=0)


def multiplied(case: Case, part: Wide, tap: Wide, channels: slice) -> Wide:
    """What a tap adds to all outputs, of some of the channels."""
    if case.rows:
        return part[..., channels] @ tap[:, channels].T
    return np.einsum("oc,nchw->nohw", tap[:, channels], part[:, channels])


def taps(case: Case, x: Array, w: Array) -> Iterator[tuple[Wide, Wide]]:
    """For each tap the inputs that it meets at each output, and its weights, in float64."""
    wide, weights = x.astype(np.float64), w.astype(np.float64)
    if case.rows:
        yield wide, weights
        return
    (top, left, bottom, right), (sh, sw), (dh, dw) = case.pads, case.strides, case.dilations
    padded = np.pad(wide, ((0, 0), (0, 0), (top, bottom), (left, right)))
    kh, kw = case.window
    oh = (padded.shape[2] - (kh - 1) * dh - 1) // sh + 1
    ow = (padded.shape[3] - (kw - 1) * dw - 1) // sw + 1
    for i in range(kh):
        for j in range(kw):
            down, across = i * dh, j * dw
            part = padded[:, :, down : down + (oh - 1) * sh + 1 : sh]
            yield part[..., across : across + (ow - 1) * sw + 1 : sw], weights[:, :, i, j]
