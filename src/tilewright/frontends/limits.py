"""Bounds that all front-ends have, so that a hostile file costs neither time nor memory."""

from __future__ import annotations

import math
from collections.abc import Sequence

MAX_ELEMENTS = 2**30
"""Elements of one tensor, weight or activation."""


MAX_FILE_BYTES = 2**31 - 1
"""Bytes of a model's file: protobuf reads no larger one; weights may lie beside it."""

MAX_RANK = 8
"""Axes of a tensor of the network."""

MAX_EXTENT = 2**24
"""Largest kernel, stride, dilation and pad, and largest padded image along an axis."""

MAX_TABLE = 2**24
"""Elements of a constant that an importer makes."""

MAX_ROUNDS = 1024
"""Rounds of a loop that is written out."""

MAX_NAME = 120
"""Characters of a model's name that are shown in a message."""


def shown(name: str) -> str:
    """A name from the model as a message shows it: quoted, one line, not too long."""
    return repr(name if len(name) <= MAX_NAME else name[:MAX_NAME] + "...")


def too_large(shape: Sequence[int], most: int = MAX_ELEMENTS) -> bool:
    """Return True if a tensor of this shape has more than ``most`` elements.

    Sizes of 0 count as 1: libraries also compute products of the other sizes.
    """
    return math.prod(max(1, size) for size in shape) > most
