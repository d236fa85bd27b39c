"""Operations that order engines where these signal one another: signals, waits and barriers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self, cast

from tilewright.ir import (
    ArrayAttr,
    Attribute,
    PlainParser,
    Printer,
    SSAValue,
    StringAttr,
    irdl_op_definition,
    opt_operand_def,
    prop_def,
    to_attribute,
)
from tilewright.tile import syntax
from tilewright.tile.operations.base import TileOperation


class EventOp(TileOperation):
    """A signal or a wait for it, between an ordered pair of engines.

    The n-th wait of a pair and an id takes the n-th signal of the same. With several ids, those of
    successive visits of the buffer ``of`` take turns, as its slots do.
    """

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

    def print(self, printer: Printer) -> None:
        """Print the signal or wait in the tile dialect's syntax."""
        source, target = syntax.quoted(self.source_engine), syntax.quoted(self.target_engine)
        printer.print_string(f" {source} to {target} ids {syntax.plain_text(self.id_list)}")
        if self.turns_of is not None:
            printer.print_string(" of ")
            printer.print_operand(self.turns_of)
        syntax.print_rest(printer, self, ("source", "target", "ids"))

    @classmethod
    def parse(cls, parser: PlainParser) -> Self:
        """Read what ``print`` printed."""
        properties: dict[str, Attribute | None] = {"source": StringAttr(parser.parse_str_literal())}
        parser.parse_keyword("to")
        properties["target"] = StringAttr(parser.parse_str_literal())
        properties["ids"] = syntax.optional_plain(parser, "ids") or ArrayAttr([])
        of = [syntax.parse_value(parser)] if parser.parse_optional_keyword("of") else []
        return syntax.finish(parser, cls, properties, [of])


@irdl_op_definition
class SignalOp(EventOp):
    """Given to the first engine: once all that it was given before is done, the id is signalled."""

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
class BarrierOp(TileOperation):
    """All engines end what they were given before anything that follows starts."""

    name = "tile.barrier"
    reason = prop_def(StringAttr)
    """Why signals do not do, for people."""

    @classmethod
    def of(cls, reason: str) -> BarrierOp:
        """Return a barrier for a stated reason."""
        return cls.build(properties={"reason": StringAttr(reason)})

    def print(self, printer: Printer) -> None:
        """Print the barrier in the tile dialect's syntax."""
        printer.print_string(f" {syntax.quoted(self.reason.data)}")
        syntax.print_rest(printer, self, ("reason",))

    @classmethod
    def parse(cls, parser: PlainParser) -> BarrierOp:
        """Read what ``print`` printed."""
        reason = StringAttr(parser.parse_str_literal())
        return syntax.finish(parser, cls, {"reason": reason})


Ordering = SignalOp | WaitOp | BarrierOp
"""An operation that orders engines, beside the order of each engine's own commands."""
