"""The operations of the tile dialect; dialect.py says what they mean together."""

from __future__ import annotations

from typing import Any, ClassVar, cast

from tilewright.ir import (
    ArrayAttr,
    Attribute,
    Block,
    IntegerAttr,
    IRDLOperation,
    IsolatedFromAbove,
    NoTerminator,
    ParsePropInAttrDict,
    PlainParser,
    Printer,
    PythonValue,
    Region,
    SSAValue,
    StringAttr,
    TensorType,
    UnitAttr,
    VerifyException,
    from_attribute,
    i64,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    to_attribute,
    traits_def,
    var_operand_def,
)
from tilewright.tile import syntax
from tilewright.tile.attributes import BufferType, WindowAttr


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


@irdl_op_definition
class ProgramOp(TileOperation):
    """One kernel on one machine: tensors first, then loops."""

    name = "tile.program"
    symbol = prop_def(StringAttr)
    machine = prop_def(StringAttr)
    dims = prop_def(ArrayAttr)
    """``[name, extent]`` of every dim of the anchor; the reduction dims come last."""
    reduction = prop_def(ArrayAttr)
    """Names of the reduction dims."""
    nodes = prop_def(ArrayAttr)
    """Names of the model's nodes."""
    slots = opt_prop_def(ArrayAttr)
    """``[operand, slots]``: the buffering that the schedule asks for; see double-buffer."""
    levels = opt_prop_def(ArrayAttr)
    """Memories of the schedule's levels, outermost first; see place-moves."""
    body = region_def("single_block")
    traits = traits_def(IsolatedFromAbove(), NoTerminator())

    @property
    def extents(self) -> dict[str, int]:
        """Extent of every dim."""
        return {str(name): int(extent) for name, extent in self.get("dims", ())}

    @property
    def reduction_dims(self) -> tuple[str, ...]:
        """Names of the reduction dims."""
        return cast("tuple[str, ...]", self.get("reduction", ()))

    @property
    def tensors(self) -> dict[str, TensorOp]:
        """The tensors by name."""
        return {op.symbol.data: op for op in self.body.block.ops if isinstance(op, TensorOp)}

    def print(self, printer: Printer) -> None:
        """Print the operation."""
        syntax.print_program(printer, self)

    @classmethod
    def parse(cls, parser: PlainParser) -> ProgramOp:
        """Read what ``print`` printed."""
        properties: dict[str, Attribute | None] = {"symbol": StringAttr(parser.parse_str_literal())}
        parser.parse_keyword("on")
        properties["machine"] = StringAttr(parser.parse_str_literal())
        properties["dims"], properties["reduction"] = syntax.parse_dims(parser)
        properties["levels"] = syntax.optional_plain(parser, "levels")
        properties["slots"] = syntax.optional_plain(parser, "slots")
        properties["nodes"] = syntax.optional_plain(parser, "nodes") or ArrayAttr([])
        return syntax.finish(parser, cls, properties, region=True)

    def verify_(self) -> None:
        """Check dims and names."""
        from tilewright.tile.verify import check_program

        check_program(self)


@irdl_op_definition
class TensorOp(TileOperation):
    """A tensor in main memory: a kernel's input, weight or output.

    ``arena`` names the allocation (``activations``, ``weights``); ``offset`` is in bytes,
    ``strides`` in elements per axis of the physical layout (absent: dense).
    """

    name = "tile.tensor"
    symbol = prop_def(StringAttr)
    role = prop_def(StringAttr)
    arena = opt_prop_def(StringAttr)
    offset = opt_prop_def(IntegerAttr)
    strides = opt_prop_def(ArrayAttr)
    result = result_def(TensorType)
    assembly_format: ClassVar[str | None] = "$symbol attr-dict `:` type($result)"

    def verify_(self) -> None:
        """Check that tensors stand at the top of a program."""
        if not isinstance(self.parent_op(), ProgramOp):
            raise VerifyException("tile.tensor stands directly in a tile.program")


