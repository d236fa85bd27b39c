"""Images of one slot whose rows come one by one, each when the row in its place is done with.

Where the outermost loop goes down an image, its tiles lie one behind the other, and windows leave
no row out, a primitive may take the places of rows in turn: the rows of the next tile come while
the current one is computed, as if the image had two slots. What is saved where tiles share rows
about pays for the latencies of single rows, so that the time of a tile's transfers stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.planning.domain import Operand
from tilewright.planning.footprint import Bools, Ints, Use
from tilewright.planning.nests import Arrangement, Loop
from tilewright.planning.space import Space


def slots_of_rows(
    space: Space, arrangement: Arrangement, slots: Mapping[str, Ints], along: str
) -> Mapping[str, Ints]:
    """``slots`` of every operand that is moved, as far as its moves are concerned; rows of images
    roll along a dim."""
    for use in space.uses:
        plain = use.operand.role == "input" and use.move is not None and use.name in slots
        if along and plain and _slides(space, use.operand, along):
            single = (slots[use.name] == 1) & ~space.split()
            rolled = single & _outermost(space, arrangement, use, along)
            slots = {**slots, use.name: np.where(rolled, 2, slots[use.name])}
    return slots


def _slides(space: Space, image: Operand, along: str) -> bool:
    """Whether windows of several rows go down an image, and leave none of them out."""
    for axis in image.access:
        steps = dict(axis.terms)
        if len(steps) == 2 and along in steps and axis.offset <= 0:
            (kernel,) = (dim for dim in steps if dim != along)
            return steps[kernel] == 1 and 1 < space.extents[kernel] >= steps[along]
    return False


def _outermost(space: Space, arrangement: Arrangement, use: Use, along: str) -> Bools:
    """Per row, whether the dim has the outermost loop, and no other one runs over the image."""
    outermost, before = np.zeros(space.rows, np.bool_), np.ones(space.rows, np.bool_)
    for loop in arrangement.nest.loops:
        for dim in loop.group.dims:
            count = _trips(space, arrangement, loop, dim)
            if dim == along and not loop.inner:
                outermost |= before & (count > 1)
            elif dim in use.operand.dims:
                outermost &= count <= 1
            before &= count <= 1
    return outermost


def _trips(space: Space, arrangement: Arrangement, loop: Loop, dim: str) -> Ints:
    """Per row, the trips of a dim's loop."""
    grown = arrangement.grown.get(dim)
    if grown is None or loop.group is not arrangement.nest.grown:
        return space.trips(dim)
    outer = -(-space.trips(dim) // grown)
    return -(-space.trips(dim) // outer) if loop.inner else outer
