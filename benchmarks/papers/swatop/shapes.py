"""swATOP's Listing 1 (convolutions) and Listing 2 (matrix products), and the sample of them.

The sample is fixed: shapes in the order of their multiply-adds, taken at even distances. Every
third is held out: nothing of the cost model was decided by looking at it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod

CHANNELS = (64, 128, 256, 384, 512)
SIDES = (32, 64, 128, 256)
WINDOW = 3
"""Of the convolutions; the listing leaves it open, and Winograd's method asks for it."""

UNALIGNED = (200, 500, 1000, 2000, 4000, 8000)
ALIGNED = (256, 512, 768, 1024, 2048, 4096, 8192)

PRODUCTS = 120
"""Products of the sample; of the convolutions all are in it."""

MOST = 1 << 36
"""Multiply-adds of the largest product: it runs for about a second, and so do its rivals."""

HELD_OUT = 3
"""Every so manieth shape of the sample."""


@dataclass(frozen=True)
class Shape:
    """A convolution (Ni, No, Ro) or a product (M, N, K); one image, one matrix."""

    kind: str
    """``conv`` or ``product``."""
    sizes: tuple[int, int, int]
    held_out: bool = False

    @property
    def multiply_adds(self) -> int:
        """Of the direct method."""
        if self.kind == "product":
            return prod(self.sizes)
        inputs, outputs, side = self.sizes
        return inputs * outputs * (side * WINDOW) ** 2

    def __str__(self) -> str:
        """As in the tables: conv 64x64x32."""
        return f"{self.kind} {'x'.join(map(str, self.sizes))}"


def convolutions() -> list[Shape]:
    """Listing 1 for batch 1: all 60."""
    found = [
        Shape("conv", (inputs, outputs, side))
        for inputs, outputs, side in product(CHANNELS, CHANNELS, SIDES)
        if inputs >= outputs
    ]
    return _marked(found)


def products() -> list[Shape]:
    """120 of the 559 of Listing 2."""
    every = [
        Shape("product", sizes)
        for values in (UNALIGNED, ALIGNED)
        for sizes in product(values, values, values)
    ]
    every = _sorted([shape for shape in every if shape.multiply_adds <= MOST])
    last = len(every) - 1
    chosen = [every[round(number * last / (PRODUCTS - 1))] for number in range(PRODUCTS)]
    return _marked(chosen)


def sampled(shapes: list[Shape], number: int | None) -> list[Shape]:
    """So many of a listing, the smallest, or the largest if it is negative; None: all."""
    return shapes[number:] if number is not None and number < 0 else shapes[:number]


def _sorted(shapes: list[Shape]) -> list[Shape]:
    return sorted(shapes, key=lambda shape: (shape.multiply_adds, shape.sizes))


def _marked(shapes: list[Shape]) -> list[Shape]:
    return [
        Shape(shape.kind, shape.sizes, number % HELD_OUT == HELD_OUT - 1)
        for number, shape in enumerate(_sorted(shapes))
    ]