@irdl_op_definition
class BufferOp(TileOperation):
    """A buffer for the box that ``window`` spans here; see the module's text.

    ``role`` is the operand's role in its primitive. ``shape`` is the largest box, ``address`` and
    ``bytes`` (of one slot; the next slot follows) are set by allocate. ``accumulates`` marks an
    output whose reduction is split over several computes: it holds accumulators until the last.
    """

    name = "tile.buffer"
    symbol = prop_def(StringAttr)
    tensor = operand_def(TensorType)
    window = prop_def(WindowAttr)
    slots = prop_def(IntegerAttr)
    role = opt_prop_def(StringAttr)
    shape = opt_prop_def(ArrayAttr)
    address = opt_prop_def(IntegerAttr)
    bytes = opt_prop_def(IntegerAttr)
    accumulates = opt_prop_def(UnitAttr)
    result = result_def(BufferType)

    @classmethod
    def of(
        cls, symbol: str, tensor: SSAValue, window: WindowAttr, memory: str, role: str = ""
    ) -> BufferOp:
        """A buffer of one slot for ``window`` of ``tensor``."""
        of = cast("TensorType[Attribute]", tensor.type)
        return cls.build(
            operands=[tensor],
            result_types=[BufferType(StringAttr(memory), of)],
            properties={
                "symbol": StringAttr(symbol),
                "window": window,
                "slots": IntegerAttr(1, i64),
                "role": StringAttr(role) if role else None,
            },
        )

    @property
    def memory(self) -> str:
        """Name of the memory that holds the buffer."""
        return self.result.type.memory.data

    @property
    def slot_count(self) -> int:
        """Number of slots."""
        return self.slots.value.data

    @property
    def tensor_op(self) -> TensorOp:
        """The tensor whose box the buffer holds."""
        return cast(TensorOp, self.tensor.owner)

    @property
    def tensor_shape(self) -> tuple[int, ...]:
        """Shape of the whole tensor."""
        return self.result.type.of.get_shape()

    def print(self, printer: Printer) -> None:
        """Print the operation."""
        syntax.print_buffer(printer, self)

    @classmethod
    def parse(cls, parser: PlainParser) -> BufferOp:
        """Read what ``print`` printed."""
        symbol = StringAttr(parser.parse_str_literal())
        parser.parse_keyword("of")
        tensor = syntax.parse_value(parser)
        window = WindowAttr(WindowAttr.parse_axes(parser))
        parser.parse_keyword("in")
        memory = StringAttr(parser.parse_str_literal())
        properties: dict[str, Attribute | None] = {"symbol": symbol, "window": window}
        parser.parse_keyword("slots")
        properties["slots"] = IntegerAttr(syntax.parse_integer(parser), i64)
        if parser.parse_optional_keyword("accumulates"):
            properties["accumulates"] = UnitAttr()
        for key in ("role", "shape", "address", "bytes"):
            properties[key] = syntax.optional_plain(parser, key)
        if not isinstance(tensor.type, TensorType):
            parser.raise_error("a buffer is of a tensor")
        of = cast("TensorType[Attribute]", tensor.type)
        return syntax.finish(parser, cls, properties, [tensor], [BufferType(memory, of)])

    def verify_(self) -> None:
        """Check window, slots and scope."""
        from tilewright.tile.verify import check_buffer

        check_buffer(self)


