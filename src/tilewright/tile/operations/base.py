"""The base of the tile operations."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from tilewright.ir import (
    IRDLOperation,
    ParsePropInAttrDict,
    PlainParser,
    Printer,
    PythonValue,
    from_attribute,
    to_attribute,
)
from tilewright.tile import syntax


class TileOperation(IRDLOperation):
    """Base of the tile operations: properties as plain values."""

    irdl_options = (ParsePropInAttrDict(),)

    def get(self, name: str, default: PythonValue = 0) -> Any:
        """The plain value of a property, or ``default`` when it is absent."""
        attribute = self.properties.get(name)
        return default if attribute is None else from_attribute(attribute)

    def set(self, name: str, value: PythonValue) -> None:
        """Set a property to a plain value."""
        self.properties[name] = to_attribute(value)

    @property
    def wait_list(self) -> tuple[str, ...]:
        """The waits of a move or a compute, as text."""
        return self.get("waits", ())

    def verify_(self) -> None:
        """Check the operation, as verify.py has it for its kind."""
        from tilewright.tile.verify import check

        check(self)


class TextOperation(TileOperation):
    """An operation whose syntax is stated as ``TEXT``; see syntax.py."""

    TEXT: ClassVar[str] = ""

    def print_own(self, printer: Printer) -> None:
        """Print the part of the operation that ``...`` stands for in its syntax."""

    @classmethod
    def parse_own(cls, parser: PlainParser, found: syntax.Found) -> None:
        """Read what ``print_own`` printed."""

    def print(self, printer: Printer) -> None:
        """Print the operation in the tile dialect's syntax."""
        syntax.print_operation(printer, self)

    @classmethod
    def parse(cls, parser: PlainParser) -> Self:
        """Read what ``print`` printed."""
        return syntax.parse_operation(parser, cls)
