"""C that copies arrays of equal shapes, whatever their layouts and strides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tilewright.codegen.c.source import Writer
from tilewright.codegen.host.ports import Port
from tilewright.planning.layout import Layout


@dataclass(frozen=True)
class ArrayInC:
    """A pointer of C, and where the elements of an array lie from it on.

    ``shape`` is logical; ``strides`` has one entry in elements for each axis of the layout's
    physical shape. An axis of which only one index is meant is not in ``shape``: ``at`` has C of
    that index, by axis.
    """

    pointer: str
    shape: tuple[int, ...]
    layout: Layout
    strides: tuple[int, ...]
    at: tuple[tuple[int, str], ...] = ()

    @classmethod
    def dense(cls, pointer: str, shape: Sequence[int]) -> ArrayInC:
        """An array in row-major order, without gaps."""
        layout = Layout.parse("", len(shape))
        return cls(pointer, tuple(shape), layout, layout.strides(shape))

    @classmethod
    def of(cls, port: Port, pointer: str) -> ArrayInC:
        """The array of a port."""
        layout = Layout.parse(port.layout, len(port.shape))
        return cls(pointer, port.shape, layout, port.strides)

    def part(self, axis: int, index: str) -> ArrayInC:
        """The part of the array at one index of an axis; ``index`` is C."""
        shape = (*self.shape[:axis], *self.shape[axis + 1 :])
        return ArrayInC(self.pointer, shape, self.layout, self.strides, ((axis, index),))

    def element(self, indices: Sequence[str]) -> str:
        """C of the offset in elements of the element at ``indices``, C of an index of each axis."""
        digits = list(indices)
        for axis, index in self.at:
            digits.insert(axis, index)
        terms: list[str] = []
        for factor, stride in zip(self.layout.factors, self.strides, strict=True):
            digit = digits[factor.axis]
            if digit == "0":
                continue
            digit += f" / {factor.divisor}" if factor.divisor > 1 else ""
            digit += f" % {factor.modulus}" if factor.modulus else ""
            terms.append(digit if stride == 1 else f"{digit} * {stride}")
        return " + ".join(terms) or "0"

    @property
    def contiguous(self) -> bool:
        """True if the elements follow each other in row-major order."""
        if not self.layout.row_major:
            return False
        fixed, step = [axis for axis, _ in self.at], 1
        strides = [s for axis, s in enumerate(self.strides) if axis not in fixed]
        for extent, stride in zip(reversed(self.shape), reversed(strides), strict=True):
            if extent != 1 and stride != step:
                return False
            step *= extent
        return True


def write_copy(writer: Writer, c_type: str, to: ArrayInC, source: ArrayInC) -> None:
    """Write statements that copy all elements of an array to another of the same shape."""
    if to.contiguous and source.contiguous:
        zeros = ["0"] * len(to.shape)
        places = [array.element(zeros) for array in (to, source)]
        ends = [
            array.pointer if place == "0" else f"{array.pointer} + {place}"
            for array, place in zip((to, source), places, strict=True)
        ]
        writer.line(f"memcpy({ends[0]}, {ends[1]}, {prod(to.shape)} * sizeof({c_type}));")
        return
    indices = [f"a{axis}" for axis in range(len(to.shape))]
    for index, extent in zip(indices, to.shape, strict=True):
        writer.line(f"for (long {index} = 0; {index} < {extent}; {index}++)")
    target, value = (f"({a.pointer})[{a.element(indices)}]" for a in (to, source))
    writer.line(f"    {target} = {value};")
