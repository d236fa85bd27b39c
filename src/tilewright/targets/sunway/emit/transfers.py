"""Boxes of tensors and the DMA that moves them: a few C functions for each buffer of a layer.

    static struct box input_box(const struct tile *at)
    static int get_input(const struct PARA *para, const struct box *box, float *to, reply)

A box lies dense in LDM. In main memory its innermost axes are one contiguous block, if they are
whole but for the last; the axis around them gives one command of several blocks with a gap between,
and any further axis a loop of commands. So a box takes the fewest commands that descriptors say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.codegen.c.source import Writer, comment, plus
from tilewright.codegen.nest.span import Span, box
from tilewright.codegen.nest.value import Value, factor, product, variable
from tilewright.errors import refuse
from tilewright.ir.types import layout_of, shape_of
from tilewright.planning.domain import Affine
from tilewright.planning.layout import Layout
from tilewright.targets.sunway.emit.names import LayerNames
from tilewright.targets.sunway.emit.nest import PartNest
from tilewright.tile.dialect import BufferOp

RANK = 6
"""Axes that ``struct box`` has."""

MOST_GAP = (1 << 31) - 1
"""Bytes of the largest gap of a descriptor."""


@dataclass(frozen=True)
class Place:
    """A buffer: what C calls it, the box that it holds, and where its tensor lies."""

    name: str
    buffer: BufferOp
    axes: tuple[Span, ...]
    """Axes in the order of their strides in memory, outermost first, as the shape and strides."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """Strides of the tensor in main memory, in elements."""
    order: tuple[int, ...]
    """The tensor's axis that each of these is."""
    step_names: tuple[str, ...] = ()
    """C names of the strides in LDM, in elements, of axes whose stride depends on the tile."""
    exchanged: str = ""
    """``row`` or ``column``: whose CPEs fetch an eighth of the box each; with ``in turns``, one of
    them fetches it; ``all``: CPE 0 fetches it for all; "" if each fetches its own."""

    def ordered(self, window: Sequence[Affine]) -> tuple[Affine, ...]:
        """A window of the tensor, its axes as they lie in memory."""
        return tuple(window[axis] for axis in self.order)

    @property
    def share_axis(self) -> int:
        """The axis along which CPEs share the box: the outermost with several indices; -1 if there
        is none."""
        sizes = enumerate(axis.size for axis in self.axes)
        return next((number for number, size in sizes if size != 1), -1)

    @property
    def mesh_axis(self) -> str:
        """C of whose CPEs share the box."""
        return "ROW_OF_MESH" if self.exchanged.startswith("row") else "COLUMN_OF_MESH"

    @property
    def meets(self) -> bool:
        """True if CPEs of a row or column exchange the box."""
        return self.exchanged in ("row", "column")

    @property
    def turns(self) -> bool:
        """True if CPEs of a row or column fetch boxes in turns, and send them as they compute."""
        return self.exchanged.endswith("in turns")

    @property
    def share(self) -> Place:
        """The place of what one CPE fetches of a box that it shares."""
        axes = list(self.axes)
        axes[self.share_axis] = Span(variable("share"), variable("share"), 0, clipped=True)
        return replace(self, axes=tuple(axes))

    def empty(self, box: str) -> str:
        """C that holds where a box lies outside of the tensor; "" where none does."""
        clipped = (n for n, axis in enumerate(self.axes) if axis.clipped)
        return " || ".join(f"{box}n[{number}] <= 0" for number in clipped)

    @property
    def member(self) -> str:
        """The member of the layer's parameters that points to the tensor."""
        return self.name

    def size(self, axis: int, box: str) -> Value:
        """The box's extent along an axis."""
        whole = self.axes[axis].size
        return whole if isinstance(whole, int) else variable(f"{box}n[{axis}]")

    def start(self, axis: int, box: str) -> Value:
        """The box's first index along an axis."""
        begin = self.axes[axis].start
        return begin if isinstance(begin, int) else variable(f"{box}at[{axis}]")

    def steps(self, box: str) -> list[Value]:
        """The elements in LDM from one index of each axis to the next."""
        sizes = [self.size(axis, box) for axis in range(len(self.shape))]
        return [product(sizes[axis + 1 :]) for axis in range(len(sizes))]


