"""Products with matrices in blocks of small integers (numerics/blocks.py).

A vector holds a word of as many rows as it has lanes. A shift and a mask leave two codes of 16 bits
in each lane, which one instruction multiplies with two rounded numbers and adds up (vpdpwssd,
vpmaddwd and what stands for them, integers.h): sums of a block are exact. They are scaled once for
each block. A group of rows stays in the first cache while the points pass it, a few at a time.
"""

from __future__ import annotations

from tilewright.codegen.c.address import Address
from tilewright.codegen.c.source import Writer, literal, plus
from tilewright.numerics.blocks import GROUP
from tilewright.targets.cpu.instance import Instance
from tilewright.targets.cpu.planning.blocks import register_tiles, runs_of
from tilewright.targets.cpu.primitives.chain import Lanes
from tilewright.targets.cpu.primitives.code import (
    KernelCode,
    function,
    loops,
    parameters,
    write_call,
)

_AHEAD = 1024
"""Words by which the codes are fetched ahead: one core then reads from main memory at the rate of a
loop that copies (31 GB/s on a core of an EPYC, without 26), and 0.8 of one that reads alone."""


class _Form:
    """The numbers of a matrix in blocks, as C has them."""

    def __init__(self, instance: Instance, codes: Address, scales: Address) -> None:
        values = instance.anchor.attributes
        self.bits, self.block = int(values["bits"]), int(values["block"])
        self.zero = int(values.get("zero", -1))
        self.codes, self.scales = codes, scales
        self.pairs = 16 // self.bits
        self.words = self.block * self.bits // 32
        """Words of a block of a row."""
        self.sides = 1 + (self.zero < 0)
        """Scales, and minima, of a block."""
        self.count = codes.shape[1] * 8 // self.bits // self.block
        """Blocks of a row."""

    @property
    def mask(self) -> str:
        """C of what leaves one pair of codes."""
        return hex((2**self.bits - 1) * 0x10001)

    def scale(self, place: str) -> str:
        """C of a vector of scales."""
        suffix = "" if self.scales.element == "float32" else f"_{self.scales.element}"
        return f"load{suffix}({place})"


