"""What layers give, straight from the arithmetic of the core: loops over the kernel, one rounding.

Nothing of tilewright is used. All numbers below are exact in float64: sums of int8 products, and
their quotients by powers of two.
"""

import numpy as np

AVERAGES = {3: 28 / 256, 5: 10 / 256, 6: 7 / 256, 7: 21 / 1024}


def to_int8(values):
    """Half towards plus infinity, then cut."""
    return np.clip(np.floor(values + 0.5), -128, 127).astype(np.int8)


def activated(values, activation):
    if activation == "relu":
        return np.maximum(values, 0)
    if activation == "relu6":
        return np.clip(values, 0, 96)
    if activation == "leaky":
        return np.where(values < 0, values * (26 / 256), values)
    return values


def padded(x, pads, value):
    top, left, bottom, right = pads
    return np.pad(x.astype(float), ((top, bottom), (left, right), (0, 0)), constant_values=value)


def windows(x, kernel, stride):
    """[kernel elements, rows, pixels, channels]."""
    rows = (x.shape[0] - kernel[0]) // stride[0] + 1
    pixels = (x.shape[1] - kernel[1]) // stride[1] + 1
    return np.stack(
        [
            x[i : i + rows * stride[0] : stride[0], j : j + pixels * stride[1] : stride[1]][
                :rows, :pixels
            ]
            for i in range(kernel[0])
            for j in range(kernel[1])
        ]
    )


def requantised(total, bias, shift_bias, shift_cut, activation):
    value = (2 * total + bias.astype(float) * 2.0**shift_bias) / 2.0 ** (shift_cut + 1)
    return to_int8(activated(value, activation))


def conv(x, weights, bias, stride, pads, shift_bias, shift_cut, activation):
    """x [h, w, ci], weights [co, kh, kw, ci]."""
    kernel = weights.shape[1:3]
    taps = windows(padded(x, pads, 0), kernel, stride)
    flat = weights.reshape(len(weights), -1, weights.shape[3]).astype(float)
    total = np.einsum("krpc,okc->rpo", taps, flat)
    return requantised(total, bias, shift_bias, shift_cut, activation)


def depthwise(x, weights, bias, stride, pads, shift_bias, shift_cut, activation):
    """weights [kh, kw, c]."""
    taps = windows(padded(x, pads, 0), weights.shape[:2], stride)
    total = np.einsum("krpc,kc->rpc", taps, weights.reshape(-1, weights.shape[2]).astype(float))
    return requantised(total, bias, shift_bias, shift_cut, activation)


def max_pool(x, kernel, stride, pads, shift):
    return to_int8(windows(padded(x, pads, -128), kernel, stride).max(0) * 2.0**shift)


def average_pool(x, kernel, stride, pads, shift):
    total = windows(padded(x, pads, 0), kernel, stride).sum(0)
    if kernel[1] in AVERAGES:
        return to_int8(total * AVERAGES[kernel[1]] * 2.0**shift)
    # Not a power of two: in integers.
    size = kernel[0] * kernel[1] * 2 ** max(0, -shift)
    doubled = 2 * total.astype(np.int64) * 2 ** max(0, shift) + size
    return np.clip(doubled // (2 * size), -128, 127).astype(np.int8)


def elementwise(operands, shifts_read, shift_write, multiply=False, relu=False):
    aligned = [
        np.floor(x.astype(float) * 4 / 2.0**s) for x, s in zip(operands, shifts_read, strict=True)
    ]
    total = np.prod(aligned, axis=0) / 16 if multiply else np.sum(aligned, axis=0) / 4
    total = total * 2.0**shift_write
    return to_int8(np.maximum(total, 0) if relu else total)
