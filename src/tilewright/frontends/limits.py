"""The bound on the elements of any tensor that a model asks for."""

from __future__ import annotations

import math
from collections.abc import Sequence

MAX_ELEMENTS = 2**30
"""Elements of one tensor, weight or activation."""


def too_large(shape: Sequence[int], most: int = MAX_ELEMENTS) -> bool:
    """Return True if a tensor of this shape has more than ``most`` elements.

    Sizes of 0 count as 1: libraries also compute products of the other sizes.
    """
    return math.prod(max(1, size) for size in shape) > most
