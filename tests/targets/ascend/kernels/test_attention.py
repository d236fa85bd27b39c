"""Attention as a chain of cube and vector unit, as emitted C, against float64."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.slow import but_fast
from tests.targets.ascend.ascend_arrays import Halves
from tests.targets.ascend.attention_kernels import Heads
from tests.targets.ascend.kernels.rows_of_floats import packed, results, unpacked

from tilewright.errors import TilewrightError
from tilewright.targets.ascend.machine import ASCEND_310

CASES = [
    (1, 16, 16, 16, 16, ""),
    (1, 1, 1, 1, 1, ""),
    (2, 17, 33, 64, 64, "keys"),
    (2, 17, 33, 40, 24, "scores"),
    (4, 15, 63, 64, 64, "batches"),
    (3, 100, 128, 64, 64, "keys"),
    (2, 63, 333, 40, 24, "scores"),
    (1, 130, 512, 64, 128, ""),
    (1, 300, 400, 64, 64, "scores"),
    (1, 33, 1500, 64, 64, "keys"),
    (1, 33, 1500, 64, 64, "scores"),
]


def halves(seed: int, *shape: int, scale: float = 1.0) -> Halves:
    return np.random.default_rng(seed).normal(0, scale, shape).astype(np.float16)


def mask_of(
    kind: str, heads: int, rows: int, keys: int
) -> tuple[Halves | None, tuple[int, ...], NDArray[np.float64]]:
    """A mask as it lies in memory, its shape, and what each score gets."""
    hidden = np.where(np.random.default_rng(7).random((heads // 2 or 1, keys)) < 0.3, -1e4, 0)
    hidden = hidden.astype(np.float16)
    nothing = np.zeros((heads, rows, keys))
    match kind:
        case "keys":
            return hidden[0], (1, 1, 1, keys), nothing + hidden[0]
        case "batches":
            return hidden, (heads // 2, 1, 1, keys), nothing + np.repeat(hidden, 2, 0)[:, None]
        case "scores":
            whole = halves(8, heads, rows, keys, scale=2)
            return whole, (1, heads, rows, keys), nothing + whole
        case _:
            return None, (), nothing


@pytest.mark.parametrize("case", but_fast(CASES, CASES[:5]))
def test_attention(case: tuple[int, int, int, int, int, str]) -> None:
    heads, rows, keys, depth, width, kind = case
    q, k, v = (
        halves(n, heads, count, columns)
        for n, (count, columns) in enumerate(((rows, depth), (keys, depth), (keys, width)))
    )
    scale = depth**-0.5
    mask, shape, added = mask_of(kind, heads, rows, keys)
    scores = q.astype(np.float64) @ k.astype(np.float64).swapaxes(1, 2) * scale + added
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    wanted = weights @ v.astype(np.float64)
    # Weights are rounded to halves, and so are results; scores are floats.
    most = 2.0**-11 * (weights @ np.abs(v.astype(np.float64)) + np.abs(wanted)) * 1.1 + 1e-4
    masks = {} if mask is None else {"bias": mask}
    given = {"a": packed(q), "b": packed(k), **masks, "b2": packed(v)}
    batches = heads // 2 if kind == "batches" else 1
    of = Heads(batches, heads // batches, rows, keys, depth, width, scale, shape)
    program = of.program()
    size = packed(np.zeros((heads, rows, width), np.float16)).shape
    for out, outcome in results(program, given, size, kind=np.float16, name="c"):
        found = unpacked(out, wanted.shape)
        assert (np.abs(found - wanted) <= most).all()
        # Queries, keys, values, the mask and results: no score passes through main memory.
        assert outcome.counts["gm_writes"] < 2 * (out.nbytes + 16 * heads * width * 16)


def test_more_keys_than_the_core_holds_are_refused() -> None:
    with pytest.raises(TilewrightError, match="plan-capacity"):
        Heads(1, 1, 16, 9000, 64, 64).program(ASCEND_310)
