"""TfIdfVectorizer: how often known sequences of numbers stand in a row, and weights of that."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tilewright.frontends.moves import cut
from tilewright.frontends.onnx.lowering import Lowering
from tilewright.ir import SSAValue
from tilewright.ir.types import shape_of


def tf_idf_vectorizer(at: Lowering) -> SSAValue:
    """Counts, or weights, of n-grams in rows of integers, [C] or [B, C]."""
    shape, mode = at.shape(0), at.text("mode")
    if at.dtype(0).kind not in "iu" or not 1 <= len(shape) <= 2:
        raise at.refuse("its rows are not of integers", code="onnx-dtype")
    if mode not in ("TF", "IDF", "TFIDF"):
        raise at.refuse(f"the mode {mode!r}")
    places = at.integers("ngram_indexes") or ()
    rows = at.reshape(at.tensor(0), (shape[0] if len(shape) == 2 else 1, shape[-1]))
    low, high = at.integer("min_gram_length"), at.integer("max_gram_length")
    skips = at.integer("max_skip_count") + 1
    columns, known = list[SSAValue](), list[int]()
    first = 0
    for length, grams in enumerate(_pools(at), 1):
        numbers = range(first, first + len(grams))
        first += len(grams)
        if not low <= length <= high or not len(grams):
            continue
        # What lies between does not matter to single numbers, so they are counted once.
        steps = range(1, 2 if length == 1 else skips + 1)
        counts = [c for step in steps if (c := _counted(at, rows, grams, step)) is not None]
        if counts:
            value = counts[0]
            for more in counts[1:]:
                value = at.emit("add", value, more)
            columns.append(value)
            known.extend(numbers)
    if first != len(places) or len(set(places)) < len(places) or not places:
        raise at.refuse("its ngram_indexes are not one each, and different")
    return _placed(at, columns, known, places, mode)


def _pools(at: Lowering) -> list[NDArray[np.int64]]:
    """The n-grams of 1, 2, ... numbers, each [count, n]."""
    pool = np.array(at.integers("pool_int64s") or (), np.int64)
    ends = (*(at.integers("ngram_counts") or ()), pool.size)
    if not pool.size or list(ends) != sorted(ends) or ends[0] != 0:
        raise at.refuse("it has no pool of integers, or the counts do not fit it")
    parts = [pool[a:b] for a, b in pairwise(ends)]
    if any(part.size % length for length, part in enumerate(parts, 1)):
        raise at.refuse("its ngram_counts do not fit its pool")
    return [part.reshape(-1, length) for length, part in enumerate(parts, 1)]


def _counted(at: Lowering, rows: SSAValue, grams: NDArray[np.int64], step: int) -> SSAValue | None:
    """How often each n-gram stands in each row, its numbers ``step`` apart; None if none fits."""
    count, length = shape_of(rows)
    width = length - (grams.shape[1] - 1) * step
    if width < 1:
        return None
    found: SSAValue | None = None
    for place in range(grams.shape[1]):
        part = cut(at, rows, {1: (place * step, place * step + width, 1)})
        part = at.cast(at.reshape(part, (count, width, 1)), np.int64)
        same = at.emit("equal", part, at.made(grams[:, place], part, "grams"))
        found = same if found is None else at.emit("bit_and", found, same)
    assert found is not None
    return at.emit("reduce_sum", at.cast(found, np.float32), axes=(1,), keep_dims=False)


def _placed(
    at: Lowering, columns: list[SSAValue], known: list[int], places: tuple[int, ...], mode: str
) -> SSAValue:
    """The counts of ``known`` n-grams, weighted, at their places; 0 at others."""
    weights, size = at.attributes.get("weights"), max(places) + 1
    count = at.shape(0)[0] if len(at.shape(0)) == 2 else 1
    nothing = at.weight(np.zeros((count, 1), np.float32), f"{at.node.name}.nothing")
    order = np.full(size, len(known), np.int64)
    order[[places[gram] for gram in known]] = np.arange(len(known))
    value = at.emit("concat", *columns, nothing, axis=1)
    if mode == "IDF":
        value = at.cast(at.emit("less", at.made(0, value), value), np.float32)
    if mode != "TF" and isinstance(weights, tuple):
        if len(weights) != len(places):
            raise at.misfit(f"it has {len(weights)} weights for {len(places)} n-grams")
        factors = np.array([*(weights[gram] for gram in known), 0], np.float32)
        value = at.emit("mul", value, at.made(factors, value, "weights"))
    value = at.emit("gather", value, at.weight(order, f"{at.node.name}.order"), axis=1)
    return at.reshape(value, (*at.shape(0)[:-1], size))
