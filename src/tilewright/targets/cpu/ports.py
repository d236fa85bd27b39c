"""The inputs and outputs of a network: where their tensors lie, and what C calls them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

from tilewright.errors import refuse
from tilewright.graph.names import identifier
from tilewright.graph.placement import placement_of
from tilewright.ir import SSAValue
from tilewright.planning.layout import Layout
from tilewright.types import element_dtype, layout_of, shape_of, tensor_type

_C_OF_DTYPE = {"float32": "float", "int16": "int16_t", "int32": "int32_t", "int8": "int8_t"}


@dataclass(frozen=True)
class Port:
    """An input or output of the network: where its tensor lies in the workspace."""

    name: str
    identifier: str
    shape: tuple[int, ...]
    dtype: str
    layout: str
    arena: str
    offset: int
    strides: tuple[int, ...]

    @classmethod
    def of(cls, name: str, value: SSAValue) -> Port:
        """The port of a network's value that has a placement."""
        place = placement_of(value)
        kind = tensor_type(value)
        return cls(
            name,
            identifier(name, "port"),
            shape_of(value),
            str(element_dtype(kind.element_type)),
            layout_of(value),
            place.arena,
            place.offset,
            place.strides,
        )

    @property
    def c_type(self) -> str:
        """C's name of the element type."""
        if self.dtype not in _C_OF_DTYPE:
            raise refuse("cpu-type", f"elements of {self.dtype} are not supported", self.name)
        return _C_OF_DTYPE[self.dtype]

    @property
    def elements(self) -> int:
        """Elements of the caller's array."""
        return prod(self.shape)

    @property
    def dense(self) -> bool:
        """Whether the tensor lies as the caller's array does."""
        layout = Layout.parse(self.layout, len(self.shape))
        return layout.row_major and self.strides == layout.strides(self.shape)

    def to_json(self) -> dict[str, Any]:
        """For the manifest."""
        return {
            "name": self.name,
            "shape": list(self.shape),
            "dtype": self.dtype,
            "layout": self.layout,
            "arena": self.arena,
            "offset": self.offset,
            "strides": list(self.strides),
        }


def distinct_ports(inputs: list[Port], outputs: list[Port]) -> tuple[list[Port], list[Port]]:
    """The ports with C names that differ, also in capitals: ``in_`` and ``out_`` before them."""
    taken: set[str] = set()

    def fresh(port: Port, prefix: str) -> Port:
        base = f"{prefix}_{port.identifier}"
        name, number = base, 2
        while name.upper() in taken:
            name, number = f"{base}_{number}", number + 1
        taken.add(name.upper())
        return replace(port, identifier=name)

    return [fresh(port, "in") for port in inputs], [fresh(port, "out") for port in outputs]
