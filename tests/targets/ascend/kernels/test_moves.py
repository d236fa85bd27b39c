"""Moves of elements as emitted C: bit for bit, whichever permutation, slice or padding."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.slow import but_fast
from tests.targets.ascend.kernels.rows_of_floats import results
from tests.targets.ascend.moved_kernels import move_program, sliced, surrounded, transposed

from tilewright.planning.domain import Kernel
from tilewright.targets.ascend.moves import MOST_COPIES, as_moves

KINDS = {"float": np.uint32, "half": np.uint16}

Bits = NDArray[np.generic]


def bits(seed: int, element: str, *shape: int) -> Bits:
    """Random bits, those of what is no number among them."""
    kind = KINDS[element]
    random = np.random.default_rng(seed)
    return random.integers(0, np.iinfo(kind).max, shape, kind, endpoint=True)


def check(of: Kernel, x: Bits, wanted: Bits, element: str) -> None:
    """In several orders of pipes."""
    program = move_program(of)
    for found, _ in results(program, {"x": x}, wanted.shape, kind=KINDS[element]):
        np.testing.assert_array_equal(found, wanted)


def check_order(shape: tuple[int, ...], order: Sequence[int], element: str) -> None:
    x = bits(1, element, *shape)
    wanted = np.ascontiguousarray(x.transpose(order))
    check(transposed(shape, order, element), x, wanted, element)


MATRICES = [
    *((a, b) for a in (1, 7, 48, 100) for b in (1, 16, 31, 100)),
    *((333, 100), (48, 31), (128, 64), (4097, 5), (5, 4097)),
]


@pytest.mark.parametrize("element", KINDS)
@pytest.mark.parametrize("shape", but_fast(MATRICES, [(7, 100), (48, 31), (128, 64)]))
def test_matrices(shape: tuple[int, int], element: str) -> None:
    check_order(shape, (1, 0), element)


HEADS = [
    ((1, 128, 12, 64), (0, 2, 1, 3)),
    ((1, 128, 12, 64), (0, 2, 3, 1)),
    ((1, 12, 128, 64), (0, 2, 1, 3)),
    ((2, 17, 3, 5), (0, 2, 3, 1)),
]


@pytest.mark.parametrize("case", but_fast(HEADS, HEADS[-1:]))
@pytest.mark.parametrize("element", KINDS)
def test_heads(case: tuple[tuple[int, ...], tuple[int, ...]], element: str) -> None:
    check_order(*case, element)


ORDERS = list(permutations(range(5)))


@pytest.mark.parametrize("order", but_fast(ORDERS[2::4], [ORDERS[2], ORDERS[-1]]))
def test_permutations(order: tuple[int, ...]) -> None:
    """In one kernel each, also where short rows do not come in the order of the tiles."""
    check_order((2, 3, 4, 5, 6), order, "half")


SLICES: list[tuple[range, ...]] = [
    (range(1, 9, 3), range(2, 5), range(16)),
    (range(8, -1, -1), range(7), range(3, 14)),
    (range(9), range(7), range(0, 16, 5)),
    (range(9), range(7), range(15, -1, -1)),
    (range(4, 5), range(7), range(9, 10)),
]


@pytest.mark.parametrize("element", KINDS)
@pytest.mark.parametrize("taken", SLICES)
def test_slices_with_steps_and_backwards(taken: tuple[range, ...], element: str) -> None:
    x = bits(4, element, 9, 7, 16)
    wanted = np.ascontiguousarray(x[np.ix_(*taken)])
    check(sliced(x.shape, taken, element), x, wanted, element)


PADS = [
    ((3, 17), (0, 1, 0, 2)),
    ((1, 64), (0, 8, 0, 8)),
    ((2, 9000), (0, 0, 0, 5)),
    ((4, 8), (0, 3, 0, 0)),
    ((3, 5, 17), (0, 1, 2, 1, 0, 0)),
    ((2, 16, 8, 32), (0, 0, 1, 0, 0, 0, 1, 0)),
    ((2, 3, 9, 11), (1, 0, 1, 2, 0, 0, 2, 1)),
    ((3, 40), (2, 0, 1, 0)),
]


@pytest.mark.parametrize("element", KINDS)
@pytest.mark.parametrize("case", but_fast(PADS, PADS[3:6]))
def test_padding(case: tuple[tuple[int, ...], tuple[int, ...]], element: str) -> None:
    """Of several axes in one kernel."""
    shape, pads = case
    x = bits(5, element, *shape)
    rank = len(shape)
    number = {"float": np.float32, "half": np.float16}[element](-2.5).view(KINDS[element])
    widths = list(zip(pads[:rank], pads[rank:], strict=True))
    wanted = np.pad(x, widths, constant_values=number)
    check(surrounded(shape, pads, -2.5, element), x, wanted, element)


def test_as_few_dims_as_can_be() -> None:
    whole = as_moves(transposed((2, 3, 1, 4, 5), (0, 1, 2, 3, 4)))
    assert whole.anchor.extents == {"c": 120}
    turned = as_moves(transposed((2, 3, 4, 5), (0, 3, 1, 2)))
    assert turned.anchor.extents == {"d0": 2, "p": 5, "w": 12}


def test_too_many_single_elements_have_no_kernel() -> None:
    of = sliced((2 * MOST_COPIES + 2,), (range(0, 2 * MOST_COPIES + 2, 2),))
    assert as_moves(of) is of
