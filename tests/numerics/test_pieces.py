"""Weights in pieces: how near their sums are to the weights, and where each number lies."""

from itertools import pairwise, product

import ml_dtypes
import numpy as np
import pytest

from tilewright.numerics.pieces import (
    GROUP,
    PRODUCTS,
    THREE,
    TWO,
    groups,
    join_weights,
    split_weights,
)

SHAPES = [(4, 32), (3, 1), (5, 33, 3, 3), (2, 100, 1, 4), (1, 16, 2, 1), (7, 64, 5)]


def weights(shape: tuple[int, ...], low: int = -60, high: int = 60) -> np.ndarray:
    """Numbers of random signs, with exponents of base 2 between the two."""
    random = np.random.default_rng(shape)
    fractions = random.uniform(1, 2, shape) * random.choice([-1, 1], shape)
    return np.ldexp(fractions, random.integers(low, high, shape)).astype(np.float32)


def there_and_back(values: np.ndarray) -> np.ndarray:
    return join_weights(split_weights(values), values.shape[1], values.shape[2:])


@pytest.mark.parametrize("shape", SHAPES)
def test_two_pieces_are_within_their_bound_of_each_number(shape: tuple[int, ...]) -> None:
    w = weights(shape)
    split = split_weights(w)
    taps = int(np.prod(shape[2:]))
    assert split.dtype == ml_dtypes.bfloat16
    assert split.shape == (shape[0], groups(shape[1]) * taps * TWO * GROUP)
    joined = there_and_back(w)
    assert joined.shape == w.shape and joined.dtype == np.float32
    error = np.abs(joined.astype(np.float64) - w)
    assert (error <= 2.0**-17 * np.abs(w)).all()
    assert shape == (3, 1) or error.any(), "float32 has more bits than two bfloat16"


def test_numbers_of_sixteen_bits_are_exact() -> None:
    whole = np.arange(-(2**16), 2**16, 7, dtype=np.int64)[: 32 * 580].reshape(32, 580)
    for exponent in (-100, -16, 0, 60):
        w = np.ldexp(whole.astype(np.float64), exponent).astype(np.float32)
        np.testing.assert_array_equal(there_and_back(w), w)


@pytest.mark.parametrize("shape", SHAPES)
def test_each_number_lies_where_a_tile_reads_it(shape: tuple[int, ...]) -> None:
    """For each group and tap the first pieces of inputs 0, 16, 1, 17, ..., then the second ones."""
    w = weights(shape)
    flat = w.reshape(*shape[:2], -1)
    split = iter(split_weights(w).astype(np.float32).ravel())
    for o, group, tap, piece in product(
        range(shape[0]), range(groups(shape[1])), range(flat.shape[2]), range(TWO)
    ):
        for word, half in product(range(16), range(2)):
            channel = group * GROUP + half * 16 + word
            value = flat[o, channel, tap] if channel < shape[1] else np.float32(0)
            first = np.float32(ml_dtypes.bfloat16(value))
            second = np.float32(ml_dtypes.bfloat16(value - first))
            assert next(split) == (second if piece else first)
    assert next(split, None) is None


@pytest.mark.parametrize("shape", SHAPES)
def test_of_three_pieces_floats_lie_in_the_same_order(shape: tuple[int, ...]) -> None:
    w = weights(shape, -149, 128)
    w.flat[0] = np.inf
    whole = split_weights(w, THREE)
    assert whole.dtype == np.float32
    assert whole.shape == (shape[0], groups(shape[1]) * int(np.prod(shape[2:])) * GROUP)
    np.testing.assert_array_equal(join_weights(whole, shape[1], shape[2:]), w)
    # The first pieces of two lie as the floats do.
    w = weights(shape)
    first = split_weights(w).reshape(shape[0], -1, TWO, GROUP)[:, :, 0]
    expected = split_weights(w, THREE).reshape(first.shape).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(first.astype(np.float32), expected.astype(np.float32))


@pytest.mark.parametrize("pieces", PRODUCTS)
def test_all_products_but_the_least_are_taken_once(pieces: int) -> None:
    """Pieces of an equal sum of numbers are products of about one size; the greatest comes last
    of three, and one factor of the product before stays where it is."""
    taken = PRODUCTS[pieces]
    wanted = {(i, j) for i, j in product(range(pieces), repeat=2) if i + j < pieces}
    assert len(taken) == len(wanted) and set(taken) == wanted
    assert pieces == TWO or taken[-1] == (0, 0)
    for before, after in pairwise(taken):
        assert sum(a == b for a, b in zip(before, after, strict=True)) <= 1


def test_tiny_numbers_are_as_near_as_bfloat16_allows() -> None:
    """The least bfloat16 is 2**-133: half of that is lost where 2**-17 of a number is less."""
    w = weights((8, 64), -149, -100)
    w[0, :4] = [0.0, -0.0, 2.0**-149, np.finfo(np.float32).tiny]
    error = np.abs(there_and_back(w).astype(np.float64) - w)
    assert (error <= np.maximum(2.0**-17 * np.abs(w), 2.0**-134)).all()


def test_the_greatest_numbers_are_cut_where_rounding_would_make_them_infinite() -> None:
    greatest = float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)
    near = np.float32(greatest) * np.float32(1 + 2.0**-10)
    least = 255.5 * 2.0**120
    """The least number whose nearest bfloat16 is infinite."""
    below = float(np.nextafter(np.float32(least), np.float32(0)))
    w = np.array([[greatest, -greatest, near, below]], np.float32)
    error = np.abs(there_and_back(w).astype(np.float64) - w)
    assert (error <= 2.0**-17 * np.abs(w)).all()
    w = np.linspace(least, np.finfo(np.float32).max, 64 * 1023).astype(np.float32)
    w = np.stack([w, -w]).reshape(-1, 64)
    first, second = np.moveaxis(split_weights(w).reshape(len(w), 2, TWO, GROUP), 2, 0)
    assert (np.abs(first.astype(np.float64)) == greatest).all() and np.isfinite(second).all()
    error = np.abs(there_and_back(w).astype(np.float64) - w)
    assert (error < 2.0**-16 * np.abs(w)).all()


def test_what_is_not_finite_is_its_first_piece() -> None:
    w = np.array([[np.inf, -np.inf, np.nan, 1.5]], np.float32)
    first, second = split_weights(w).astype(np.float32).reshape(TWO, GROUP)
    np.testing.assert_array_equal(first[:8:2], w[0])
    assert not second.any()
    np.testing.assert_array_equal(there_and_back(w), w)
