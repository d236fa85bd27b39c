"""Names of element types, and how many bytes an element has in memory."""

from collections.abc import Mapping
from typing import Literal

ElementType = Literal[
    "float32", "fixed8", "fixed16", "fixed32", "float64", "float16", "bfloat16", "bool",
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
]  # fmt: skip

ELEMENT_BYTES: Mapping[str, int] = {
    "float32": 4,
    "fixed8": 1,
    "fixed16": 2,
    "fixed32": 4,
    "float64": 8,
    "float16": 2,
    "bfloat16": 2,
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
}
