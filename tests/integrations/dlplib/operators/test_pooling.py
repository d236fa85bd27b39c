import numpy as np
import pytest

from tests.integrations.dlplib import oracle
from tests.slow import but_fast
from tilewright.errors import TilewrightError
from tilewright.integrations import dlplib
from tilewright.integrations.dlplib import Handle, PoolingDescriptor

CASES = {
    "largest of 2x2": ("max", 6, 2, 2, 0, 0, False),
    "largest, overlapping and padded": ("max", 5, 3, 2, 1, 0, False),
    "largest, rounded up": ("max", 5, 2, 2, 0, 0, True),
    "mean of 2x2": ("average", 6, 2, 2, 0, 0, False),
    "mean without pads": ("average", 7, 3, 2, 1, 0, False),
    "mean with pads": ("average", 7, 3, 2, 1, 1, False),
}
"""Mode, extent, kernel, stride, pad, counted pad, ceil."""


def check_pool(target: str, name: str) -> None:
    mode, extent, kernel, stride, pad, counted, ceil = CASES[name]
    random = np.random.default_rng(len(name))
    handle = Handle(target, check=True)
    pooling = PoolingDescriptor()
    pooling.set(mode, (kernel,) * 2, (stride,) * 2, (pad,) * 2, (counted,) * 2, ceil)
    # All different, so that each window has one largest element.
    values = random.permutation(3 * extent * extent).reshape(1, 3, extent, extent) / 32 - 1.5
    x = oracle.operand(handle, values)
    dims = dlplib.pooling_output(pooling, x.descriptor.get())
    y, dy = oracle.result(handle, dims), oracle.operand(handle, random.standard_normal(dims))
    dlplib.pooling_forward(handle, pooling, x, y)
    args = (mode, kernel, stride, pad, counted, ceil)
    oracle.near(handle, y, oracle.pool(values, *args), 0.5)

    dx = oracle.result(handle, values.shape)
    dlplib.pooling_backward(handle, pooling, x, y, dy, dx)
    expected = oracle.gradient(lambda v: oracle.pool(v, *args), values, handle.load(dy))
    # Averages round dy / count once, with two bits more, and its sums once: 4 windows at most.
    oracle.near(handle, dx, expected, 0.5 if mode == "max" else 1.5)


@pytest.mark.parametrize("name", but_fast(CASES, ["mean with pads"]))
def test_pool_and_its_gradient(name: str) -> None:
    check_pool("cambricon-x", name)


@pytest.mark.slow
def test_float32() -> None:
    check_pool("cpu", "largest of 2x2")


@pytest.mark.parametrize("target", but_fast(["cambricon-x", "cambricon"], ["cambricon"]))
def test_of_equal_elements_the_first_gets_the_gradient(target: str) -> None:
    handle = Handle(target, check=True)
    pooling = PoolingDescriptor()
    pooling.set("max", (2, 2), (2, 2))
    values = np.array([[0, 1, 2, 2], [1, 1, 2, 2], [-1, -1, 0, 3], [-1, -1, 3, 3]], float)
    x = oracle.operand(handle, values.reshape(1, 1, 4, 4))
    y, dy = oracle.result(handle, (1, 1, 2, 2)), oracle.operand(handle, np.full((1, 1, 2, 2), 0.5))
    dx = oracle.result(handle, (1, 1, 4, 4))
    dlplib.pooling_forward(handle, pooling, x, y)
    dlplib.pooling_backward(handle, pooling, x, y, dy, dx)
    expected = np.zeros((4, 4))
    expected[[0, 0, 2, 2], [1, 2, 0, 3]] = 0.5
    assert np.array_equal(handle.load(dx)[0, 0], expected)


def test_what_does_not_fit_is_refused() -> None:
    handle = Handle()
    pooling = PoolingDescriptor()
    pooling.set("max", (9, 9), (1, 1))
    x, y = oracle.operand(handle, np.zeros((1, 2, 4, 4))), oracle.result(handle, (1, 2, 2, 2))
    with pytest.raises(TilewrightError, match="dlp-shape"):
        dlplib.pooling_forward(handle, pooling, x, y)
    pooling.set("max", (2, 2), (2, 2))
    with pytest.raises(TilewrightError, match=r"dlp-shape.*is not of the pool's result"):
        dlplib.pooling_backward(handle, pooling, x, y, x, x)
    other = oracle.result(handle, (1, 2, 2, 2), 11)
    with pytest.raises(TilewrightError, match="dlp-type"):
        dlplib.pooling_backward(handle, pooling, x, other, y, x)
