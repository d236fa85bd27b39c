"""Matrices of small integers with a scale for each block of a row, packed as kernels read them.

A row of a matrix [n, k] is cut into blocks, each with a scale and perhaps a minimum:
``w = scale * (code - zero)``, or ``w = scale * code + minimum``. Codes of ``bits`` bits lie in
words of 32: groups of ``GROUP`` rows side by side, a word of each row, then the next word of each,
so that a vector holds one word of as many rows as it has lanes. Pair p of a word's codes, 2p and
2p + 1, has its first code at bit ``p * bits`` and its second at ``16 + p * bits``: a shift and a
mask leave two numbers of 16 bits, which processors multiply and add in one step. Scales of a group
lie in the same way, those of a block followed by its minima.

Vectors that are multiplied with them are rounded to 16 bits, with a scale for each block.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.numerics.arrays import Array

GROUP = 16
"""Rows that lie side by side."""

LONGEST = 256
"""Numbers of a block at most, whose sums 32 bits hold."""

LARGEST = 32767
"""The integer that the largest number of a block of a vector becomes."""


@dataclass(frozen=True)
class Blocks:
    """A matrix in blocks, before it is packed."""

    codes: NDArray[np.uint8]
    """[n, k], each less than 2**bits."""
    scales: Array
    """[n, k / block], floats of 16 or 32 bits."""
    minima: Array | None = None
    """The same, or None where ``zero`` is subtracted from codes."""
    bits: int = 4
    zero: int = 0

    @property
    def block(self) -> int:
        """Numbers of a block."""
        return self.codes.shape[1] // self.scales.shape[1]

    @property
    def form(self) -> dict[str, int]:
        """Attributes of the graph's operations on the matrix."""
        zero = -1 if self.minima is not None else self.zero
        return {"bits": self.bits, "block": self.block, "zero": zero}

    def rows(self) -> Array:
        """The matrix in float32."""
        shape = (*self.scales.shape, self.block)
        numbers = self.codes.reshape(shape).astype(np.float32) - np.float32(self.zero)
        numbers *= self.scales[..., None].astype(np.float32)
        if self.minima is not None:
            numbers += self.minima[..., None].astype(np.float32)
        return numbers.reshape(self.codes.shape)

    def padded(self) -> Blocks:
        """The same with rows of 0 after the last, up to whole groups."""
        more = -len(self.codes) % GROUP
        if not more:
            return self
        codes, scales = (
            np.concatenate([a, np.zeros((more, a.shape[1]), a.dtype)])
            for a in (self.codes, self.scales)
        )
        minima = self.minima
        if minima is not None:
            minima = np.concatenate([minima, np.zeros((more, minima.shape[1]), minima.dtype)])
        return Blocks(codes, scales, minima, self.bits, self.zero)

    def packed(self) -> tuple[NDArray[np.uint8], Array]:
        """Bytes of the codes [n, k * bits / 8], and scales [n, k / block] or twice as many; n is
        in whole groups."""
        n, k = self.codes.shape
        pairs = 16 // self.bits
        parts = self.codes.reshape(n // GROUP, GROUP, -1, pairs, 2).astype(np.uint32)
        words = np.zeros(parts.shape[:3], np.uint32)
        for pair in range(pairs):
            for half in range(2):
                words |= parts[..., pair, half] << np.uint32(pair * self.bits + 16 * half)
        data = np.ascontiguousarray(words.swapaxes(1, 2)).view(np.uint8)
        floats = [self.scales] if self.minima is None else [self.scales, self.minima]
        sides = [each.reshape(n // GROUP, GROUP, -1).swapaxes(1, 2) for each in floats]
        scales = np.stack(sides, axis=2)
        return data.reshape(n, k * self.bits // 8), np.ascontiguousarray(scales).reshape(n, -1)


def quantised(matrix: Array, bits: int, block: int = 32) -> Blocks:
    """A matrix [n, k] of float32 in blocks with a scale in float16 each, as llama.cpp makes them.

    Of 8 bits (Q8_0), where the largest number of a block becomes 127 or -127; or of 4 (Q4_0), where
    it becomes -8. Numbers are rounded to the nearest that the scale, once rounded, has.
    """
    zero = 1 << (bits - 1)
    parts = matrix.reshape(len(matrix), -1, block)
    place = np.abs(parts).argmax(-1, keepdims=True)
    most = np.take_along_axis(parts, place, -1)
    scale = np.abs(most) / 127 if bits == 8 else most / -zero
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        short = scale.astype(np.float16)
        if not np.isfinite(short).all():
            short = scale.astype(np.float32)
        wide = short.astype(np.float32)
        codes = np.where(wide == 0, np.float32(0), np.rint(parts / wide)) + zero
    codes = codes.clip(0, 2 * zero - 1).astype(np.uint8)
    return Blocks(codes.reshape(matrix.shape), short[..., 0], bits=bits, zero=zero)


def unpacked(codes: Array, scales: Array, bits: int, block: int, zero: int | None) -> Blocks:
    """The matrix of packed operands; ``zero`` is None where minima follow the scales."""
    n, pairs = len(codes), 16 // bits
    words = np.ascontiguousarray(codes).view(np.uint32).reshape(n // GROUP, -1, GROUP)
    words = words.swapaxes(1, 2)
    parts = np.empty((*words.shape, pairs, 2), np.uint8)
    for pair in range(pairs):
        for half in range(2):
            shift = np.uint32(pair * bits + 16 * half)
            parts[..., pair, half] = (words >> shift) & np.uint32(2**bits - 1)
    sides = scales.reshape(n // GROUP, codes.shape[1] * 8 // bits // block, -1, GROUP)
    floats = [sides[:, :, side].swapaxes(1, 2).reshape(n, -1) for side in range(sides.shape[2])]
    minima = floats[1] if zero is None else None
    return Blocks(parts.reshape(n, -1), floats[0], minima, bits, zero or 0)


def rounded(x: Array, block: int) -> NDArray[np.int32]:
    """Rows [..., k] in float32 as words [..., k / block, block / 2 + 2].

    The words of a block are its numbers as integers of 16 bits, two by two, the bits of their scale
    in float32, and their sum.
    """
    parts = x.reshape(*x.shape[:-1], -1, block).astype(np.float32)
    most = np.abs(parts).max(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        inverse = np.where(most > 0, np.float32(LARGEST) / most, np.float32(0))
        whole = np.rint(parts * inverse[..., None]).astype(np.int16)
    words = np.empty((*parts.shape[:-1], block // 2 + 2), np.int32)
    words[..., :-2] = whole.view(np.int32)
    words[..., -2] = (most * np.float32(1 / LARGEST)).view(np.int32)
    words[..., -1] = whole.sum(-1, dtype=np.int32)
    return words


def product(words: NDArray[np.int32], weight: Blocks) -> Array:
    """Rows of ``rounded`` by the rows of a matrix: [..., n] in float32.

    Sums of a block are exact; those of blocks are of float64, rounded once.
    """
    lead, words = words.shape[:-2], words.reshape(-1, *words.shape[-2:])
    whole = np.ascontiguousarray(words[..., :-2]).view(np.int16).astype(np.float64)
    scale = np.ascontiguousarray(words[..., -2]).view(np.float32).astype(np.float64)
    total = np.zeros((len(words), len(weight.codes)))
    codes = weight.codes.reshape(*weight.scales.shape, weight.block)
    for number in range(weight.scales.shape[1]):
        sums = whole[:, number] @ (codes[:, number].astype(np.float64) - weight.zero).T
        sums *= weight.scales[:, number].astype(np.float64)
        if weight.minima is not None:
            minima = weight.minima[:, number].astype(np.float64)
            sums += words[:, number, -1:].astype(np.float64) * minima
        total += sums * scale[:, number, None]
    return total.astype(np.float32).reshape(*lead, -1)
