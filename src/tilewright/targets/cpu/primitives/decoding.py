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

_ROWS = 6
"""Heads and tokens that are computed together."""


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
        self.tokens = values.shape[1]
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
    remark = f"{sizes.rows} tokens, {sizes.heads} heads of {sizes.size}"
    with function(remark, parameters(instance)) as inner:
        _write_first(inner, sizes.position, sizes.tokens - sizes.rows)
        _write_kept(inner, sizes)
        for heads, times, start, _ in runs_of(register_tiles(sizes.heads, _ROWS)):
            with loops(inner, [("part", times)]):
                inner.line(f"const long head = {start} + part * {heads};")
                most = max(_ROWS // heads, 1)
                for tokens, turns, token, _ in runs_of(register_tiles(sizes.rows, most)):
                    step = f"token += {tokens}"
                    end = token + tokens * turns
                    with inner.block(f"for (long token = {token}; token < {end}; {step})"):
                        _write_rows(inner, instance, sizes, heads, tokens)
    write_call(instance, code, writer, "cached_attention_group", inner)


def _write_kept(inner: Writer, sizes: _Sizes) -> None:
    """Keys and values of the new tokens go to their places: in lasting memory, which is the
    caller's to write."""
    size = sizes.size
    inner.line(f"float *keys = (float *){sizes.keys}, *values = (float *){sizes.values};")
    with loops(inner, [("j", sizes.rows), ("i", size)]):
        inner.line("const long place = first + j;")
        block = f"place / {KEYS} * {size * KEYS} + i * {KEYS} + place % {KEYS}"
        inner.line(f"keys[{block}] = {sizes.k}[j * {sizes.new[0]} + i];")
        inner.line(f"values[place * {size} + i] = {sizes.v}[j * {sizes.new[1]} + i];")


def _write_rows(inner: Writer, instance: Instance, sizes: _Sizes, heads: int, tokens: int) -> None:
    """A few heads of a few tokens, a row each: block by block of the tokens before them."""
    lanes, size, count = instance.lanes, sizes.size, heads * tokens
    each = f"UNROLL for (int r = 0; r < {count}; r++)"
    scale = literal(float(instance.anchor.attributes["scale"]))
    inner.line(f"const long last = first + token + {tokens};")
    inner.line(f"float scores[{count}][{BLOCK}], most[{count}], sum[{count}];")
    inner.line(f"float o[{count}][{sizes.parts * lanes}] = {{{{0}}}};")
    inner.line(f"const float *q[{count}];")
    place = f"(token + r / {heads}) * {sizes.row} + (head + r % {heads}) * {size}"
    inner.line(f"{each} q[r] = {sizes.q} + {place};")
    inner.line(f"{each} most[r] = -INFINITY, sum[r] = 0.0f;")
    with inner.block(f"for (long begin = 0; begin < last; begin += {BLOCK})"):
        inner.line(f"const long some = last - begin < {BLOCK} ? last - begin : {BLOCK};")
        with inner.block(f"for (long t = 0; t < some; t += {lanes})"):
            inner.line(
                f"const float *k = keys + (begin + t) / {KEYS} * {size * KEYS} + t % {KEYS};"
            )
            # Two sums side by side: one would wait for each multiply-add.
            inner.line(f"vec a[{count}] = {{{{0}}}}, b[{count}] = {{{{0}}}};")
            with inner.block(f"for (long i = 0; i < {size}; i += 2)"):
                inner.line(f"const vec key = load(k + i * {KEYS});")
                inner.line(f"const vec next = load(k + i * {KEYS} + {KEYS});")
                inner.line(f"{each} a[r] += q[r][i] * key, b[r] += q[r][i + 1] * next;")
            inner.line(f"{each} store(scores[r] + t, (a[r] + b[r]) * {scale});")
        with inner.block(f"for (int r = 0; r < {count}; r++)"):
            _write_weights(inner, lanes, heads, sizes.parts)
        _write_values(inner, instance, sizes, count)

    def write(at: str, part: int) -> None:
        place = f"(token + r / {heads}) * {sizes.result} + (head + r % {heads}) * {size} + {at}"
        with inner.block(f"for (int r = 0; r < {count}; r++)"):
            value = f"load(o[r] + {at}) / sum[r]"
            inner.line(stored(instance, "", f"{instance.output.pointer} + {place}", value, part))

    write_vectors(inner, size, lanes, write, lanes)


def _write_weights(inner: Writer, lanes: int, heads: int, parts: int) -> None:
    """The exponentials of a row's scores; earlier results shrink as the maximum grows."""
    # Tokens after the row's own weigh nothing.
    inner.line(f"const long seen = first + token + r / {heads} + 1 - begin;")
    inner.line("long t = seen < 0 ? 0 : seen < some ? seen : some;")
    inner.line(f"for (; t < some || t % {lanes}; t++)")
    inner.line("    scores[r][t] = -INFINITY;")
    inner.line("vec m = splat(-INFINITY), s = splat(0.0f);")
    inner.line("float now = most[r];")
    inner.line(f"for (t = 0; t < some; t += {lanes})")
    inner.line("    m = max_v(load(scores[r] + t), m);")
    inner.line(f"UNROLL for (int i = 0; i < {lanes}; i++)")
    inner.line("    now = m[i] > now || m[i] != m[i] ? m[i] : now;")
    with inner.block(f"for (t = 0; t < some; t += {lanes})"):
        inner.line("const vec weight = exp_low_v(load(scores[r] + t) - now);")
        inner.line("store(scores[r] + t, weight);")
        inner.line("s += weight;")
    inner.line("const float shrunk = begin ? expf(most[r] - now) : 0.0f;")
    inner.line("sum[r] = sum[r] * shrunk + sum_v(s);")
    inner.line("most[r] = now;")
    inner.line(f"for (int v = 0; v < {parts}; v++)")
    inner.line(f"    store(o[r] + v * {lanes}, load(o[r] + v * {lanes}) * shrunk);")


def _write_values(inner: Writer, instance: Instance, sizes: _Sizes, count: int) -> None:
    """Add a block's values by their weights, as many vectors at a time as registers hold."""
    lanes, size = instance.lanes, sizes.size
    room = (24 if lanes >= 16 else 10) // count
    each = f"UNROLL for (int r = 0; r < {count}; r++)"
    for parts, times, start, _ in runs_of(register_tiles(sizes.parts, max(room, 1))):
        with loops(inner, [("piece", times)]):
            inner.line(f"const long at = ({start} + piece * {parts}) * {lanes};")
            vector = f"UNROLL for (int v = 0; v < {parts}; v++)"
            inner.line(f"vec a[{count}][{parts}];")
            inner.line(f"{each} {vector} a[r][v] = load(o[r] + at + v * {lanes});")
            with inner.block("for (long t = 0; t < some; t++)"):
                inner.line(f"const float *value = values + (begin + t) * {size} + at;")
                for v in range(parts):
                    left = min(lanes, size - (start + parts * (times - 1) + v) * lanes)
                    inner.line(
                        f"const vec v{v} = {loaded(instance, '', f'value + {v * lanes}', left)};"
                    )
                    inner.line(f"{each} a[r][{v}] += scores[r][t] * v{v};")
            inner.line(f"{each} {vector} store(o[r] + at + v * {lanes}, a[r][v]);")
