"""Programs, their tensors, loops, and the domains of stages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, cast

from tilewright.ir import (
    ArrayAttr,
    Block,
    IntegerAttr,
    IsolatedFromAbove,
    NoTerminator,
    PlainParser,
    Printer,
    PythonValue,
    Region,
    StringAttr,
    TensorType,
    integer,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    to_attribute,
    traits_def,
)
from tilewright.planning.domain import Affine
from tilewright.tile import syntax
from tilewright.tile.attributes import WindowAttr
from tilewright.tile.operations.base import TextOperation, TileOperation


@irdl_op_definition
class ProgramOp(TextOperation):
    """One kernel on one machine: tensors first, then loops."""

    name = "tile.program"
    TEXT: ClassVar[str] = (
        "$symbol on $machine ...dims,reduction [levels =levels] [slots =slots] [shared $shared] "
        "[exchanged =exchanged] [rooms =rooms] [nodes *nodes]"
    )
    symbol = prop_def(StringAttr)
    machine = prop_def(StringAttr)
    dims = prop_def(ArrayAttr)
    """``[name, extent]`` of every dim of the anchor; the reduction dims come last."""
    reduction = prop_def(ArrayAttr)
    """Names of the reduction dims."""
    nodes = prop_def(ArrayAttr)
    """Names of the model's nodes."""
    slots = opt_prop_def(ArrayAttr)
    """``[operand, slots]``, or ``[operand, slots, memory]`` for a buffer on the way to the
    primitive's memory: the buffering that the schedule asks for; see double-buffer."""
    levels = opt_prop_def(ArrayAttr)
    """Memories of the schedule's levels, outermost first; see place-moves."""
    shared = opt_prop_def(StringAttr)
    """The dim whose outermost loop the machine's cores share, or several with spaces between, whose
    outermost loops they share as one; absent: one core runs it all."""
    exchanged = opt_prop_def(ArrayAttr)
    """``[operand, axis]``: what the cores of a ``row`` or ``column`` of the mesh need alike; each
    loads a share of it, and gets the others' from them. The meaning of its moves is unchanged."""
    rooms = opt_prop_def(ArrayAttr)
    """``[memory, bytes]``: the first bytes of a memory, to which buffers keep, since tensors stay
    after them for other kernels; the buffers of such tensors lie there."""
    groups = opt_prop_def(StringAttr)
    """Name of the rule that puts commands into groups, each of which begins when the one before it
    has ended (``queues.GROUPINGS``); absent: commands wait for what they depend on, no more."""
    issuer = opt_prop_def(StringAttr)
    """Name of the engine that gives the others their commands, in the order of the text
    (tile/issued.py); absent: each engine has a queue that fills by itself."""
    body = region_def("single_block")
    traits = traits_def(IsolatedFromAbove(), NoTerminator())

    @property
    def issuer_name(self) -> str:
        """The issuer; "" where there is none."""
        return "" if self.issuer is None else self.issuer.data

    @property
    def extents(self) -> dict[str, int]:
        """Extent of every dim."""
        return {str(name): int(extent) for name, extent in self.get("dims", ())}

    @property
    def reduction_dims(self) -> tuple[str, ...]:
        """Names of the reduction dims."""
        return cast("tuple[str, ...]", self.get("reduction", ()))

    @property
    def room_of(self) -> dict[str, int]:
        """Bytes that buffers may take of each memory in which tensors stay after them."""
        return {str(memory): int(size) for memory, size in self.get("rooms", ())}

    @property
    def tensors(self) -> dict[str, TensorOp]:
        """The tensors by name."""
        return {op.symbol.data: op for op in self.body.block.ops if isinstance(op, TensorOp)}

    def print_own(self, printer: Printer) -> None:
        """Print the dims: ``[n 1, co 64 | ci 64]``."""
        reduction = self.reduction_dims
        parallel = [f"{dim} {n}" for dim, n in self.extents.items() if dim not in reduction]
        reduced = [f"{dim} {n}" for dim, n in self.extents.items() if dim in reduction]
        text = ", ".join(parallel) + (" | " + ", ".join(reduced) if reduced else "")
        printer.print_string(f" [{text.strip()}]")

    @classmethod
    def parse_own(cls, parser: PlainParser, found: syntax.Found) -> None:
        """Read what ``print_own`` printed."""
        dims: list[PythonValue] = []
        reduction: list[PythonValue] = []
        reduced = False
        parser.parse_punctuation("[")
        if not parser.parse_optional_punctuation("]"):
            while True:
                if not reduced and parser.parse_optional_punctuation("|"):
                    reduced = True
                name = parser.parse_identifier("the name of a dim is expected here")
                dims.append((name, syntax.parse_integer(parser)))
                if reduced:
                    reduction.append(name)
                if not reduced and parser.parse_optional_punctuation("|"):
                    reduced = True
                elif not parser.parse_optional_punctuation(","):
                    break
            parser.parse_punctuation("]")
        found.properties["dims"] = to_attribute(dims)
        found.properties["reduction"] = to_attribute(reduction)


