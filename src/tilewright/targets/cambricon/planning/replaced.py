"""Results in the place of an operand that they replace: two slots for both in the room of one each.

Where a primitive reads every element of a residual just before it writes the result that belongs to
it, results may lie where the residual was. A tile's store and the load of the one after the next
then take turns at one slot, while the tile between is computed in the other::

    slot 1:  residual 0 -> result 0, store 0, residual 2 -> result 2, ...
    slot 2:              residual 1 -> result 1, store 1, ...

The schedule gives each of the two one slot; their time is that of two.
"""

from __future__ import annotations

import numpy as np

from tilewright.planning.space.footprint import Ints
from tilewright.planning.space.nests import Arrangement
from tilewright.planning.space.tilings import Space


def slots_in_turn(space: Space, arrangement: Arrangement, role: str) -> dict[str, Ints]:
    """Slots of every operand that is moved, as far as its moves are concerned; results replace the
    operand of a role."""
    slots = arrangement.slots
    output = next((use for use in space.uses if use.output and use.move is not None), None)
    if output is None or not role or arrangement.nest.grown is not None:
        return slots
    for use in space.uses:
        fits = use.operand.role == role and use.move is not None and use.memory == output.memory
        if not fits or use.operand.access != output.operand.access or use.name not in slots:
            continue
        alike = space.slot_bytes(use) == space.slot_bytes(output)
        alone = alike & ~space.split() & (np.minimum(slots[use.name], slots[output.name]) == 1)
        both = {name: np.where(alone, 2, slots[name]) for name in (use.name, output.name)}
        return {**slots, **both}
    return slots
