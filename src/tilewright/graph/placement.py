"""The address of a value in main memory, which plan-memory writes and code generators read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from tilewright.graph.dialect import KernelOp, NetworkOp, ScratchOp, WeightOp
from tilewright.graph.operation import Operation
from tilewright.ir import (
    ArrayAttr,
    Attribute,
    BlockArgument,
    PythonValue,
    SSAValue,
    VerifyException,
    from_attribute,
    to_attribute,
)
from tilewright.ir.arenas import ACTIVATIONS as ACTIVATIONS
from tilewright.ir.arenas import TEMPORARY as TEMPORARY
from tilewright.ir.arenas import WEIGHTS as WEIGHTS


@dataclass(frozen=True)
class Placement:
    """A strided box of an arena.

    ``offset`` is in bytes. ``strides`` has one entry per axis of the value's *physical* shape
    (planning/layout.py: five for ``NCHW16c``), outermost first, in elements.
    """

    arena: str
    offset: int
    strides: tuple[int, ...]

    def to_attribute(self) -> ArrayAttr[Attribute]:
        """The attribute ``[arena, offset, [strides]]``."""
        return cast("ArrayAttr[Attribute]", to_attribute((self.arena, self.offset, self.strides)))

    @classmethod
    def of_attribute(cls, attribute: Attribute) -> Placement:
        """Read what ``to_attribute`` wrote; raises VerifyException on anything else."""
        match from_attribute(attribute):
            case (str(arena), int(offset), tuple(strides)):
                return cls(arena, offset, cast("tuple[int, ...]", strides))
            case _:
                raise VerifyException(f"not a placement: {attribute}")


def placement_of(value: SSAValue) -> Placement:
    """Placement of a network's value; raises VerifyException before plan-memory has run."""
    owner: Any = value.owner
    attribute: Attribute | None = None
    if isinstance(owner, KernelOp | Operation | WeightOp | ScratchOp):
        attribute = owner.placement
    elif isinstance(value, BlockArgument):
        network = owner.parent_op()
        if isinstance(network, NetworkOp) and network.placements is not None:
            attribute = network.placements.data[value.index]
    if attribute is None:
        raise VerifyException("the value has no placement yet: run plan-memory")
    return Placement.of_attribute(attribute)


def arenas_of(network: NetworkOp) -> dict[str, int]:
    """Bytes of every arena by name; empty before plan-memory has run."""
    if network.arenas is None:
        return {}
    pairs = cast("Sequence[tuple[str, int]]", from_attribute(network.arenas))
    return {name: int(size) for name, size in pairs}


def arenas_attribute(arenas: dict[str, int]) -> ArrayAttr[Attribute]:
    """The attribute that ``arenas_of`` reads."""
    pairs: list[PythonValue] = list(arenas.items())
    return cast("ArrayAttr[Attribute]", to_attribute(pairs))
