"""Images between NCHW and NC1HWC0, bit for bit, in several orders."""

from __future__ import annotations

import numpy as np
import pytest
from tests.slow import but_fast
from tests.targets.ascend.ascend_arrays import built, run

from tilewright.planning.layout import Layout
from tilewright.targets.ascend.kernels.channels import to_blocks
from tilewright.targets.ascend.machine import ASCEND_310, ASCEND_910, DaVinci

LAYOUT = Layout.parse("NCHW16c", 4)

SHAPES = [
    (1, 3, 4, 4),
    (1, 16, 7, 7),
    (2, 33, 7, 7),
    (1, 3, 112, 112),
    (2, 20, 53, 51),
    (1, 37, 1, 1),
    (1, 5, 60, 60),
]


@pytest.mark.parametrize("core", [ASCEND_910, ASCEND_310])
@pytest.mark.parametrize("shape", but_fast(SHAPES, [(2, 33, 7, 7), (2, 20, 53, 51)]))
def test_both_ways(shape: tuple[int, int, int, int], core: DaVinci) -> None:
    images, channels, height, width = shape
    bits = np.random.default_rng(1).integers(0, 1 << 16, shape).astype(np.uint16)
    blocked = np.ascontiguousarray(LAYOUT.pack(bits)).view(np.float16)
    there = built(to_blocks(images, channels, height * width, core, "kernel"), core)
    back = built(to_blocks(images, channels, height * width, core, "kernel", back=True), core)
    for order in (0, 3, 12, 77):
        rows = np.full(bits.size + 16, 0xFFFF, np.uint16)
        rows[: bits.size] = bits.ravel()
        found = np.full_like(blocked, np.nan)
        run(there, {"plain": rows.view(np.float16), "blocked": found}, order)
        np.testing.assert_array_equal(found.view(np.uint16), blocked.view(np.uint16))
        rows = np.full(bits.size + 16, 0xFFFF, np.uint16)
        run(back, {"blocked": blocked, "plain": rows.view(np.float16)}, order)
        np.testing.assert_array_equal(rows[: bits.size], bits.ravel())
