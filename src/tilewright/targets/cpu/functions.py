"""Records of the emitted C functions, as primitives of the machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.machine import Primitive, Storage

MOST = 1 << 30
"""The largest extent, where none is."""

SHORT_FLOATS = ("float16", "bfloat16")
"""Elements that widen to float32 as they are loaded into lanes, and are rounded before they are
stored."""

FLOATS: Mapping[str, tuple[str, ...]] = {
    "weight": ("float32", "int16", *SHORT_FLOATS),
    "bias": ("float32", *SHORT_FLOATS),
    "residual": ("float32", "uint8", "int8", "int16", *SHORT_FLOATS),
    "output": ("float32", "uint8", "int8", "int16", *SHORT_FLOATS),
}
"""Elements by role, where they are not float32 alone: what follows a product may read and write
bytes, as quantising does."""


def c_function(name: str, *operations: str, **record: Any) -> Primitive:
    """A C function whose sizes are constants; stages of any kind may follow what it computes,
    unless ``record`` says otherwise."""
    record.setdefault("epilogue_any", True)
    return Primitive(name=name, operations=operations, engine="core", sizes="fixed", **record)


def storage(elements: Mapping[str, tuple[str, ...]] = FLOATS, **layouts: str) -> dict[str, Storage]:
    """Operands in main memory by roles, with the elements that they may have: where no layout is
    named any, of roles without an entry float32."""
    return {
        role: Storage(
            memory="dram",
            layout=layout,
            elements=() if layout == "any" else elements.get(role, ("float32",)),
        )
        for role, layout in layouts.items()
    }
