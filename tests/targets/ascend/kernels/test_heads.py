"""Rows to matrices of heads in Nz and back, as emitted C, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from tests.targets.ascend.kernels.rows_of_floats import packed, results, unpacked

from tilewright.targets.ascend.kernels.heads import split_heads
from tilewright.targets.ascend.machine import ASCEND_910


@pytest.mark.parametrize("shape", [(1, 17, 2, 64), (2, 33, 3, 20), (1, 1, 1, 1), (1, 300, 4, 15)])
def test_there_and_back(shape: tuple[int, int, int, int]) -> None:
    batch, rows, heads, columns = shape
    x = np.random.default_rng(1).normal(0, 3, shape).astype(np.float16)
    split = x.swapaxes(1, 2)
    blocks = packed(np.ascontiguousarray(split))
    program = split_heads(*shape, ASCEND_910, "split")
    for out, _ in results(program, {"x": x}, blocks.shape, kind=np.float16):
        np.testing.assert_array_equal(unpacked(out, (batch * heads, rows, columns)),
                                      split.reshape(batch * heads, rows, columns))  # fmt: skip
    program = split_heads(*shape, ASCEND_910, "join", back=True)
    for out, _ in results(program, {"x": blocks}, shape, kind=np.float16):
        np.testing.assert_array_equal(out, x)
