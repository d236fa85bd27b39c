"""Attention as ONNX Runtime's transformers have it: projections, masks, a past."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tilewright.frontends.moves import cut, element_at, stretch
from tilewright.frontends.onnx.lowering import Lowering, Value
from tilewright.frontends.onnx.operators.attention import split_heads
from tilewright.frontends.onnx.operators.quantisation import operand
from tilewright.ir import SSAValue
from tilewright.ir.types import shape_of

LOWEST = float(np.finfo(np.float32).min)


def attention(at: Lowering) -> Sequence[Value]:
    """Self-attention with projections: operands x [b, s, h], weights [h, q + k + v], bias, a mask,
    a past [2, b, heads, p, d], and scores to add."""
    heads, shape, width = at.integer("num_heads"), at.shape(0), at.shape(1)
    if len(shape) != 3 or len(width) != 2 or heads < 1:
        raise at.misfit("its operands are not [b, s, h] and [h, 3 h]")
    if at.integer("do_rotary") or at.has(6) or at.integer("past_present_share_buffer"):
        raise at.refuse("rotary embeddings and buffers that it shares are not computed")
    sizes = at.integers("qkv_hidden_sizes") or (width[1] // 3,) * 3
    if len(sizes) != 3 or sum(sizes) != width[1] or any(size % heads for size in sizes):
        raise at.refuse(f"its {width[1]} columns do not divide into {heads} heads")
    rows = at.reshape(at.tensor(0), (shape[0] * shape[1], shape[2]))
    packed = at.emit("matmul", rows, at.tensor(1))
    if at.has(2):
        packed = at.emit("add", packed, at.tensor(2))
    packed = at.reshape(packed, (shape[0], shape[1], width[1]))
    parts: list[SSAValue] = []
    start = 0
    for size in sizes:
        parts.append(split_heads(at, stretch(at, packed, 2, start, start + size), heads))
        start += size
    q, k, v = parts
    past = _past(at, 4)
    k, v = (_after(at, old, new) for old, new in zip(past, (k, v), strict=True))
    y = _attend(at, q, k, v, 3, 5)
    results: list[Value] = [y]
    if len(at.node.outputs) > 1:
        wide = [at.reshape(part, (1, *shape_of(part))) for part in (k, v)]
        results.append(at.emit("concat", *wide, axis=0))
    return results


def quantised_attention(at: Lowering) -> Sequence[Value]:
    """Attention of quantised x and weights: operands x, weights, bias, the scales of both, a mask,
    the zero points of both, and a past."""
    x, weights, bias, x_scale, scale, mask, x_zero, zero, past = (
        at.operands[place] if at.has(place) else None for place in range(9)
    )
    first = operand(at.like([x, x_scale, x_zero]), 0)
    second = operand(at.like([weights, scale, zero]), 0, -1)
    return attention(at.like([first, second, bias, mask, past]))


def multi_head_attention(at: Lowering) -> Sequence[Value]:
    """Attention of projected tensors: operands query, key, value [b, s, h], a bias of all three, a
    mask of keys, scores to add, and a past key and value [b, heads, p, d].

    Key and value may also be [b, heads, t, d], as what a decoder keeps of its encoder is: those are
    taken as they are, without a bias.
    """
    heads = at.integer("num_heads")
    shapes = [at.shape(index) for index in range(3)] if at.has(1) and at.has(2) else []
    ready = [len(shape) == 4 for shape in shapes]
    if ready not in ([False] * 3, [False, True, True]) or any(len(s) not in (3, 4) for s in shapes):
        raise at.misfit(
            "its query is not [b, s, h], with key and value [b, t, h] or [b, heads, t, d]"
        )
    if ready[1] and {shape[1] for shape in shapes[1:]} != {heads}:
        raise at.misfit(f"its key and value do not have {heads} heads")
    widths = [s[1] * s[3] if len(s) == 4 else s[2] for s in shapes]
    if heads < 1 or any(width % heads for width in widths):
        raise at.misfit(f"{widths} columns do not divide into {heads} heads")
    parts: list[SSAValue] = []
    start = 0
    for index, width in enumerate(widths):
        value = at.tensor(index)
        if ready[index]:
            parts.append(value)
            continue
        if at.has(3):
            value = at.emit("add", value, stretch(at, at.tensor(3), 0, start, start + width))
        parts.append(split_heads(at, value, heads))
        start += width
    q, k, v = parts
    k, v = (
        _after(at, at.tensor(index) if _started(at, index) else None, new)
        for index, new in ((6, k), (7, v))
    )
    y = _attend(at, q, k, v, 4, 5)
    return [y, k, v][: len(at.node.outputs)]


def rotary_embedding(at: Lowering) -> Value:
    """Rotation of pairs of features by angles of their positions (Su et al., "RoFormer", 2021).

    Operands x [b, s, h] or [b, heads, s, d], positions [1] or [b, s], cosines and sines [p, d/2].
    """
    shape = at.shape(0)
    half = at.shape(2)[-1]
    if at.integer("is_packed_batching") or len(shape) not in (3, 4) or len(at.shape(2)) != 2:
        raise at.misfit("its input is not [b, s, h] or [b, heads, s, d]")
    heads = at.integer("num_heads")
    if len(shape) == 4:
        x = at.tensor(0)
    else:
        heads = heads if at.integer("rotary_embedding_dim") else shape[2] // (2 * half)
        if heads < 1 or shape[2] % heads:
            raise at.refuse("its number of heads is missing")
        x = split_heads(at, at.tensor(0), heads)
    length, size = shape_of(x)[2:]
    if 2 * half > size:
        raise at.misfit("its cosines have more features than a head")
    positions = at.cast(at.tensor(1), np.int64)
    if math.prod(shape_of(positions)) == 1:
        steps = at.weight(np.arange(length), f"{at.node.name}.steps")
        positions = at.emit("add", at.reshape(positions, (1,)), steps)
        positions = at.reshape(positions, (1, length))
    y = rotated(at, x, positions, (at.tensor(2), at.tensor(3)), bool(at.integer("interleaved")))
    return y if len(shape) == 4 else join_heads(at, y)


def rotated(
    at: Lowering,
    x: SSAValue,
    positions: SSAValue,
    tables: tuple[SSAValue, SSAValue],
    interleaved: bool,
) -> SSAValue:
    """Features [b, heads, s, d] rotated by the angles of positions [b or 1, s], whose cosines and
    sines are in tables [p, r/2]: the first r of d features, whose pairs lie side by side where they
    are ``interleaved``, else half of r apart."""
    batch, heads, length, size = shape_of(x)
    half = shape_of(tables[0])[-1]
    rows = [at.emit("gather", table, positions, axis=0) for table in tables]
    cosine, sine = (at.reshape(row, (shape_of(row)[0], 1, length, half)) for row in rows)
    turned = cut(at, x, {3: (0, 2 * half, 1)})
    if interleaved:
        pairs = at.reshape(turned, (batch, heads, length, half, 2))
        left, right = (element_at(at, pairs, 4, i) for i in (0, 1))
    else:
        left, right = cut(at, turned, {3: (0, half, 1)}), cut(at, turned, {3: (half, 2 * half, 1)})
    first = at.emit("sub", at.emit("mul", left, cosine), at.emit("mul", right, sine))
    second = at.emit("add", at.emit("mul", left, sine), at.emit("mul", right, cosine))
    if interleaved:
        wide = [at.reshape(part, (batch, heads, length, half, 1)) for part in (first, second)]
        y = at.reshape(at.emit("concat", *wide, axis=4), (batch, heads, length, 2 * half))
    else:
        y = at.emit("concat", first, second, axis=3)
    if 2 * half < size:
        y = at.emit("concat", y, cut(at, x, {3: (2 * half, size, 1)}), axis=3)
    return y


def join_heads(at: Lowering, x: SSAValue) -> SSAValue:
    """Transpose and reshape [b, heads, s, d] to [b, s, heads * d]."""
    batch, heads, length, size = shape_of(x)
    return at.reshape(at.transpose(x, (0, 2, 1, 3)), (batch, length, heads * size))


def _started(at: Lowering, index: int) -> bool:
    """Return True if there is a past, of one step or more: the first of a text has none."""
    return at.has(index) and 0 not in at.shape(index)


def _past(at: Lowering, index: int) -> tuple[SSAValue | None, SSAValue | None]:
    if not _started(at, index):
        return None, None
    shape = at.shape(index)
    if len(shape) != 5 or shape[0] != 2:
        raise at.misfit(f"its past has shape {list(shape)}")
    x = at.tensor(index)
    key, value = (element_at(at, x, 0, i) for i in (0, 1))
    return key, value


def _after(at: Lowering, past: SSAValue | None, now: SSAValue) -> SSAValue:
    return now if past is None else at.emit("concat", past, now, axis=2)


def _attend(at: Lowering, q: SSAValue, k: SSAValue, v: SSAValue, mask: int, added: int) -> SSAValue:
    """softmax(q @ k^T * scale + masks) @ v, the heads joined again."""
    (batch, _, length, size), total = shape_of(q), shape_of(k)[2]
    scale = at.number("scale", 0.0) or 1.0 / math.sqrt(size)
    scores = at.emit("matmul", at.apply("mul", q, scale), k, transpose_b=True)
    if at.has(added):
        scores = at.emit("add", scores, at.tensor(added))
    hidden = _hidden(at, mask, batch, length, total)
    if hidden is not None:
        scores = at.emit("add", scores, hidden)
    if at.integer("unidirectional"):
        later = np.arange(total)[None] > np.arange(length)[:, None] + total - length
        triangle = np.where(later, LOWEST, 0).astype(np.float32)[None, None]
        scores = at.emit("add", scores, at.weight(triangle, f"{at.node.name}.order"))
    weights = at.emit("softmax", scores, axis=3)
    return join_heads(at, at.emit("matmul", weights, v))


def _hidden(at: Lowering, index: int, batch: int, length: int, total: int) -> SSAValue | None:
    """Return the number to add to the scores of masked keys; None without a mask."""
    if not at.has(index):
        return None
    shape, mask = at.shape(index), at.cast(at.tensor(index), np.int32)
    if shape == (batch,):
        places = at.weight(np.arange(total, dtype=np.int32)[None], f"{at.node.name}.places")
        seen = at.emit("less", places, at.reshape(mask, (batch, 1)))
        shape = (batch, total)
    else:
        seen = at.apply("less", at.apply("mul", mask, -1), 0)
    forms: dict[tuple[int, ...], tuple[int, ...]] = {
        (batch, total): (batch, 1, 1, total),
        (batch, length, total): (batch, 1, length, total),
    }
    if shape not in forms:
        raise at.misfit(f"a mask of shape {list(shape)} is not read")
    filter_value = at.number("mask_filter_value", -10000.0)
    numbers = [
        at.weight(np.array(number, np.float32), f"{at.node.name}.mask")
        for number in (0.0, filter_value)
    ]
    return at.reshape(at.emit("select", seen, *numbers), forms[shape])
