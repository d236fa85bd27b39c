"""A model without its large constants, which stay where they are in the file.

    graph { initializer { dims: 4096 raw_data: <16 KiB at byte 81> } }

becomes, as if the model kept them in another file,

    graph { initializer { dims: 4096 data_location: EXTERNAL
                          external_data { location: "\\0" offset: 81 length: 16384 } } }

Only messages that are large are looked into. What is not as expected is left to protobuf, which
then parses the bytes as they are.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from onnx import AttributeProto as Attribute
from onnx import FunctionProto as Function
from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from tilewright.frontends.onnx.limits import MAX_DEPTH
from tilewright.frontends.wire import BYTES, Wire, WireError

WITHIN = "\0"
"""The location of a constant that lies in the model's own file; no file has this name."""

LARGE = 1 << 14
"""Bytes of a constant that stays in the file."""

_MOST_FIELDS = 1_000_000

_NESTED: Mapping[type, Mapping[int, type]] = {
    ModelProto: {
        ModelProto.GRAPH_FIELD_NUMBER: GraphProto,
        ModelProto.FUNCTIONS_FIELD_NUMBER: Function,
    },
    GraphProto: {
        GraphProto.NODE_FIELD_NUMBER: NodeProto,
        GraphProto.INITIALIZER_FIELD_NUMBER: TensorProto,
    },
    Function: {Function.NODE_FIELD_NUMBER: NodeProto},
    NodeProto: {NodeProto.ATTRIBUTE_FIELD_NUMBER: Attribute},
    Attribute: {Attribute.T_FIELD_NUMBER: TensorProto, Attribute.G_FIELD_NUMBER: GraphProto},
}
"""The messages in which constants may lie, by field."""


def lean_model(data: NDArray[np.uint8]) -> bytes:
    """The bytes of a ModelProto whose large constants refer to ``data`` by offset."""
    whole = data.data
    try:
        return _message(Wire(whole, _MOST_FIELDS), 0, len(whole), ModelProto, 8 * MAX_DEPTH)
    except WireError:
        return bytes(whole)


def _message(wire: Wire, start: int, end: int, kind: type, depth: int) -> bytes:
    """A message's bytes, with large constants left out."""
    if depth == 0:
        raise WireError("messages lie too deep in one another")
    if kind is TensorProto:
        return _tensor(wire, start, end)
    pieces: list[bytes | memoryview] = []
    copied = at = start
    for field in wire.fields(start, end):
        begin, at = at, field.end
        inner = _NESTED[kind].get(field.number)
        if inner is None or field.kind != BYTES or field.size < LARGE:
            continue
        body = _message(wire, field.value, field.end, inner, depth - 1)
        pieces += [wire.data[copied:begin], _head(field.number, len(body)), body]
        copied = at
    return b"".join([*pieces, wire.data[copied:end]])


def _tensor(wire: Wire, start: int, end: int) -> bytes:
    """A TensorProto; one that is external already, or says its bytes twice, is kept."""
    fields = list(wire.fields(start, end))
    raw = [field for field in fields if field.number == TensorProto.RAW_DATA_FIELD_NUMBER]
    outside = (TensorProto.DATA_LOCATION_FIELD_NUMBER, TensorProto.EXTERNAL_DATA_FIELD_NUMBER)
    if len(raw) != 1 or raw[0].kind != BYTES or any(f.number in outside for f in fields):
        return bytes(wire.data[start:end])
    before = fields[fields.index(raw[0]) - 1].end if fields[0] is not raw[0] else start
    place = TensorProto(data_location=TensorProto.EXTERNAL)
    for key, value in (("location", WITHIN), ("offset", raw[0].value), ("length", raw[0].size)):
        place.external_data.add(key=key, value=str(value))
    rest = wire.data[start:before], wire.data[raw[0].end : end], place.SerializeToString()
    return b"".join(rest)


def _head(number: int, size: int) -> bytes:
    """Tag and length of a field of bytes."""
    return _varint(number << 3 | BYTES) + _varint(size)


def _varint(value: int) -> bytes:
    digits = bytearray()
    while value > 127:
        digits.append(value & 127 | 128)
        value >>= 7
    return bytes([*digits, value])
