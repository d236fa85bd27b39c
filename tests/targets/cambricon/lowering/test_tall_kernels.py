"""Kernels of more rows than are written out, whose products are a loop: bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from tests.targets.cambricon.lowering.convolutions import conv, cut
from tests.targets.cambricon.lowering.kernel_words import run_case

from tilewright.targets.cambricon.lowering.windows import UNROLLED
from tilewright.targets.cambricon.machine import MACHINE


@pytest.mark.parametrize("rows", [UNROLLED, UNROLLED + 1, 11])
@pytest.mark.parametrize("pad", [0, 2])
def test_kernels_of_many_rows(rows: int, pad: int) -> None:
    described = MACHINE.with_values({"memory.vsm.bytes": 256 << 10})
    case = conv(32, 64, (rows + 6, 24), (rows, 3), (pad, 0, pad, 0), ["relu"])
    found, _, _ = run_case(case, cut(case, {"oh": 2}, ("oh",), slots=1), described)
    np.testing.assert_array_equal(found, case.expected)
