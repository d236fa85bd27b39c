"""Maps of tensors in two orders, by squares of vectors: exactly what the graph says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from tests.targets.cpu.kernel_harness import PLAIN, Maker

from tilewright.codegen.c.compiler import FLAGS
from tilewright.graph.operations.binary import AddOp
from tilewright.graph.operations.logic import CastOp
from tilewright.graph.operations.pointwise import ReluOp
from tilewright.graph.operations.views import TransposeOp
from tilewright.machine import Machine
from tilewright.targets.cpu.machine import machine
from tilewright.targets.cpu.processors import this_processor
from tilewright.targets.cpu.walk import kernel_source

NATIVE = (*FLAGS, *this_processor().flags)
CASES = (
    ((40, 33), (1, 0)),
    ((16, 16), (1, 0)),
    ((2, 19, 3, 37), (0, 3, 2, 1)),
    ((1, 3, 50, 20), (0, 1, 3, 2)),
    ((2, 32, 5, 7), (0, 2, 3, 1)),
)


@pytest.mark.parametrize(
    ("described", "flags"), [(PLAIN, FLAGS), (machine(), NATIVE)], ids=["plain", "native"]
)
def test_transposes(described: Machine, flags: Sequence[str]) -> None:
    m = Maker(described, seed=2)
    outputs = []
    for shape, permutation in CASES:
        x, other = m.input(shape), m.input([shape[axis] for axis in permutation])
        how = {"permutation": permutation}
        outputs.append(m.kernel([(TransposeOp, [x], how), (AddOp, [0, other], {})]))
    short = m.kernel([(CastOp, [m.input((40, 35))], {"to": "bfloat16"})])
    turned = m.kernel([(TransposeOp, [short], {"permutation": (1, 0)})])
    outputs.append(m.kernel([(CastOp, [turned], {"to": "float32"})]))
    m.finish(*outputs)
    texts = [kernel_source(item.program, m.lanes).text for item in m.compilation().kernels]
    assert sum("transpose_v" in text for text in texts) >= 5
    found, expected = m.run(flags), m.expected()
    for name, array in expected.items():
        assert np.array_equal(found[name], array), name


@pytest.mark.parametrize("channels", [1, 3])
def test_layouts_change_in_squares(channels: int) -> None:
    m = Maker(seed=channels)
    size = channels * m.lanes
    x = m.input((2, size, 5, 11))
    residual = m.input((2, size, 5, 11), "NCHWLc")
    blocked = m.kernel([(AddOp, [x, residual], {})], layout="NCHWLc")
    plain = m.kernel([(ReluOp, [blocked], {})])
    m.finish(blocked, plain)
    texts = [kernel_source(item.program, m.lanes).text for item in m.compilation().kernels]
    assert all("transpose_v" in text for text in texts)
    found, expected = m.run(), m.expected()
    for name, array in expected.items():
        assert np.array_equal(found[name], array), name
