import numpy as np
import pytest

from tests.integrations.dlplib import oracle
from tilewright.errors import TilewrightError
from tilewright.integrations import dlplib
from tilewright.integrations.dlplib import Handle


@pytest.mark.parametrize("target", ["cambricon-x", pytest.param("cpu", marks=pytest.mark.slow)])
def test_layer_and_its_gradients(target: str) -> None:
    random = np.random.default_rng(1)
    handle = Handle(target, check=True)
    x = oracle.operand(handle, random.standard_normal((2, 6, 3, 3)))
    w = oracle.operand(handle, random.normal(0, 0.2, (10, 6, 3, 3)), 13, filter=True)
    kind = dlplib.bias_type(x.descriptor.get().type, w.descriptor.get().type)
    bias = handle.tensor(random.standard_normal((1, 10)), kind)
    y, dy = oracle.result(handle, (2, 10), 10), oracle.operand(handle, random.normal(0, 1, (2, 10)))
    rows, columns = handle.load(x).reshape(2, -1), handle.load(w).reshape(10, -1)
    slope = handle.load(dy).reshape(2, 10)

    dlplib.fully_connected_forward(handle, x, w, y, bias, "relu")
    expected = np.maximum(rows @ columns.T + handle.load(bias).reshape(-1), 0)
    oracle.near(handle, y, expected)
    dx, dw = oracle.result(handle, (2, 6, 3, 3)), oracle.result(handle, (10, 6, 3, 3), filter=True)
    dlplib.fully_connected_backward_data(handle, w, dy, dx)
    oracle.near(handle, dx, slope @ columns)
    dlplib.fully_connected_backward_filter(handle, x, dy, dw)
    oracle.near(handle, dw, slope.T @ rows)
    assert all(run.host == () and run.moves == 0 for run in handle.runs)


def test_flat_weights_follow_the_logical_order() -> None:
    random = np.random.default_rng(2)
    handle = Handle(check=True)
    x = oracle.operand(handle, random.standard_normal((1, 4, 3, 3)))
    w = oracle.operand(handle, random.normal(0, 0.2, (5, 36, 1, 1)), 13, filter=True)
    y = oracle.result(handle, (1, 5), 10)
    dlplib.fully_connected_forward(handle, x, w, y)
    oracle.near(handle, y, handle.load(x).reshape(1, 36) @ handle.load(w).reshape(5, 36).T)


@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False)])
def test_matrix_multiply(turned: tuple[bool, bool]) -> None:
    random = np.random.default_rng(3)
    handle = Handle(check=True)
    shapes = [(2, 3, 5, 7), (2, 3, 7, 4)]
    shapes = [s[:2] + (s[2:][::-1] if t else s[2:]) for s, t in zip(shapes, turned, strict=True)]
    a, b = (handle.tensor(random.standard_normal(s), dlplib.fixed16(12)) for s in shapes)
    y = handle.empty((2, 3, 5, 4), dlplib.fixed16(10))
    dlplib.matrix_multiply(handle, a, b, y, *turned)
    left, right = (
        np.swapaxes(handle.load(v), -1, -2) if t else handle.load(v)
        for v, t in zip((a, b), turned, strict=True)
    )
    oracle.near(handle, y, left @ right)


def test_what_does_not_fit_is_refused() -> None:
    handle = Handle()
    x = oracle.operand(handle, np.zeros((1, 4, 3, 3)))
    w = oracle.operand(handle, np.zeros((5, 4, 3, 2)), filter=True)
    y = oracle.result(handle, (1, 5))
    with pytest.raises(TilewrightError, match="dlp-shape"):
        dlplib.fully_connected_forward(handle, x, w, y)
    with pytest.raises(TilewrightError, match="dlp-descriptor"):
        dlplib.fully_connected_forward(handle, x, x, y)
    other = handle.tensor(np.zeros((5, 4, 3, 3)), dlplib.fixed16(12), "NCHW", filter=True)
    with pytest.raises(TilewrightError, match=r"dlp-parameter.*differ in format"):
        dlplib.fully_connected_forward(handle, x, other, y)
