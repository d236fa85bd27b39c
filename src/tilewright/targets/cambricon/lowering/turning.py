"""Places in a tile's code where the step to the next tile may be taken, once.

The step stands apart: the first place that is reached leads there, and it leads back. The products
that wait in the queue hide its instructions, which use registers of their own.
"""

from __future__ import annotations

from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.emitter import Emitter

NOWHERE = -(1 << 30)
"""In place of the number of a place: the step was taken behind the tile."""

BEFORE = NOWHERE // 2
"""The same before the first tile."""


class Turning:
    """What leads from a tile's code to the step and back."""

    e: Emitter
    due: Register | None
    """Positive in a tile from whose code the step to the next one has not been taken yet; then the
    place to which it leads back: the first one is -1, the second one -2, and so on. None: tiles
    have no places."""
    places: list[str]
    """Labels behind the places."""
    step: str
    """Where the step begins."""
    back: str
    """Behind the last place, which takes the step if none before has."""

    def turn(self) -> None:
        """A place in a tile's code where the step to the next tile may be taken, once."""
        if self.due is None:
            return
        e, number = self.e, len(self.places) + 1
        go, back = e.label("turn"), e.label("turned")
        self.places.append(back)
        e.emit("CB", self.due, go)
        e.place(back)

        def block() -> None:
            assert self.due is not None
            e.place(go)
            e.set(self.due, -number)
            e.jump(self.step)

        e.apart(block)

    def _lead_back(self) -> None:
        """From the step to where it was taken; before the first tile, on."""
        e, begun, back = self.e, self.e.label("begun"), self.e.label("lead")
        e.jump(back)
        e.place(begun)

        def block() -> None:
            origin = self.due
            assert origin is not None
            e.place(back)
            with e.beside(), e.scope():
                for number, place in enumerate(self.places, 1):
                    e.if_positive(e.add(origin, number + 1), place)
                e.if_positive(e.add(origin, 1 - BEFORE), begun)
            e.jump(self.back)

        e.apart(block)

    def _turn_at_last(self) -> None:
        """Step to the next tile, if no place in this tile's code has."""
        e, go = self.e, self.e.label("turn")
        assert self.due is not None
        e.emit("CB", self.due, go)
        e.place(self.back)

        def block() -> None:
            assert self.due is not None
            e.place(go)
            e.set(self.due, NOWHERE)
            e.jump(self.step)

        e.apart(block)
