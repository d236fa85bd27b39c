"""Rotations, and attention of a few tokens over a cache that they are written to.

Keys of 16 tokens lie side by side, so lanes are tokens in the product of queries and keys, and
numbers of a value in the one with values; heads that share keys are computed together. Blocks of
keys are put together as in ``attention.py``, up to the last token alone.
"""

from __future__ import annotations

from tilewright.codegen.c.source import Writer, literal
from tilewright.graph.operations.decoding import KEYS
from tilewright.targets.cpu.instance import Instance
from tilewright.targets.cpu.planning.blocks import register_tiles, runs_of
from tilewright.targets.cpu.primitives.chain import loaded, stored
from tilewright.targets.cpu.primitives.code import (
    KernelCode,
    function,
    loops,
    parameters,
    write_call,
    write_vectors,
)

BLOCK = 256
"""Tokens whose scores lie on the stack."""


def emit_rotate(instance: Instance, code: KernelCode, writer: Writer) -> None:
    """Write the call that turns all heads of one row."""
    x, table, position = instance.tensors
    rows, heads, size = x.shape
    if instance.size("m") > 1:
        raise instance.cannot("rows are turned one by one")
    half = size // 2
    row = next((a.variable for a in instance.loops if a.dim == "m"), "0")
    steps = [instance.step(each, "h", heads) for each in (x, instance.output)]
    with function(f"{heads} heads of {size}", parameters(instance, ["long row"])) as inner:
        _write_first(inner, position.pointer, table.shape[0] - rows)
        inner.line(f"w += (first + row) * {size};")
        with loops(inner, [("h", heads)]):

            def turn(at: str, part: int) -> None:
                source, target = f"x + h * {steps[0]} + {at}", f"y + h * {steps[1]} + {at}"
                for name, place in (
                    *(("a", source), ("b", f"{source} + {half}")),
                    *(("cosine", f"w + {at}"), ("sine", f"w + {at} + {half}")),
                ):
                    inner.line(f"const vec {name} = {loaded(instance, '', place, part)};")
                for place, value in (
                    (target, "a * cosine - b * sine"),
                    (f"{target} + {half}", "b * cosine + a * sine"),
                ):
                    inner.line(stored(instance, "", place, value, part))

            write_vectors(inner, half, instance.lanes, turn, instance.lanes)
    write_call(instance, code, writer, "rotate_row", inner, [row])


def _write_first(inner: Writer, pointer: str, most: int) -> None:
    """The position of the first row, cut to what there is."""
    inner.line(
        f"const long first = *{pointer} < 0 ? 0 : *{pointer} > {most} ? {most} : *{pointer};"
    )


