"""Operations that order engines where these signal one another: signals, waits and barriers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self, cast

from tilewright.ir import (
    ArrayAttr,
    SSAValue,
    StringAttr,
    irdl_op_definition,
    opt_operand_def,
    prop_def,
    to_attribute,
)
from tilewright.tile.operations.base import TextOperation


class EventOp(TextOperation):
    """A signal or a wait for it, between an ordered pair of engines.

    The n-th wait of a pair and an id takes the n-th signal of the same. With several ids, those of
    successive visits of the buffer ``of`` take turns, as its slots do.
    """

    TEXT: ClassVar[str] = "$source to $target ids =ids [of %of]"

    @property
    def source_engine(self) -> str:
        """The engine that signals."""
        return cast("StringAttr", self.properties["source"]).data

    @property
    def target_engine(self) -> str:
        """The engine that waits."""
        return cast("StringAttr", self.properties["target"]).data

    @property
    def id_list(self) -> tuple[int, ...]:
        """The ids, which take turns."""
        return cast("tuple[int, ...]", self.get("ids", ()))

    @property
    def turns_of(self) -> SSAValue | None:
        """The buffer whose visits the ids follow; None with one id."""
        return self.operands[0] if self.operands else None

    @classmethod
    def between(
        cls, source: str, target: str, ids: Sequence[int], of: SSAValue | None = None
    ) -> Self:
        """A signal or a wait of an ordered pair of engines."""
        return cls.build(
            operands=[of],
            properties={
                "source": StringAttr(source),
                "target": StringAttr(target),
                "ids": to_attribute(tuple(ids)),
            },
        )


@irdl_op_definition
class SignalOp(EventOp):
    """A command of the first engine: once all commands before it are done, the id is signalled."""

    name = "tile.signal"
    of = opt_operand_def()
    source = prop_def(StringAttr)
    target = prop_def(StringAttr)
    ids = prop_def(ArrayAttr)


@irdl_op_definition
class WaitOp(EventOp):
    """Given to the second engine: what it is given next starts once the id has been signalled."""

    name = "tile.wait"
    of = opt_operand_def()
    source = prop_def(StringAttr)
    target = prop_def(StringAttr)
    ids = prop_def(ArrayAttr)


@irdl_op_definition
class BarrierOp(TextOperation):
    """All engines end what they were given before anything that follows starts."""

    name = "tile.barrier"
    TEXT: ClassVar[str] = "$reason"
    reason = prop_def(StringAttr)
    """The reason why signals do not suffice, in words."""

    @classmethod
    def of(cls, reason: str) -> BarrierOp:
        """Return a barrier for a stated reason."""
        return cls.build(properties={"reason": StringAttr(reason)})


Ordering = SignalOp | WaitOp | BarrierOp
"""An operation that orders engines, beside the order of each engine's own commands."""
