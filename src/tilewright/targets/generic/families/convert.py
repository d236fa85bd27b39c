"""Transfers that round sums to the machine's elements (convert)."""

from __future__ import annotations

import numpy as np

from tilewright.codegen.program.transfers import AXES
from tilewright.codegen.words import Columns, Field
from tilewright.machine import Machine, Move
from tilewright.numerics import fixed
from tilewright.numerics.element_types import rounded
from tilewright.simulate.accesses import Touch
from tilewright.targets.generic.families.normalise import POINT_BITS
from tilewright.targets.generic.families.transfer import box_fields, box_touch
from tilewright.targets.generic.family import Family, Unit
from tilewright.targets.generic.operands import Values


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
        """Return the fields: on fixed point a shift, then the box's sizes and both ends."""
        shift = Field("shift", POINT_BITS, "binary points from sums to elements", signed=True)
        return (*((shift,) if machine.fixed_bits else ()), *box_fields(machine, part))

    def execute(self, unit: Unit, part: Move, values: Values) -> None:
        """Copy the box to the other end, rounding its elements."""
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
        size = np.full_like(columns["source.address"], machine.sum.bytes)
        sums = box_touch(part.source, "source", size, columns, write=False)
        return [sums, *self.charged(machine, part, columns)]

    def charged(self, machine: Machine, part: Move, columns: Columns) -> list[Touch]:
        """Return the box that the transfer writes."""
        size = np.full_like(columns["target.address"], machine.number.bytes)
        return [box_touch(part.target, "target", size, columns, write=True)]
