"""The tile dialect: a kernel as loops over tiles, buffers, asynchronous moves and primitives.

    tile.program "conv1" attributes {machine = "m", dims = [["n", 1], ["co", 64], ...], ...} {
      %x = tile.tensor "x" {role = "input", ...} : tensor<1x64x56x56x...>
      %w = tile.tensor "w" ...
      %y = tile.tensor "y" ...
      tile.loop "co" 0 to 64 step 16 {
        %bw = tile.buffer "w" of %w in "sb" [co, ci, kh, kw] ...
        tile.move %w to %bw
        tile.loop "oh" 0 to 56 step 4 {
          %bx = tile.buffer "x" of %x in "nbin" [n, ci, oh + kh - 1, ow + kw - 1] ...
          tile.move %x to %bx
          %by = tile.buffer "y" of %y in "nbout" [n, co, oh, ow] ...
          tile.compute "convolution" to %by {
            %1 = tile.stage "conv" (%bx, %bw) [[n, ci, oh + kh - 1, ...], [...], [n, co, oh, ow]]
            %2 = tile.stage "relu" (%1) ...
          }
          tile.move %by to %y
        }
      }
    }

**Dims are bound by the enclosing loops.** A loop over dim ``oh`` gives ``oh`` the interval
``[i, min(i + step, upper))`` within its body; nested loops over one dim refine it; a dim without a
loop runs through its whole extent. A *window* (one affine expression per tensor axis) seen in
these intervals is a box of the tensor: so where a tile lies, where the next one will lie, and how
an edge tile shrinks can be read off one operation.

**A buffer holds the box of its window for one iteration of the loop in which it stands.** Inner
loops address parts of it. What of the box lies outside the tensor is padding and takes no part in
moves. With two slots, successive iterations take turns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from tilewright.ir import (
    ArrayAttr,
    Attribute,
    AttrParser,
    Data,
    Dialect,
    IntegerAttr,
    IRDLOperation,
    IsolatedFromAbove,
    NoTerminator,
    Operation,
    ParametrizedAttribute,
    ParsePropInAttrDict,
    Printer,
    PythonValue,
    SSAValue,
    StringAttr,
    TensorType,
    TypeAttribute,
    UnitAttr,
    VerifyException,
    from_attribute,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    param_def,
    prop_def,
    region_def,
    result_def,
    to_attribute,
    traits_def,
    var_operand_def,
)
from tilewright.planning.domain import Affine, Interval
from tilewright.types import TYPES


@irdl_attr_definition
class WindowAttr(Data[tuple[Affine, ...]]):
    """One affine expression of the dims per axis of a tensor."""

    name = "tile.window"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[Affine, ...]:
        """Read ``<"n, ci, oh*2 + kh - 3">``."""
        with parser.in_angle_brackets():
            text = parser.parse_str_literal()
            try:
                return tuple(Affine.parse(part) for part in text.split(",")) if text else ()
            except ValueError as error:
                parser.raise_error(str(error))

    def print_parameter(self, printer: Printer) -> None:
        """Print what ``parse_parameter`` reads."""
        with printer.in_angle_brackets():
            printer.print_string_literal(str(self))

    def __str__(self) -> str:
        return ", ".join(str(axis) for axis in self.data)

    def box(self, dims: Mapping[str, Interval]) -> tuple[Interval, ...]:
        """Start and size along each axis, padding included, for dims in their intervals."""
        return tuple(axis.interval(dims) for axis in self.data)


@irdl_attr_definition
class BufferType(ParametrizedAttribute, TypeAttribute):
    """A buffer in ``memory`` that holds a box of a tensor of type ``of``."""

    name = "tile.buffer"
    memory: StringAttr = param_def()
    of: TensorType[Attribute] = param_def()


class _TileOperation(IRDLOperation):
    irdl_options = (ParsePropInAttrDict(),)

    def get(self, name: str, default: PythonValue = 0) -> Any:
        """The plain value of a property, or ``default`` when it is absent."""
        attribute = self.properties.get(name)
        return default if attribute is None else from_attribute(attribute)

    def set(self, name: str, value: PythonValue) -> None:
        """Set a property to a plain value."""
        self.properties[name] = to_attribute(value)


@irdl_op_definition
class ProgramOp(_TileOperation):
    """One kernel on one machine: tensors first, then loops."""

    name = "tile.program"
    symbol = prop_def(StringAttr)
    machine = prop_def(StringAttr)
    dims = prop_def(ArrayAttr)
    """``[name, extent]`` of every dim of the anchor, in order."""
    reduction = prop_def(ArrayAttr)
    """Names of the reduction dims."""
    nodes = prop_def(ArrayAttr)
    """Names of the model's nodes."""
    body = region_def("single_block")
    traits = traits_def(IsolatedFromAbove(), NoTerminator())
    assembly_format: ClassVar[str | None] = "$symbol attr-dict-with-keyword $body"

    @property
    def extents(self) -> dict[str, int]:
        """Extent of every dim."""
        return {str(name): int(extent) for name, extent in self.get("dims", ())}

    @property
    def tensors(self) -> dict[str, TensorOp]:
        """The tensors by name."""
        return {op.symbol.data: op for op in self.body.block.ops if isinstance(op, TensorOp)}