@irdl_op_definition
class MoveOp(TileOperation):
    """Copies the buffer's box between its tensor and the buffer, asynchronously.

    ``engine`` runs it. ``joined`` moves travel in one transfer with the move before them. For
    ``waits`` see the module's text.
    """

    name = "tile.move"
    source = operand_def()
    target = operand_def()
    engine = prop_def(StringAttr)
    joined = opt_prop_def(UnitAttr)
    waits = opt_prop_def(ArrayAttr)

    @classmethod
    def of(cls, source: SSAValue, target: SSAValue, engine: str) -> MoveOp:
        """A move on an engine."""
        return cls.build(operands=[source, target], properties={"engine": StringAttr(engine)})

    @property
    def loads(self) -> bool:
        """Whether data goes from main memory to a buffer."""
        return isinstance(self.target.type, BufferType)

    @property
    def buffer(self) -> BufferOp:
        """The buffer at one end."""
        owner = (self.target if self.loads else self.source).owner
        if not isinstance(owner, BufferOp):
            raise VerifyException("tile.move: one end must be a buffer")
        return owner

    @property
    def wait_list(self) -> tuple[str, ...]:
        """The waits, as text."""
        return cast("tuple[str, ...]", self.get("waits", ()))

    def print(self, printer: Printer) -> None:
        """Print the operation."""
        printer.print_string(" ")
        printer.print_operand(self.source)
        printer.print_string(" to ")
        printer.print_operand(self.target)
        printer.print_string(f" on {syntax.quoted(self.engine.data)}")
        if self.joined is not None:
            printer.print_string(" joined")
        syntax.print_optional(printer, self, "waits")
        syntax.print_rest(printer, self, ("engine", "joined", "waits"))

    @classmethod
    def parse(cls, parser: PlainParser) -> MoveOp:
        """Read what ``print`` printed."""
        source = syntax.parse_value(parser)
        parser.parse_keyword("to")
        target = syntax.parse_value(parser)
        parser.parse_keyword("on")
        properties: dict[str, Attribute | None] = {"engine": StringAttr(parser.parse_str_literal())}
        if parser.parse_optional_keyword("joined"):
            properties["joined"] = UnitAttr()
        properties["waits"] = syntax.optional_plain(parser, "waits")
        return syntax.finish(parser, cls, properties, [source, target])

    def verify_(self) -> None:
        """Check the ends, the scope and the waits."""
        from tilewright.tile.verify import check_move

        check_move(self)


@irdl_op_definition
class ComputeOp(TileOperation):
    """Runs a primitive: the chain of stages in its region; the last one's value goes to ``output``.

    The first stage accumulates over the iterations of the reduction loops that stand between
    ``output``'s buffer (or the program, for a tensor in place) and this operation; the later
    stages apply once, when the reduction is complete.
    """

    name = "tile.compute"
    primitive = prop_def(StringAttr)
    engine = prop_def(StringAttr)
    output = operand_def()
    waits = opt_prop_def(ArrayAttr)
    options = opt_prop_def(ArrayAttr)
    """``[key, value]`` pairs: choices of the schedule that belong to the primitive."""
    body = region_def("single_block")
    traits = traits_def(NoTerminator())

    @property
    def stages(self) -> list[StageOp]:
        """The stages, in order."""
        return [op for op in self.body.block.ops if isinstance(op, StageOp)]

    @property
    def wait_list(self) -> tuple[str, ...]:
        """The waits, as text."""
        return cast("tuple[str, ...]", self.get("waits", ()))

    def print(self, printer: Printer) -> None:
        """Print the operation."""
        printer.print_string(f" {syntax.quoted(self.primitive.data)}")
        printer.print_string(f" on {syntax.quoted(self.engine.data)} to ")
        printer.print_operand(self.output)
        syntax.print_optional(printer, self, "waits")
        if self.options is not None:
            printer.print_string(f" options {syntax.pairs_text(self.options)}")
        syntax.print_rest(printer, self, ("primitive", "engine", "waits", "options"))
        syntax.print_body(printer, self.body)

    @classmethod
    def parse(cls, parser: PlainParser) -> ComputeOp:
        """Read what ``print`` printed."""
        properties: dict[str, Attribute | None] = {
            "primitive": StringAttr(parser.parse_str_literal())
        }
        parser.parse_keyword("on")
        properties["engine"] = StringAttr(parser.parse_str_literal())
        parser.parse_keyword("to")
        output = syntax.parse_value(parser)
        properties["waits"] = syntax.optional_plain(parser, "waits")
        if parser.parse_optional_keyword("options"):
            properties["options"] = syntax.parse_pairs(parser)
        return syntax.finish(parser, cls, properties, [output], region=True)

    def verify_(self) -> None:
        """Check the chain of stages and the waits."""
        from tilewright.tile.verify import check_compute

        check_compute(self)


