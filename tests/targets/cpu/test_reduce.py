"""Folds along axes in vectors, against the graph's meaning: rows, columns, and both at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from tests.targets.cpu.kernel_harness import PLAIN, Maker

from tilewright.codegen.c.compiler import FLAGS
from tilewright.graph.operation import Operation
from tilewright.graph.operations import BY_NAME
from tilewright.graph.operations.reductions import ReduceMeanOp
from tilewright.machine import Machine
from tilewright.targets.cpu.machine import machine
from tilewright.targets.cpu.processors import this_processor

REDUCE_SUM, REDUCE_MAX, REDUCE_MIN, REDUCE_PRODUCT = (
    BY_NAME[f"reduce_{name}"] for name in ("sum", "max", "min", "product")
)
KINDS = (ReduceMeanOp, REDUCE_SUM, REDUCE_MAX, REDUCE_MIN, REDUCE_PRODUCT)
CASES = (
    ((3, 5, 131), (2,)),
    ((3, 70, 133), (1,)),
    ((7, 6, 40), (0,)),
    ((4, 5, 9, 16), (1, 3)),
    ((4, 5, 9, 18), (0, 2)),
    ((2, 3, 6), (2,)),
    ((129,), (0,)),
)
NATIVE = (*FLAGS, *this_processor().flags)


def in_turns(each: int) -> list[list[type[Operation]]]:
    """So many kinds for each case, which take turns."""
    return [[KINDS[(n + k) % len(KINDS)] for k in range(each)] for n in range(len(CASES))]


def network(described: Machine, kinds: Sequence[Sequence[type[Operation]]]) -> Maker:
    m = Maker(described, seed=5)
    found = []
    for number, (shape, axes) in enumerate(CASES):
        x = m.input(shape)
        drawn = m.inputs[f"in{number}"]
        # About 1, of either sign, so that products stay numbers.
        drawn[...] = np.copysign(1 + 0.05 * np.clip(drawn, -2, 2), drawn)
        for kind in kinds[number]:
            how = {"axes": axes, "keep_dims": number % 2 == 0}
            found.append(m.kernel([(kind, [x], how)]))
    m.finish(*found)
    return m


@pytest.mark.parametrize(
    "each", [1, pytest.param(len(KINDS), marks=pytest.mark.slow)], ids=["one kind", "all kinds"]
)
@pytest.mark.parametrize(
    ("described", "flags"), [(PLAIN, FLAGS), (machine(), NATIVE)], ids=["plain", "native"]
)
def test_folds(described: Machine, flags: Sequence[str], each: int) -> None:
    kinds = in_turns(each)
    m = network(described, kinds)
    compiled = m.compilation()
    assert {item.schedule.primitive for item in compiled.kernels if item.schedule} == {"reduce"}
    found, expected = m.run(flags), m.expected()
    folded = [kind for some in kinds for kind in some]
    for number, ((name, array), kind) in enumerate(zip(expected.items(), folded, strict=True)):
        if kind in (REDUCE_MAX, REDUCE_MIN):
            assert np.array_equal(found[name], array), (number, kind)
        else:
            rtol = 4e-5 if kind is REDUCE_PRODUCT else 0.0
            np.testing.assert_allclose(found[name], array, rtol=rtol, atol=2e-5)
        assert np.isfinite(array).all() and (array.size == 1 or array.std() > 0)


def test_what_is_no_number_goes_through() -> None:
    m = network(PLAIN, [[REDUCE_MAX, REDUCE_SUM]] * len(CASES))
    for array in m.inputs.values():
        array.reshape(-1)[array.size // 2] = np.nan
    found, expected = m.run(FLAGS), m.expected()
    for name, array in expected.items():
        assert np.isnan(array).any()
        assert np.array_equal(np.isnan(found[name]), np.isnan(array)), name


def test_maps_follow() -> None:
    m = Maker(machine(), seed=3)
    x = m.input((6, 50, 37))
    rows, columns = (
        m.kernel(
            [(REDUCE_SUM, [y], {"axes": axes, "keep_dims": False}), (BY_NAME["sqrt"], [0], {})]
        )
        for y, axes in (
            (m.kernel([(BY_NAME["sqrt"], [x], {})]), (2,)),
            (m.kernel([(BY_NAME["sqrt"], [x], {})]), (1,)),
        )
    )
    m.inputs["in0"] = np.abs(m.inputs["in0"])
    m.finish(rows, columns)
    found, expected = m.run(NATIVE), m.expected()
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=3e-6)


@pytest.mark.parametrize("kind", [REDUCE_MAX, REDUCE_MIN])
@pytest.mark.parametrize(
    ("described", "flags"), [(PLAIN, FLAGS), (machine(), NATIVE)], ids=["plain", "native"]
)
def test_extremes_of_images_in_blocks(
    kind: type[Operation], described: Machine, flags: Sequence[str]
) -> None:
    """All elements lie in one run, whatever their order."""
    m = Maker(described, seed=7)
    x = m.input((2, 32, 5, 7), "NCHWLc")
    m.finish(m.kernel([(kind, [x], {"axes": (0, 1, 2, 3), "keep_dims": False})]))
    (kernel,) = (item for item in m.compilation().kernels if item.schedule)
    assert kernel.schedule is not None and kernel.schedule.primitive == "reduce"
    found, expected = m.run(flags), m.expected()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)
