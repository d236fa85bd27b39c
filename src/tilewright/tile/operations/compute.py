"""The operations of computes and of their stages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

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
from tilewright.tile.operations.base import TextOperation


@irdl_op_definition
class ComputeOp(TextOperation):
    """Runs a primitive: the chain of stages in its region; the last one's value goes to ``output``.

    The first stage accumulates over the iterations of the reduction loops that stand between
    ``output``'s buffer (or the program, for a tensor in place) and this operation; the later
    stages apply once, when the reduction is complete.
    """

    name = "tile.compute"
    TEXT: ClassVar[str] = (
        "$primitive on $engine to %output [waits =waits] [options {options}] [dims {names}]"
    )
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


@irdl_op_definition
class StageOp(TextOperation):
    """One operation of the chain, on buffers, tensors in place, or an earlier stage's value.

    ``windows`` has one window per input and last that of the result, over the program's dims.
    The result's type is that of the whole tensor that the stage computes.
    """

    name = "tile.stage"
    TEXT: ClassVar[str] = "$operation ...windows [with {parameters}] [node $node] :"
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

    def print_own(self, printer: Printer) -> None:
        """Print ``(%x [n, ci], %w [co, ci]) to [n, co]``."""
        windows = self.windows.data
        for number, (value, window) in enumerate(zip(self.inputs, windows, strict=False)):
            printer.print_string(", " if number else "(")
            printer.print_operand(value)
            printer.print_string(f" {window}")
        printer.print_string(f") to {windows[-1]}")

    @classmethod
    def parse_own(cls, parser: PlainParser, found: syntax.Found) -> None:
        """Read what ``print_own`` printed."""

        def pair() -> tuple[SSAValue, WindowAttr]:
            return syntax.parse_value(parser), WindowAttr(WindowAttr.parse_axes(parser))

        pairs = parser.parse_comma_separated_list(parser.Delimiter.PAREN, pair)
        parser.parse_keyword("to")
        windows = [*(window for _, window in pairs), WindowAttr(WindowAttr.parse_axes(parser))]
        found.operands.append([value for value, _ in pairs])
        found.properties["windows"] = ArrayAttr(windows)