@irdl_op_definition
class StageOp(TileOperation):
    """One operation of the chain, on buffers, tensors in place, or an earlier stage's value.

    ``windows`` has one window per input and last that of the result, over the program's dims.
    The result's type is that of the whole tensor that the stage computes.
    """

    name = "tile.stage"
    operation = prop_def(StringAttr)
    inputs = var_operand_def()
    windows = prop_def(ArrayAttr[WindowAttr])
    attributes_ = opt_prop_def(ArrayAttr, prop_name="parameters")
    """``[name, value]`` pairs: what the operation's meaning needs beyond the windows."""
    node = opt_prop_def(StringAttr)
    result = result_def(TensorType)

    @property
    def parameters(self) -> dict[str, Any]:
        """What the operation's meaning needs beyond the windows, by name."""
        return dict(self.get("parameters", ()))

    def print(self, printer: Printer) -> None:
        """Print the operation."""
        syntax.print_stage(printer, self)

    @classmethod
    def parse(cls, parser: PlainParser) -> StageOp:
        """Read what ``print`` printed."""
        properties: dict[str, Attribute | None] = {
            "operation": StringAttr(parser.parse_str_literal())
        }
        inputs, windows = syntax.parse_stage_inputs(parser)
        parser.parse_keyword("to")
        windows.append(WindowAttr(WindowAttr.parse_axes(parser)))
        properties["windows"] = ArrayAttr(windows)
        if parser.parse_optional_keyword("with"):
            properties["parameters"] = syntax.parse_pairs(parser)
        properties["node"] = syntax.optional_plain(parser, "node")
        parser.parse_punctuation(":")
        kind = parser.parse_type()
        return syntax.finish(parser, cls, properties, [inputs], [kind])

    def verify_(self) -> None:
        """Check the windows against the operands."""
        from tilewright.tile.verify import check_stage

        check_stage(self)


@irdl_op_definition
class LoopOp(TileOperation):
    """Runs its body for ``dim`` in ``[i, min(i + step, upper))``, i = lower, lower + step, ...

    Bounds are within the interval that an enclosing loop over the same dim gives: there, ``lower``
    and ``upper`` are relative to that interval's start, and ``upper`` is cut at its end.
    ``memory`` names the schedule's level that the loop belongs to.
    """

    name = "tile.loop"
    dim = prop_def(StringAttr)
    lower = prop_def(IntegerAttr)
    upper = prop_def(IntegerAttr)
    step = prop_def(IntegerAttr)
    memory = opt_prop_def(StringAttr)
    body = region_def("single_block")
    traits = traits_def(NoTerminator())

    @classmethod
    def of(
        cls, dim: str, lower: int, upper: int, step: int, body: Block, memory: str = ""
    ) -> LoopOp:
        """A loop around a block."""
        return cls.build(
            properties={
                "dim": StringAttr(dim),
                "lower": IntegerAttr(lower, i64),
                "upper": IntegerAttr(upper, i64),
                "step": IntegerAttr(step, i64),
                "memory": StringAttr(memory) if memory else None,
            },
            regions=[Region(body)],
        )

    @property
    def lower_bound(self) -> int:
        """First index, from the start of the enclosing interval."""
        return self.lower.value.data

    @property
    def upper_bound(self) -> int:
        """End of the indices, from the start of the enclosing interval."""
        return self.upper.value.data

    @property
    def step_size(self) -> int:
        """Size of the interval that an iteration gives to the dim."""
        return self.step.value.data

    def print(self, printer: Printer) -> None:
        """Print the operation."""
        printer.print_string(
            f" {syntax.quoted(self.dim.data)} {self.lower_bound} to {self.upper_bound} "
            f"step {self.step_size}"
        )
        if self.memory is not None:
            printer.print_string(f" for {syntax.quoted(self.memory.data)}")
        syntax.print_rest(printer, self, ("dim", "lower", "upper", "step", "memory"))
        syntax.print_body(printer, self.body)

    @classmethod
    def parse(cls, parser: PlainParser) -> LoopOp:
        """Read what ``print`` printed."""
        properties: dict[str, Attribute | None] = {"dim": StringAttr(parser.parse_str_literal())}
        properties["lower"] = IntegerAttr(syntax.parse_integer(parser), i64)
        parser.parse_keyword("to")
        properties["upper"] = IntegerAttr(syntax.parse_integer(parser), i64)
        parser.parse_keyword("step")
        properties["step"] = IntegerAttr(syntax.parse_integer(parser), i64)
        properties["memory"] = syntax.optional_plain(parser, "for")
        return syntax.finish(parser, cls, properties, region=True)

    def verify_(self) -> None:
        """Check the dim and the bounds."""
        from tilewright.tile.verify import check_loop

        check_loop(self)
