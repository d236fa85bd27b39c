"""Bit fields: what a value stands for, where it lies in an instruction, and whole columns of it.

An instruction is a row of units, unsigned integers of ``unit_bits`` bits. A field lies in one unit.
The bits of a field hold its stored number; the value that programs and people see is

    value = stored * scale + bias        (stored is two's complement where the field is signed)

so a length of 1 to 1024 has 10 bits and a bias of 1, and an address in lines of 16 bytes has a
scale of 16.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import refuse

Column = NDArray[np.int64]
"""One field's values, one per instruction."""

Columns = Mapping[str, Column]
"""Values of the fields by name, all of one length."""

Units = NDArray[np.uint64]
"""Units of a program, [units], or of instructions of one kind, [instructions, units]."""

UNIT_BITS = (8, 16, 32, 64)


@dataclass(frozen=True)
class Field:
    """One field of an instruction.

    ``choices`` names the stored numbers 0, 1, ... of a field that selects something, ``flags`` the
    bits of a set, lowest first; such fields have neither sign, bias nor scale.
    """

    name: str
    bits: int
    meaning: str = ""
    signed: bool = False
    choices: tuple[str, ...] = ()
    default: int | None = None
    """Value of a field that is not given; None is the stored number 0."""
    bias: int = 0
    scale: int = 1
    flags: tuple[str, ...] = ()
    hexadecimal: bool = False
    """True if listings print the field in hexadecimal."""
    real: bool = False
    """True if the number is the bits of a float32."""

    def __post_init__(self) -> None:
        named = bool(self.choices) + bool(self.flags)
        if self.bits < 1 or self.scale < 1:
            raise ValueError(f"field {self.name}: no such size or scale")
        if named > 1 or (named and (self.signed or self.bias or self.scale != 1)):
            raise ValueError(f"field {self.name}: names go with plain numbers")
        if len(self.choices) > 1 << self.bits or len(self.flags) > self.bits:
            raise ValueError(f"field {self.name}: {self.bits} bits do not hold its names")

    @property
    def stored_range(self) -> tuple[int, int]:
        """Least and greatest stored number."""
        if self.choices:
            return 0, len(self.choices) - 1
        if self.flags:
            return 0, (1 << len(self.flags)) - 1
        if self.signed:
            return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1
        return 0, (1 << self.bits) - 1

    @property
    def range(self) -> tuple[int, int]:
        """Least and greatest value."""
        low, high = self.stored_range
        return low * self.scale + self.bias, high * self.scale + self.bias

    @property
    def initial(self) -> int:
        """Value where none is given."""
        return self.bias if self.default is None else self.default

    @property
    def mask(self) -> int:
        """Mask of the field's bits, from bit 0."""
        return (1 << self.bits) - 1

    def holds(self, value: int) -> bool:
        """Return True if the field can encode a value."""
        low, high = self.range
        return low <= value <= high and (value - self.bias) % self.scale == 0

    def allowed(self) -> str:
        """The values that it holds, in words."""
        if self.choices:
            return ", ".join(self.choices)
        if self.flags:
            return "none, or names joined by +: " + ", ".join(self.flags)
        low, high = self.range
        step = f" in steps of {self.scale}" if self.scale > 1 else ""
        return f"{low} to {high}{step}"

    def text(self, value: int) -> str:
        """A value as assembly text has it."""
        if self.choices:
            return self.choices[value]
        if self.flags:
            names = [name for bit, name in enumerate(self.flags) if value >> bit & 1]
            return "+".join(names) or "none"
        return f"{value:#x}" if self.hexadecimal else str(value)

    def value_of(self, names: Sequence[str]) -> int | None:
        """The value that names in assembly text stand for; None if they are not its own."""
        if self.choices:
            known = len(names) == 1 and names[0] in self.choices
            return self.choices.index(names[0]) if known else None
        if list(names) == ["none"] and self.flags:
            return 0
        if len(set(names)) != len(names) or not set(names) <= set(self.flags):
            return None
        return sum(1 << self.flags.index(name) for name in names)


