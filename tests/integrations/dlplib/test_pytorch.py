"""Forward and backward calls beside PyTorch's layers and gradients, where PyTorch is installed."""

from typing import Any

import numpy as np
import pytest

from tests.integrations.dlplib import oracle
from tilewright.integrations import dlplib
from tilewright.integrations.dlplib import Handle, Operand

torch = pytest.importorskip("torch")


def both(
    handle: Handle, shape: tuple[int, ...], scale: float = 1.0, **how: Any
) -> tuple[Operand, Any]:
    """Random numbers in device memory, and the same as a tensor with a gradient."""
    random = np.random.default_rng(sum(shape))
    made = oracle.operand(handle, random.normal(0, scale, shape), **how)
    return made, torch.tensor(handle.load(made), requires_grad=True)


def back(handle: Handle, y: Any) -> Operand:
    """A random gradient, sent back through PyTorch's layer."""
    dy, slope = both(handle, tuple(y.shape), 0.5)
    y.backward(slope.detach())
    return dy


def test_convolution() -> None:
    handle = Handle(check=True)
    layer = dlplib.ConvolutionDescriptor()
    layer.set((2, 2), (1, 1))
    x, images = both(handle, (2, 3, 9, 9))
    w, weights = both(handle, (8, 3, 3, 3), 0.2, fraction=13, filter=True)
    y = torch.nn.functional.conv2d(images, weights, stride=2, padding=1)
    found = oracle.result(handle, tuple(y.shape), 10)
    dlplib.convolution_forward(handle, layer, x, w, found)
    oracle.near(handle, found, y.detach().numpy())
    dy = back(handle, y)
    dx = oracle.result(handle, (2, 3, 9, 9), 11)
    dw = oracle.result(handle, (8, 3, 3, 3), 8, filter=True)
    dlplib.convolution_backward_data(handle, layer, w, dy, dx)
    dlplib.convolution_backward_filter(handle, layer, x, dy, dw)
    oracle.near(handle, dx, images.grad.numpy())
    oracle.near(handle, dw, weights.grad.numpy())


@pytest.mark.parametrize("mode", ["max", "average"])
def test_pooling(mode: str) -> None:
    handle = Handle(check=True)
    pooling = dlplib.PoolingDescriptor()
    pooling.set(mode, (3, 3), (2, 2), (1, 1))  # type: ignore[arg-type]
    x, images = both(handle, (1, 4, 7, 7))
    pool = torch.nn.functional.max_pool2d if mode == "max" else torch.nn.functional.avg_pool2d
    y = pool(images, 3, 2, 1, **({} if mode == "max" else {"count_include_pad": False}))
    found, dx = oracle.result(handle, tuple(y.shape)), oracle.result(handle, (1, 4, 7, 7))
    dlplib.pooling_forward(handle, pooling, x, found)
    oracle.near(handle, found, y.detach().numpy())
    dlplib.pooling_backward(handle, pooling, x, found, back(handle, y), dx)
    oracle.near(handle, dx, images.grad.numpy(), 1.5)


@pytest.mark.parametrize("mode", ["relu", "sigmoid", "tanh"])
def test_activations(mode: str) -> None:
    handle = Handle(check=True)
    activation = dlplib.ActivationDescriptor()
    activation.set(mode)  # type: ignore[arg-type]
    x, values = both(handle, (1, 5, 4, 4))
    y = getattr(torch, mode)(values)
    found, dx = oracle.result(handle, (1, 5, 4, 4)), oracle.result(handle, (1, 5, 4, 4))
    dlplib.activation_forward(handle, activation, x, found)
    oracle.near(handle, found, y.detach().numpy(), 2.5)
    dlplib.activation_backward(handle, activation, found, back(handle, y), dx)
    oracle.near(handle, dx, values.grad.numpy(), 16)


def test_lrn() -> None:
    handle = Handle(check=True)
    lrn = dlplib.LrnDescriptor()
    lrn.set(5, 0.05, 0.75, 1.0)
    x, images = both(handle, (1, 9, 3, 3), 2.0)
    y = torch.nn.functional.local_response_norm(images, 5, 0.05, 0.75, 1.0)
    found, dx = oracle.result(handle, (1, 9, 3, 3)), oracle.result(handle, (1, 9, 3, 3))
    dlplib.lrn_forward(handle, lrn, x, found)
    oracle.near(handle, found, y.detach().numpy(), 1)
    dlplib.lrn_backward(handle, lrn, x, back(handle, y), dx)
    oracle.near(handle, dx, images.grad.numpy(), 33)


def test_batch_norm() -> None:
    handle = Handle(check=True)
    x, images = both(handle, (3, 5, 3, 3), fraction=11)
    scale, factors = both(handle, (1, 5), 0.7, fraction=14)
    shift, summands = both(handle, (1, 5), 0.3, fraction=13)
    plain = images.detach().numpy()
    mean = oracle.operand(handle, plain.mean((0, 2, 3)).reshape(1, 5), 13)
    deviation = oracle.operand(handle, 1 / plain.std((0, 2, 3)).reshape(1, 5), 13)
    y = torch.nn.functional.batch_norm(
        images, None, None, factors.reshape(-1), summands.reshape(-1), training=True, eps=1e-9
    )
    found, dx = (oracle.result(handle, (3, 5, 3, 3)) for _ in range(2))
    dlplib.batch_norm_forward(handle, x, mean, deviation, scale, shift, found)
    oracle.near(handle, found, y.detach().numpy(), 8)
    dscale, dshift = (oracle.result(handle, (1, 5), 9) for _ in range(2))
    descriptor = dlplib.BatchNormDescriptor()
    descriptor.set(of_batch=True)
    dlplib.batch_norm_backward(
        handle, descriptor, x, mean, deviation, scale, back(handle, y), dx, dscale, dshift
    )
    oracle.near(handle, dx, images.grad.numpy(), 12)
    oracle.near(handle, dscale, factors.grad.numpy(), 4)
    oracle.near(handle, dshift, summands.grad.numpy())
