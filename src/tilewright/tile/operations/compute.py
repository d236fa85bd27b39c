"""The operations of computes and of their stages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir import (
    ArrayAttr,
    Attribute,
    Block,
    NoTerminator,
    PlainParser,
    Printer,
    Region,
    SSAValue,
    StringAttr,
    TensorType,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
)
from tilewright.tile import syntax
from tilewright.tile.attributes import WindowAttr
from tilewright.tile.operations.base import TileOperation


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
    names = opt_prop_def(ArrayAttr)
    """``[dim, name]`` pairs: the primitive's dims that have another name in the program, as those
    of two convolutions must."""
    body = region_def("single_block")
    traits = traits_def(NoTerminator())

    @classmethod
    def of(
        cls,
        primitive: str,
        engine: str,
        stages: Sequence[StageOp],
        output: SSAValue,
        options: Attribute | None = None,
    ) -> ComputeOp:
        """A compute of some stages by a primitive on its engine."""
        return cls.build(
            operands=[output],
            properties={
                "primitive": StringAttr(primitive),
                "engine": StringAttr(engine),
                "options": options,
            },
            regions=[Region(Block(stages))],
        )

    @property
    def stages(self) -> list[StageOp]:
        """The stages, in order."""
        return [op for op in self.body.block.ops if isinstance(op, StageOp)]

    @property
    def dim_names(self) -> dict[str, str]:
        """The program's names of the primitive's dims, where they differ."""
        return {str(dim): str(name) for dim, name in self.get("names", ())}

    @property
    def primitive_names(self) -> dict[str, str]:
        """The primitive's names of the program's dims, where they differ."""
        return {name: dim for dim, name in self.dim_names.items()}

    @property
    def dims(self) -> frozenset[str]:
        """The program's dims on which the stages depend."""
        windows = (window for stage in self.stages for window in stage.windows.data)
        return frozenset[str]().union(*(window.dims for window in windows))

    def print(self, printer: Printer) -> None:
        """Print the compute in the tile dialect's syntax."""
        printer.print_string(f" {syntax.quoted(self.primitive.data)}")
        printer.print_string(f" on {syntax.quoted(self.engine.data)} to ")
        printer.print_operand(self.output)
        syntax.print_optional(printer, self, "waits")
        if self.options is not None:
            printer.print_string(f" options {syntax.pairs_text(self.options)}")
        if self.names is not None:
            printer.print_string(f" dims {syntax.pairs_text(self.names)}")
        syntax.print_rest(printer, self, ("primitive", "engine", "waits", "options", "names"))
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
        if parser.parse_optional_keyword("dims"):
            properties["names"] = syntax.parse_pairs(parser)
        return syntax.finish(parser, cls, properties, [output], region=True)


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
        """The parameters of the operation's meaning beyond the windows, by name."""
        return dict(self.get("parameters", ()))

    def print(self, printer: Printer) -> None:
        """Print the stage in the tile dialect's syntax."""
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
