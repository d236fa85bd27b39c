"""Caffe's layers as plain loops over NumPy arrays: the oracle, which shares no code with src."""

from __future__ import annotations

import itertools
import math

import numpy as np

Array = np.ndarray


def conv(x, w, b=None, stride=(1, 1), pad=(0, 0), dilation=(1, 1), group=1):
    n, _, h, width = x.shape
    outputs, depth, kh, kw = w.shape
    oh = (h + 2 * pad[0] - ((kh - 1) * dilation[0] + 1)) // stride[0] + 1
    ow = (width + 2 * pad[1] - ((kw - 1) * dilation[1] + 1)) // stride[1] + 1
    y = np.zeros((n, outputs, oh, ow))
    for i, o, r, c in np.ndindex(y.shape):
        first = o // (outputs // group) * depth
        for k, m in np.ndindex(kh, kw):
            row = r * stride[0] - pad[0] + k * dilation[0]
            column = c * stride[1] - pad[1] + m * dilation[1]
            if 0 <= row < h and 0 <= column < width:
                y[i, o, r, c] += x[i, first : first + depth, row, column] @ w[o, :, k, m]
    return y if b is None else y + b[:, None, None]


def deconv(x, w, b=None, stride=(1, 1), pad=(0, 0), dilation=(1, 1), group=1):
    """Every input pixel adds its weights to the outputs that it reaches."""
    n, inputs, h, width = x.shape
    _, per_group, kh, kw = w.shape
    oh = stride[0] * (h - 1) + (kh - 1) * dilation[0] + 1 - 2 * pad[0]
    ow = stride[1] * (width - 1) + (kw - 1) * dilation[1] + 1 - 2 * pad[1]
    y = np.zeros((n, per_group * group, oh, ow))
    for i, c, r, s, o, k, m in np.ndindex(n, inputs, h, width, per_group, kh, kw):
        row = r * stride[0] - pad[0] + k * dilation[0]
        column = s * stride[1] - pad[1] + m * dilation[1]
        if 0 <= row < oh and 0 <= column < ow:
            target = c // (inputs // group) * per_group + o
            y[i, target, row, column] += x[i, c, r, s] * w[c, o, k, m]
    return y if b is None else y + b[:, None, None]


def pool(x, method, kernel, stride=(1, 1), pad=(0, 0), ceil=True):
    counts = []
    for axis in range(2):
        steps = (x.shape[2 + axis] + 2 * pad[axis] - kernel[axis]) / stride[axis]
        count = (math.ceil(steps) if ceil else math.floor(steps)) + 1
        if any(pad) and (count - 1) * stride[axis] >= x.shape[2 + axis] + pad[axis]:
            count -= 1
        counts.append(count)
    h, w = x.shape[2:]
    y = np.zeros((*x.shape[:2], *counts))
    for i, c, r, s in np.ndindex(y.shape):
        top, left = r * stride[0] - pad[0], s * stride[1] - pad[1]
        bottom, right = min(top + kernel[0], h + pad[0]), min(left + kernel[1], w + pad[1])
        divisor = (bottom - top) * (right - left)
        inside = x[i, c, max(top, 0) : min(bottom, h), max(left, 0) : min(right, w)]
        y[i, c, r, s] = inside.max() if method == "MAX" else inside.sum() / divisor
    return y


def lrn_across(x, size, alpha, beta, k):
    y = np.zeros(x.shape)
    for c in range(x.shape[1]):
        low, high = max(c - (size - 1) // 2, 0), min(c + (size - 1) // 2 + 1, x.shape[1])
        squares = (x[:, low:high] ** 2).sum(axis=1)
        y[:, c] = x[:, c] * (k + alpha / size * squares) ** -beta
    return y


def lrn_within(x, size, alpha, beta):
    around = (size - 1) // 2
    mean = pool(x.astype(np.float64) ** 2, "AVE", (size, size), (1, 1), (around, around))
    return x * (1 + alpha * mean) ** -beta


def inner_product(x, w, b=None, axis=1, transpose=False):
    rows = x.reshape(math.prod(x.shape[:axis]), -1)
    y = rows @ (w if transpose else w.T)
    return (y if b is None else y + b).reshape(*x.shape[:axis], -1)


def batch_norm(x, mean, variance, factor, eps):
    share = 0 if factor == 0 else 1 / factor
    shape = (-1,) + (1,) * (x.ndim - 2)
    deviation = np.sqrt(variance * share + eps)
    return (x - (mean * share).reshape(shape)) / deviation.reshape(shape)


def scale(x, factor, bias=None, axis=1):
    """Factor and bias over the axes from ``axis`` on, element by element."""
    y = x.astype(np.float64)
    for index in np.ndindex(factor.shape):
        place = (slice(None),) * axis + index
        y[place] = y[place] * factor[index] + (0 if bias is None else bias[index])
    return y


def softmax(x, axis=1):
    e = np.exp(x.astype(np.float64) - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def where_negative(x, slope):
    """PReLU and ReLU: slopes broadcast along the channels."""
    shape = (-1,) + (1,) * (x.ndim - 2)
    return np.maximum(x, 0) + np.minimum(x, 0) * np.asarray(slope).reshape(shape)


def slices(x, axis, points):
    bounds = [0, *points, x.shape[axis]]
    return [np.take(x, range(a, b), axis) for a, b in itertools.pairwise(bounds)]
