"""ELF files of sections and symbols: what a package in one file needs of the format, and no more.

A 64-bit little-endian relocatable file (System V ABI, chapter 4): the header, the sections' bytes,
and the table of section headers at the end. There are no segments and no relocations. Reading
trusts nothing: every offset, size and name is checked against the file.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tilewright.errors import TilewrightError, refuse

MAGIC = b"\x7fELF"

_HEADER = struct.Struct("<4s5B7x2HI3QI6H")
_SECTION = struct.Struct("<2I4Q2I2Q")
_SYMBOL = struct.Struct("<I2BH2Q")
_NOTE = struct.Struct("<3I")

_NULL, _PROGBITS, _SYMTAB, _STRTAB, _NOTES = 0, 1, 2, 3, 7
_RELOCATABLE = 1
_GLOBAL_FUNCTION = 1 << 4 | 2
_ALIGNMENT = 16

MACHINES = {"x86_64": 62, "aarch64": 183, "arm64": 183}
"""``e_machine`` by the processor's name; 0 for others: no machine."""


@dataclass(frozen=True)
class Symbol:
    """Bytes of a section that have a name."""

    name: str
    section: str
    offset: int
    size: int


@dataclass(frozen=True)
class _Section:
    name: str
    kind: int
    data: bytes
    link: int = 0
    info: int = 0
    entry: int = 0


def note(owner: str, kind: int, content: bytes) -> bytes:
    """The bytes of a section of one note."""
    name = owner.encode() + b"\0"
    padded = [part + bytes(-len(part) % 4) for part in (name, content)]
    return _NOTE.pack(len(name), len(content), kind) + b"".join(padded)


def elf_bytes(sections: Mapping[str, bytes], symbols: Sequence[Symbol], machine: int) -> bytes:
    """A file of sections, those that begin with ``.note`` as notes, and a table of symbols."""
    names = list(sections)
    text = _Strings()
    table = [_SYMBOL.pack(0, 0, 0, 0, 0, 0)]
    for symbol in symbols:
        section = names.index(symbol.section) + 1
        place = text.add(symbol.name)
        table.append(_SYMBOL.pack(place, _GLOBAL_FUNCTION, 0, section, symbol.offset, symbol.size))
    parts = [_Section("", _NULL, b"")]
    for name, data in sections.items():
        parts.append(_Section(name, _NOTES if name.startswith(".note") else _PROGBITS, data))
    strings = len(parts) + 1
    parts.append(_Section(".symtab", _SYMTAB, b"".join(table), strings, 1, _SYMBOL.size))
    parts.append(_Section(".strtab", _STRTAB, text.data))
    titles = _Strings()
    places = [titles.add(part.name) for part in parts]
    places.append(titles.add(".shstrtab"))
    parts.append(_Section(".shstrtab", _STRTAB, titles.data))
    body = bytearray(_HEADER.size)
    headers: list[bytes] = []
    for part, place in zip(parts, places, strict=True):
        body += bytes(-len(body) % _ALIGNMENT)
        offset = len(body) if part.kind != _NULL else 0
        body += part.data
        alignment = {_NULL: 0, _NOTES: 4}.get(part.kind, _ALIGNMENT)
        headers.append(
            _SECTION.pack(
                place, part.kind, 0, 0, offset, len(part.data), part.link, part.info, alignment,
                part.entry,
            )
        )  # fmt: skip
    body += bytes(-len(body) % _ALIGNMENT)
    table_at = len(body)
    body[: _HEADER.size] = _HEADER.pack(
        MAGIC, 2, 1, 1, 0, 0, _RELOCATABLE, machine, 1, 0, 0, table_at, 0, _HEADER.size, 0, 0,
        _SECTION.size, len(parts), len(parts) - 1,
    )  # fmt: skip
    return bytes(body) + b"".join(headers)


class _Strings:
    """A table of strings, each once."""

    def __init__(self) -> None:
        self._bytes = bytearray(b"\0")
        self._places = {"": 0}

    def add(self, text: str) -> int:
        if text not in self._places:
            self._places[text] = len(self._bytes)
            self._bytes += text.encode() + b"\0"
        return self._places[text]

    @property
    def data(self) -> bytes:
        return bytes(self._bytes)


def elf_sections(data: memoryview, where: str) -> dict[str, memoryview]:
    """The sections with contents, by name; refuses (``package-elf``) anything but such a file.

    The views are of ``data``: nothing is copied. Sections lie inside the file and share no bytes.
    """
    if len(data) < _HEADER.size or bytes(data[:4]) != MAGIC:
        raise _no_package("it is no ELF file", where)
    fields = _HEADER.unpack(data[: _HEADER.size])
    _, width, order, version, *_, table, _, size, _, _, entry, count, titles = fields
    if (width, order, version) != (2, 1, 1) or size != _HEADER.size:
        raise _no_package("it is no little-endian ELF file of 64 bits", where)
    if entry != _SECTION.size or not 1 < count <= (len(data) - size) // entry:
        raise _no_package("its table of sections has another form", where)
    if table < size or table + count * entry > len(data) or titles >= count:
        raise _no_package("its table of sections lies outside of it", where)
    rows = [_SECTION.unpack(data[table + n * entry :][:entry]) for n in range(count)]
    spans = {n: (row[4], row[4] + row[5]) for n, row in enumerate(rows) if row[1] != _NULL}
    for begin, end in spans.values():
        if begin < size or end > table:
            raise _no_package("a section lies outside of it", where)
    for (_, first), (second, _) in pairwise(sorted(span for span in spans.values())):
        if second < first:
            raise _no_package("sections lie on one another", where)
    if titles not in spans:
        raise _no_package("its sections have no names", where)
    text = data[slice(*spans[titles])]
    by_name: dict[str, memoryview] = {}
    for number, span in spans.items():
        begin = rows[number][0]
        end = bytes(text[begin : begin + _MOST_NAME]).find(b"\0") if begin < len(text) else -1
        if end < 0:
            raise _no_package("a section's name does not end", where)
        name = bytes(text[begin : begin + end]).decode("utf-8", "replace")
        if name in by_name:
            raise _no_package(f"it has two sections {name!r}", where)
        by_name[name] = data[slice(*span)]
    return by_name


_MOST_NAME = 2048
"""Bytes of the longest name of a section, with its end."""


def _no_package(reason: str, where: str) -> TilewrightError:
    return refuse(
        "package-elf", reason, where, "make a package with `tilewright compile -o NAME.elf`"
    )


def is_elf(path: Path) -> bool:
    """Return True if a path is a file that begins as an ELF file does."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def becomes_elf(path: Path) -> bool:
    """Return True if a package is to be written there as one file: the name ends with .elf."""
    return path.suffix == ".elf" and not path.is_dir()
