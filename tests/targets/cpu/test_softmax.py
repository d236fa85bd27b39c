"""Softmax along any axis: rows, rows side by side, what follows, and what is no number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from tests.targets.cpu.kernel_harness import PLAIN, Maker

from tilewright.codegen.c.compiler import FLAGS
from tilewright.graph.operations.logic import CastOp
from tilewright.graph.operations.normalisation import SoftmaxOp
from tilewright.machine import Machine
from tilewright.targets.cpu.machine import machine
from tilewright.targets.cpu.processors import this_processor

NATIVE = (*FLAGS, *this_processor().flags)
CASES = (
    ((5, 131), 1),
    ((3, 21, 35), 1),
    ((21, 16), 0),
    ((2, 7, 4, 5), 2),
    ((6, 3), 1),
)


@pytest.mark.parametrize(
    ("described", "flags"), [(PLAIN, FLAGS), (machine(), NATIVE)], ids=["plain", "native"]
)
def test_softmax(described: Machine, flags: Sequence[str]) -> None:
    m = Maker(described, seed=9)
    outputs, exact = [], []
    for shape, axis in CASES:
        x = m.input(shape, scale=8.0)
        values = m.inputs[f"in{len(m.inputs) - 1}"]
        # Masked elements, as attention has them.
        values.reshape(-1)[:: values.size // 3] = -np.inf
        how = {"axis": axis}
        outputs.append(m.kernel([(SoftmaxOp, [x], how)]))
        short = m.kernel([(SoftmaxOp, [x], how), (CastOp, [0], {"to": "bfloat16"})])
        outputs.append(m.kernel([(CastOp, [short], {"to": "float32"})]))
        wide = np.exp(values.astype(np.float64) - values.max(axis, keepdims=True))
        exact.append(wide / wide.sum(axis, keepdims=True))
    m.finish(*outputs)
    found = list(m.run(flags).values())
    for number, wanted in enumerate(exact):
        # Differences of up to 60 are float32, and so off by up to 2e-6, as then is the result.
        np.testing.assert_allclose(found[2 * number], wanted, rtol=5e-6, atol=1e-37)
        np.testing.assert_allclose(found[2 * number + 1], wanted, rtol=2.0**-8 + 5e-6, atol=1e-37)
        assert wanted.std() > 0 and (wanted == 0).any()


def test_what_is_no_number_takes_its_row_alone() -> None:
    m = Maker(PLAIN)
    outputs = []
    for shape, axis in (((3, 9), 1), ((9, 3), 0)):
        x = m.input(shape)
        m.inputs[f"in{len(outputs)}"][1, 1] = np.nan
        outputs.append(m.kernel([(SoftmaxOp, [x], {"axis": axis})]))
    m.finish(*outputs)
    rows, columns = m.run(FLAGS).values()
    assert np.isnan(rows[1]).all() and np.isfinite(np.delete(rows, 1, 0)).all()
    assert np.isnan(columns[:, 1]).all() and np.isfinite(np.delete(columns, 1, 1)).all()