@dataclass(frozen=True)
class Format:
    """Fields of one instruction and the units that they lie in."""

    fields: tuple[Field, ...]
    places: Mapping[str, tuple[int, int]]
    """By a field's name: its unit, and its lowest bit there."""
    units: int
    unit_bits: int = 32

    def __post_init__(self) -> None:
        if self.unit_bits not in UNIT_BITS:
            raise ValueError(f"units of {self.unit_bits} bits")
        used = [0] * self.units
        for field in self.fields:
            unit, low = self.places[field.name]
            if not 0 <= unit < self.units or low < 0 or low + field.bits > self.unit_bits:
                raise ValueError(f"field {field.name} lies outside of its unit")
            if used[unit] & field.mask << low:
                raise ValueError(f"field {field.name} overlaps another")
            if not field.holds(field.initial):
                raise ValueError(f"field {field.name} cannot hold its default")
            used[unit] |= field.mask << low
        if len(self.by_name) != len(self.fields):
            raise ValueError("two fields have one name")

    @cached_property
    def by_name(self) -> dict[str, Field]:
        """The fields by name."""
        return {field.name: field for field in self.fields}

    @cached_property
    def masks(self) -> Units:
        """Per unit: the bits that a field names."""
        masks = np.zeros(self.units, np.uint64)
        for field in self.fields:
            unit, low = self.places[field.name]
            masks[unit] |= np.uint64(field.mask << low)
        return masks

    def verify(self, values: Mapping[str, int], where: str) -> None:
        """Refuse of one instruction what ``pack`` refuses, with the same errors."""
        for name, value in values.items():
            field = self.by_name.get(name)
            if field is None:
                raise KeyError(f"{where} has no field {name}")
            if not field.holds(value):
                raise refuse(
                    "isa-field",
                    f"{name}={value} does not fit: the field holds {field.allowed()}",
                    where,
                )

    def units_of(self, values: Mapping[str, int]) -> list[int]:
        """The units of one instruction; fields that are left out take their default.

        Values are those that ``verify`` lets pass.
        """
        units = self._initial.copy()
        for name, value in values.items():
            field, (unit, low) = self.by_name[name], self.places[name]
            stored = (value - field.bias) // field.scale & field.mask
            units[unit] = units[unit] & ~(field.mask << low) | stored << low
        return units

    @cached_property
    def _initial(self) -> list[int]:
        """The units of an instruction whose fields are left out."""
        return [int(unit) for unit in self.pack({}, 1, "")[0]]

    def values_of(self, units: Sequence[int]) -> dict[str, int]:
        """The fields of one instruction's units."""
        values: dict[str, int] = {}
        for field in self.fields:
            unit, low = self.places[field.name]
            stored = units[unit] >> low & field.mask
            if field.signed and stored >> (field.bits - 1):
                stored -= 1 << field.bits
            values[field.name] = stored * field.scale + field.bias
        return values

    def pack(self, columns: Mapping[str, Any], count: int, where: str, help: str = "") -> Units:
        """Units [count, units] of instructions; fields that are left out take their default.

        Raises TilewrightError (``isa-field``) for a value that its field cannot hold, KeyError for
        a column that is no field. ``help`` says what would help against the former.
        """
        for name in columns:
            if name not in self.by_name:
                raise KeyError(f"{where} has no field {name}")
        units = np.zeros((count, self.units), np.uint64)
        for field in self.fields:
            values = np.asarray(columns.get(field.name, field.initial), np.int64)
            if not values.ndim and int(values) == field.bias:
                continue  # all bits are 0
            low, high = field.range
            bad = (values < low) | (values > high)
            if field.scale != 1:
                bad |= (values - field.bias) % field.scale != 0
            if bad.any() and count:
                value = int(values.flat[np.argmax(bad)])
                raise refuse(
                    "isa-field",
                    f"{field.name}={value} does not fit: the field holds {field.allowed()}",
                    where,
                    help,
                )
            stored = ((values - field.bias) // field.scale).astype(np.uint64)
            unit, shift = self.places[field.name]
            units[:, unit] |= (stored & np.uint64(field.mask)) << np.uint64(shift)
        return units

    def unpack(self, units: Units) -> dict[str, Column]:
        """The columns of units [count, units] of this format."""
        columns: dict[str, Column] = {}
        for field in self.fields:
            stored = self._stored(units, field).astype(np.int64)
            if field.signed:
                half = np.int64(1 << (field.bits - 1))
                stored = np.where(stored >= half, stored - 2 * half, stored)
            columns[field.name] = stored * field.scale + field.bias
        return columns

    def invalid(self, units: Units) -> NDArray[np.bool_]:
        """Mask of [count, units] instructions that set bits of no field, or unknown values."""
        bad = np.any(units & ~self.masks, axis=1)
        for field in self.fields:
            if field.choices or field.flags:
                bad |= self._stored(units, field) > np.uint64(field.stored_range[1])
        return bad

    def _stored(self, units: Units, field: Field) -> Units:
        unit, low = self.places[field.name]
        return (units[:, unit] >> np.uint64(low)) & np.uint64(field.mask)


def lay_out(fields: Sequence[Field], reserved: int, unit_bits: int = 64) -> Format:
    """A format whose fields lie one after the other, each in the first unit with room for it.

    The first ``reserved`` bits of the first unit stay free: the opcode's.
    """
    used = [reserved]
    places: dict[str, tuple[int, int]] = {}
    for field in fields:
        unit = next((i for i, n in enumerate(used) if n + field.bits <= unit_bits), len(used))
        if unit == len(used):
            used.append(0)
        places[field.name] = unit, used[unit]
        used[unit] += field.bits
    return Format(tuple(fields), places, len(used), unit_bits)


def bits_for(value: int) -> int:
    """Bits of an unsigned field that holds 0 to ``value``."""
    return max(1, value.bit_length())


def selector(name: str, choices: Sequence[str], meaning: str) -> Field:
    """A field that selects one of ``choices``."""
    return Field(name, bits_for(len(choices) - 1), meaning, choices=tuple(choices))
