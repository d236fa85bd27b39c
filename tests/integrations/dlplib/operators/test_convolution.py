import numpy as np
import pytest

from tests.integrations.dlplib import oracle
from tests.slow import but_fast
from tilewright.errors import TilewrightError
from tilewright.integrations import dlplib
from tilewright.integrations.dlplib import ConvolutionDescriptor, Handle

CASES = {
    "3x3": (1, 4, 6, 5, 3, 1, 1, 1, 1),
    "stride 2": (2, 3, 7, 4, 3, 2, 1, 1, 1),
    "stride beyond kernel": (1, 2, 8, 3, 2, 3, 0, 1, 1),
    "dilated groups": (1, 4, 8, 6, 3, 1, 2, 2, 2),
    "stride and dilation": (1, 2, 10, 3, 3, 2, 1, 2, 1),
    "pads beyond the kernel": (1, 2, 4, 3, 2, 1, 2, 1, 1),
    "depthwise": (1, 4, 5, 4, 3, 1, 1, 1, 4),
}
"""n, ci, extent, co, kernel, stride, pad, dilation, groups."""


def check_layer(target: str, case: tuple[int, ...], seed: int) -> None:
    n, ci, extent, co, kernel, stride, pad, dilation, groups = case
    random = np.random.default_rng(seed)
    handle = Handle(target, check=True)
    layer = ConvolutionDescriptor()
    layer.set((stride, stride), (pad, pad), (dilation, dilation), groups)
    x = oracle.operand(handle, random.standard_normal((n, ci, extent, extent)))
    w = oracle.operand(
        handle, random.normal(0, 0.2, (co, ci // groups, kernel, kernel)), 13, filter=True
    )
    kind = dlplib.bias_type(x.descriptor.get().type, w.descriptor.get().type)
    bias = handle.tensor(random.standard_normal((1, co)), kind)
    dims = dlplib.convolution_output(layer, x.descriptor, w.descriptor)
    y, dy = oracle.result(handle, dims, 10), oracle.operand(handle, random.normal(0, 0.5, dims))
    images, weights, slope = handle.load(x), handle.load(w), handle.load(dy)

    dlplib.convolution_forward(handle, layer, x, w, y, bias)
    args = (stride, pad, dilation, groups)
    oracle.near(handle, y, oracle.convolution(images, weights, *args) + handle.load(bias))

    dx = oracle.result(handle, images.shape, 11)
    dlplib.convolution_backward_data(handle, layer, w, dy, dx)
    expected = oracle.gradient(lambda v: oracle.convolution(v, weights, *args), images, slope)
    oracle.near(handle, dx, expected)

    dw = oracle.result(handle, weights.shape, 8, filter=True)
    dlplib.convolution_backward_filter(handle, layer, x, dy, dw)
    expected = oracle.gradient(lambda v: oracle.convolution(images, v, *args), weights, slope)
    oracle.near(handle, dw, expected)

    db = oracle.result(handle, (1, co), 8)
    dlplib.bias_backward(handle, dy, db)
    oracle.near(handle, db, slope.sum((0, 2, 3)))
    assert all(run.host == () for run in handle.runs)
    handle.release(x, w, bias, y, dy, dx, dw, db)
    handle.destroy()


@pytest.mark.parametrize("name", but_fast(CASES, ["depthwise"]))
def test_layer_and_its_gradients(name: str) -> None:
    check_layer("cambricon-x", CASES[name], seed=len(name))


@pytest.mark.slow
@pytest.mark.parametrize("target", ["shidiannao", "cambricon", "cpu"])
def test_other_engines(target: str) -> None:
    check_layer(target, CASES["stride 2"], seed=3)


@pytest.mark.parametrize("activation", ["relu", "sigmoid", "tanh"])
def test_activation_is_applied(activation: str) -> None:
    random = np.random.default_rng(5)
    handle = Handle(check=True)
    layer = ConvolutionDescriptor()
    layer.set(activation=activation)
    x = oracle.operand(handle, random.standard_normal((1, 3, 4, 4)))
    w = oracle.operand(handle, random.standard_normal((4, 3, 2, 2)), 13, filter=True)
    y = oracle.result(handle, (1, 4, 3, 3), 10)
    dlplib.convolution_forward(handle, layer, x, w, y)
    plain = oracle.convolution(handle.load(x), handle.load(w))
    expected = {
        "relu": np.maximum(plain, 0),
        "sigmoid": 1 / (1 + np.exp(-plain)),
        "tanh": np.tanh(plain),
    }[activation]
    # The tables' 256 segments interpolate tanh to 2e-3 and a sigmoid to 4e-4.
    oracle.near(handle, y, expected, 0.5 if activation == "relu" else 2.5)


def refused(code: str, bias_fraction: int = 25, **changes: object) -> None:
    handle = Handle()
    layer = ConvolutionDescriptor()
    layer.set(**changes.pop("layer", {}))  # type: ignore[arg-type]
    x = oracle.operand(handle, np.zeros(changes.get("x", (1, 3, 6, 6))))
    w = oracle.operand(handle, np.zeros(changes.get("w", (4, 3, 3, 3))), 13, filter=True)
    y = oracle.result(handle, changes.get("y", (1, 4, 4, 4)))  # type: ignore[arg-type]
    bias = handle.tensor(np.zeros((1, 4)), dlplib.fixed32(bias_fraction))
    with pytest.raises(TilewrightError) as caught:
        dlplib.convolution_forward(handle, layer, x, w, y, bias)
    assert caught.value.problems[0].code == code
    assert handle.runs == []


def test_what_does_not_fit_is_refused() -> None:
    refused("dlp-shape", x=(1, 4, 6, 6))
    refused("dlp-shape", y=(1, 4, 5, 4))
    refused("dlp-shape", w=(4, 3, 7, 3))
    refused("dlp-shape", w=(5, 3, 3, 3))
    refused("dlp-type", bias_fraction=24)
    refused("dlp-shape", layer={"groups": 2})


def test_gradients_of_other_layers_are_refused() -> None:
    handle = Handle()
    layer = ConvolutionDescriptor()
    layer.set()
    w = oracle.operand(handle, np.zeros((4, 3, 3, 3)), filter=True)
    dy, dx = oracle.operand(handle, np.zeros((1, 4, 5, 4))), oracle.result(handle, (1, 3, 6, 6))
    with pytest.raises(TilewrightError, match="dlp-shape"):
        dlplib.convolution_backward_data(handle, layer, w, dy, dx)
    with pytest.raises(TilewrightError, match=r"dlp-descriptor.*filter descriptor is needed"):
        dlplib.convolution_backward_data(handle, layer, dx, dy, dx)
    layer.set(activation="relu")
    with pytest.raises(TilewrightError, match=r"dlp-parameter.*activation_backward"):
        dlplib.convolution_backward_data(handle, layer, w, dy, dx)
