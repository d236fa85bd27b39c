import numpy as np
import pytest

from tests.integrations.dlplib import oracle
from tilewright.errors import TilewrightError
from tilewright.integrations import dlplib
from tilewright.integrations.dlplib import ActivationDescriptor, Handle

SHAPE = (1, 5, 4, 3)
FUNCTIONS = {
    "relu": lambda v: np.maximum(v, 0),
    "sigmoid": lambda v: 1 / (1 + np.exp(-v)),
    "tanh": np.tanh,
}


@pytest.mark.few(2)
@pytest.mark.parametrize("target", ["cambricon-x", pytest.param("cpu", marks=pytest.mark.slow)])
@pytest.mark.parametrize("mode", FUNCTIONS)
def test_activation_and_its_gradient(mode: str, target: str) -> None:
    random = np.random.default_rng(len(mode))
    handle = Handle(target, check=True)
    activation = ActivationDescriptor()
    activation.set(mode)  # type: ignore[arg-type]
    x, dy = (oracle.operand(handle, random.standard_normal(SHAPE)) for _ in range(2))
    y, dx = oracle.result(handle, SHAPE), oracle.result(handle, SHAPE)
    dlplib.activation_forward(handle, activation, x, y)
    values = handle.load(x)
    # A table's error is at most (1/16)**2 / 8 of the second derivative, below 1: 2 units of 2**-12.
    oracle.near(handle, y, FUNCTIONS[mode](values), 0.5 if mode == "relu" else 2.5)
    dlplib.activation_backward(handle, activation, y, dy, dx)
    expected = oracle.gradient(FUNCTIONS[mode], values, handle.load(dy))
    # The slope comes from y: 2 units of y are at most 4 of the slope, times dy, below 4.
    oracle.near(handle, dx, expected, 0.5 if mode == "relu" else 16)


@pytest.mark.parametrize("operation", ["add", "sub", "mul"])
def test_vectors(operation: str) -> None:
    random = np.random.default_rng(len(operation))
    handle = Handle(check=True)
    a = oracle.operand(handle, random.standard_normal(SHAPE))
    b = oracle.operand(handle, random.standard_normal(SHAPE), 10)
    y = oracle.result(handle, SHAPE, 11)
    dlplib.vector(handle, operation, a, b, y)  # type: ignore[arg-type]
    function = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[operation]
    oracle.near(handle, y, function(handle.load(a), handle.load(b)))
    with pytest.raises(TilewrightError, match="dlp-parameter"):
        dlplib.vector(handle, "div", a, b, y)  # type: ignore[arg-type]
    with pytest.raises(TilewrightError, match="dlp-shape"):
        dlplib.vector(handle, "add", a, b, oracle.result(handle, (1, 5, 4, 4)))


def test_binary_points_far_apart_do_not_overflow() -> None:
    handle = Handle(check=True)
    a = oracle.operand(handle, np.linspace(-100, 100, 60).reshape(SHAPE), 8)
    b = oracle.operand(handle, np.linspace(-1e-5, 1e-5, 60).reshape(SHAPE), 30)
    y = oracle.result(handle, SHAPE, 8)
    for first, second in ((a, b), (b, a)):
        dlplib.vector(handle, "sub", first, second, y)
        oracle.near(handle, y, handle.load(first) - handle.load(second), 0.51)


def test_in_place() -> None:
    handle = Handle(check=True)
    a = oracle.operand(handle, np.linspace(-2, 2, 60).reshape(SHAPE))
    before = handle.load(a)
    dlplib.vector(handle, "add", a, a, a)
    assert np.array_equal(handle.load(a), 2 * before)


def test_softmax() -> None:
    handle = Handle(check=True)
    x = oracle.operand(handle, np.random.default_rng(4).standard_normal(SHAPE))
    y = oracle.result(handle, SHAPE, 14)
    dlplib.softmax_forward(handle, x, y)
    powers = np.exp(handle.load(x))
    oracle.near(handle, y, powers / powers.sum(1, keepdims=True), 2)
