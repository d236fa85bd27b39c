"""GroupQueryAttention, the attention of ONNX Runtime's language models.

Heads of queries share heads of keys, tokens are appended to a buffer of keys and values, and
rotations are inside.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tilewright.frontends.moves import broadcast, elements_along, padded, stretch
from tilewright.frontends.onnx.lowering import Lowering, Value, dtype_of
from tilewright.frontends.onnx.microsoft.attention import join_heads, rotated
from tilewright.frontends.onnx.numbers import SHORT
from tilewright.frontends.onnx.operators.attention import repeated, split_heads
from tilewright.ir import SSAValue
from tilewright.ir.types import shape_of

PAST, LENGTHS, TOTAL, COSINES, POSITIONS, ADDED, SINK = 3, 5, 6, 7, 9, 10, 11
"""Numbers of operands; past values come after past keys, sines after cosines."""


def group_query_attention(at: Lowering) -> Sequence[Value]:
    """The result [b, s, heads * d], and the keys and values [b, kv heads, t, d] with the new ones.

    Operands: query, key, value [b, s, columns] (or the query with all three side by side), past key
    and value [b, kv heads, p, d], the number of tokens of each sequence less one [b], the total
    length, cosines and sines [positions, d/2], positions [b, s], and scores to add. The total has
    to be known at import; the tokens of each sequence are not. A past as long as the total is a
    buffer that is shared: new keys and values take their places in it.
    """
    if at.integer("smooth_softmax") > 0 or at.has(SINK) or len(at.node.outputs) > 3:
        raise at.refuse("a sink beside the keys, and scores as a result, are not computed")
    q, k, v = _projected(at)
    (batch, _, length, size) = shape_of(q)
    total = int(at.whole_at(TOTAL, "total length"))
    counts = at.cast(at.reshape(at.tensor(LENGTHS), (batch, 1)), np.int64)
    # Tokens before the new ones: in a first run none, whatever of it is padding.
    before = at.made(np.zeros((batch, 1)), counts, "before")
    if length != total:
        before = at.apply("add", counts, 1 - length)
    steps = at.weight(np.arange(length)[None], f"{at.node.name}.steps")
    positions = at.emit("add", before, steps)
    if at.integer("do_rotary"):
        tables = at.tensor(COSINES), at.tensor(COSINES + 1)
        places = at.cast(at.tensor(POSITIONS), np.int64) if at.has(POSITIONS) else positions
        apart = bool(at.integer("rotary_interleaved"))
        q, k = (rotated(at, x, places, tables, apart) for x in (q, k))
    present = [
        _appended(at, PAST + number, new, before, total) for number, new in enumerate((k, v))
    ]
    keys, values = (repeated(at, _wide(at, x), shape_of(q)[1] // shape_of(x)[1]) for x in present)
    scale = at.number("scale") or 1 / math.sqrt(size)
    scores = at.apply("mul", at.emit("matmul", _wide(at, q), keys, transpose_b=True), scale)
    if (cap := at.number("softcap")) > 0:
        scores = at.apply("mul", at.emit("tanh", at.apply("div", scores, cap)), cap)
    if at.has(ADDED):
        added = _wide(at, at.tensor(ADDED))
        short = shape_of(keys)[2] - shape_of(added)[3]
        scores = at.emit("add", scores, padded(at, added, {3: (0, short)}) if short else added)
    scores = at.emit("add", scores, _hidden(at, positions, shape_of(keys)[2], scores))
    y = at.emit("matmul", at.emit("softmax", scores, axis=3), values)
    results: list[Value] = [at.cast(join_heads(at, y), at.dtype(0)), *present]
    return results[: len(at.node.outputs)]


def _projected(at: Lowering) -> list[SSAValue]:
    """Query, key and value as [b, heads, s, d]."""
    heads, fewer = at.integer("num_heads"), at.integer("kv_num_heads")
    shape = at.shape(0)
    if len(shape) != 3 or min(heads, fewer) < 1 or heads % fewer or at.has(1) != at.has(2):
        raise at.misfit(f"{heads} heads of queries and {fewer} of keys do not fit {list(shape)}")
    if at.has(1):
        parts = [at.tensor(number) for number in range(3)]
    else:
        if shape[2] % (heads + 2 * fewer):
            raise at.misfit(f"{shape[2]} columns do not divide into {heads} + 2 x {fewer} heads")
        size = shape[2] // (heads + 2 * fewer)
        ends = [0, heads * size, (heads + fewer) * size, shape[2]]
        parts = [stretch(at, at.tensor(0), 2, *ends[n : n + 2]) for n in range(3)]
    counts = heads, fewer, fewer
    for part, count in zip(parts, counts, strict=True):
        if len(shape_of(part)) != 3 or shape_of(part)[2] % count:
            raise at.misfit(f"{list(shape_of(part))} does not divide into {count} heads")
    return [split_heads(at, part, count) for part, count in zip(parts, counts, strict=True)]


def _wide(at: Lowering, value: SSAValue) -> SSAValue:
    """Short floats as float32."""
    return at.cast(value, np.float32) if dtype_of(value) in SHORT else value


def _appended(at: Lowering, index: int, new: SSAValue, before: SSAValue, total: int) -> SSAValue:
    """The past with what is new after the first ``before`` tokens of each sequence."""
    batch, heads, length, size = shape_of(new)
    past = at.shape(index)[2] if at.has(index) else 0
    long = max(past, total)
    if past and at.shape(index) != (batch, heads, past, size):
        raise at.misfit(f"its past has shape {list(at.shape(index))}")
    if long == length:
        return new
    old = padded(at, at.tensor(index), {2: (0, long - past)}) if past else None
    places = at.weight(np.arange(long)[None], f"{at.node.name}.places")
    steps = at.emit("sub", places, before)
    taken = at.apply("min", at.apply("max", steps, 0), length - 1)
    taken = at.reshape(taken, (batch, 1, long, 1))
    shape = batch, heads, long, size
    moved = new if length == 1 else elements_along(at, new, broadcast(at, taken, shape), 2)
    if old is None:
        old = at.made(0, moved)
    ends = at.weight(np.array([[length]]), f"{at.node.name}.end")
    least = at.weight(np.array([[-1]]), f"{at.node.name}.first")
    fresh = at.emit("bit_and", at.emit("less", least, steps), at.emit("less", steps, ends))
    return at.emit("select", at.reshape(fresh, (batch, 1, long, 1)), moved, old)


def _hidden(at: Lowering, positions: SSAValue, total: int, like: SSAValue) -> SSAValue:
    """Minus infinity for keys after a query, and before its window; [b, 1, s, t]."""
    batch, length = shape_of(positions)
    queries = at.reshape(positions, (batch, 1, length, 1))
    places = at.weight(np.arange(total)[None, None, None], f"{at.node.name}.keys")
    seen = at.emit("less_equal", places, queries)
    if (window := at.integer("local_window_size", -1)) >= 0:
        after = at.emit("less", at.apply("sub", queries, window), places)
        seen = at.emit("bit_and", seen, after)
    return at.emit("select", seen, at.made(0, like), at.made(-np.inf, like))