def place_of(nest: PartNest, buffer: BufferOp, names: LayerNames) -> Place:
    """A buffer of a program; refuses what the target does not address."""
    tensor = buffer.tensor_op
    logical = shape_of(tensor.result)
    layout = Layout.parse(layout_of(tensor.result), len(logical))
    order = tuple(factor.axis for factor in layout.factors)
    if len(order) > RANK or any(f.modulus or f.divisor != 1 for f in layout.factors):
        raise refuse("lower-operand", f"{tensor.symbol.data} has a layout of {layout}")
    shape = tuple(logical[axis] for axis in order)
    strides = tuple(int(s) for s in tensor.get("strides", ())) or layout.strides(logical)
    block = buffer.parent_block()
    assert block is not None
    window = [buffer.window.data[axis] for axis in order]
    axes = box(window, shape, nest.spans(block, "at->"), nest.program.extents)
    steps = tuple(names.steps[buffer, axis] for axis in range(len(axes)))
    place = Place(names.buffers[buffer], buffer, tuple(axes), shape, strides, order, steps)
    exchanged = dict(nest.program.get("exchanged", ())).get(tensor.symbol.data, "")
    shared = exchanged not in ("row", "column") or place.share_axis >= 0
    return replace(place, exchanged=exchanged) if shared else place


def box_function(place: Place) -> str:
    """C that gives the box of a tile."""
    writer = Writer()
    window = ", ".join(map(str, place.ordered(place.buffer.window.data)))
    tensor = comment(place.buffer.tensor_op.symbol.data)
    writer.line(f"/* The box of {tensor} that a tile needs: [{window}]. */")
    with writer.block(f"static struct box {place.name}_box(const struct tile *at)"):
        if not any("at->" in f"{axis.start} {axis.end}" for axis in place.axes):
            writer.line("(void)at;")
        starts = ", ".join(str(axis.start) for axis in place.axes)
        sizes = ", ".join("0" if axis.clipped else str(axis.size) for axis in place.axes)
        writer.line(f"struct box box = {{.at = {{{starts}}},")
        writer.line(f"                  .n = {{{sizes}}}}};")
        for number, axis in enumerate(place.axes):
            if axis.clipped:
                writer.line(f"box.n[{number}] = {axis.end} - box.at[{number}];")
        writer.line("return box;")
    return str(writer)


def transfer_function(place: Place, layer: str, *, get: bool) -> str:
    """C that starts the DMA of a box, and returns how many commands that took."""
    writer = Writer()
    tensor = comment(place.buffer.tensor_op.symbol.data)
    if get:
        writer.line(f"/* Fetches a box of {tensor} from main memory. */")
        name, pointer = f"get_{place.name}", "float *to"
    else:
        writer.line(f"/* Writes a box of {tensor} to main memory. */")
        name, pointer = f"put_{place.name}", "const float *from"
    shared = get and place.meets
    box = "whole" if shared else "box"
    head = f"static int {name}(const struct {layer}_para *para, const struct box *{box},"
    writer.line(head)
    with writer.block(" " * (head.index("(") + 1) + f"{pointer}, volatile int *reply)"):
        if shared:
            axis = place.share_axis
            step = factor(place.steps("whole->")[axis])
            writer.line(
                f"/* An eighth of it: the other CPEs of the {place.exchanged} fetch the rest. */"
            )
            writer.line(f"const struct box own = share_of(whole, {axis}, {place.mesh_axis});")
            writer.line("const struct box *box = &own;")
            writer.line(f"to += (own.at[{axis}] - whole->at[{axis}]) * {step};")
        start = len(writer.lines)
        _commands(writer, place.share if shared else place, get=get)
        if not any("box->" in line for line in writer.lines[start:]):
            writer.lines.insert(start, "    (void)box;")
    return str(writer)


