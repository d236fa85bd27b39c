"""Transfers that gather windows (img2col): one element for each position and tap."""

from __future__ import annotations

import numpy as np

from tilewright.codegen.words import Columns, Field
from tilewright.errors import refuse
from tilewright.machine import Machine, Move
from tilewright.simulate.accesses import Touch
from tilewright.targets.generic.families.transfer import size_bits
from tilewright.targets.generic.families.window import (
    fill_fields,
    seen_touch,
    step_fields,
    window_of,
)
from tilewright.targets.generic.family import Family, Unit
from tilewright.targets.generic.operands import Values, address_field, stride_bits

IMAGE = ("n", "g", "h", "w", "c")
"""Axes of the image."""

POINTS = ("n", "g", "oh", "ow", "kh", "kw", "ci")
"""Axes of the windows."""

TYPES = {1: np.dtype(np.int8), 2: np.dtype(np.int16), 4: np.dtype(np.int32)}
"""The integer type that holds an element, by the element's size in bytes."""


class Gather(Family):
    """The family of transfers that gather an image's windows."""

    name = "img2col"
    summary = "Gathers the windows of an image, an element for each position and tap."
    text = """\
The element of `element` bytes at position (oh, ow) of batch n and group g, tap (kh, kw) and channel
ci is that of the image in row `row + oh*stride.h + kh*dilation.h` and column
`column + ow*stride.w + kw*dilation.w`, or 0 where the image has no such row (0 to `rows`-1) or
column (0 to `columns`-1); or `fill`, where there is that field. It costs the bandwidth of what it
writes.
"""

    def fields(self, machine: Machine, part: Move) -> tuple[Field, ...]:
        """The fields: sizes, the window, then both ends."""
        bits = size_bits(machine, part)
        return (
            Field("element", 4, "bytes of an element", default=2),
            *(Field(dim, bits, f"extent of {dim}", default=1) for dim in POINTS),
            *step_fields(bits, "of the image at the source"),
            *(fill_fields() if _fills(machine, part) else ()),
            *(
                field
                for end, memory, axes in (
                    ("source", part.source, IMAGE),
                    ("target", part.target, POINTS),
                )
                for field in (
                    address_field(machine, memory, f"{end}.address", f"first byte in {memory}"),
                    *(
                        Field(f"{end}.{axis}", stride_bits(machine, memory), f"bytes along {axis}")
                        for axis in axes
                    ),
                )
            ),
        )

    def execute(self, unit: Unit, part: Move, values: Values) -> None:
        """Gather the windows of an image into the target memory."""
        dtype = TYPES.get(values["element"])
        if dtype is None:
            raise refuse("isa-word", f"elements of {values['element']} bytes are not gathered")
        outer = ("n", "g")
        fill = values.get("fill", 0)
        seen = window_of(unit, part.source, "source", dtype, values, outer, dtype, fill)
        strides = [values[f"target.{axis}"] for axis in POINTS]
        address = values["target.address"]
        target = unit.memories.view(part.target, address, dtype, seen.shape, strides)
        target[...] = seen

    def touches(self, machine: Machine, part: Move, columns: Columns) -> list[Touch]:
        """The part of the image that the windows reach, and the windows."""
        element = columns["element"]
        source = seen_touch(part.source, "source", element, columns, ("n", "g"))
        return [source, *self.charged(machine, part, columns)]

    def charged(self, machine: Machine, part: Move, columns: Columns) -> list[Touch]:
        """Return the box that the transfer writes."""
        sizes = tuple(columns[dim] for dim in POINTS)
        strides = tuple(columns[f"target.{axis}"] for axis in POINTS)
        address = columns["target.address"]
        return [Touch(part.target, True, address, sizes, strides, columns["element"])]


def _fills(machine: Machine, part: Move) -> bool:
    """Return True if a primitive needs windows at a move's target with padding other than 0."""
    return any(
        storage.gathered and storage.fills and storage.memory == part.target
        for primitive in machine.primitives
        for storage in primitive.operands.values()
    )
