"""Protobuf's wire format, over mapped bytes: what lies where, without copying it.

Parsing a large model with protobuf itself holds its weights in memory twice. Here the arrays are
views of the file. (The format: protobuf.dev, "Encoding".)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True)
class Field:
    """One field of a message: its number, its wire type, and its value."""

    number: int
    kind: int
    value: int
    """The value of a VARINT; for other kinds the offset of the data's first byte in the file."""
    size: int
    """Bytes of the data; 0 of a VARINT."""
    end: int
    """The offset at which the next field begins."""


class WireError(ValueError):
    """An error in bytes that should be a message; its text says where."""


class Wire:
    """Fields of the messages in a file's bytes, and a limit on how many of them are read."""

    def __init__(self, data: memoryview, most: int) -> None:
        self.data = data
        self._left = most

    def fields(self, start: int, end: int) -> Iterator[Field]:
        """The fields of the message in ``[start, end)``, in order; raises WireError."""
        at = start
        while at < end:
            self._left -= 1
            if self._left < 0:
                raise WireError("there are too many fields in it")
            tag, at = self._varint(at, end)
            number, kind = tag >> 3, tag & 7
            value, size = at, 0
            if number == 0:
                raise WireError(f"byte {at}: no field has the number 0")
            if kind == VARINT:
                value, at = self._varint(at, end)
            elif kind == BYTES:
                size, value = self._varint(at, end)
                at = value + size
            elif kind in (FIXED32, FIXED64):
                size = 4 if kind == FIXED32 else 8
                at += size
            else:
                raise WireError(f"byte {at}: fields of kind {kind} are not read")
            if at > end:
                raise WireError(f"byte {value}: a field of {size} bytes is cut short")
            yield Field(number, kind, value, size, at)

    def integers(self, field: Field) -> Iterator[int]:
        """A repeated integer, packed or one by one, as signed 64-bit; raises WireError."""
        if field.kind == VARINT:
            yield signed(field.value)
        elif field.kind == BYTES:
            at, end = field.value, field.value + field.size
            while at < end:
                self._left -= 1
                if self._left < 0:
                    raise WireError("there are too many fields in it")
                value, at = self._varint(at, end)
                yield signed(value)
        else:
            raise WireError(f"byte {field.value}: a number was expected")

    def text(self, field: Field) -> str:
        """The text of a field; bytes that are not valid UTF-8 become U+FFFD."""
        if field.kind != BYTES:
            raise WireError(f"byte {field.value}: text was expected")
        return bytes(self.data[field.value : field.value + field.size]).decode("utf-8", "replace")

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        """An integer of seven bits a byte, and where it ends."""
        value = 0
        for shift in range(0, 70, 7):
            if at >= end:
                raise WireError(f"byte {at}: a number is cut short")
            byte = self.data[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value & (2**64 - 1), at
        raise WireError(f"byte {at}: a number has more than ten bytes")


def signed(value: int) -> int:
    """A 64-bit pattern as a signed integer."""
    return value - 2**64 if value >= 2**63 else value
