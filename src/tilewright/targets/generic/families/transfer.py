"""Transfers: strided boxes between two memories."""

from __future__ import annotations

import numpy as np

from tilewright.codegen.program.transfers import AXES
from tilewright.codegen.words import Column, Columns, Field, bits_for
from tilewright.machine import Machine, Move
from tilewright.simulate.accesses import Touch
from tilewright.targets.generic.family import Family, Unit
from tilewright.targets.generic.operands import Values, address_field, stride_bits


def size_bits(machine: Machine, part: Move) -> int:
    """Bits of an extent: as many as the smaller of the memories has bytes."""
    sizes = [machine.memory(name).bytes or 0 for name in (part.source, part.target)]
    return bits_for(min((size for size in sizes if size), default=(1 << 20) - 1))


def box_fields(machine: Machine, part: Move) -> tuple[Field, ...]:
    """The sizes of a box, then the address and the strides of both ends."""
    bits = size_bits(machine, part)
    ends: list[Field] = []
    for end, memory in (("source", part.source), ("target", part.target)):
        meaning = f"first byte in {memory}"
        ends.append(address_field(machine, memory, f"{end}.address", meaning))
        ends += [
            Field(f"{end}.stride{axis}", stride_bits(machine, memory), f"bytes along axis {axis}")
            for axis in range(AXES)
        ]
    sizes = (Field(f"size{n}", bits, f"extent of axis {n}", default=1) for n in range(AXES))
    return (*sizes, *ends)


def box_touch(memory: str, end: str, element: Column, columns: Columns, *, write: bool) -> Touch:
    """Return a transfer's touch at one end, for elements of ``element`` bytes."""
    sizes = tuple(columns[f"size{axis}"] for axis in range(AXES))
    strides = tuple(columns[f"{end}.stride{axis}"] for axis in range(AXES))
    return Touch(memory, write, columns[f"{end}.address"], sizes, strides, element)


class Transfer(Family):
    """The family of transfers that load and store boxes."""

    name = "transfer"
    summary = "Copies a box of up to four axes between two memories."
    text = """\
Copies `size0 * size1 * size2 * size3` elements of `element` bytes: the element (i0, i1, i2, i3) at
`source.address + i0*source.stride0 + ... + i3*source.stride3` goes to the address that the target's
fields give in the same way. A second, contiguous run of `extra.bytes` bytes, such as the bias that
goes with a tile of weights, travels in the same transfer: one latency for both.
"""

    def fields(self, machine: Machine, part: Move) -> tuple[Field, ...]:
        """The fields: sizes, then both ends, then the second run."""
        return (
            Field("element", 4, "bytes of an element", default=2),
            *box_fields(machine, part),
            Field("extra.bytes", size_bits(machine, part), "bytes of the second run"),
            *(
                address_field(machine, memory, f"extra.{end}", f"its first byte in {memory}")
                for end, memory in (("source", part.source), ("target", part.target))
            ),
        )

    def execute(self, unit: Unit, part: Move, values: Values) -> None:
        """Copy the box, then the second run."""
        shape = [values[f"size{axis}"] for axis in range(AXES)]
        views: list[np.ndarray] = []
        for end, memory in (("source", part.source), ("target", part.target)):
            strides = [values[f"{end}.stride{axis}"] for axis in range(AXES)]
            element = values["element"]
            # Whole elements where there is such a type, else bytes under one more axis.
            dtype = {1: np.dtype(np.int8), 2: np.dtype(np.int16), 4: np.dtype(np.int32)}.get(
                element
            )
            if dtype is None:
                dtype, shape_, strides_ = np.dtype(np.uint8), [*shape, element], [*strides, 1]
            else:
                shape_, strides_ = shape, strides
            address = values[f"{end}.address"]
            views.append(unit.memories.view(memory, address, dtype, shape_, strides_))
        views[1][...] = views[0]
        if values["extra.bytes"]:
            size = (values["extra.bytes"],)
            source = unit.memories.view(part.source, values["extra.source"], np.uint8, size, (1,))
            target = unit.memories.view(part.target, values["extra.target"], np.uint8, size, (1,))
            target[...] = source

    def charged(self, machine: Machine, part: Move, columns: Columns) -> list[Touch]:
        """The end in main memory, else the source's: touches come in pairs, box and second run."""
        side = 1 if part.target == machine.main else 0
        return self.touches(machine, part, columns)[2 * side : 2 * side + 2]

    def touches(self, machine: Machine, part: Move, columns: Columns) -> list[Touch]:
        """Both boxes and both runs."""
        accesses: list[Touch] = []
        element, ones = columns["element"], np.ones_like(columns["element"])
        for end, memory, write in (("source", part.source, False), ("target", part.target, True)):
            accesses.append(box_touch(memory, end, element, columns, write=write))
            run = columns["extra.bytes"]
            accesses.append(Touch(memory, write, columns[f"extra.{end}"], (run,), (ones,), ones))
        return accesses