@irdl_op_definition
class TensorOp(_TileOperation):
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


@irdl_op_definition
class BufferOp(_TileOperation):
    """A buffer for the box that ``window`` spans here; see the module's text.

    ``shape`` is the largest box, ``address`` and ``bytes`` (of one slot) are set by allocate.
    ``accumulates`` marks an output whose reduction is split over several computes: it holds
    accumulators until the last.
    """

    name = "tile.buffer"
    symbol = prop_def(StringAttr)
    tensor = operand_def(TensorType)
    window = prop_def(WindowAttr)
    slots = prop_def(IntegerAttr)
    shape = opt_prop_def(ArrayAttr)
    address = opt_prop_def(IntegerAttr)
    bytes = opt_prop_def(IntegerAttr)
    accumulates = opt_prop_def(UnitAttr)
    result = result_def(BufferType)
    assembly_format: ClassVar[str | None] = (
        "$symbol `of` $tensor attr-dict `:` type($tensor) `->` type($result)"
    )

    @property
    def memory(self) -> str:
        """Name of the memory that holds the buffer."""
        return self.result.type.memory.data


@irdl_op_definition
class MoveOp(_TileOperation):
    """Copies the buffer's box between its tensor and the buffer, asynchronously.

    ``engine`` runs it. ``joined`` moves travel in one transfer with the move before them. ``waits``
    lists what must have happened first: ``ready NAME`` (the buffer's or tensor's content is
    there), ``free NAME`` (whoever used the buffer's slot before is done).
    """

    name = "tile.move"
    source = operand_def()
    target = operand_def()
    engine = prop_def(StringAttr)
    joined = opt_prop_def(UnitAttr)
    waits = opt_prop_def(ArrayAttr)
    assembly_format: ClassVar[str | None] = (
        "$source `to` $target attr-dict `:` type($source) `to` type($target)"
    )

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


@irdl_op_definition
class ComputeOp(_TileOperation):
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
    assembly_format: ClassVar[str | None] = (
        "$primitive `to` $output `:` type($output) attr-dict-with-keyword $body"
    )

    @property
    def stages(self) -> list[StageOp]:
        """The stages, in order."""
        return [op for op in self.body.block.ops if isinstance(op, StageOp)]


@irdl_op_definition
class StageOp(_TileOperation):
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
    assembly_format: ClassVar[str | None] = (
        "$operation ` ` `(` ($inputs^)? `)` attr-dict `:` functional-type($inputs, $result)"
    )


@irdl_op_definition
class LoopOp(_TileOperation):
    """Runs its body for ``dim`` in ``[i, min(i + step, upper))``, i = lower, lower + step, ...

    Bounds are within the interval that an enclosing loop over the same dim gives: there, ``lower``
    and ``upper`` are relative to that interval's start, and ``upper`` is cut at its end.
    """

    name = "tile.loop"
    dim = prop_def(StringAttr)
    lower = prop_def(IntegerAttr)
    upper = prop_def(IntegerAttr)
    step = prop_def(IntegerAttr)
    body = region_def("single_block")
    traits = traits_def(NoTerminator())
    assembly_format: ClassVar[str | None] = "$dim attr-dict-with-keyword $body"


TILE = Dialect(
    "tile",
    [ProgramOp, TensorOp, BufferOp, MoveOp, ComputeOp, StageOp, LoopOp],
    [WindowAttr, BufferType],
)
"""The dialect, for a context."""


def enclosing_loops(op: Operation | None) -> list[LoopOp]:
    """The loops around an operation, outermost first."""
    loops: list[LoopOp] = []
    while op is not None:
        op = op.parent_op()
        if isinstance(op, LoopOp):
            loops.append(op)
    return loops[::-1]


def buffer_of(value: SSAValue) -> BufferOp | None:
    """The buffer that a value names, or None for a tensor or a stage's value."""
    return value.owner if isinstance(value.owner, BufferOp) else None


def windows_of(stage: StageOp) -> Sequence[WindowAttr]:
    """The windows of a stage: its inputs', then its result's."""
    return stage.windows.data


__all__ = [
    "TILE",
    "TYPES",
    "Attribute",
    "BufferOp",
    "BufferType",
    "ComputeOp",
    "LoopOp",
    "MoveOp",
    "ProgramOp",
    "StageOp",
    "TensorOp",
    "WindowAttr",
    "buffer_of",
    "enclosing_loops",
    "windows_of",
]
