"""Transfers that round sums to the machine's elements (convert)."""

from __future__ import annotations

import numpy as np

from tilewright.codegen.words import Columns, Field
from tilewright.machine import Machine, Move
from tilewright.numerics import fixed
from tilewright.numerics.element_types import rounded
from tilewright.targets.generic.accesses import Touch
from tilewright.targets.generic.families.normalise import POINT_BITS
from tilewright.targets.generic.families.transfer import AXES, size_bits
from tilewright.targets.generic.family import Family, Unit
from tilewright.targets.generic.operands import Values, address_field, stride_bits


class Convert(Family):
    """Stores of results that lie as sums do."""

    name = "convert"
    summary = "Rounds a box of sums of up to four axes to the machine's elements, on its way."
    text = """\
The accumulator at `source.address + i0*source.stride0 + ... + i3*source.stride3`, for each (i0, i1,
i2, i3) within `size0` to `size3`, becomes an element at the address that the target's fields give
in the same way: of floats the nearest, of two the even one; of fixed point the accumulator shifted
right by `shift`, half rounded up, saturated. It costs the bandwidth of what it writes.
"""

    def fields(self, machine: Machine, part: Move) -> tuple[Field, ...]:
        """Sizes, then both ends."""
        bits = size_bits(machine, part)
        ends = (("source", part.source), ("target", part.target))
        shift = "binary points from sums to elements"
        return (
            *((Field("shift", POINT_BITS, shift, signed=True),) if machine.fixed_bits else ()),
            *(
                Field(f"size{axis}", bits, f"extent of axis {axis}", default=1)
                for axis in range(AXES)
            ),
            *(
                field
                for end, memory in ends
                for field in (
                    address_field(machine, memory, f"{end}.address", f"first byte in {memory}"),
                    *(
                        Field(
                            f"{end}.stride{axis}",
                            stride_bits(machine, memory),
                            f"bytes along axis {axis}",
                        )
                        for axis in range(AXES)
                    ),
                )
            ),
        )

    def execute(self, unit: Unit, part: Move, values: Values) -> None:
        """Round the box."""
        machine = unit.machine
        shape = [values[f"size{axis}"] for axis in range(AXES)]
        source, target = (
            unit.memories.view(
                memory,
                values[f"{end}.address"],
                dtype,
                shape,
                [values[f"{end}.stride{axis}"] for axis in range(AXES)],
            )
            for end, memory, dtype in (
                ("source", part.source, machine.sum.dtype),
                ("target", part.target, machine.number.dtype),
            )
        )
        if machine.fixed_bits:
            target[...] = fixed.requantise(source, values["shift"], 0, machine.number.dtype)
        else:
            saturate = machine.overflow == "saturate"
            target[...] = rounded(source, machine.number, saturate=saturate)

    def touches(self, machine: Machine, part: Move, columns: Columns) -> list[Touch]:
        """The sums, and what becomes of them."""
        return [
            _touch(part.source, "source", machine.sum.bytes, columns, write=False),
            *self.charged(machine, part, columns),
        ]

    def charged(self, machine: Machine, part: Move, columns: Columns) -> list[Touch]:
        """What is written."""
        return [_touch(part.target, "target", machine.number.bytes, columns, write=True)]


def _touch(memory: str, end: str, element: int, columns: Columns, *, write: bool) -> Touch:
    sizes = tuple(columns[f"size{axis}"] for axis in range(AXES))
    strides = tuple(columns[f"{end}.stride{axis}"] for axis in range(AXES))
    address = columns[f"{end}.address"]
    return Touch(memory, write, address, sizes, strides, np.full_like(address, element))


__all__ = ["Convert"]
