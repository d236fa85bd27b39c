"""Parameters of a kernel's C function, and the the callers' pointers into arenas."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.errors import refuse
from tilewright.ir.arenas import WEIGHTS
from tilewright.tile.dialect import TensorOp

Place = tuple[str, int]
"""Place of a tensor: its arena, and its offset there in bytes."""


def place_text(arena: str, offset: int, activations: str = "activations") -> str:
    """C of a place: the pointer to the weights, or the one named here for all else, and its
    offset."""
    return f"{WEIGHTS if arena == WEIGHTS else activations} + {offset}"


@dataclass(frozen=True)
class Parameter:
    """A pointer that a function takes, and the tensor that it is passed for."""

    tensor: str
    """Name of the tensor in the tile program."""
    pointer: str
    c_type: str = "float"
    written: bool = False

    @property
    def pointer_type(self) -> str:
        """The type in C, up to its asterisk."""
        return f"{'' if self.written else 'const '}{self.c_type} *"

    @property
    def declaration(self) -> str:
        """The parameter in C."""
        return f"{self.pointer_type}{self.pointer}"

    def pointer_to(self, place: Place, activations: str = "activations") -> str:
        """C of the argument for what lies at a place."""
        return self.cast(place_text(*place, activations))

    def place(self, op: TensorOp) -> Place:
        """The tensor's arena and offset in bytes; raises TilewrightError without a place."""
        if op.arena is None or op.offset is None:
            raise refuse("cpu-placement", "has no place in memory", self.tensor)
        return op.arena.data, op.offset.value.data

    def cast(self, pointer: str) -> str:
        """C of a pointer to bytes as the parameter's type."""
        return f"({self.pointer_type})({pointer})"