def exchange_function(place: Place) -> str:
    """C that gives the CPEs of a row or column this one's share of a box, and takes theirs."""
    writer = Writer()
    axis = place.share_axis
    tensor = comment(place.buffer.tensor_op.symbol.data)
    writer.line(f"/* Gets the rest of {tensor} from the other CPEs of the {place.exchanged}. */")
    with writer.block(f"static void exchange_{place.name}(const struct box *box, float *data)"):
        empty = place.empty("box->")
        count, size = place.size(axis, "box->"), place.steps("box->")[axis]
        if empty:
            writer.line(f"if ({empty})")
            writer.line("    return;")
        elif "box->" not in f"{count} {size}":
            writer.line("(void)box;")
        writer.line(f"exchange({place.mesh_axis}, data, {count}, {size});")
    return str(writer)


def _commands(writer: Writer, place: Place, *, get: bool) -> None:
    run, outer = _run(place)
    block = product(place.size(axis, "box->") for axis in run)
    strided = outer[-1] if outer else None
    alike = _equally_spaced(place, outer)
    loops = outer[: len(outer) - len(alike)]
    writer.line(f"const long block = {block};")
    count = product(place.size(axis, "box->") for axis in alike)
    gap = 0 if strided is None else place.strides[strided] - variable("block")
    if strided is not None and place.strides[strided] * 4 > MOST_GAP:
        raise refuse(
            "lower-descriptor",
            f"blocks of {place.buffer.tensor_op.symbol.data} lie "
            f"{place.strides[strided] * 4} bytes apart; a descriptor has 31 bits for it",
            help="a smaller tensor, or another layout",
        )
    empty = place.empty("box->")
    writer.line("*reply = 0;")
    mode, mask = "PE_MODE", "0"
    if get and place.exchanged == "all":
        mode, mask = "BCAST_MODE", "0xff"
        writer.line("if (athread_get_id(-1) != 0)")
        writer.line("    return 0; /* CPE 0 fetches it for all. */")
    if empty:
        writer.line(f"if ({empty})")
        writer.line("    return 0;")
    depth = writer.depth
    ldm, memory = "to" if get else "from", f"para->{place.member}"
    inside: Value = 0
    outside = sum(place.start(axis, "box->") * stride for axis, stride in enumerate(place.strides))
    steps = place.steps("box->")
    for axis in loops:
        name = variable(f"i{axis}")
        writer.line(f"for (long {name} = 0; {name} < {place.size(axis, 'box->')}; {name}++)")
        writer.depth += 1
        outside += name * place.strides[axis]
        inside += name * steps[axis]
    far, near = plus(memory, str(outside)), plus(ldm, str(inside))
    bytes_ = product((count, variable("block"), 4))
    stride, length = (0, "0") if count == 1 else (f"({gap}) * 4", "block * 4")
    if get:
        writer.line(f"athread_get({mode}, (void *)({far}), {near},")
        writer.line(f"            {bytes_}, (void *)reply, {mask}, {stride}, {length});")
    else:
        writer.line(f"athread_put(PE_MODE, (void *)({near}), {far},")
        writer.line(f"            {bytes_}, (void *)reply, {stride}, {length});")
    writer.depth = depth
    writer.line(f"return {product(place.size(axis, 'box->') for axis in loops)};")


def _run(place: Place) -> tuple[list[int], list[int]]:
    """The axes that are one contiguous block, and those around it that are more than one index."""
    run: list[int] = []
    expected, whole = 1, True
    outer: list[int] = []
    for axis in reversed(range(len(place.shape))):
        size = place.axes[axis]
        fixed = size.size
        if fixed == 1:
            # One index: it takes no part, but nothing around it is contiguous if it is cut.
            whole = whole and place.shape[axis] == 1
            expected *= place.shape[axis]
            continue
        if whole and not outer and place.strides[axis] == expected:
            run.insert(0, axis)
            expected *= place.shape[axis]
            whole = fixed == place.shape[axis]
        else:
            outer.insert(0, axis)
    return run, outer


def _equally_spaced(place: Place, outer: Sequence[int]) -> list[int]:
    """Return the innermost axes around a block whose blocks make one command: each axis that is
    whole ends where the next index of the one around it begins."""
    alike = [*outer[-1:]]
    for axis in reversed(outer[:-1]):
        whole = place.axes[alike[0]].size == place.shape[alike[0]]
        if not whole or place.strides[axis] != place.strides[alike[0]] * place.shape[alike[0]]:
            break
        alike.insert(0, axis)
    return alike