@irdl_op_definition
class TensorOp(TileOperation):
    """A tensor in main memory: a kernel's input, weight or output; or one of role ``internal``,
    which one compute of the program makes and another reads: it lies in buffers alone.

    ``arena`` names the allocation (``activations``, ``weights``); ``offset`` is in bytes,
    ``strides`` in elements per axis of the physical layout (absent: dense). ``memory`` is that
    which holds it, if that is not the main memory.
    """

    name = "tile.tensor"
    symbol = prop_def(StringAttr)
    role = prop_def(StringAttr)
    arena = opt_prop_def(StringAttr)
    offset = opt_prop_def(IntegerAttr)
    strides = opt_prop_def(ArrayAttr)
    memory = opt_prop_def(StringAttr)
    result = result_def(TensorType)
    assembly_format: ClassVar[str | None] = "$symbol attr-dict `:` type($result)"


@irdl_op_definition
class LoopOp(TextOperation):
    """Runs its body for ``dim`` in ``[i, min(i + step, upper))``, i = lower, lower + step, ...

    Bounds are within the interval that an enclosing loop over the same dim gives: there, ``lower``
    and ``upper`` are relative to that interval's start, and ``upper`` is cut at its end.
    ``memory`` names the schedule's level that the loop belongs to.
    """

    name = "tile.loop"
    TEXT: ClassVar[str] = "$dim #lower to #upper step #step [for $memory]"
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
                "lower": integer(lower),
                "upper": integer(upper),
                "step": integer(step),
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


@irdl_op_definition
class DomainOp(TextOperation):
    """Runs its body once, with each of ``dims`` in the interval that its expression spans here.

    The expressions are over the dims around it, and are cut at the dim's extent: these are the
    indices of an internal tensor that a later compute reads, padding left out. So the tile of an
    earlier stage follows from that of a later one, halo included. Where nothing but padding is
    read, an interval is empty, and the body does not run. Of ``sliding`` dims, an interval begins
    where that of the run before ended, within one run of the loop around: the rest is kept.
    """

    name = "tile.domain"
    TEXT: ClassVar[str] = "...dims,window [sliding =sliding]"
    dims = prop_def(ArrayAttr[StringAttr])
    window = prop_def(WindowAttr)
    """One expression for each of ``dims``."""
    sliding = opt_prop_def(ArrayAttr[StringAttr])
    """The dims of which a run leaves to the next what both need."""
    body = region_def("single_block")
    traits = traits_def(NoTerminator())

    @classmethod
    def of(cls, bound: Mapping[str, Affine], body: Block) -> DomainOp:
        """A domain around a block; ``bound`` has the expressions by dim."""
        return cls.build(
            properties={
                "dims": ArrayAttr([StringAttr(dim) for dim in bound]),
                "window": WindowAttr(tuple(bound.values())),
            },
            regions=[Region(body)],
        )

    @property
    def bound(self) -> dict[str, Affine]:
        """The expressions by dim."""
        names = [name.data for name in self.dims.data]
        return dict(zip(names, self.window.data, strict=True))

    @property
    def sliding_dims(self) -> tuple[str, ...]:
        """The dims along which the domain slides."""
        return cast("tuple[str, ...]", self.get("sliding", ()))

    def print_own(self, printer: Printer) -> None:
        """Print ``[oh_1 = oh + kh - 1]``."""
        pairs = ", ".join(f"{dim} = {axis}" for dim, axis in self.bound.items())
        printer.print_string(f" [{pairs}]")

    @classmethod
    def parse_own(cls, parser: PlainParser, found: syntax.Found) -> None:
        """Read what ``print_own`` printed."""

        def pair() -> tuple[str, Affine]:
            name = parser.parse_identifier("the name of a dim is expected here")
            parser.parse_punctuation("=")
            return name, WindowAttr.parse_axis(parser)

        pairs = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, pair)
        found.properties["dims"] = ArrayAttr([StringAttr(name) for name, _ in pairs])
        found.properties["window"] = WindowAttr(tuple(axis for _, axis in pairs))


Scope = LoopOp | DomainOp
"""An operation that gives dims their intervals within its body."""
