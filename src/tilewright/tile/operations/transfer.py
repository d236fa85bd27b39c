"""Buffers and the moves that fill and empty them."""

from __future__ import annotations

from typing import ClassVar, cast

from tilewright.ir import (
    ArrayAttr,
    Attribute,
    IntegerAttr,
    PlainParser,
    Printer,
    SSAValue,
    StringAttr,
    TensorType,
    UnitAttr,
    VerifyException,
    integer,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
)
from tilewright.ir.types import shape_of
from tilewright.planning.domain import Affine
from tilewright.tile import syntax
from tilewright.tile.attributes import BufferType, WindowAttr
from tilewright.tile.operations.base import TextOperation
from tilewright.tile.operations.structure import TensorOp


@irdl_op_definition
class BufferOp(TextOperation):
    """A buffer for the box that ``window`` spans here of what lies further out: a tensor, or a
    buffer on the way to it, in another memory; see the dialect's text.

    ``role`` is the operand's role in its primitive. ``shape`` is the largest box, ``address`` and
    ``bytes`` (of one slot; the next slot follows) are set by allocate. ``accumulates`` marks an
    output whose reduction is split over several computes: it holds accumulators until the last.
    ``circular`` is an axis along which rows of one visit stay for the next; see the dialect's text.
    A buffer that ``gathers`` windows of an image further out, as that window reads it, has an axis
    for each dim, and a type of its own: one element for each point, ``fill`` for padding (or 0).
    So has a buffer of results that the move out of it converts: their elements before.
    What is read ``at_store`` the first move of a compute's result on its way out reads, not the
    compute.
    What ``stays`` lies whole, at one address, from one program to others that use it. Where no
    move and no compute of this program fills it, an earlier one has.
    """

    name = "tile.buffer"
    TEXT: ClassVar[str] = (
        "$symbol of %outer ...window,gathers,fill slots #slots [accumulates] [circular #circular] "
        "[stays] [at_store] [role $role] [shape =shape] [address #address] [bytes #bytes]"
    )
    symbol = prop_def(StringAttr)
    outer = operand_def()
    window = prop_def(WindowAttr)
    slots = prop_def(IntegerAttr)
    role = opt_prop_def(StringAttr)
    shape = opt_prop_def(ArrayAttr)
    address = opt_prop_def(IntegerAttr)
    bytes = opt_prop_def(IntegerAttr)
    accumulates = opt_prop_def(UnitAttr)
    circular = opt_prop_def(IntegerAttr)
    gathers = opt_prop_def(WindowAttr)
    fill = opt_prop_def(IntegerAttr)
    stays = opt_prop_def(UnitAttr)
    at_store = opt_prop_def(UnitAttr)
    result = result_def(BufferType)

    @classmethod
    def of(
        cls,
        symbol: str,
        outer: SSAValue,
        window: WindowAttr,
        memory: str,
        role: str = "",
        gathers: tuple[WindowAttr, Attribute] | None = None,
        fill: int = 0,
        kind: Attribute | None = None,
    ) -> BufferOp:
        """A buffer of one slot for ``window`` of ``outer``, a tensor or a buffer; or of the points
        of that window of it which is given, with the type that they have together, and with what
        is there for padding. ``kind`` is the type of a buffer that holds other elements."""
        of = outer.type.of if isinstance(outer.type, BufferType) else outer.type
        of = kind or of
        points = None
        if gathers is not None:
            points, of = gathers
        return cls.build(
            operands=[outer],
            result_types=[BufferType(StringAttr(memory), cast("TensorType[Attribute]", of))],
            properties={
                "symbol": StringAttr(symbol),
                "window": window,
                "gathers": points,
                "fill": integer(fill) if fill else None,
                "slots": integer(1),
                "role": StringAttr(role) if role else None,
            },
        )

    @property
    def memory(self) -> str:
        """Name of the memory that holds the buffer."""
        return self.result.type.memory.data

    @property
    def slot_count(self) -> int:
        """The number of slots, each of which holds one tile."""
        return self.slots.value.data

    @property
    def outer_type(self) -> TensorType[Attribute]:
        """The tensor type of what lies further out."""
        kind = self.outer.type
        return kind.of if isinstance(kind, BufferType) else cast("TensorType[Attribute]", kind)

    @property
    def converts(self) -> bool:
        """True if it holds other element types than the next memory outwards, of the same
        tensor."""
        return self.gathers is None and self.result.type.of != self.outer_type

    @property
    def padding(self) -> int:
        """The value of padding among windows that are gathered."""
        return 0 if self.fill is None else self.fill.value.data

    @property
    def circular_axis(self) -> int | None:
        """The axis along which rows stay from one visit to the next, if there is one."""
        return None if self.circular is None else self.circular.value.data

    @property
    def places(self) -> int:
        """The number of boxes of ``bytes`` that the buffer takes: its slots, or 1 if it is
        circular."""
        return 1 if self.circular is not None else self.slot_count

    @property
    def outer_buffer(self) -> BufferOp | None:
        """The buffer that this one holds a part of; None where that is a tensor."""
        owner = self.outer.owner
        return owner if isinstance(owner, BufferOp) else None

    @property
    def tensor_op(self) -> TensorOp:
        """The tensor whose box the buffer holds, by however many buffers on the way."""
        outer = self.outer_buffer
        return cast(TensorOp, self.outer.owner) if outer is None else outer.tensor_op

    @property
    def outer_window(self) -> tuple[Affine, ...]:
        """The window of its tensor, or of the buffer further out, that a move to this buffer
        reads."""
        return (self.window if self.gathers is None else self.gathers).data

    @property
    def outer_shape(self) -> tuple[int, ...]:
        """Shape of the tensor of which the outer window is."""
        outer = self.outer_buffer
        return shape_of(self.outer) if outer is None else outer.tensor_shape

    @property
    def tensor_shape(self) -> tuple[int, ...]:
        """Shape of the whole tensor; of a buffer that gathers, of all points."""
        return self.result.type.of.get_shape()

    def print_own(self, printer: Printer) -> None:
        """Print the window, what it gathers, and the memory."""
        printer.print_string(f" {self.window}")
        if self.gathers is not None:
            fill = f" fill {self.padding}" if self.fill is not None else ""
            printer.print_string(f" gathers {self.gathers}{fill}")
        if self.gathers is not None or self.converts:
            printer.print_string(" as ")
            printer.print_attribute(self.result.type.of)
        printer.print_string(f" in {syntax.quoted(self.memory)}")

    @classmethod
    def parse_own(cls, parser: PlainParser, found: syntax.Found) -> None:
        """Read what ``print_own`` printed."""
        outer = cast("SSAValue", found.operands[0]).type
        of = outer.of if isinstance(outer, BufferType) else outer
        found.properties["window"] = WindowAttr(WindowAttr.parse_axes(parser))
        if parser.parse_optional_keyword("gathers"):
            found.properties["gathers"] = WindowAttr(WindowAttr.parse_axes(parser))
            if parser.parse_optional_keyword("fill"):
                found.properties["fill"] = integer(syntax.parse_integer(parser))
            parser.parse_keyword("as")
            of = parser.parse_type()
        elif parser.parse_optional_keyword("as"):
            of = parser.parse_type()
        parser.parse_keyword("in")
        memory = StringAttr(parser.parse_str_literal())
        if not isinstance(of, TensorType):
            parser.raise_error("a buffer is of a tensor or of another buffer")
        found.results.append(BufferType(memory, cast("TensorType[Attribute]", of)))


