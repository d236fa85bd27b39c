"""Windows and the type of buffers."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.ir import (
    Attribute,
    AttrParser,
    Data,
    ParametrizedAttribute,
    Printer,
    StringAttr,
    TensorType,
    TypeAttribute,
    irdl_attr_definition,
    param_def,
)
from tilewright.planning.domain import Affine, Interval


@irdl_attr_definition
class WindowAttr(Data[tuple[Affine, ...]]):
    """One affine expression of the dims per axis of a tensor."""

    name = "tile.window"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[Affine, ...]:
        """Read ``<[n, ci, oh*2 + kh - 3]>``."""
        with parser.in_angle_brackets():
            return cls.parse_axes(parser)

    @classmethod
    def parse_axes(cls, parser: AttrParser) -> tuple[Affine, ...]:
        """Read ``[n, ci, oh*2 + kh - 3]``."""
        return tuple(
            parser.parse_comma_separated_list(
                parser.Delimiter.SQUARE, lambda: cls.parse_axis(parser)
            )
        )

    @classmethod
    def parse_axis(cls, parser: AttrParser) -> Affine:
        """Read ``oh*2 + kh - 3``."""
        terms: list[tuple[str, int]] = []
        offset = 0
        sign = -1 if parser.parse_optional_punctuation("-") else 1
        while True:
            number = parser.parse_optional_integer(allow_boolean=False, allow_negative=False)
            if number is None:
                name = parser.parse_identifier("a dim or a number is expected here")
                times = parser.parse_optional_punctuation("*")
                factor = parser.parse_integer(allow_boolean=False) if times else 1
                terms.append((name, sign * factor))
            else:
                offset += sign * number
            if parser.parse_optional_punctuation("+"):
                sign = 1
            elif parser.parse_optional_punctuation("-"):
                sign = -1
            else:
                return Affine(tuple(terms), offset)

    def print_parameter(self, printer: Printer) -> None:
        """Print what ``parse_parameter`` reads."""
        with printer.in_angle_brackets():
            printer.print_string(str(self))

    def __str__(self) -> str:
        return "[" + ", ".join(str(axis) for axis in self.data) + "]"

    @property
    def dims(self) -> frozenset[str]:
        """The dims on which the box depends."""
        return frozenset(name for axis in self.data for name, c in axis.terms if c)

    def box(self, dims: Mapping[str, Interval]) -> tuple[Interval, ...]:
        """Start and size along each axis, padding included, for dims in their intervals."""
        return tuple(axis.interval(dims) for axis in self.data)


@irdl_attr_definition
class BufferType(ParametrizedAttribute, TypeAttribute):
    """A buffer in ``memory`` that holds a box of a tensor of type ``of``."""

    name = "tile.buffer"
    memory: StringAttr = param_def()
    of: TensorType[Attribute] = param_def()

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole tensor."""
        return self.of.get_shape()


Axes = tuple[Affine, ...]