def emit_matmul(instance: Instance, code: KernelCode, writer: Writer) -> None:
    """Write the call that computes some groups of rows for some points."""
    x = instance.tensor(0)
    form = _Form(instance, instance.tensor(1), instance.tensor(2))
    points, rows, lanes = instance.size("m"), instance.size("co"), instance.lanes
    if rows % GROUP:
        raise instance.cannot("rows are in groups")
    remark = f"{points} points x {rows} rows of {form.count} blocks of {form.block}"
    with function(remark, parameters(instance)) as inner, loops(inner, [("n", rows // lanes)]):
        for size, times, start, _ in runs_of(register_tiles(points, 8 if lanes >= 16 else 4)):
            with loops(inner, [("tile", times)]):
                _write_rows(inner, instance, form, x, (f"({start} + tile * {size})", size))
    write_call(instance, code, writer, "block_matmul_tile", inner)


def _write_rows(
    inner: Writer, instance: Instance, form: _Form, x: Address, points: tuple[str, int]
) -> None:
    """Vector n of rows by a few points: all blocks, then what follows the product."""
    first, count = points
    lanes, each = instance.lanes, x.shape[-1]
    per_point = x.shape[-2] * each
    point = f"UNROLL for (int j = 0; j < {count}; j++)"
    for kind, name, pointer, step in (
        ("int32_t", "words", "(const int32_t *)w", form.words),
        (form.scales.c_type, "scales", form.scales.pointer, form.sides),
    ):
        parts = GROUP // lanes
        place = f"n / {parts} * {form.count * step * GROUP} + n % {parts} * {lanes}"
        inner.line(f"const {kind} *{name} = {pointer} + {place};")
    inner.line(f"const int32_t *p = {plus(x.pointer, f'{first} * {per_point}')};")
    inner.line(f"vec total[{count}] = {{{{0}}}};")
    with inner.block(f"for (long block = 0; block < {form.count}; block++, p += {each})"):
        # Of one point two sums run side by side, as one would wait for each addition.
        sums = 2 if count == 1 else 1
        inner.line(f"ivec sum[{count * sums}];")
        start = "0" if form.zero < 0 else f"-{form.zero} * p[j * {per_point} + {each - 1}]"
        inner.line(f"{point} sum[j] = splat_int({start});")
        if sums > 1:
            inner.line("sum[1] = splat_int(0);")
        with inner.block(f"UNROLL for (int i = 0; i < {form.words}; i++, words += {GROUP})"):
            inner.line("const ivec word = load_int32(words);")
            inner.line(f"fetch_near(words + {_AHEAD});")
            for pair in range(form.pairs):
                shifted = f"word >> {pair * form.bits}" if pair else "word"
                number = f"p[j * {per_point} + i * {form.pairs} + {pair}]"
                with inner.block():
                    inner.line(f"const ivec codes = {shifted} & {form.mask};")
                    target = f"sum[j + {pair % 2}]" if sums > 1 else "sum[j]"
                    added = f"multiply_add_v({target}, splat_int({number}), codes)"
                    inner.line(f"{point} {target} = {added};")
        if sums > 1:
            inner.line("sum[0] += sum[1];")
        inner.line(f"const vec scale = {form.scale('scales')};")
        if form.zero < 0:
            inner.line(f"const vec least = {form.scale(f'scales + {GROUP}')};")
        inner.line(f"scales += {form.sides * GROUP};")
        with inner.block(point):
            inner.line(f"const float size = scale_of(p[j * {per_point} + {each - 2}]);")
            inner.line("total[j] += __builtin_convertvector(sum[j], vec) * (scale * size);")
            if form.zero < 0:
                number = f"(float)p[j * {per_point} + {each - 1}]"
                inner.line(f"total[j] += least * (size * {number});")
    with inner.block(point):
        move = ("m", instance.size("m"), f"({first} + j)")
        inner.line("const vec t = total[j];")
        Lanes(instance, "co", "n", lanes, [move]).finish(inner, "t")


def emit_round(instance: Instance, code: KernelCode, writer: Writer) -> None:
    """Write the call that rounds one row."""
    block = int(instance.anchor.attributes["block"])
    count, each = instance.output.shape[-2:]
    if instance.size("m") > 1 or block % instance.lanes:
        raise instance.cannot("rows are rounded one by one, in whole vectors")
    remark = f"{count} blocks of {block}"
    with function(remark, parameters(instance)) as inner, loops(inner, [("block", count)]):
        inner.line(f"round_block(x + block * {block}, y + block * {each}, {block});")
    write_call(instance, code, writer, "block_round_row", inner)


def emit_gather(instance: Instance, code: KernelCode, writer: Writer) -> None:
    """Write the call that looks one row up."""
    form = _Form(instance, instance.tensor(0), instance.tensor(1))
    (index, rows), one = (instance.tensor(2), form.codes.shape[0]), "scale"
    group = form.count * form.words * GROUP
    suffix = {"float16": "float_of_half", "float32": ""}[form.scales.element]
    scales = form.scales.pointer
    with function(f"one of {rows} rows", parameters(instance)) as inner:
        inner.line(f"int64_t row = *{index.pointer};")
        inner.line(f"row += row < 0 ? {rows} : 0;")
        inner.line(f"row = row < 0 ? 0 : row >= {rows} ? {rows - 1} : row;")
        inner.line(f"const long group = row / {GROUP}, lane = row % {GROUP};")
        inner.line(f"const uint32_t *words = (const uint32_t *)w + group * {group} + lane;")
        with loops(inner, [("block", form.count)]):
            place = f"(group * {form.count} + block) * {form.sides * GROUP} + lane"
            inner.line(f"const float scale = {suffix}({scales}[{place}]);")
            if form.zero < 0:
                inner.line(f"const float least = {suffix}({scales}[{place} + {GROUP}]);")
            with loops(inner, [("i", form.words), ("pair", form.pairs)]):
                inner.line(
                    f"const uint32_t codes = words[(block * {form.words} + i) * {GROUP}] "
                    f">> (pair * {form.bits}) & {form.mask};"
                )
                inner.line(f"float *t = y + block * {form.block} + (i * {form.pairs} + pair) * 2;")
                for half, codes in enumerate(("(codes & 0xffff)", "(codes >> 16)")):
                    value = f"(float){codes}"
                    if form.zero >= 0:
                        value = f"({value} - {literal(form.zero)}) * {one}"
                    else:
                        value = f"{value} * {one} + least"
                    inner.line(f"t[{half}] = {value};")
    write_call(instance, code, writer, "block_gather_row", inner)