class _Sizes:
    """The sizes of an instance."""

    def __init__(self, instance: Instance) -> None:
        q, k, v, position, keys, values = instance.tensors
        self.rows, self.heads, self.size = (instance.size(dim) for dim in ("m", "r", "d"))
        self.groups, self.tokens = k.shape[1], values.shape[0]
        if instance.size("g") != 1:
            raise instance.cannot("groups are computed one by one")
        self.q, self.k, self.v, self.position = (o.pointer for o in (q, k, v, position))
        self.keys, self.values = keys.pointer, values.pointer
        self.row = instance.step(q, "m", self.rows)
        self.new = instance.step(k, "m", self.rows), instance.step(v, "m", self.rows)
        self.result = instance.step(instance.output, "m", self.rows)
        self.parts = -(-self.size // instance.lanes)


def emit_attention(instance: Instance, code: KernelCode, writer: Writer) -> None:
    """Write the call that attends with the heads of one group."""
    sizes = _Sizes(instance)
    with function(
        f"{sizes.rows} tokens, {sizes.heads} heads of {sizes.size}", parameters(instance)
    ) as inner:
        _write_first(inner, sizes.position, sizes.tokens - sizes.rows)
        _write_kept(inner, sizes)
        tiles = [
            (start, size)
            for size, times, begin, _ in runs_of(register_tiles(sizes.heads, 6))
            for start in range(begin, begin + size * times, size)
        ]
        with loops(inner, [("j", sizes.rows)]):
            inner.line("const long end = first + j + 1;")
            for start, size in tiles:
                with inner.block():
                    _write_heads(inner, instance, sizes, start, size)
    write_call(instance, code, writer, "cached_attention_group", inner)


def _write_kept(inner: Writer, sizes: _Sizes) -> None:
    """Keys and values of the new tokens go to their places: in lasting memory, which is the
    caller's to write."""
    size, groups = sizes.size, sizes.groups
    inner.line(f"float *keys = (float *){sizes.keys}, *values = (float *){sizes.values};")
    with loops(inner, [("j", sizes.rows), ("i", size)]):
        inner.line("const long place = first + j;")
        block = f"place / {KEYS} * {groups * size * KEYS} + i * {KEYS} + place % {KEYS}"
        inner.line(f"keys[{block}] = {sizes.k}[j * {sizes.new[0]} + i];")
        inner.line(f"values[place * {groups * size} + i] = {sizes.v}[j * {sizes.new[1]} + i];")


def _write_heads(inner: Writer, instance: Instance, sizes: _Sizes, start: int, count: int) -> None:
    """A few heads of one token: block by block of the tokens before it."""
    lanes, size, parts = instance.lanes, sizes.size, sizes.parts
    each = f"UNROLL for (int r = 0; r < {count}; r++)"
    scale = literal(float(instance.anchor.attributes["scale"]))
    query = f"{sizes.q}[j * {sizes.row} + (r + {start}) * {size} + i]"
    inner.line(f"float scores[{count}][{BLOCK}], most[{count}], sum[{count}];")
    inner.line(f"vec o[{count}][{parts}] = {{{{{{0}}}}}};")
    inner.line(f"{each} most[r] = -INFINITY, sum[r] = 0.0f;")
    with inner.block(f"for (long begin = 0; begin < end; begin += {BLOCK})"):
        inner.line(f"const long some = end - begin < {BLOCK} ? end - begin : {BLOCK};")
        with inner.block(f"for (long t = 0; t < some; t += {lanes})"):
            token = "(begin + t)"
            inner.line(
                f"const float *k = keys + {token} / {KEYS} * {sizes.groups * size * KEYS}"
                f" + {token} % {KEYS};"
            )
            inner.line(f"vec a[{count}] = {{{{0}}}};")
            with inner.block(f"for (long i = 0; i < {size}; i++)"):
                inner.line(f"const vec key = load(k + i * {KEYS});")
                inner.line(f"{each} a[r] += {query} * key;")
            inner.line(f"{each} store(scores[r] + t, a[r] * {scale});")
        with inner.block(each):
            # Lanes after the last token weigh nothing.
            inner.line(f"for (long t = some; t % {lanes}; t++)")
            inner.line("    scores[r][t] = -INFINITY;")
            inner.line("vec m = splat(-INFINITY), s = splat(0.0f);")
            inner.line("float now = most[r];")
            inner.line(f"for (long t = 0; t < some; t += {lanes})")
            inner.line("    m = max_v(load(scores[r] + t), m);")
            inner.line(f"for (int i = 0; i < {lanes}; i++)")
            inner.line("    now = m[i] > now || m[i] != m[i] ? m[i] : now;")
            with inner.block(f"for (long t = 0; t < some; t += {lanes})"):
                inner.line("const vec weight = exp_low_v(load(scores[r] + t) - now);")
                inner.line("store(scores[r] + t, weight);")
                inner.line("s += weight;")
            inner.line("const float shrunk = begin ? expf(most[r] - now) : 0.0f;")
            inner.line("sum[r] = sum[r] * shrunk + sum_v(s);")
            inner.line("most[r] = now;")
            inner.line(f"UNROLL for (int v = 0; v < {parts}; v++) o[r][v] *= shrunk;")
        stride = sizes.groups * size

        def gather(at: str, part: int) -> None:
            inner.line(f"vec a[{count}];")
            inner.line(f"{each} a[r] = o[r][{at} / {lanes}];")
            with inner.block("for (long t = 0; t < some; t++)"):
                place = f"values + (begin + t) * {stride} + {at}"
                inner.line(f"const vec value = {loaded(instance, '', place, part)};")
                inner.line(f"{each} a[r] += scores[r][t] * value;")
            inner.line(f"{each} o[r][{at} / {lanes}] = a[r];")

        write_vectors(inner, size, lanes, gather, lanes)

    def write(at: str, part: int) -> None:
        place = f"{instance.output.pointer} + j * {sizes.result} + (r + {start}) * {size} + {at}"
        with inner.block(each):
            value = f"o[r][{at} / {lanes}] / sum[r]"
            inner.line(stored(instance, "", place, value, part))

    write_vectors(inner, size, lanes, write, lanes)
