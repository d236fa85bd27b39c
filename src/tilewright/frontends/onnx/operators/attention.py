"""ONNX's Attention, as its definition is since the errata of 2026, whichever onnx is installed.

softmax(softcap(q @ k^T * scale) + bias) @ v. The bias hides a key from a query with minus infinity:
by the mask, by causal order and windows (counted from the end of the keys that are there), and by
how many keys are there. A query from which all keys are hidden gets zeros.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tilewright.frontends.moves import broadcast, padded
from tilewright.frontends.onnx.lowering import Lowering, Value, dtype_of
from tilewright.frontends.onnx.numbers import SHORT
from tilewright.frontends.onnx.tensors import DTYPES
from tilewright.ir import SSAValue
from tilewright.ir.types import Array, shape_of

_INPUTS = ("query", "key", "value", "mask", "past key", "past value", "number of keys")


@dataclass
class _Bias:
    """The mask added to the scores: the part known at import, and the rest."""

    at: Lowering
    kept: Array
    """Mask of the keys that each query may see, as far as it is known; broadcasts to the scores."""
    number: Array | None = None
    """Numbers to add that are known."""
    seen: list[SSAValue] = field(default_factory=list[SSAValue])
    """Further booleans of this kind."""
    added: SSAValue | None = None
    """Numbers to add that are not."""

    def total(self, like: SSAValue) -> SSAValue | Array | None:
        """The sum: known, of the run, or none at all."""
        dtype, at = dtype_of(like), self.at
        known = self.number if self.number is not None else np.zeros(1)
        with np.errstate(invalid="ignore"):
            array: Array = np.where(self.kept, known, -np.inf).astype(dtype)
        if self.added is None and not self.seen:
            return array if array.any() else None
        value = at.weight(array, f"{at.node.name}.bias")
        if self.added is not None:
            value = at.emit("add", self.added, value) if array.any() else self.added
        if self.seen:
            seen = self.seen[0]
            for other in self.seen[1:]:
                seen = at.emit("bit_and", seen, other)
            value = at.emit("select", seen, value, at.made(-np.inf, like))
        return value


def attention(at: Lowering) -> Sequence[Value]:
    """The result, the keys and values with those of the past before them, and the scores."""
    flat = len(at.shape(0)) == 3
    parts = [_heads(at, index, "kv_num_heads" if index else "q_num_heads") for index in range(3)]
    past = 0
    if at.has(4) != at.has(5):
        raise at.refuse("it has only one of a past key and a past value")
    if at.has(4):
        past = at.shape(4)[2] if len(at.shape(4)) == 4 else 0
        for index in (1, 2):
            if past:
                parts[index] = at.emit("concat", at.tensor(index + 3), parts[index], axis=2)
    present = parts[1:]
    q, k, v = (_wide(at, part) for part in parts)
    (batch, heads, length, size), keys = shape_of(q), shape_of(k)[1]
    if keys != shape_of(v)[1] or keys < 1 or heads % keys:
        raise at.misfit(f"{heads} heads of queries do not fit {keys} of keys")
    k, v = (repeated(at, value, heads // keys) for value in (k, v))
    total = shape_of(k)[2]
    raw = at.emit("matmul", q, k, transpose_b=True)
    raw = at.apply("mul", raw, at.number("scale", 1 / math.sqrt(size)))
    cap = at.number("softcap")
    capped = raw
    if cap > 0:
        capped = at.apply("mul", at.emit("tanh", at.apply("div", raw, cap)), cap)
    bias = _bias(at, batch, length, total, past).total(raw)
    scores, hidden = capped, None
    if bias is not None:
        value = bias if isinstance(bias, SSAValue) else at.weight(bias, f"{at.node.name}.bias")
        scores, hidden = at.emit("add", capped, value), _hidden(at, bias)
    weights = _softmax(at, scores)
    y = at.emit("matmul", weights, v)
    results: list[Value] = [_unhidden(at, y, hidden, flat), *present]
    if len(at.node.outputs) > 3:
        mode = at.integer("qk_matmul_output_mode")
        if mode not in range(4):
            raise at.refuse(f"there is no qk_matmul_output_mode {mode}")
        shown = (raw, capped, scores, weights)[mode]
        if mode == 3 and hidden is not None:
            shown = at.emit("select", hidden, at.made(0, shown), shown)
        results.append(shown)
    for index in (0, 3):
        if index < len(results):
            value = results[index]
            assert isinstance(value, SSAValue)
            results[index] = at.cast(value, at.dtype(0))
    return results[: len(at.node.outputs)]


def _heads(at: Lowering, index: int, count: str) -> SSAValue:
    """An operand as [b, heads, s, d]; of rank 3 its columns are those of all heads."""
    shape = at.shape(index)
    if len(shape) != len(at.shape(0)) or len(shape) not in (3, 4):
        raise at.misfit(f"its {_INPUTS[index]} has shape {list(shape)}")
    if len(shape) == 4:
        return at.tensor(index)
    heads = at.integer(count)
    if heads < 1 or shape[2] % heads:
        raise at.misfit(f"{shape[2]} columns do not divide into {heads} heads")
    return split_heads(at, at.tensor(index), heads)


def split_heads(at: Lowering, x: SSAValue, heads: int) -> SSAValue:
    """Reshape and transpose [b, s, heads * d] to [b, heads, s, d]."""
    batch, length, width = shape_of(x)
    x = at.reshape(x, (batch, length, heads, width // heads))
    return at.transpose(x, (0, 2, 1, 3))


def _wide(at: Lowering, value: SSAValue) -> SSAValue:
    """Short floats as float32."""
    return at.cast(value, np.float32) if dtype_of(value) in SHORT else value


def repeated(at: Lowering, value: SSAValue, times: int) -> SSAValue:
    """Each head as often as there are queries' heads for it."""
    if times == 1:
        return value
    batch, heads, length, size = shape_of(value)
    value = at.reshape(value, (batch, heads, 1, length, size))
    value = broadcast(at, value, (batch, heads, times, length, size))
    return at.reshape(value, (batch, heads * times, length, size))


