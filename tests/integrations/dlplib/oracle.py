"""Layers in float64 by their definitions, and gradients by differences: the tests' oracle."""

from collections.abc import Callable

import numpy as np

from tilewright.integrations.dlplib import FLOAT32, Handle, NumericType, Operand, fixed16
from tilewright.ir.types import Array

STEP = 1e-4
"""Of central differences: exact for what is linear, 1e-8 off for the smooth functions here."""


def operand(handle: Handle, values: Array, fraction: int = 12, *, filter: bool = False) -> Operand:
    """Values in device memory, in the machine's own numbers and layout."""
    return handle.tensor(values, numbers(handle, fraction), "NHWC", filter=filter)


def result(
    handle: Handle, dims: tuple[int, ...], fraction: int = 12, *, filter: bool = False
) -> Operand:
    return handle.empty(dims, numbers(handle, fraction), "NHWC", filter=filter)


def numbers(handle: Handle, fraction: int) -> NumericType:
    return fixed16(fraction) if handle.is_fixed else FLOAT32


def near(handle: Handle, found: Operand, expected: Array, ulps: float = 0.5) -> None:
    """Within so many units of the last place of the result; in float32 within 2e-5 of the largest.

    One rounding is half a unit; 1e-6 are the oracle's own.
    """
    got = handle.load(found)
    assert got.size == expected.size
    difference = float(np.abs(got.reshape(-1) - expected.reshape(-1)).max())
    type = found.descriptor.get().type
    allowed = ulps * 2.0**-type.fraction if type.is_fixed else 2e-5 * np.abs(expected).max()
    assert difference <= allowed + 1e-6, f"{difference} > {allowed}"


def gradient(function: Callable[[Array], Array], at: Array, dy: Array) -> Array:
    """The gradient of sum(function(x) * dy) at a point."""
    found = np.zeros(at.shape)
    for index in np.ndindex(*at.shape):
        ends: list[float] = []
        for sign in (1, -1):
            moved = at.copy()
            moved[index] += sign * STEP
            ends.append(float((function(moved) * dy.reshape(function(moved).shape)).sum()))
        found[index] = (ends[0] - ends[1]) / (2 * STEP)
    return found


def convolution(
    x: Array, w: Array, stride: int = 1, pad: int = 0, dilation: int = 1, groups: int = 1
) -> Array:
    n, c, h, wide = x.shape
    co, per, kh, kw = w.shape
    padded = np.pad(x, [(0, 0), (0, 0), (pad, pad), (pad, pad)])
    oh = (h + 2 * pad - (kh - 1) * dilation - 1) // stride + 1
    ow = (wide + 2 * pad - (kw - 1) * dilation - 1) // stride + 1
    y = np.zeros((n, groups, co // groups, oh, ow))
    weights = w.reshape(groups, co // groups, per, kh, kw)
    for i in range(kh):
        for j in range(kw):
            rows = slice(i * dilation, i * dilation + (oh - 1) * stride + 1, stride)
            columns = slice(j * dilation, j * dilation + (ow - 1) * stride + 1, stride)
            seen = padded[:, :, rows, columns].reshape(n, groups, c // groups, oh, ow)
            y += np.einsum("ngchw,goc->ngohw", seen, weights[..., i, j])
    return y.reshape(n, co, oh, ow)


def pool(
    x: Array,
    kind: str,
    kernel: int,
    stride: int,
    pad: int = 0,
    counted: int = 0,
    ceil: bool = False,
) -> Array:
    n, c, h, w = x.shape
    round_ = np.ceil if ceil else np.floor
    oh, ow = (int(round_((extent + 2 * pad - kernel) / stride)) + 1 for extent in (h, w))
    y = np.zeros((n, c, oh, ow))
    for i, j in np.ndindex(oh, ow):
        top, left = i * stride - pad, j * stride - pad
        rows = slice(max(top, 0), min(top + kernel, h))
        columns = slice(max(left, 0), min(left + kernel, w))
        window = x[:, :, rows, columns]
        if kind == "max":
            y[:, :, i, j] = window.max((2, 3))
        else:
            high = min(top + kernel, h + counted) - max(top, -counted)
            wide = min(left + kernel, w + counted) - max(left, -counted)
            y[:, :, i, j] = window.sum((2, 3)) / (high * wide)
    return y


def lrn(x: Array, size: int, alpha: float, beta: float, k: float) -> Array:
    total = np.zeros(x.shape)
    channels = x.shape[1]
    for c in range(channels):
        low = c - (size - 1) // 2
        total[:, c] = (x[:, max(low, 0) : min(low + size, channels)] ** 2).sum(1)
    return x * (k + alpha / size * total) ** -beta


def batch_norm(
    x: Array, scale: Array, shift: Array, statistics: tuple[Array, Array] | None
) -> Array:
    if statistics is None:
        mean = x.mean((0, 2, 3), keepdims=True)
        deviation = 1 / np.sqrt(x.var((0, 2, 3), keepdims=True))
    else:
        mean, deviation = statistics
    return (x - mean) * deviation * scale + shift
