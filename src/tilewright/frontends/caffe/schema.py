"""Caffe's messages as classes of the installed protobuf, made of ``schema.txtpb``.

They are made when first imported, so that no generated code ties Tilewright to one release of
protobuf, and in a pool of their own, so that Caffe itself may be loaded in the same process.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

PACKAGE = "tilewright.caffe"
SCHEMA = Path(__file__).with_name("schema.txtpb")


@cache
def message_class(name: str) -> Any:
    """The class of a message of the schema, such as ``NetParameter``."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{PACKAGE}.{name}"))


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    file = text_format.Parse(SCHEMA.read_text("utf-8"), descriptor_pb2.FileDescriptorProto())
    pool.AddSerializedFile(file.SerializeToString())
    return pool
