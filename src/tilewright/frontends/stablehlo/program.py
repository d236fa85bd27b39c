"""A parsed StableHLO program, as plain values: functions of operations on numbered values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import ml_dtypes
import numpy as np

from tilewright.errors import refuse
from tilewright.ir.types import Array

DTYPES: Mapping[str, np.dtype[Any]] = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "i1": np.dtype(np.bool_),
    **{f"i{bits}": np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"ui{bits}": np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)},
}
"""Element types as MLIR writes them; integers without a mark are signed."""


@dataclass(frozen=True)
class Kind:
    """Type of a value: a tensor, a tuple (``parts``), or what is not read (``text``)."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    parts: tuple[Kind, ...] | None = None
    text: str = ""


@dataclass(frozen=True)
class Dense:
    """A constant of the program; ``array`` has extent 1 on every axis if it is one value."""

    array: Array
    shape: tuple[int, ...]


Attribute = Any
"""Numbers, texts, lists, dictionaries, Dense; ``{"symbol": name}`` and ``{"text": text}``."""


@dataclass(frozen=True)
class Operation:
    """One operation; values are numbers, unique in the program."""

    name: str
    location: str
    operands: tuple[int, ...]
    results: tuple[int, ...]
    kinds: tuple[Kind, ...]
    """Types of the results."""
    attributes: Mapping[str, Attribute]
    regions: tuple[Block, ...]


@dataclass(frozen=True)
class Block:
    """Operations in order; the last one returns."""

    arguments: tuple[int, ...]
    kinds: tuple[Kind, ...]
    names: tuple[str, ...]
    """The arguments' names where the program states them, else ""."""
    operations: tuple[Operation, ...]


@dataclass(frozen=True)
class Program:
    """The functions by name; ``entry`` is the one that is run."""

    name: str
    functions: Mapping[str, Operation]
    entry: Operation


def program_of(document: Any, blobs: Array, title: str) -> Program:
    """The program in a worker's document; raises TilewrightError if there is no entry."""
    reader = _Reader(blobs)
    functions: dict[str, Operation] = {}
    for item in document["functions"]:
        function = reader.operation(item)
        functions[str(function.attributes.get("sym_name", ""))] = function
    public = [
        name
        for name, function in functions.items()
        if function.attributes.get("sym_visibility", "public") == "public"
    ]
    entry = "main" if "main" in functions else (public[0] if len(public) == 1 else "")
    if not entry or not functions[entry].regions:
        raise refuse("stablehlo-entry", "there is no function 'main' in it", where=title)
    return Program(str(document.get("name", "")), functions, functions[entry])


class _Reader:
    """Turns the worker's lists and dictionaries into a program."""

    def __init__(self, blobs: Array) -> None:
        self.blobs = blobs

    def kind(self, item: Any) -> Kind:
        none = np.dtype(np.void)
        if isinstance(item, str):
            return Kind(none, (), text=item)
        if isinstance(item, dict):
            parts = tuple(self.kind(part) for part in cast("dict[str, Any]", item)["tuple"])
            return Kind(none, (), parts=parts)
        element, shape = item
        return Kind(DTYPES[element], tuple(int(extent) for extent in shape))

    def block(self, item: Mapping[str, Any] | None) -> Block:
        if item is None:
            return Block((), (), (), ())
        return Block(
            tuple(int(number) for number, _ in item["arguments"]),
            tuple(self.kind(kind) for _, kind in item["arguments"]),
            tuple(str(name) for name in item["names"]),
            tuple(self.operation(operation) for operation in item["operations"]),
        )

    def operation(self, item: Mapping[str, Any]) -> Operation:
        return Operation(
            str(item["name"]),
            str(item["location"]),
            tuple(int(number) for number in item["operands"]),
            tuple(int(number) for number, _ in item["results"]),
            tuple(self.kind(kind) for _, kind in item["results"]),
            {name: self.attribute(value) for name, value in item["attributes"].items()},
            tuple(self.block(block) for block in item["regions"] if block is not None),
        )

    def attribute(self, value: Any) -> Attribute:
        if isinstance(value, list):
            return [self.attribute(entry) for entry in cast("Sequence[Any]", value)]
        if isinstance(value, dict):
            fields = cast("dict[str, Any]", value)
            if "entries" in fields:
                return {name: self.attribute(entry) for name, entry in fields["entries"].items()}
            if "dense" in fields:
                return self.dense(fields["dense"])
        return value

    def dense(self, fields: Mapping[str, Any]) -> Dense:
        dtype, shape = DTYPES[fields["element"]], tuple(int(size) for size in fields["shape"])
        offset, size = int(fields["offset"]), int(fields["bytes"])
        data = self.blobs[offset : offset + size].view(dtype)
        if fields["splat"] and data.size:
            return Dense(data.reshape((1,) * len(shape)), shape)
        return Dense(data.reshape(shape), shape)
