"""weights.bin: every constant of a network, packed in the layout of its type."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import BinaryIO

import numpy as np

from tilewright.codegen.program.bodies import all_constants, package_bytes
from tilewright.codegen.program.interface import Compilation
from tilewright.errors import refuse
from tilewright.graph.dialect import WeightOp, network_of
from tilewright.graph.placement import WEIGHTS, placement_of
from tilewright.ir.types import element_dtype, layout_of, tensor_type
from tilewright.planning.layout import Layout
from tilewright.system.template import filled

LARGEST_ARRAY = 64 << 20
"""Bytes of weights that are written as C at most: compilers take long for more."""

_CHUNK = 1 << 20


def write_weights(compilation: Compilation, path: Path) -> None:
    """Write the arena of weights: every constant packed in the layout of its type, and those of the
    loops' bodies that the package holds (codegen/program/bodies.py).

    One after the other, so that no more than the largest is in memory; gaps are zero.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(package_bytes(compilation)[0])
        for each, begin in all_constants(compilation):
            _write_arena(each, file, begin)


def _write_arena(compilation: Compilation, file: BinaryIO, begin: int) -> None:
    """Write the constants of one network from a byte of the file on."""
    size = compilation.arenas.get(WEIGHTS, 0)
    for op in network_of(compilation.network).block.ops:
        if not isinstance(op, WeightOp) or op.placement is None:
            continue
        place = placement_of(op.result)
        kind = tensor_type(op.result)
        array = compilation.weights.get(op.symbol.data)
        layout = Layout.parse(layout_of(op.result), len(kind.get_shape()))
        packed = layout.pack(np.asarray(array, element_dtype(kind.element_type)))
        item = packed.dtype.itemsize
        if place.strides != layout.strides(kind.get_shape()):
            raise refuse("cpu-placement", "weights must be dense in memory", op.symbol.data)
        end = place.offset + packed.size * item
        if place.offset % item or end > size:
            raise refuse("cpu-placement", "a weight lies outside its arena", op.symbol.data)
        file.seek(begin + place.offset)
        file.write(packed.reshape(-1).view(np.uint8).data)


def checksum_of(path: Path) -> int:
    """CRC-32 of a file, by which a package's C knows its weights."""
    checksum = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            checksum = zlib.crc32(chunk, checksum)
    return checksum


def array_text(prefix: str, path: Path) -> str:
    """A file of weights as C: one constant array of little-endian words."""
    size = path.stat().st_size
    if size > LARGEST_ARRAY:
        raise refuse(
            "option-form", f"{size:,} bytes of weights; arrays hold {LARGEST_ARRAY:,} at most",
            "--weights", "leave them in a file",
        )  # fmt: skip
    content = path.read_bytes()
    words = np.frombuffer(content + bytes(-size % 4 or (0 if size else 4)), "<u4").tolist()
    rows = (
        ", ".join(f"{word:#x}" for word in words[at : at + 8]) for at in range(0, len(words), 8)
    )
    listed = ",\n".join(f"    {row}" for row in rows)
    template = Path(__file__).parent / "weights.c.in"
    return filled(template, prefix=prefix, count=len(words), listed=listed)