def _bias(at: Lowering, batch: int, length: int, total: int, past: int) -> _Bias:
    """Collect the masks that hide keys from queries, and the numbers that are added."""
    bias = _Bias(at, np.ones((1, 1), np.bool_))
    _take_mask(at, bias, total)
    # How many positions a key lies after the query of the same index.
    ahead = np.arange(total)[None] - np.arange(length)[:, None]
    limits: list[tuple[Array, int]] = [(ahead, 0)] if at.integer("is_causal") else []
    left, right = at.integer("left_window_size", -1), at.integer("right_window_size", -1)
    limits += [(ahead, right)] if right >= 0 else []
    limits += [(-ahead, left)] if left >= 0 else []
    count = at.constant(6)
    if not at.has(6):
        for distance, limit in limits:
            bias.kept = bias.kept & (distance <= limit + (past if distance is ahead else -past))
        return bias
    if past:
        raise at.refuse(f"a past and a {_INPUTS[6]} exclude each other")
    if at.shape(6) != (batch,):
        raise at.misfit(f"its {_INPUTS[6]} has shape {list(at.shape(6))}")
    if count is not None:
        column = count.reshape(batch, 1, 1, 1)
        bias.kept = bias.kept & (np.arange(total) < column)
        for distance, limit in limits:
            sign = 1 if distance is ahead else -1
            bias.kept = bias.kept & (distance <= limit + sign * (column - length))
        return bias
    lengths = at.reshape(at.cast(at.tensor(6), np.int64), (batch, 1, 1, 1))
    places = at.weight(np.arange(total)[None, None, None], f"{at.node.name}.places")
    bias.seen.append(at.emit("less", places, lengths))
    for distance, limit in limits:
        # distance <= limit + (lengths - length), where the first query stands
        sign = 1 if distance is ahead else -1
        table = at.weight((distance - limit + sign * length)[None, None], f"{at.node.name}.order")
        bound = lengths if sign > 0 else at.emit("neg", lengths)
        bias.seen.append(at.emit("less_equal", table, bound))
    return bias


def _take_mask(at: Lowering, bias: _Bias, total: int) -> None:
    """The mask: booleans, or numbers to add; keys beyond its end are hidden."""
    if not at.has(3):
        return
    shape, array = at.shape(3), at.constant(3)
    if len(shape) > 4 or not shape or shape[-1] > total:
        raise at.misfit(f"a mask of shape {list(shape)} does not fit")
    short = total - shape[-1]
    boolean = at.dtype(3) == np.bool_
    if array is not None:
        pads = [(0, 0)] * (array.ndim - 1) + [(0, short)]
        array = array if boolean else array.astype(np.float64)
        array = np.pad(array, pads, constant_values=False if boolean else -np.inf)
        bias.kept, bias.number = (array, None) if boolean else (bias.kept, array)
        return
    value = at.tensor(3) if boolean else at.cast(at.tensor(3), _element(at))
    if short:
        value = padded(at, value, {len(shape) - 1: (0, short)})
        bias.kept = np.arange(total)[None] < shape[-1]
    if boolean:
        bias.seen.append(value)
    else:
        bias.added = value


def _element(at: Lowering) -> np.dtype[np.generic]:
    return np.dtype(np.float32) if at.dtype(0) in SHORT else at.dtype(0)


def _hidden(at: Lowering, bias: SSAValue | Array) -> SSAValue | None:
    """Mask of the queries that see no key, [..., s, 1]; None where it is known that all see one."""
    if isinstance(bias, SSAValue):
        rank = len(shape_of(bias))
        most = at.emit("reduce_max", bias, axes=(rank - 1,), keep_dims=True)
        return at.emit("equal", most, at.made(-np.inf, bias))
    rows = np.isneginf(bias.max(-1, keepdims=True))
    return at.weight(rows, f"{at.node.name}.hidden") if rows.any() else None


def _softmax(at: Lowering, scores: SSAValue) -> SSAValue:
    """The softmax along keys, in the precision that is asked for where that is a lower one."""
    dtype = DTYPES.get(at.integer("softmax_precision"))
    if dtype is None or dtype.itemsize >= dtype_of(scores).itemsize:
        return at.emit("softmax", scores, axis=3)
    return at.cast(at.emit("softmax", at.cast(scores, dtype), axis=3), dtype_of(scores))


def _unhidden(at: Lowering, y: SSAValue, hidden: SSAValue | None, flat: bool) -> SSAValue:
    """The result with zeros where a query sees no key; flat, its heads' columns side by side.

    The zeros come last, so that what is before them is attention in its usual form.
    """
    swapped = (0, 2, 1, 3)
    if flat:
        y = at.transpose(y, swapped)
    if hidden is not None:
        if flat:
            rank = len(shape_of(hidden))
            hidden = at.reshape(hidden, (*(1,) * (4 - rank), *shape_of(hidden)))
            hidden = at.transpose(hidden, swapped)
        y = at.emit("select", hidden, at.made(0, y), y)
    batch, length, heads, size = shape_of(y)
    return at.reshape(y, (batch, length, heads * size)) if flat else y
