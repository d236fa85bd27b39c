"""Bit fields of instruction words: where they lie, and how whole columns are packed at once.

A word is a row of 64-bit lanes, little-endian in files. A field never crosses a lane.
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

Lanes = NDArray[np.uint64]
"""Words as rows of 64-bit lanes."""

LANE_BITS = 64


@dataclass(frozen=True)
class Field:
    """One field of an instruction.

    ``choices`` names the values of a field that selects something: the value is the index.
    """

    name: str
    bits: int
    meaning: str
    signed: bool = False
    choices: tuple[str, ...] = ()
    default: int = 0

    @property
    def range(self) -> tuple[int, int]:
        """Least and greatest value."""
        if self.choices:
            return 0, len(self.choices) - 1
        if self.signed:
            return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1
        return 0, (1 << self.bits) - 1


def bits_for(value: int) -> int:
    """Bits of an unsigned field that holds 0 to ``value``."""
    return max(1, value.bit_length())


@dataclass(frozen=True)
class Format:
    """Fields of one instruction in their order, each at a lane and a bit."""

    fields: tuple[Field, ...]

    @cached_property
    def places(self) -> dict[str, tuple[int, int]]:
        """Lane and lowest bit of each field: the first lane with room for it, in order."""
        used: list[int] = []
        places: dict[str, tuple[int, int]] = {}
        for field in self.fields:
            if not 0 < field.bits <= LANE_BITS:
                raise ValueError(f"field {field.name} of {field.bits} bits")
            if field.name in places:
                raise ValueError(f"field {field.name} twice")
            lane = next((i for i, n in enumerate(used) if n + field.bits <= LANE_BITS), len(used))
            if lane == len(used):
                used.append(0)
            places[field.name] = (lane, used[lane])
            used[lane] += field.bits
        return places

    @cached_property
    def by_name(self) -> dict[str, Field]:
        """The fields by name."""
        return {field.name: field for field in self.fields}

    @property
    def lanes(self) -> int:
        """Lanes that the fields take."""
        return 1 + max(lane for lane, _ in self.places.values())

    def pack(self, columns: Mapping[str, Any], count: int, lanes: int, where: str) -> Lanes:
        """Words of ``count`` instructions; fields that ``columns`` leaves out take their default.

        Raises TilewrightError (``isa-field``) for a value that its field cannot hold, KeyError for
        a column that is no field.
        """
        words = np.zeros((count, lanes), np.uint64)
        for name in columns:
            if name not in self.by_name:
                raise KeyError(f"{where} has no field {name}")
        for field in self.fields:
            if field.name not in columns and field.default == 0:
                continue
            values = np.asarray(columns.get(field.name, field.default), np.int64)
            if count == 0:
                continue
            low, high = field.range
            if int(values.min()) < low or int(values.max()) > high:
                bad = int(values.min()) if int(values.min()) < low else int(values.max())
                raise refuse(
                    "isa-field",
                    f"{field.name}={bad} does not fit: the field holds {low} to {high}",
                    where,
                    "smaller tiles, or a machine description with larger memories",
                )
            lane, shift = self.places[field.name]
            mask = np.uint64((1 << field.bits) - 1)
            words[:, lane] |= (values.astype(np.uint64) & mask) << np.uint64(shift)
        return words

    def unpack(self, words: Lanes) -> dict[str, Column]:
        """The columns of words of this format; what is out of range is left to ``check``."""
        columns: dict[str, Column] = {}
        for field in self.fields:
            lane, shift = self.places[field.name]
            raw = (words[:, lane] >> np.uint64(shift)) & np.uint64((1 << field.bits) - 1)
            value = raw.astype(np.int64)
            if field.signed:
                half = np.int64(1 << (field.bits - 1))
                value = np.where(value >= half, value - 2 * half, value)
            columns[field.name] = value
        return columns

    def invalid(self, words: Lanes) -> NDArray[np.bool_]:
        """Which words have reserved bits set or name a choice that does not exist."""
        masks = np.zeros(words.shape[1], np.uint64)
        for field in self.fields:
            lane, shift = self.places[field.name]
            masks[lane] |= np.uint64(((1 << field.bits) - 1) << shift)
        bad = np.any(words & ~masks, axis=1)
        for field in self.fields:
            if field.choices:
                lane, shift = self.places[field.name]
                raw = (words[:, lane] >> np.uint64(shift)) & np.uint64((1 << field.bits) - 1)
                bad |= raw >= np.uint64(len(field.choices))
        return bad


def selector(name: str, choices: Sequence[str], meaning: str) -> Field:
    """A field that selects one of ``choices``."""
    return Field(name, bits_for(len(choices) - 1), meaning, choices=tuple(choices))
