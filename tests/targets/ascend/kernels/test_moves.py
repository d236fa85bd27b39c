"""Moves of elements as emitted C: bit for bit, whichever permutation, slice or padding."""

from __future__ import annotations

from itertools import permutations
from math import prod

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.slow import but_fast
from tests.targets.ascend.kernels.rows_of_floats import results

from tilewright.errors import TilewrightError
from tilewright.targets.ascend.kernels.moves import (
    Dim,
    launches_of,
    move_elements,
    normalised,
    pad_axis,
)
from tilewright.targets.ascend.kernels.shares import total
from tilewright.targets.ascend.machine import ASCEND_910

KINDS = {"float": np.uint32, "half": np.uint16}

Bits = NDArray[np.generic]


def bits(seed: int, element: str, *shape: int) -> Bits:
    """Random bits, those of what is no number among them."""
    kind = KINDS[element]
    random = np.random.default_rng(seed)
    return random.integers(0, np.iinfo(kind).max, shape, kind, endpoint=True)


def moved(x: Bits, dims: list[Dim], element: str, offset: int = 0) -> list[Bits]:
    """What the moves' kernels make of ``x``, one after the other, in several orders."""
    value, size = x, x.size
    parts = launches_of(dims, x.itemsize)
    found: list[Bits] = []
    for number, part in enumerate(parts):
        count = prod(total(dim.extent) for dim in part)
        program = move_elements(part, ASCEND_910, element, offset, size=size, name=f"part{number}")
        found = [out for out, _ in results(program, {"x": value}, (count,), kind=KINDS[element])]
        value, size, offset = found[0], count, 0
    return found


def transposed(x: Bits, order: tuple[int, ...], element: str) -> None:
    steps = [prod(x.shape[axis + 1 :]) for axis in range(x.ndim)]
    dims = [Dim(x.shape[axis], steps[axis]) for axis in order]
    wanted = np.ascontiguousarray(x.transpose(order)).ravel()
    for found in moved(x, dims, element):
        np.testing.assert_array_equal(found, wanted)


MATRICES = [
    *((a, b) for a in (1, 7, 48, 100) for b in (1, 16, 31, 100)),
    *((333, 100), (48, 31), (128, 64), (4097, 5)),
]


@pytest.mark.parametrize("element", KINDS)
@pytest.mark.parametrize("shape", but_fast(MATRICES, [(7, 100), (48, 31), (128, 64)]))
def test_matrices(shape: tuple[int, int], element: str) -> None:
    transposed(bits(1, element, *shape), (1, 0), element)


HEADS = [
    ((1, 128, 12, 64), (0, 2, 1, 3)),
    ((1, 128, 12, 64), (0, 2, 3, 1)),
    ((1, 12, 128, 64), (0, 2, 1, 3)),
    ((2, 17, 3, 5), (0, 2, 3, 1)),
]


@pytest.mark.parametrize("case", but_fast(HEADS, HEADS[-1:]))
def test_heads(case: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    shape, order = case
    transposed(bits(2, "float", *shape), order, "float")


ORDERS = list(permutations(range(5)))


@pytest.mark.parametrize("order", but_fast(ORDERS[2::4], ORDERS[2:3]))
def test_permutations(order: tuple[int, ...]) -> None:
    transposed(bits(3, "float", 2, 3, 4, 5, 6), order, "float")


def test_every_permutation_of_five_dims_takes_two_kernels_at_most() -> None:
    shape = (2, 3, 4, 5, 6)
    steps = [prod(shape[axis + 1 :]) for axis in range(5)]
    for order in ORDERS:
        assert len(launches_of([Dim(shape[axis], steps[axis]) for axis in order], 4)) <= 2


def test_slices_with_steps_and_backwards() -> None:
    x = bits(4, "float", 9, 7, 16)
    for taken, dims, offset in (
        (x[1:9:3, 2:5], [Dim(3, 336), Dim(3, 16), Dim(16, 1)], 112 + 32),
        (x[::-1, :, 3:14], [Dim(9, -112), Dim(7, 16), Dim(11, 1)], 8 * 112 + 3),
        (x[:, :, ::5], [Dim(9, 112), Dim(7, 16), Dim(4, 5)], 0),
        (x[:, :, ::-1], [Dim(9, 112), Dim(7, 16), Dim(16, -1)], 15),
    ):
        for found in moved(x, dims, "float", offset):
            np.testing.assert_array_equal(found, taken.ravel())


@pytest.mark.parametrize(
    "case", [(3, (1, 2), 17), (1, (8, 8), 64), (2, (0, 5), 9000), (4, (3, 0), 8)]
)
def test_padding(case: tuple[int, tuple[int, int], int]) -> None:
    outer, pads, count = case
    x = bits(5, "float", outer, count)
    fill = np.float32(-2.5).view(np.uint32)
    wanted = np.pad(x, [(0, 0), pads], constant_values=fill)
    program = pad_axis(outer, pads, count, ASCEND_910, "-2.5f")
    for found, _ in results(program, {"x": x}, wanted.shape, kind=np.uint32):
        np.testing.assert_array_equal(found, wanted)


def test_as_few_dims_as_can_be() -> None:
    assert normalised([Dim(2, 60), Dim(3, 20), Dim(1, 7), Dim(4, 5), Dim(5, 1)]) == (Dim(120, 1),)
    assert normalised([Dim(1, 3)]) == (Dim(1, 1),)


def test_too_many_single_elements_are_refused() -> None:
    with pytest.raises(TilewrightError, match="lower-operation"):
        dims = (Dim(70_000, 2),)
        move_elements(dims, ASCEND_910, size=140_000, name="strided")
