"""Convolution, products and pools: exact on integers, whatever the blocking."""

import itertools

import numpy as np
import pytest

from tilewright.ir.types import Array
from tilewright.numerics import reference


def integers(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).integers(-32768, 32768, shape).astype(np.int16)


def convolve_slowly(
    x: Array,
    w: Array,
    strides: tuple[int, int],
    pads: tuple[int, int, int, int],
    dilations: tuple[int, int],
    group: int,
) -> Array:
    """Every product apart, in Python integers."""
    n, _, h, wide = x.shape
    co, ci, kh, kw = w.shape
    top, left, bottom, right = pads
    oh = (h + top + bottom - (kh - 1) * dilations[0] - 1) // strides[0] + 1
    ow = (wide + left + right - (kw - 1) * dilations[1] - 1) // strides[1] + 1
    result = np.zeros((n, co, oh, ow), object)
    for b, o, i, j, c, p, q in itertools.product(*map(range, (n, co, oh, ow, ci, kh, kw))):
        row = i * strides[0] + p * dilations[0] - top
        column = j * strides[1] + q * dilations[1] - left
        if 0 <= row < h and 0 <= column < wide:
            source = x[b, o // (co // group) * ci + c, row, column]
            result[b, o, i, j] += int(source) * int(w[o, c, p, q])
    return result


CASES = [
    ((2, 3, 6, 7), (4, 3, 3, 2), (1, 1), (1, 0, 2, 1), (1, 1), 1),
    ((3, 4, 6, 5), (6, 2, 3, 3), (2, 1), (1, 1, 1, 1), (1, 1), 2),
    ((1, 3, 8, 8), (2, 3, 2, 3), (1, 2), (0, 3, 1, 0), (3, 2), 1),
    ((2, 4, 5, 6), (4, 1, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 4),
    ((1, 3, 5, 6), (6, 1, 3, 3), (2, 2), (1, 1, 1, 1), (1, 1), 3),
    ((2, 6, 4, 3), (5, 6, 1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 1),
    ((2, 6, 4, 3), (4, 3, 1, 1), (1, 1), (0, 1, 0, 0), (1, 1), 2),
    ((1, 2, 5, 5), (3, 2, 1, 1), (2, 3), (0, 0, 0, 0), (1, 1), 1),
]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("block", [reference.BLOCK_BYTES, 2000, 1])
def test_integer_convolution_is_exact(
    case: tuple[tuple[int, ...], ...], block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference, "BLOCK_BYTES", block)
    shape, filters, *rest = case
    x, w = integers(1, *shape), integers(2, *filters)
    result = reference.conv2d(x, w, *rest)
    assert result.dtype == np.int64
    np.testing.assert_array_equal(result, convolve_slowly(x, w, *rest).astype(np.int64))


def test_convolution_at_the_extremes_is_exact() -> None:
    x = np.full((1, 700, 3, 3), -32768, np.int16)
    w = np.full((1, 700, 3, 3), -32768, np.int16)
    assert reference.conv2d(x, w).item() == 6300 * 2**30
    x[0, 0, 0, 0] = 1
    assert reference.conv2d(x, w).item() == 6299 * 2**30 - 32768


def test_wide_integers_stay_exact() -> None:
    x = np.full((1, 2, 2, 2), 2**31 - 1, np.int32)
    w = np.full((1, 2, 2, 2), 2**28 + 1, np.int32)
    assert reference.conv2d(x, w).item() == 8 * (2**31 - 1) * (2**28 + 1)
    product = reference.matmul(x[0, 0], w[0, 0])
    assert product.tolist() == [[2 * (2**31 - 1) * (2**28 + 1)] * 2] * 2


def test_operands_that_are_views() -> None:
    x, w = integers(3, 7, 6, 2, 4), integers(4, 3, 2, 3, 5)
    x, w = x.transpose(2, 3, 0, 1)[:, ::2], w.transpose(3, 1, 0, 2)
    expected = convolve_slowly(x, w, (1, 1), (0, 0, 0, 0), (1, 1), 1)
    np.testing.assert_array_equal(reference.conv2d(x, w), expected.astype(np.int64))
    image, filters = x.astype(np.float32), w.astype(np.float32)
    np.testing.assert_allclose(
        reference.conv2d(image, filters), expected.astype(np.float64), rtol=1e-5, atol=1e5
    )


@pytest.mark.parametrize("block", [reference.BLOCK_BYTES, 100])
def test_integer_products_are_exact(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "BLOCK_BYTES", block)
    for left, right in (((3, 8), (8, 5)), ((2, 1, 3, 8), (4, 8, 6)), ((1, 9), (9, 1))):
        a, b = integers(5, *left), integers(6, *right)
        expected = np.matmul(a.astype(object), b.astype(object))
        np.testing.assert_array_equal(reference.matmul(a, b), expected.astype(np.int64))
        swapped = np.ascontiguousarray(b.swapaxes(-1, -2)).swapaxes(-1, -2)
        np.testing.assert_array_equal(reference.matmul(a, swapped), expected.astype(np.int64))


def windows(extent: int, size: int, stride: int, dilation: int, low: int, high: int) -> list[range]:
    """Indices of each window along one axis, padding included."""
    count = (extent + low + high - (size - 1) * dilation - 1) // stride + 1
    return [
        range(start, start + size * dilation, dilation)
        for start in range(-low, -low + count * stride, stride)
    ]


@pytest.mark.parametrize("seed", range(25))
def test_pools_and_counts(seed: int) -> None:
    generator = np.random.default_rng(seed)
    while True:
        h, w = generator.integers(1, 9, 2).tolist()
        kernel, strides = generator.integers(1, 4, 2).tolist(), generator.integers(1, 4, 2).tolist()
        pads, counted = generator.integers(0, 3, 4).tolist(), generator.integers(0, 3, 4).tolist()
        dilations = generator.integers(1, 3, 2).tolist()
        counted = [min(pair) for pair in zip(counted, pads, strict=True)]
        span = [(kernel[i] - 1) * dilations[i] + 1 for i in range(2)]
        if h + pads[0] + pads[2] >= span[0] and w + pads[1] + pads[3] >= span[1]:
            break
    rows = windows(h, kernel[0], strides[0], dilations[0], pads[0], pads[2])
    columns = windows(w, kernel[1], strides[1], dilations[1], pads[1], pads[3])
    x = integers(seed, 2, 3, h, w)
    largest = reference.max_pool2d(x, kernel, strides, pads, dilations)
    of_floats = reference.max_pool2d(x.astype(np.float32), kernel, strides, pads, dilations)
    counts = reference.pool_counts((h, w), kernel, strides, pads, dilations, counted)
    assert largest.shape == (2, 3, len(rows), len(columns)) and largest.dtype == np.int16
    assert counts.shape == (len(rows), len(columns))
    for (i, row), (j, column) in itertools.product(enumerate(rows), enumerate(columns)):
        inside = [(p, q) for p in row for q in column if 0 <= p < h and 0 <= q < w]
        grown = [
            (p, q)
            for p in row
            for q in column
            if -counted[0] <= p < h + counted[2] and -counted[1] <= q < w + counted[3]
        ]
        assert counts[i, j] == len(grown)
        elements = np.array([x[:, :, p, q] for p, q in inside])
        if inside:
            np.testing.assert_array_equal(largest[:, :, i, j], elements.max(axis=0))
            np.testing.assert_array_equal(of_floats[:, :, i, j], elements.max(axis=0))
        else:
            assert (largest[:, :, i, j] == -32768).all() and np.isneginf(
                of_floats[:, :, i, j]
            ).all()
        if dilations == [1, 1]:
            total = reference.sum_pool2d(x, kernel, strides, pads)[:, :, i, j]
            assert total.dtype == np.int64
            np.testing.assert_array_equal(total, elements.sum(axis=0) if inside else 0)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 9, 20])
def test_channel_window_sums(size: int) -> None:
    x = integers(size, 2, 6, 2, 3).astype(np.int64)
    before = (size - 1) // 2
    expected = np.zeros_like(x)
    for c in range(6):
        low, high = max(c - before, 0), min(c - before + size, 6)
        expected[:, c] = x[:, low:high].sum(axis=1)
    np.testing.assert_array_equal(reference.channel_window_sum(x, size), expected)


def test_a_layer_of_vgg_stays_within_memory() -> None:
    import tracemalloc

    x, w = integers(1, 1, 64, 224, 224), integers(2, 64, 64, 3, 3)
    tracemalloc.start()
    result = reference.conv2d(x, w, (1, 1), (1, 1, 1, 1))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 300e6
    corner = convolve_slowly(x[:, :, :2, :2], w[:1], (1, 1), (1, 1, 0, 0), (1, 1), 1)
    assert result[0, 0, 0, 0] == corner[0, 0, 0, 0]
