"""The instructions of a DaVinci core that kernels use: their arguments and what they touch.

Names, order and units of arguments are CCE's for dav-c100; shim/cce.h has their meaning on the
host. Lengths are in the instruction's units, offsets of places in bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.codegen.nest.value import Expr, Value, apart, of
from tilewright.errors import refuse
from tilewright.targets.ascend.machine import (
    BLOCK,
    CUBE,
    FRACTAL,
    MAX_BURSTS,
    MAX_FIELD,
    MAX_JUMP,
    MAX_MAD,
    MAX_PAD,
    MAX_REPEAT,
    MAX_STRIDE,
    REPEAT_BLOCKS,
)
from tilewright.targets.ascend.program import Buffer, Command, Loop, Place, Region, Statement

WIDTHS = {
    "half": 2,
    "float": 4,
    "int32_t": 4,
    "int16_t": 2,
    "uint16_t": 2,
    "int64_t": 8,
    "uint8_t": 1,
    "int8_t": 1,
}
"""Bytes of the element types of pointers."""

ELEMENTS = {
    "float32": "float",
    "float16": "half",
    "int8": "int8_t",
    "int32": "int32_t",
    "bool": "uint8_t",
}
"""Element types of values -> those of CCE C."""

INDEX_ELEMENTS = {"int64": "int64_t", "int32": "int32_t"}
"""Element types of indices of look-ups, which the scalar unit reads -> those of CCE C."""

COPIES = {
    ("gm", "ub"): ("copy_gm_to_ubuf", "MTE2"),
    ("gm", "cbuf"): ("copy_gm_to_cbuf", "MTE2"),
    ("ub", "gm"): ("copy_ubuf_to_gm", "MTE3"),
    ("ub", "cbuf"): ("copy_ubuf_to_cbuf", "MTE3"),
    ("cbuf", "ub"): ("copy_cbuf_to_ubuf", "MTE1"),
    ("ub", "ub"): ("copy_ubuf_to_ubuf", "V"),
}
"""Source and target memory -> the instruction and its pipe."""


PARTS = "cut the layer's extents in parts (Split before it, Concat after it)"
LAYER = "a layer of smaller windows, strides, dilations or padding"
"""The remedy where a number is too large for a field: an extent's, or the layer's own."""


def _within(what: str, value: Value, most: int, *, least: int = 0, help: str = PARTS) -> None:
    """Refuse a number that a field does not hold; expressions are checked by who writes them."""
    if isinstance(value, int) and not least <= value <= most:
        reason = f"{what} is {value}, but a field holds {least} to {most}"
        raise refuse("lower-field", reason, help=help)


def copy(
    dst: Place,
    src: Place,
    bursts: Value,
    length: Value,
    src_gap: Value = 0,
    dst_gap: Value = 0,
) -> Command:
    """Bursts of blocks of 32 bytes; gaps are from the end of one to the start of the next."""
    name, pipe = COPIES[src.memory, dst.memory]
    _within("the number of bursts", bursts, MAX_BURSTS, least=1)
    _within("the length of a burst", length, MAX_FIELD, least=1)
    _within("a gap between bursts", src_gap, MAX_FIELD)
    _within("a gap between bursts", dst_gap, MAX_FIELD)
    pad = ("PAD_NONE",) if dst.memory == "cbuf" and src.memory == "gm" else ()
    size = length * BLOCK
    return Command(
        name,
        pipe,
        (dst, src, 0, bursts, length, src_gap, dst_gap, *pad),
        (Region(src, size, (bursts,), ((length + src_gap) * BLOCK,)),),
        (Region(dst, size, (bursts,), ((length + dst_gap) * BLOCK,)),),
    )


def copies(
    dst: Place,
    src: Place,
    bursts: Value,
    length: Value,
    src_gap: Value,
    dst_gap: Value,
    reach: int,
) -> Statement:
    """``copy``, or one for each burst where a gap may be ``reach`` blocks, more than a field
    holds."""
    if reach <= MAX_FIELD:
        return copy(dst, src, bursts, length, src_gap, dst_gap)
    loop = Loop("q", bursts)
    to, of = (
        place.at(loop.variable * ((length + gap) * BLOCK))
        for place, gap in ((dst, dst_gap), (src, src_gap))
    )
    loop.body.append(copy(to, of, 1, length))
    return loop


def load(dst: Place, src: Place, repeat: Value, stride: Value, *, transpose: bool) -> Command:
    """Fractals from L1 to L0A or L0B, ``stride`` apart there and side by side here."""
    _within("the number of fractals", repeat, MAX_REPEAT, least=1)
    _within("the stride between fractals", stride, MAX_FIELD)
    return Command(
        f"load_cbuf_to_{dst.memory}",
        "MTE1",
        (dst, src, 0, repeat, stride, 0, int(transpose), "inc"),
        (Region(src, FRACTAL, (repeat,), (stride * FRACTAL,)),),
        (Region(dst, repeat * FRACTAL),),
    )


def mad(
    c: Place, a: Place, b: Place, m: Value, k: Value, n: Value, first: Value, barrier_blocks: int
) -> Command:
    """c (+)= a b for c of m x n; k is summed, of which a block has 16 halves, or 32 integers of 8
    bits. Sums of few blocks need a barrier between."""
    for what, value in (("m", m), ("k", k), ("n", n)):
        _within(f"{what} of a product", value, MAX_MAD, least=1)
    blocks = _blocks(m) * _blocks(n)
    depth = _blocks(k, BLOCK // WIDTHS[element_of(a)])
    spaced = Expr(f"{blocks} >= {barrier_blocks}", f"{of(blocks).python} >= {barrier_blocks}")
    sums = Region(c, blocks * 1024)
    return Command(
        "mad",
        "M",
        (c, a, b, m, k, n, first),
        (
            Region(a, _blocks(m) * depth * FRACTAL),
            Region(b, _blocks(n) * depth * FRACTAL),
            # Of the first product of a block this is nothing, but it is written all the same.
        ),
        (sums,),
        spaced,
        blocks * depth,
    )


def _blocks(value: Value, size: int = CUBE) -> Value:
    return (value + (size - 1)) // size


def cc_to_ub(
    dst: Place, src: Place, bursts: Value, length: Value, mode: str, dst_gap: Value = 0
) -> Command:
    """Results as they leave L0C, ``length`` blocks of 16 x 16 a burst, converted on the way; the
    gap between bursts in UB counts blocks of 32 bytes."""
    _within("the number of bursts", bursts, MAX_BURSTS, least=1)
    _within("the length of a burst", length, MAX_FIELD, least=1)
    size = FRACTAL if mode.startswith("CRMODE_F32toF16") else 2 * FRACTAL
    return Command(
        "copy_matrix_cc_to_ubuf",
        "V",
        (dst, src, 0, bursts, length, 0, dst_gap, mode),
        (Region(src, bursts * length * 1024),),
        (Region(dst, length * size, (bursts,), (length * size + dst_gap * BLOCK,)),),
    )


@dataclass(frozen=True)
class FeatureMap:
    """An image in L1, and the window that slides over it; rows first where two numbers belong."""

    place: Place
    height: Value
    width: int
    pads: tuple[Value, Value, int, int]
    """Above, below, left, right."""
    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]

    def settings(self) -> Command:
        """``set_fmatrix``: sizes and padding, for the loads that follow."""
        top, bottom, left, right = self.pads
        _within("the width of an image", self.width, MAX_FIELD, least=1)
        _within("the height of an image", self.height, MAX_FIELD)
        for pad in self.pads:
            _within("the padding of an image", pad, MAX_PAD, help=LAYER)
        value: Value = self.width + (left << 32) + (right << 40)
        # Each field is one value: the multiples of its terms, shifted, may exceed 64 bits.
        for field, shift in ((self.height, 16), (top, 48), (bottom, 56)):
            value = apart(field) * (1 << shift) + value
        return Command("set_fmatrix", "S", (value,))


def padding(value: int) -> Command:
    """``set_padding``: what stands for padding in the windows that follow, a byte twice."""
    return Command("set_padding", "S", ((value & 0xFF) * 0x0101,))


def img2col(
    dst: Place,
    image: FeatureMap,
    tap: tuple[Value, Value],
    corner: tuple[Value, Value],
    channel: Value,
    repeat: Value,
    jump: Value,
) -> Command:
    """A column of fractals of L0A: 16 channels at one tap of the window, of 16 positions each.

    ``corner`` is where the window of the first position begins, rows and columns of the image;
    ``channel`` which 16 of the image's; fractals lie ``jump`` apart.
    """
    _within("the number of fractals", repeat, MAX_REPEAT, least=1)
    _within("the stride between fractals", jump, MAX_JUMP, least=1)
    _within("a stride of a window", max(image.strides), MAX_STRIDE, least=1, help=LAYER)
    _within("the size of a window", max(image.kernel), MAX_REPEAT, least=1, help=LAYER)
    _within("the dilation of a window", max(image.dilations), MAX_REPEAT, least=1, help=LAYER)
    plane = image.height * (image.width * BLOCK)
    (dy, dx), (y, x) = tap, corner
    sizes = (*reversed(image.strides), *reversed(image.kernel), *reversed(image.dilations))
    step = image.strides[1]
    return Command(
        "img2col_cbuf_to_ca",
        "MTE1",
        (dst, image.place, dx, dy, x, y, channel, *sizes, jump, 1, repeat, 0),
        (Region(image.place.at(channel * plane), plane),),
        (Region(dst, FRACTAL, (repeat,), (jump * FRACTAL,)),),
        # 256 bytes a cycle, fewer where the window moves by more than a column.
        cycles=repeat * (2 if step == 1 else min(step + 2, 16)),
    )


MASK_WORD = 1 << 32
"""A mask that depends on a length is computed modulo this: of the lower half of a word."""


def mask_from(first: Value) -> Command:
    """The mask of the floats from ``first`` on, 0 to 15, of each of two rows of 16; the others of a
    repeat are left out."""
    below: Value = 1
    for bit in (1, 2, 4, 8):
        # 2 ** bit where the bit is set, as wide as the length is in C.
        below = (first // bit % 2 * ((1 << bit) - 1) + 1) * below
    return mask("0x0ULL", (65536 - below) * 65537 % MASK_WORD)


def mask(high: Value | str, low: Value | str) -> Command:
    """Set the mask of elements that later vector operations compute in each repeat."""
    return Command("set_vector_mask", "S", (high, low))


def mask_of(lanes: int, elements: int) -> Command:
    """The mask of the first ``elements`` elements of a repeat of ``lanes`` lanes."""
    whole = (1 << elements) - 1
    if lanes == 64:
        return mask("0x0ULL", f"{whole:#x}ULL")
    return mask(f"{whole >> 64:#x}ULL", f"{whole & (1 << 64) - 1:#x}ULL")


def _check_repeats(repeat: Value, *strides: Value) -> None:
    _within("the number of repeats", repeat, MAX_REPEAT)
    for stride in strides:
        _within("a stride", stride, MAX_REPEAT)


def vector(
    name: str,
    dst: Place,
    sources: Sequence[Place],
    repeat: Value,
    blocks: Sequence[Value],
    repeats: Sequence[Value],
    scalar: str = "",
    lanes: int | None = None,
) -> Command:
    """A vector operation: block strides and repeat strides of the result and each source.

    ``lanes`` are the elements of each repeat that the mask lets through, all if none are given.
    """
    _check_repeats(repeat, *blocks, *repeats)
    places = (dst, *sources)
    wide = max(WIDTHS[element_of(place)] for place in places)
    regions: list[Region] = []
    for place, block, step in zip(places, blocks, repeats, strict=True):
        width = WIDTHS[element_of(place)]
        elements = REPEAT_BLOCKS * BLOCK // wide if lanes is None else lanes
        count = -(-elements * width // BLOCK)
        regions.append(Region(place, BLOCK, (repeat, count), (step * BLOCK, block * BLOCK)))
    arguments: tuple[object, ...] = (dst, *sources, *((scalar,) if scalar else ()), repeat)
    arguments = (*arguments, *blocks, *repeats)
    if not sources:
        # vector_dup has the fields of a source, which it does not read.
        arguments = (dst, scalar, repeat, blocks[0], 1, repeats[0], 8)
    if name == "vsel":
        regions.append(Region(CMPMASK, LANES // 8))
    slow = 1
    if name in ("vdiv", "vexp", "vln", "vsqrt"):
        # 32 elements a cycle, whatever their width.
        slow = REPEAT_BLOCKS * BLOCK // wide // 32
    return Command(
        name, "V", arguments, tuple(regions[1:]), tuple(regions[:1]), cycles=repeat * slow
    )


LANES = 128
"""Halves of a repeat."""

CMPMASK = Place(Buffer("cmpmask", "cmpmask", 0, BLOCK, element="uint8_t"))
"""The register by which ``vsel`` chooses: 128 bits."""


def compare(
    relation: str,
    bits: Place,
    sources: tuple[Place, Place],
    repeat: Value,
    blocks: Sequence[Value],
    repeats: Sequence[Value],
) -> Command:
    """Compare the halves of whole repeats into one bit each, repeat after repeat; the mask plays no
    part."""
    _check_repeats(repeat, *blocks, *repeats)
    reads = tuple(
        Region(place, BLOCK, (repeat, REPEAT_BLOCKS), (step * BLOCK, block * BLOCK))
        for place, block, step in zip(sources, blocks, repeats, strict=True)
    )
    writes = (Region(bits, repeat * (LANES // 8)),)
    arguments = (bits, *sources, repeat, 1, *blocks, 8, *repeats)
    return Command(f"vcmpv_{relation}", "V", arguments, reads, writes, cycles=repeat)


def set_cmpmask(bits: Place) -> Command:
    """The 128 bits by which later ``vsel`` choose."""
    size = LANES // 8
    reads, writes = (Region(bits, size),), (Region(CMPMASK, size),)
    return Command("set_cmpmask", "V", (bits,), reads, writes, cycles=1)


def scatter_rows(
    dst: tuple[Place, Sequence[int], int], src: tuple[Place, Sequence[int], int], repeat: int
) -> list[Command]:
    """Transposes of 16 x 16 elements of 2 bytes.

    Of each side: a place, the bytes from there to each of the 16 rows, and blocks from repeat to
    repeat.
    """
    _within("the number of repeats", repeat, MAX_REPEAT, least=1)
    registers: list[Command] = []
    regions: list[tuple[Region, ...]] = []
    for place, offsets, step in (dst, src):
        _within("a stride", step, MAX_FIELD)
        rows = [place.at(offset) for offset in offsets]
        for half in (rows[:8], rows[8:]):
            registers.append(Command("set_va_reg_sb", "S", (f"VA{len(registers)}", tuple(half))))
        regions.append(
            tuple(
                Region(place.at(first), BLOCK, (*counts, repeat), (*strides, step * BLOCK))
                for first, counts, strides in _grids(sorted(set(offsets)))
            )
        )
    strides = (dst[2], src[2]) if repeat > 1 else (0, 0)
    arguments = ("VA0", "VA2", repeat, *strides)
    operation = Command(
        "scatter_vnchwconv_b16", "V", arguments, regions[1], regions[0], cycles=2 * repeat
    )
    return [*registers, operation]


def _grids(
    offsets: Sequence[int],
) -> list[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    """Ascending offsets as few regular grids: where each begins, its counts and strides."""
    for inner in (len(offsets), 8, 4, 2):
        if len(offsets) % inner:
            continue
        outer = len(offsets) // inner
        across = offsets[inner] - offsets[0] if outer > 1 else 0
        along = offsets[1] - offsets[0] if inner > 1 else 0
        regular = [offsets[0] + i * across + j * along for i in range(outer) for j in range(inner)]
        if regular == list(offsets):
            return [(offsets[0], (outer, inner), (across, along))]
    return [(offset, (), ()) for offset in offsets]


def element_of(place: Place) -> str:
    """The element type of a place's pointer."""
    return place.element or place.home.element