@irdl_op_definition
class MoveOp(TextOperation):
    """Copies a buffer's box between the buffer and what it is of, asynchronously.

    ``engine`` runs it. ``joined`` moves travel in one transfer with the move before them. A move
    ``ahead`` stands in its queue one run of its block earlier, before the loops there: so it is
    issued before the compute of the run before. ``transform`` names what the machine's move does
    on the way. For ``waits`` see the dialect's text.
    """

    name = "tile.move"
    TEXT: ClassVar[str] = (
        "%source to %target on $engine [with $transform] [joined] [ahead] [waits =waits]"
    )
    source = operand_def()
    target = operand_def()
    engine = prop_def(StringAttr)
    joined = opt_prop_def(UnitAttr)
    ahead = opt_prop_def(UnitAttr)
    transform = opt_prop_def(StringAttr)
    waits = opt_prop_def(ArrayAttr)

    @classmethod
    def of(cls, source: SSAValue, target: SSAValue, engine: str, transform: str = "") -> MoveOp:
        """A move on an engine."""
        named = {"transform": StringAttr(transform)} if transform else {}
        return cls.build(
            operands=[source, target], properties={"engine": StringAttr(engine), **named}
        )

    @property
    def loads(self) -> bool:
        """True if data goes inwards, from the tensor or outer buffer to the buffer."""
        owner = self.target.owner
        return isinstance(owner, BufferOp) and owner.outer == self.source

    @property
    def outer(self) -> SSAValue:
        """The end further out: the tensor, or the buffer, that ``buffer`` is of."""
        return self.source if self.loads else self.target

    @property
    def buffer(self) -> BufferOp:
        """The buffer at the inner end."""
        ends = (self.target, self.source)
        for end in ends if self.loads else ends[::-1]:
            if isinstance(end.owner, BufferOp):
                return end.owner
        raise VerifyException("tile.move: one end must be a buffer")
