"""Weights of layers: as a caffemodel stores them, mapped from the file, or made up from a seed."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.errors import Problem, TilewrightError, refuse
from tilewright.frontends.caffe.limits import (
    MAX_BLOBS,
    MAX_FIELDS,
    MAX_LAYERS,
    MAX_SEEDED_ELEMENTS,
    MAX_WEIGHT_BYTES,
)
from tilewright.frontends.caffe.net import Layer
from tilewright.frontends.files import read_file
from tilewright.frontends.limits import MAX_ELEMENTS, MAX_RANK, shown
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


_RANGES = {
    "bias": (-0.05, 0.05),
    "mean": (-0.1, 0.1),
    "variance": (0.8, 1.25),
    "factor": (1.0, 1.0),
    "scale": (0.3, 0.7),
    "slope": (0.1, 0.4),
}
"""The ranges of made-up parameters other than weights: values stay sane through deep networks."""


class Parameters:
    """The parameters of one network."""

    def __init__(self, stored: Stored | None, inline: Stored) -> None:
        self._stored = stored
        """The parameters of the caffemodel, if there is one."""
        self._own = inline
        """The parameters in the prototxt itself, which rarely has any."""
        self._seeded = 0

    @property
    def made_up(self) -> bool:
        """True if any parameter came from a seed."""
        return self._seeded > 0

    def take(
        self, layer: Layer, index: int, shape: Sequence[int], kind: str, fan_in: int = 1
    ) -> Array:
        """Parameter ``index`` of a layer, in float32; raises TilewrightError.

        ``kind`` is weight, or one of the others that are made up in their own range; weights are
        normal with variance 2 / ``fan_in`` (He et al. 2015).
        """
        size, wanted = math.prod(shape), tuple(shape)
        if size > MAX_ELEMENTS:
            raise layer.refuse(
                f"its parameter of shape {list(shape)} takes {size} elements; "
                f"the limit is {MAX_ELEMENTS}",
                code="caffe-too-large",
            )
        blobs = self._own.get(layer.name) if self._stored is None else None
        if self._stored is not None:
            blobs = self._stored.get(layer.name, ())
            if not blobs:
                raise layer.refuse("the caffemodel has no weights for it", code="caffe-weights")
        if blobs is None:
            return self._seed(layer, index, wanted, kind, fan_in)
        if index >= len(blobs):
            raise layer.refuse(
                f"it has {len(blobs)} parameters stored; more are needed", code="caffe-weights"
            )
        if not blobs[index].fits(wanted):
            raise layer.refuse(
                f"its parameter {index} is stored with shape {list(blobs[index].shape)}, "
                f"where {list(shape)} is needed",
                code="caffe-weights",
            )
        return blobs[index].array.reshape(wanted)

    def left_over(self, layer: Layer, taken: int) -> list[Problem]:
        """A problem if more parameters are stored than the layer takes."""
        blobs = (self._own if self._stored is None else self._stored).get(layer.name, ())
        if len(blobs) <= taken:
            return []
        reason = f"{len(blobs)} parameters are stored for it, which takes {taken}"
        return [Problem("caffe-weights", reason, layer.where)]

    def _seed(
        self, layer: Layer, index: int, shape: tuple[int, ...], kind: str, fan_in: int
    ) -> Array:
        self._seeded += math.prod(shape)
        if self._seeded > MAX_SEEDED_ELEMENTS:
            raise layer.refuse(
                f"the network has more than {MAX_SEEDED_ELEMENTS} weights, "
                "which are not made up without a caffemodel",
                code="caffe-too-large",
            )
        # Parameters that layers share have one name, and so one seed.
        name = layer.shared[index] if index < len(layer.shared) else ""
        key = f"shared {name}" if name else f"layer {layer.name} {index}"
        digest = hashlib.sha256(key.encode("utf-8", "replace")).digest()
        random = np.random.default_rng(int.from_bytes(digest[:8], "little"))
        if kind == "weight":
            scale = np.float32(math.sqrt(2 / max(fan_in, 1)))
            return random.standard_normal(shape, np.float32) * scale
        low, high = _RANGES[kind]
        return (low + (high - low) * random.random(shape, np.float32)).astype(np.float32)


def unused(stored: Stored, layers: Sequence[Layer]) -> str:
    """A note on the caffemodel's layers that the network does not have; empty if there are none."""
    known = {layer.name for layer in layers}
    names = [name for name in stored if name not in known]
    if not names:
        return ""
    listed = ", ".join(shown(name) for name in names[:5]) + (", ..." if len(names) > 5 else "")
    return f"the caffemodel holds weights of layers that the network does not have: {listed}"
