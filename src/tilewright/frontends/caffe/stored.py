"""Weights as a caffemodel stores them: by layer, mapped from the file."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.errors import Problem, TilewrightError, refuse
from tilewright.frontends.caffe.limits import (
    MAX_BLOBS,
    MAX_FIELDS,
    MAX_LAYERS,
    MAX_RANK,
    MAX_WEIGHT_BYTES,
)
from tilewright.frontends.files import read_file
from tilewright.frontends.limits import shown
from tilewright.frontends.mapped import MappedFile
from tilewright.frontends.wire import BYTES, FIXED32, FIXED64, Field, Wire, WireError
from tilewright.ir.types import Array

# Field numbers, as in schema.txtpb.
_LAYERS_V1, _LAYERS = 2, 100
_NAME, _BLOBS = 1, 7
_NAME_V1, _BLOBS_V1 = 4, 6
_LEGACY, _DATA, _SHAPE, _DOUBLES = (1, 2, 3, 4), 5, 7, 8

_HDF5 = b"\x89HDF\r\n"


@dataclass(frozen=True)
class Blob:
    """One parameter: its elements in order, and the shape it is stored with."""

    shape: tuple[int, ...]
    array: Array
    """Flat, float32; a view of the file unless it holds doubles."""
    legacy: bool = False
    """Stored with four extents, of which the first are 1 where there are fewer axes."""

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Return True if this is a parameter of a shape, as Caffe compares them."""
        if self.legacy and len(shape) <= 4:
            return self.shape == (1,) * (4 - len(shape)) + shape
        return self.shape == shape


Stored = dict[str, tuple[Blob, ...]]
"""Blobs by the names of the layers that have any."""


def read_caffemodel(path: str | Path) -> tuple[Stored, MappedFile]:
    """The blobs of a caffemodel of either form, and the file they are views of.

    Raises TilewrightError.
    """
    path, title = Path(path), shown(str(path))
    file = read_file(path, "caffe", MAX_WEIGHT_BYTES, MappedFile)
    if bytes(file.bytes[: len(_HDF5)]) == _HDF5:
        raise refuse(
            "caffe-caffemodel",
            "it is an HDF5 file, which is not read",
            where=title,
            help="save the weights as binary protobuf (snapshot_format: BINARYPROTO)",
        )
    return stored_in(file.bytes, title), file


def stored_in(data: Array, title: str) -> Stored:
    """The blobs in a NetParameter's bytes; raises TilewrightError."""
    problems: list[Problem] = []
    stored: Stored = {}
    try:
        for count, (name, blobs) in enumerate(_layers(data)):
            if count >= MAX_LAYERS:
                raise WireError(f"it has more than {MAX_LAYERS} layers")
            if blobs and name in stored:
                reason = "two layers of this name hold weights"
                problems.append(Problem("caffe-duplicate-name", reason, f"layer {shown(name)}"))
            elif blobs:
                stored[name] = blobs
    except WireError as error:
        raise refuse(
            "caffe-caffemodel",
            f"the bytes are not a whole caffemodel: {error}",
            where=title,
            help="the file may be cut short, or be in another format",
        ) from error
    if problems:
        raise TilewrightError(problems)
    return stored


def _layers(data: Array) -> Iterator[tuple[str, tuple[Blob, ...]]]:
    """Name and blobs of every layer."""
    wire = Wire(data.data, MAX_FIELDS)
    for field in wire.fields(0, len(data)):
        if field.number not in (_LAYERS, _LAYERS_V1):
            continue
        old = field.number == _LAYERS_V1
        name, blobs = "", list[Blob]()
        for part in _within(wire, field):
            if part.number == (_NAME_V1 if old else _NAME):
                name = wire.text(part)
            elif part.number == (_BLOBS_V1 if old else _BLOBS):
                blobs.append(_blob(wire, part, data))
                if len(blobs) > MAX_BLOBS:
                    raise WireError(f"a layer has more than {MAX_BLOBS} blobs")
        yield name, tuple(blobs)


def _within(wire: Wire, field: Field) -> Iterator[Field]:
    if field.kind != BYTES:
        raise WireError(f"byte {field.value}: a message was expected")
    return wire.fields(field.value, field.value + field.size)


def _blob(wire: Wire, field: Field, data: Array) -> Blob:
    """Read one BlobProto from its bytes."""
    legacy: dict[int, int] = {}
    shape: tuple[int, ...] | None = None
    pieces: dict[int, list[Array]] = {_DATA: [], _DOUBLES: []}
    for part in _within(wire, field):
        if part.number in _LEGACY:
            legacy[part.number] = next(wire.integers(part), 0)
        elif part.number == _SHAPE:
            dims = (dim for inner in _within(wire, part) for dim in _dims(wire, inner))
            shape = (*(shape or ()), *dims)
            if len(shape) > MAX_RANK:
                raise WireError(f"byte {part.value}: a blob of more than {MAX_RANK} axes")
        elif part.number in pieces:
            pieces[part.number].append(_elements(part, data))
    parts = pieces[_DOUBLES] or pieces[_DATA]
    kind = np.dtype(np.float32)
    array = np.concatenate(parts) if len(parts) > 1 else parts[0] if parts else np.zeros(0, kind)
    with np.errstate(over="ignore"):
        array = array.astype(kind, copy=False)
    old = shape is None
    extents = tuple(legacy.get(number, 0) for number in _LEGACY) if shape is None else shape
    if any(extent < 0 for extent in extents) or math.prod(extents) != len(array):
        raise WireError(
            f"byte {field.value}: a blob of shape {list(extents)} holds {len(array)} elements"
        )
    return Blob(extents, array, old)


def _dims(wire: Wire, field: Field) -> Iterator[int]:
    return wire.integers(field) if field.number == 1 else iter(())


def _elements(field: Field, data: Array) -> Array:
    """Floats or doubles, packed or one alone."""
    dtype: np.dtype[Any] = np.dtype("<f4" if field.number == _DATA else "<f8")
    alone = FIXED32 if field.number == _DATA else FIXED64
    if field.kind not in (BYTES, alone) or field.size % dtype.itemsize:
        raise WireError(f"byte {field.value}: elements of {dtype.itemsize} bytes were expected")
    return data[field.value : field.value + field.size].view(dtype)
