"""Caffe's messages as classes of the installed protobuf, made from ``schema.proto``.

They are made when first imported, so that no generated code ties Tilewright to one release of
protobuf, and in a pool of their own, so that Caffe itself may be loaded in the same process.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from tilewright.errors import refuse

try:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
except ModuleNotFoundError as error:  # pragma: no cover - onnx brings protobuf along
    raise refuse(
        "caffe-protobuf",
        "Caffe models are read with protobuf, which is not installed",
        help="pip install 'tilewright[caffe]'",
    ) from error

PACKAGE = "tilewright.caffe"
SCHEMA = Path(__file__).with_name("schema.proto")

_FIELD = re.compile(
    r"(?P<label>optional|repeated) (?P<type>\w+) (?P<name>\w+) = (?P<number>\d+)"
    r"(?: \[(?P<option>default|packed) = (?P<value>\S+)\])?;"
)
_OPEN = re.compile(r"(message|enum) (\w+) \{")
_VALUE = re.compile(r"(\w+) = (\d+);")

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
    "uint32": _Field.TYPE_UINT32,
    "float": _Field.TYPE_FLOAT,
    "double": _Field.TYPE_DOUBLE,
    "bool": _Field.TYPE_BOOL,
    "string": _Field.TYPE_STRING,
}


def file_descriptor(text: str) -> descriptor_pb2.FileDescriptorProto:
    """A .proto file's text, one declaration a line, as protobuf describes it.

    It takes messages, enums in them or beside them, optional and repeated fields of scalars and of
    declared types, defaults, and packing; raises ValueError on anything else.
    """
    file = descriptor_pb2.FileDescriptorProto(name="caffe.proto", package=PACKAGE, syntax="proto2")
    enums: set[str] = set()
    open_: list[Any] = [file]
    fields: list[tuple[Any, str, str]] = []
    for number, line in enumerate(text.splitlines(), 1):
        statement = line.partition("//")[0].strip()
        here = open_[-1]
        if not statement or statement.startswith(("syntax ", "package ")):
            continue
        if statement == "}" and len(open_) > 1:
            open_.pop()
        elif match := _OPEN.fullmatch(statement):
            kind, name = match.groups()
            if kind == "enum":
                enums.add(".".join([*(item.name for item in open_[1:]), name]))
                declared = here.enum_type.add(name=name)
            else:
                declared = here.message_type.add(name=name)
            open_.append(declared)
        elif (match := _FIELD.fullmatch(statement)) and len(open_) == 2:
            fields.append((_add_field(here, match), here.name, match["type"]))
        elif (match := _VALUE.fullmatch(statement)) and len(open_) > 1:
            here.value.add(name=match[1], number=int(match[2]))
        else:
            raise ValueError(f"line {number} of the schema is not understood: {line!r}")
    messages = {message.name for message in file.message_type}
    for field, owner, kind in fields:
        _set_type(field, owner, kind, messages, enums)
    return file


def _add_field(message: Any, declared: re.Match[str]) -> Any:
    repeated = declared["label"] == "repeated"
    field = message.field.add(
        name=declared["name"],
        number=int(declared["number"]),
        label=_Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL,
    )
    if declared["option"] == "packed":
        field.options.packed = declared["value"] == "true"
    elif declared["option"] == "default":
        field.default_value = declared["value"]
    return field


def _set_type(field: Any, owner: str, kind: str, messages: set[str], enums: set[str]) -> None:
    """A field's type, once all declared ones are known; the owner's own enums come first."""
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
        return
    for name in (f"{owner}.{kind}", kind):
        if name in enums:
            field.type, field.type_name = _Field.TYPE_ENUM, f".{PACKAGE}.{name}"
            return
    if kind not in messages:
        raise ValueError(f"the schema has no type {kind!r}")
    field.type, field.type_name = _Field.TYPE_MESSAGE, f".{PACKAGE}.{kind}"


@cache
def message_class(name: str) -> Any:
    """The class of a message of the schema, such as ``NetParameter``."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{PACKAGE}.{name}"))


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file_descriptor(SCHEMA.read_text("utf-8")).SerializeToString())
    return pool
