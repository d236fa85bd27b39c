"""DFT and STFT: products with constant matrices of cosines and sines.

A length that is a product is transformed factor by factor (Cooley and Tukey, "An Algorithm for the
Machine Calculation of Complex Fourier Series", 1965), so that no matrix is large.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tilewright.frontends.moves import cut, element_at
from tilewright.frontends.onnx.lowering import Lowering, Value
from tilewright.ir import SSAValue
from tilewright.ir.types import Array, shape_of

DENSE = 64
"""Lengths up to which one matrix is taken."""

MAX_LENGTH = 4096
"""The largest length that has no factors."""


@dataclass(frozen=True)
class Complex:
    """Real and imaginary parts, of one shape; None is all zeros."""

    real: SSAValue
    imaginary: SSAValue | None


def dft(at: Lowering) -> Value:
    """The discrete Fourier transform along an axis; parts lie along the last axis."""
    shape, rank = at.shape(0), len(at.shape(0))
    if at.version >= 20:
        axes = at.integers_at(2, "axis")
        place = axes[0] if axes else -2
    else:
        place = at.integer("axis", 1)
    axis = at.axis(place, rank)
    if rank < 2 or axis == rank - 1 or shape[-1] not in (1, 2):
        raise at.misfit(f"{list(shape)} is no signal along axis {axis}")
    inverse, onesided = bool(at.integer("inverse")), bool(at.integer("onesided"))
    default = 2 * (shape[axis] - 1) if inverse and onesided else shape[axis]
    lengths = at.integers_at(1, "length")
    length = lengths[0] if lengths else default
    x = _split(at, at.tensor(0), axis)
    if inverse and onesided:
        return _whole_again(at, x, axis, length)
    return _joined(at, x, axis, length, inverse=inverse, onesided=onesided)


def stft(at: Lowering) -> Value:
    """Transforms of windows that move along a signal [batch, length, 1 or 2]."""
    shape = at.shape(0)
    steps, lengths = at.integers_at(1, "frame step"), at.integers_at(3, "frame length")
    if steps is None or steps[0] < 1 or len(shape) != 3 or shape[2] not in (1, 2):
        raise at.misfit(f"{list(shape)} is no signal in steps {steps}")
    length = lengths[0] if lengths else at.shape(2)[0] if at.has(2) else shape[1]
    if not 1 <= length <= shape[1]:
        raise at.misfit(f"frames of {length} do not fit {shape[1]}")
    frames = 1 + (shape[1] - length) // steps[0]
    places = np.arange(frames)[:, None] * steps[0] + np.arange(length)[None]
    table = at.weight(places.astype(np.int64), f"{at.node.name}.frames")
    x = at.emit("gather", at.tensor(0), table, axis=1)
    if at.has(2):
        if at.shape(2) != (length,):
            raise at.misfit(f"a window {list(at.shape(2))} is not {length} long")
        x = at.emit("mul", x, at.reshape(at.tensor(2), (length, 1)))
    onesided = bool(at.integer("onesided", 1))
    return _joined(at, _split(at, x, 2), 2, length, inverse=False, onesided=onesided)


def _split(at: Lowering, x: SSAValue, axis: int) -> Complex:
    """The parts, without their axis and with ``axis`` moved to the end."""
    shape = shape_of(x)
    order = [*(i for i in range(len(shape) - 1) if i != axis), axis]

    def part(index: int) -> SSAValue:
        return at.transpose(element_at(at, x, len(shape) - 1, index), order)

    return Complex(part(0), part(1) if shape[-1] == 2 else None)


def _fitted(at: Lowering, x: SSAValue, length: int) -> SSAValue:
    """The last axis cut, or filled with zeros, to a length."""
    shape = shape_of(x)
    if not 1 <= length <= 2**24:
        raise at.misfit(f"a transform of length {length} is not computed")
    if shape[-1] > length:
        return cut(at, x, {len(shape) - 1: (0, length, 1)})
    if shape[-1] == length:
        return x
    pads = [*(0 for _ in range(2 * len(shape) - 1)), length - shape[-1]]
    return at.emit("pad", x, pads=tuple(pads), mode="constant")


def _joined(
    at: Lowering, x: Complex, axis: int, length: int, *, inverse: bool, onesided: bool
) -> SSAValue:
    """The transform, its axis back in place and its parts along a last axis."""
    fitted = Complex(
        _fitted(at, x.real, length),
        None if x.imaginary is None else _fitted(at, x.imaginary, length),
    )
    transformed = _transformed(at, fitted, 1 if inverse else -1)
    rank = len(shape_of(transformed.real))
    order = [*range(axis), rank - 1, *range(axis, rank - 1)]
    assert transformed.imaginary is not None
    parts: list[SSAValue] = []
    for part in (transformed.real, transformed.imaginary):
        if onesided:
            part = cut(at, part, {rank - 1: (0, length // 2 + 1, 1)})
        if inverse:
            part = at.apply("mul", part, 1 / length)
        part = at.transpose(part, order)
        parts.append(at.reshape(part, (*shape_of(part), 1)))
    return at.emit("concat", *parts, axis=rank)


def _whole_again(at: Lowering, x: Complex, axis: int, length: int) -> SSAValue:
    """The real signal of which ``x`` is the first half of a transform."""
    count = length // 2 + 1
    real = _fitted(at, x.real, count)
    weights = np.full(count, 2.0)
    weights[0] = 1
    if length % 2 == 0:
        weights[-1] = 1
    turns = 2 * np.pi * np.outer(np.arange(count), np.arange(length)) / length
    if turns.size > MAX_LENGTH**2:
        raise at.refuse(f"a transform of length {length} is too large", code="onnx-too-large")
    cosines, sines = (weights[:, None] * f(turns) / length for f in (np.cos, np.sin))
    signal = at.emit("matmul", real, at.made(cosines, real, "cosines"))
    if x.imaginary is not None:
        imaginary = _fitted(at, x.imaginary, count)
        other = at.emit("matmul", imaginary, at.made(sines, imaginary, "sines"))
        signal = at.emit("sub", signal, other)
    rank = len(shape_of(signal))
    signal = at.transpose(signal, [*range(axis), rank - 1, *range(axis, rank - 1)])
    return at.reshape(signal, (*shape_of(signal), 1))


def _transformed(at: Lowering, x: Complex, sign: int) -> Complex:
    """The transform along the last axis; ``sign`` is that of the exponent."""
    shape = shape_of(x.real)
    length = shape[-1]
    first = _factor(length)
    if first == length:
        if length > MAX_LENGTH:
            reason = f"a transform of length {length}, which is prime, is too large"
            raise at.refuse(reason, code="onnx-too-large")
        turns = sign * 2 * np.pi * np.outer(np.arange(length), np.arange(length)) / length
        return _product(at, x, np.cos(turns), np.sin(turns))
    second = length // first
    # Element second * i + j; rows of equal j are transformed, turned, and transformed across.
    wide = _shaped(at, x, (*shape[:-1], first, second), swap=True)
    inner = _transformed(at, wide, sign)
    turns = sign * 2 * np.pi * np.outer(np.arange(second), np.arange(first)) / length
    turned = _turned(at, inner, np.cos(turns), np.sin(turns))
    across = _transformed(at, _swapped(at, turned), sign)
    return _shaped(at, _swapped(at, across), shape, swap=False)


def _factor(length: int) -> int:
    """The length itself if it is short or prime, else its largest factor up to DENSE."""
    if length <= DENSE:
        return length
    factors = [f for f in range(2, DENSE + 1) if length % f == 0]
    if factors:
        return factors[-1]
    return next((f for f in range(DENSE, math.isqrt(length) + 1) if length % f == 0), length)


def _shaped(at: Lowering, x: Complex, shape: tuple[int, ...], *, swap: bool) -> Complex:
    parts = [None if p is None else at.reshape(p, shape) for p in (x.real, x.imaginary)]
    assert parts[0] is not None
    shaped = Complex(parts[0], parts[1])
    return _swapped(at, shaped) if swap else shaped


def _swapped(at: Lowering, x: Complex) -> Complex:
    rank = len(shape_of(x.real))
    order = [*range(rank - 2), rank - 1, rank - 2]
    other = None if x.imaginary is None else at.transpose(x.imaginary, order)
    return Complex(at.transpose(x.real, order), other)


def _product(at: Lowering, x: Complex, cosines: Array, sines: Array) -> Complex:
    """x @ (cosines + i sines)."""
    c, s = (at.made(m, x.real, n) for m, n in ((cosines, "cosines"), (sines, "sines")))
    real, imaginary = at.emit("matmul", x.real, c), at.emit("matmul", x.real, s)
    if x.imaginary is not None:
        real = at.emit("sub", real, at.emit("matmul", x.imaginary, s))
        imaginary = at.emit("add", imaginary, at.emit("matmul", x.imaginary, c))
    return Complex(real, imaginary)


def _turned(at: Lowering, x: Complex, cosines: Array, sines: Array) -> Complex:
    """x * (cosines + i sines), element by element."""
    assert x.imaginary is not None
    c, s = (at.made(m, x.real, n) for m, n in ((cosines, "turns"), (sines, "turns_i")))
    real = at.emit("sub", at.emit("mul", x.real, c), at.emit("mul", x.imaginary, s))
    imaginary = at.emit("add", at.emit("mul", x.real, s), at.emit("mul", x.imaginary, c))
    return Complex(real, imaginary)
