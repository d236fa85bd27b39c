"""Sizes that data decide: a result has room for the most, and a value of the network is its size.

NonZero, say, gives as many columns as there are elements other than 0. Its result has room for all
of them, and a run computes how many of these hold something. Operators that read it see the room
as its extent; once the whole network is there, each size is followed from value to value
(graph/run_sizes.py), and what would mix elements after the end with others is masked or refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tilewright.errors import refuse
from tilewright.frontends.limits import shown
from tilewright.frontends.onnx.lowering import Lowering
from tilewright.graph.joined_axes import Ends
from tilewright.ir import SSAValue
from tilewright.ir.types import shape_of

LEAST_ROOM = 3
"""The least extent of an axis whose size data decide: networks of size 1 are often others."""


@dataclass
class Decided:
    """The sizes of one network that data decide, by name."""

    given: Mapping[str, int]
    """The rooms that the caller states, by a value's name, or ``NAME.AXIS``."""
    smaller: str = ""
    """The size whose room is less by one, to see what follows from it."""
    rooms: dict[str, int] = field(default_factory=dict[str, int])
    stated: dict[str, int] = field(default_factory=dict[str, int])
    """The rooms of sizes that may be larger in a run: the caller's, where they limit something."""
    sizes: dict[str, SSAValue] = field(default_factory=dict[str, SSAValue])
    """The value of each size, int64 and of rank 0."""
    ends: dict[SSAValue, Ends] = field(default_factory=dict[SSAValue, Ends])
    """The axes that end early of results that data give their sizes, with the sizes' names."""

    def check(self) -> None:
        """Refuse (``shape-unknown``) rooms for what has no size that data decide."""
        for name in self.given:
            if name not in {each for room in self.rooms for each in (room, _value_of(room))}:
                known = f"data decide sizes of {', '.join(map(shown, self.rooms))}"
                raise refuse(
                    "shape-unknown", "its size is not decided by data", f"value {shown(name)}",
                    known if self.rooms else "no size of the model is decided by data",
                )  # fmt: skip


def _value_of(name: str) -> str:
    """The value of a size's name, ``NAME.AXIS``."""
    return name.rpartition(".")[0]


def room(
    at: Lowering,
    axis: int | None = None,
    *,
    most: int | None,
    result: int = 0,
    what: str = "the size of its result, and nothing says how large it may be",
) -> tuple[str, int]:
    """The name and the room of a size that data decide: the caller's, or ``most``.

    It is called as the node's ``result`` is, with the ``axis`` after it where there may be
    several. Refuses where neither says it, and in bodies of loops, with ``what`` data decide.
    """
    decided = at.network.decided
    value = next(filter(None, at.node.outputs[result:]))
    name = value if axis is None else f"{value}.{axis}"
    if not isinstance(decided, Decided):
        raise at.refuse("data decide the size of its result within a loop", code="onnx-shape")
    given = decided.given.get(name, decided.given.get(value))
    extent = given if given is not None else most
    if extent is None:
        raise at.refuse(
            f"data decide {what}",
            code="onnx-shape",
            help=f"state the most: --shape {name}=0..100; or, where an input decides it, give the "
            "input its value: --constant",
        )
    if given is not None and most is not None:
        extent = min(given, most)
    if name in decided.rooms:  # In another round, or another call of a function.
        name += f"@{sum(other.partition('@')[0] == name for other in decided.rooms)}"
    extent = max(extent, LEAST_ROOM)
    while any(other != name and abs(extent - n) < 2 for other, n in decided.rooms.items()):
        extent += 1  # What has a size is told by its extent.
    decided.rooms[name] = extent
    if given is not None and (most is None or given < most):
        decided.stated[name] = extent
    return name, extent - (name == decided.smaller)


def sizes_decided(at: Lowering) -> bool:
    """Return True if data decide a size of what was imported so far."""
    decided = at.network.decided
    return isinstance(decided, Decided) and bool(decided.rooms)


def ended(at: Lowering, value: SSAValue, axis: int, name: str, size: SSAValue) -> SSAValue:
    """``value``, of which an axis ends at ``size``, an integer of one element."""
    decided = at.network.decided
    assert isinstance(decided, Decided)
    if name not in decided.sizes:
        decided.sizes[name] = at.reshape(at.cast(size, np.int64), ())
    decided.ends.setdefault(value, {})[axis] = name
    return value


def ramp(at: Lowering, extent: int, rank: int = 1, axis: int = 0) -> SSAValue:
    """0, 1, ... along one of ``rank`` axes, as int64."""
    shape = [extent if n == axis else 1 for n in range(rank)]
    return at.weight(np.arange(extent).reshape(shape), f"{at.node.name}.ramp")


def first(at: Lowering, value: SSAValue, axis: int, extent: int) -> SSAValue:
    """The first elements along an axis; the last one again where it has fewer."""
    places = np.minimum(np.arange(extent), shape_of(value)[axis] - 1)
    return at.emit("gather", value, at.weight(places, f"{at.node.name}.first"), axis=axis)


def gathered(at: Lowering, value: SSAValue, places: SSAValue, axis: int) -> SSAValue:
    """Elements along an axis at places that are cut to it: those after an end are any."""
    last = shape_of(value)[axis] - 1
    places = at.apply("max", at.apply("min", places, last), 0)
    return at.emit("gather", value, places, axis=axis)
