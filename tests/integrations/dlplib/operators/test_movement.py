import numpy as np
import pytest

from tests.integrations.dlplib import oracle
from tilewright.errors import TilewrightError
from tilewright.integrations import dlplib
from tilewright.integrations.dlplib import Handle, fixed16


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_concat(axis: int) -> None:
    random = np.random.default_rng(axis)
    handle = Handle(check=True)
    shapes = [tuple(3 + (i == axis) * n for i in range(4)) for n in (0, 2)]
    a, b = (oracle.operand(handle, random.standard_normal(shape)) for shape in shapes)
    joined = np.concatenate([handle.load(a), handle.load(b)], axis)
    y = oracle.result(handle, joined.shape)
    ran = dlplib.concat(handle, axis, [a, b], y)
    assert np.array_equal(handle.load(y), joined)
    # Every byte is read and written by the machine.
    assert ran.dram_bytes is not None and ran.dram_bytes >= 4 * joined.size


def test_reshape_and_transform() -> None:
    random = np.random.default_rng(4)
    handle = Handle(check=True)
    x = oracle.operand(handle, random.standard_normal((2, 4, 3, 5)))
    y = handle.empty((2, 12, 5, 1), fixed16(12))
    dlplib.reshape(handle, x, y)
    assert np.array_equal(handle.load(y).reshape(2, 4, 3, 5), handle.load(x))
    other = handle.empty((2, 4, 3, 5), fixed16(7), "NCHW")
    dlplib.transform(handle, x, other)
    oracle.near(handle, other, handle.load(x))
    stored = np.frombuffer(handle.memcpy_to_host(other.address, 240), np.int16)
    assert np.array_equal(stored * 2.0**-7, handle.load(other).reshape(-1))


def test_what_does_not_fit_is_refused() -> None:
    handle = Handle()
    a, b = (
        oracle.operand(handle, np.zeros((1, 2, 3, 3))),
        oracle.operand(handle, np.zeros((1, 2)), 9),
    )
    with pytest.raises(TilewrightError, match="dlp-type"):
        dlplib.concat(handle, 1, [a, b], a)
    with pytest.raises(TilewrightError, match="dlp-parameter"):
        dlplib.concat(handle, 4, [a, a], a)
    with pytest.raises(TilewrightError, match="dlp-parameter"):
        dlplib.concat(handle, 1, [], a)
    with pytest.raises(TilewrightError, match="dlp-shape"):
        dlplib.reshape(handle, a, b)
