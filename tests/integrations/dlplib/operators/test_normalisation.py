import numpy as np
import pytest

from tests.integrations.dlplib import oracle
from tests.slow import but_fast
from tilewright.errors import TilewrightError
from tilewright.integrations import dlplib
from tilewright.integrations.dlplib import BatchNormDescriptor, Handle, LrnDescriptor

SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("target", "size"),
    [
        ("cambricon-x", 5),
        pytest.param("cambricon-x", 4, marks=SLOW),
        pytest.param("cpu", 5, marks=SLOW),
    ],
)
def test_lrn_and_its_gradient(target: str, size: int) -> None:
    random = np.random.default_rng(size)
    handle = Handle(target, check=True)
    settings = (size, 0.05, 0.75, 1.0)
    lrn = LrnDescriptor()
    lrn.set(*settings)
    x, dy = (oracle.operand(handle, random.normal(0, 2, (1, 9, 2, 2))) for _ in range(2))
    y, dx = oracle.result(handle, (1, 9, 2, 2)), oracle.result(handle, (1, 9, 2, 2))
    dlplib.lrn_forward(handle, lrn, x, y)
    images = handle.load(x)
    oracle.near(handle, y, oracle.lrn(images, *settings), 1)
    dlplib.lrn_backward(handle, lrn, x, dy, dx)
    expected = oracle.gradient(lambda v: oracle.lrn(v, *settings), images, handle.load(dy))
    # The power comes from two tables: about 1e-3 of dy, below 8, is 33 units of 2**-12.
    oracle.near(handle, dx, expected, 33)


@pytest.mark.parametrize(
    "settings",
    but_fast([(5, 1e-4, 0.75, 1.0), (4, 3.0, 0.5, 2.0), (1, 0.0, 1.0, 1.0)], [(4, 3.0, 0.5, 2.0)]),
)
def test_the_gradient_of_lrn_as_one_operation(settings: tuple[int, float, float, float]) -> None:
    random = np.random.default_rng(settings[0])
    handle = Handle("cambricon", check=True)
    lrn = LrnDescriptor()
    lrn.set(*settings)
    x, dy = (oracle.operand(handle, random.normal(0, 2, (2, 40, 2, 3))) for _ in range(2))
    dx = oracle.result(handle, (2, 40, 2, 3))
    ran = dlplib.lrn_backward(handle, lrn, x, dy, dx)
    images = handle.load(x)
    expected = oracle.gradient(lambda v: oracle.lrn(v, *settings), images, handle.load(dy))
    # Two terms are rounded once each; the table's power is exact to 2**-16.
    oracle.near(handle, dx, expected, 1.5)
    assert ran.host == () and ran.moves == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "of_batch"),
    [
        pytest.param("cambricon-x", True, marks=SLOW),
        ("cambricon-x", False),
        pytest.param("cpu", True, marks=SLOW),
    ],
)
def test_batch_norm_and_its_gradients(target: str, of_batch: bool) -> None:
    random = np.random.default_rng(of_batch)
    handle = Handle(target, check=True)
    x = oracle.operand(handle, random.normal(0.5, 1.5, (2, 5, 3, 3)), 11)
    images = handle.load(x)
    statistics = (
        images.mean((0, 2, 3), keepdims=True),
        1 / np.sqrt(images.var((0, 2, 3), keepdims=True)),
    )
    mean, deviation = (oracle.operand(handle, v, 13) for v in statistics)
    scale = oracle.operand(handle, random.uniform(0.5, 1.5, (1, 5)), 14)
    shift = oracle.operand(handle, random.normal(0, 0.5, (1, 5)), 13)
    y, dx = oracle.result(handle, images.shape), oracle.result(handle, images.shape)
    dy = oracle.operand(handle, random.standard_normal(images.shape))
    dscale, dshift = oracle.result(handle, (1, 5), 9), oracle.result(handle, (1, 5), 9)
    dlplib.batch_norm_forward(handle, x, mean, deviation, scale, shift, y)
    factors = (handle.load(scale), handle.load(shift))
    # Four roundings of numbers below 8, factors up to 1.5 apart.
    oracle.near(handle, y, oracle.batch_norm(images, *factors, statistics), 8)
    descriptor = BatchNormDescriptor()
    descriptor.set(of_batch)
    dlplib.batch_norm_backward(
        handle, descriptor, x, mean, deviation, scale, dy, dx, dscale, dshift
    )
    given, slope = None if of_batch else statistics, handle.load(dy)
    expected = oracle.gradient(lambda v: oracle.batch_norm(v, *factors, given), images, slope)
    oracle.near(handle, dx, expected, 12)
    centred = (images - statistics[0]) * statistics[1]
    oracle.near(handle, dshift, slope.sum((0, 2, 3)))
    oracle.near(handle, dscale, (slope * centred).sum((0, 2, 3)), 4)


def test_statistics_of_another_number_of_channels_are_refused() -> None:
    handle = Handle()
    x, one = oracle.operand(handle, np.zeros((1, 4, 2, 2))), oracle.operand(handle, np.ones((1, 3)))
    with pytest.raises(TilewrightError, match="dlp-shape"):
        dlplib.batch_norm_forward(handle, x, one, one, one, one, x)
