"""A tile program as a function in HIVM: its loops, buffers, moves and computes, in its order.

    tile.loop                      scf.for; sizes of edge tiles are arith.minsi
    tile.buffer in cbuf, cc, ub    memref.alloc, of blocks of 16 x 16 in cbuf and cc; slots are
                                   ``hivm.multi_buffer``
    tile.move                      hivm.hir.nd2nz, load, store, and fixpipe with the conversion
                                   and relu of the stages after a product
    tile.compute                   hivm.hir.mmadL1, which moves from L1 to L0 itself, or what
                                   vectors.py says

Addresses and flags are left out: AscendNPU-IR's passes ``hivm-plan-memory`` and
``hivm-inject-sync`` add them, as they do for every front-end of that dialect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tilewright.codegen.c.source import comment
from tilewright.codegen.nest.nest import Nest
from tilewright.codegen.nest.span import Span
from tilewright.codegen.nest.value import Value, variable
from tilewright.errors import TilewrightError, refuse
from tilewright.graph.names import identifier
from tilewright.ir import Block, SSAValue
from tilewright.ir.types import element_name, layout_of, shape_of, tensor_type
from tilewright.planning.layout import Layout
from tilewright.targets.ascend.hivm.convolutions import Convolution
from tilewright.targets.ascend.hivm.depthwise import Depthwise
from tilewright.targets.ascend.hivm.machine import UB
from tilewright.targets.ascend.hivm.pools import Pool
from tilewright.targets.ascend.hivm.vectors import Vectors
from tilewright.targets.ascend.hivm.views import ELEMENTS, Text, View, dense, strided
from tilewright.targets.ascend.hivm.windows import Home, Spans, Windows
from tilewright.targets.ascend.machine import ASCEND_910B1, CUBE
from tilewright.tile.attributes import WindowAttr
from tilewright.tile.dialect import (
    BufferOp,
    ComputeOp,
    LoopOp,
    MoveOp,
    ProgramOp,
    StageOp,
    TensorOp,
    windows_of,
)

WINDOWS: dict[str, type[Windows]] = {
    "conv": Convolution,
    "depthwise_conv": Depthwise,
    "max_pool": Pool,
    "average_pool": Pool,
}
"""Operation -> what it says of windows."""

ROOM = {"cbuf": ASCEND_910B1.l1, "ub": UB}
"""The capacity of the memories, in bytes."""


def function_text(program: ProgramOp, name: str) -> str:
    """The function of a kernel; raises TilewrightError for what the dialect cannot say here."""
    return _Function(program, name).text()


@dataclass
class _Function:
    program: ProgramOp
    name: str
    body: Text = field(default_factory=Text)
    tensors: dict[SSAValue, View] = field(default_factory=dict[SSAValue, View])
    homes: dict[SSAValue, Home] = field(default_factory=dict[SSAValue, Home])
    cube: bool = False
    """True if it runs on a cube core."""
    windows: Windows | None = None
    """The emitter of operations on windows of images; None for other operations."""

    def text(self) -> str:
        """Return the whole function as text."""
        computes = [op for op in self.program.walk() if isinstance(op, ComputeOp)]
        if len(computes) != 1:
            raise self.refusal(
                "lower-chain", "a kernel of several computes needs both kinds of core"
            )
        anchor = computes[0].stages[0]
        self.cube = anchor.operation.data in ("matmul", "conv")
        if anchor.operation.data in WINDOWS:
            self.windows = WINDOWS[anchor.operation.data](self.body, anchor, self.program.extents)
        tensors = [op for op in self.program.body.block.ops if isinstance(op, TensorOp)]
        for op in tensors:
            self.tensors[op.result] = self._tensor(op)
        self.nest = Nest(self.program, lambda name: self.body.name(name).removeprefix("%"))
        self._block(self.program.body.block, ())
        parameters = ", ".join(f"{v.name}: {v.type}" for v in self.tensors.values())
        core = "AIC" if self.cube else "AIV"
        nodes = ", ".join(str(node) for node in self.program.get("nodes", ()))
        return "\n".join(
            [
                f"  // {comment(nodes or self.program.symbol.data)}",
                f"  func.func @{self.name}({parameters})",
                "      attributes {hacc.entry, hacc.function_kind = #hacc.function_kind<DEVICE>, "
                f"hivm.func_core_type = #hivm.func_core_type<{core}>}} {{",
                *(f"    {name} = {value}" for value, name in self.body.constants.items()),
                *self.body.lines,
                "    return",
                "  }",
            ]
        )

    def refusal(self, code: str, reason: str, help: str = "") -> TilewrightError:
        """A refusal that names the model's nodes."""
        nodes = ", ".join(str(node) for node in self.program.get("nodes", ()))
        return refuse(code, reason, nodes or self.program.symbol.data, help)

    def _tensor(self, op: TensorOp) -> View:
        name = element_name(tensor_type(op.result).element_type)
        shape = shape_of(op.result)
        order = axis_order(op.result)
        if name not in ELEMENTS or not shape:
            reason = f"{op.symbol.data} has elements of {name} and {len(shape)} axes"
            raise self.refusal("lower-operation", reason)
        if order is None:
            raise self.refusal("lower-layout", f"{op.symbol.data} lies in blocks")
        shape = tuple(shape[axis] for axis in order)
        steps = tuple(op.get("strides", ())) or dense(shape)
        layout = "" if steps == dense(shape) else strided(steps)
        return View(self.body.name(op.role.data), shape, steps, ELEMENTS[name], "gm", layout)

    def _block(self, block: Block, summed: tuple[Value, ...]) -> None:
        spans = self.nest.spans(block, "%")
        for op in block.ops:
            if isinstance(op, LoopOp):
                self._loop(op, summed)
            elif isinstance(op, BufferOp):
                self._buffer(op, spans)
            elif isinstance(op, MoveOp):
                self._move(op)
            elif isinstance(op, ComputeOp):
                self._compute(op, spans, summed)
            elif not isinstance(op, TensorOp):
                raise self.refusal("lower-operation", f"there is no kernel with {op.name}")

    def _loop(self, op: LoopOp, summed: tuple[Value, ...]) -> None:
        dim, loop, body = op.dim.data, self.nest.loops[op], self.body
        nested = self.windows is not None and dim in self.windows.nested
        if loop.outer is not None and not nested:
            raise self.refusal("lower-operation", f"two loops over {dim}")
        bounds = [body.index(value) for value in (loop.start("%"), loop.end("%"), loop.step)]
        body.enter(f"scf.for %{loop.name} = {bounds[0]} to {bounds[1]} step {bounds[2]}")
        if not isinstance(loop.size("%"), int):
            body.named(f"%{loop.name}_n", loop.size("%"))
        if dim in self.program.reduction_dims:
            summed = (*summed, variable(f"%{loop.name}"))
        self._block(op.body.block, summed)
        body.leave()

    def _axes(self, window: WindowAttr, value: SSAValue, what: str) -> list[str]:
        """The dim that each axis of a value runs along, as they lie in main memory; "" where it has
        one index."""
        dims: list[str] = []
        for place in axis_order(value) or ():
            axis = window.data[place]
            terms = [(dim, c) for dim, c in axis.terms if c]
            if axis.offset or len(terms) > 1 or any(c != 1 for _, c in terms):
                raise self.refusal("lower-layout", f"{what} is read by windows or strides")
            dims.append(terms[0][0] if terms else "")
        return dims

    def _buffer(self, op: BufferOp, spans: Spans) -> None:
        frame: tuple[str, ...] = ()
        element = "f32" if op.memory == "cc" else self.tensors[op.tensor_op.result].element
        hint = f"{op.tensor_op.role.data}_{op.memory}"
        if self.windows is not None and not self._is_bias(op):
            role, slots = op.tensor_op.role.data, op.slot_count
            if role == "input":
                slots = self._slots(op, self.windows, spans)
            whole = self.windows.allocated(hint, role, spans, slots, element)
            self.homes[op.result] = Home(op.tensor_op.result, whole, dict(spans))
            return
        if op.memory == "ub":
            frame = self._frame_of(op)
            most = [spans[dim].most if dim in self._axes_of(op) else 1 for dim in frame]
        elif self._is_bias(op):
            (dim,) = self._axes_of(op)
            most = [spans[dim].most if dim else 1]
        else:
            rows, columns = self._matrix(op)
            blocks = [-(-spans[dim].most // CUBE) if dim else 1 for dim in (columns, rows)]
            most = [*blocks, CUBE, CUBE]
        slots = op.slot_count
        whole = self.body.allocated(hint, most, element, op.memory, slots)
        self.homes[op.result] = Home(op.tensor_op.result, whole, dict(spans), frame)

    def _slots(self, op: BufferOp, windows: Windows, spans: Spans) -> int:
        """Slots of an image's tile, whose padding the tile program does not count: as many as there
        is room for beside the other buffers."""
        others = [
            other.bytes.value.data * other.places
            for other in self.program.walk()
            if isinstance(other, BufferOp)
            and other is not op
            and other.memory == op.memory
            and other.bytes is not None
        ]
        size, room = windows.image_bytes(spans), ROOM[windows.space] - sum(others)
        most = (room - windows.temporary_bytes(spans)) // size
        if most < 1:
            raise self.refusal(
                "lower-place",
                f"{op.symbol.data}'s tile has {size} bytes with its padding, and there is no room "
                f"in {windows.space}",
                "fewer pads, or a smaller window",
            )
        return min(op.slot_count, most)

    def _axes_of(self, op: BufferOp) -> list[str]:
        return self._axes(op.window, op.tensor_op.result, op.symbol.data)

    def _frame(self) -> tuple[str, ...]:
        """The dims of a vector kernel's result, by its axes: every operand in UB has as many."""
        last = self._stages()[-1]
        return tuple(self._axes(windows_of(last)[-1], last.result, "the result"))

    def _frame_of(self, op: BufferOp) -> tuple[str, ...]:
        """The dims of the axes of a buffer in UB: rows of the tensor are rows there."""
        frame = list(self._frame())
        kept = [dim for dim in self._axes_of(op) if dim]
        if kept and kept[-1] != max(kept, key=frame.index):
            row, last = frame.index(kept[-1]), len(frame) - 1
            frame[row], frame[last] = frame[last], frame[row]
        return tuple(frame)

    def _is_bias(self, op: BufferOp) -> bool:
        return op.get("role", "") == "bias" and op.memory == "cbuf"

    def _matrix(self, op: BufferOp) -> tuple[str, str]:
        """The dims of rows and columns of a matrix."""
        axes = self._axes_of(op)
        if len(axes) < 2:
            raise self.refusal("lower-rank", f"{op.symbol.data} is no matrix")
        return axes[-2], axes[-1]

    def _tile(self, op: BufferOp, spans: Spans, kept: Sequence[int]) -> View:
        """Return the view in main memory of what a buffer holds, along the axes that are kept."""
        tensor = self.tensors[op.tensor_op.result]
        places = [spans[dim] if dim else Span(0, 1, 1) for dim in self._axes_of(op)]
        for axis, place in enumerate(places):
            if axis not in kept and place.size != 1:
                raise self.refusal("lower-layout", "a tile holds several matrices")
        starts, sizes = [place.start for place in places], [place.size for place in places]
        return self.body.part(tensor, starts, sizes, kept)

    def _move(self, op: MoveOp) -> None:
        buffer = op.buffer
        if op.outer not in self.tensors:
            raise self.refusal("lower-operation", "a move between two memories of the chip")
        home = self.homes[buffer.result]
        if self.windows is not None and not self._is_bias(buffer):
            tensor = self.tensors[op.outer]
            if op.loads:
                self.windows.load(buffer.tensor_op.role.data, tensor, home)
            else:
                self.windows.store(tensor, home, self._fixpipe() if self.cube else "store")
            return
        axes = self._axes_of(buffer)
        if buffer.memory == "ub":
            frame = home.frame
            kept = [axis for axis, dim in enumerate(axes) if dim] or [len(axes) - 1]
            places = [frame.index(axes[axis]) if axes[axis] else len(frame) - 1 for axis in kept]
            if len(set(places)) < len(places):
                raise self.refusal("lower-layout", f"{buffer.symbol.data} is read along a diagonal")
            order = sorted(range(len(kept)), key=places.__getitem__)
            outer = self.body.turned(self._tile(buffer, home.spans, kept), order)
            places.sort()
            sizes = [home.spans[dim].size if dim in axes else 1 for dim in frame]
            inner = self.body.part(home.whole, [0] * len(frame), sizes, places)
        else:
            outer = self._tile(buffer, home.spans, range(max(len(axes) - 2, 0), len(axes)))
            inner = home.whole
            if self._is_bias(buffer):
                inner = self.body.part(inner, [0], outer.sizes)
        if op.loads:
            plain = buffer.memory == "ub" or self._is_bias(buffer)
            name = "load" if plain else "nd2nz {dst_continuous}"
            source, target = outer, inner
        else:
            source, target = inner, outer
            name = "store" if buffer.memory == "ub" else self._fixpipe()
        self.body.instruction(name, [source], target)

    def _stages(self) -> list[StageOp]:
        (compute,) = (op for op in self.program.walk() if isinstance(op, ComputeOp))
        return compute.stages

    def _fixpipe(self) -> str:
        """The move of sums to main memory, and the stages after the product that come with it."""
        modes = ["dma_mode = #hivm.dma_mode<nz2nd>"]
        for stage in self._stages()[1:]:
            match stage.operation.data:
                case "relu":
                    modes.append("pre_relu = #hivm.fixpipe_pre_relu_mode<NORMAL_RELU>")
                case "cast":
                    modes.append("pre_quant = #hivm.fixpipe_pre_quant_mode<F322F16>")
                case name:
                    raise self.refusal("lower-epilogue", f"{name} after a product")
        return f"fixpipe {{{', '.join(modes)}}}"

    def _compute(self, op: ComputeOp, spans: Spans, summed: tuple[Value, ...]) -> None:
        if self.windows is not None:
            inputs = [self.homes[value] for value in op.stages[0].inputs]
            self.windows.compute(inputs, self.homes[op.output], list(summed), op.stages[1:])
            return
        if self.cube:
            self._product(op, spans, summed)
            return
        frame, body = self._frame(), self.body
        sizes = [spans[dim].size if dim else 1 for dim in frame]
        most = [spans[dim].most if dim else 1 for dim in frame]
        vectors = Vectors(body, frame, sizes, most)
        operands: dict[SSAValue, View] = {}
        for stage in op.stages:
            for value, window in zip(stage.inputs, windows_of(stage), strict=False):
                if value in self.homes:
                    home = self.homes[value]
                    axes = self._axes(window, home.tensor, "an operand")
                    mine = [spans[dim].size if dim in axes else 1 for dim in home.frame]
                    tile = body.part(home.whole, [0] * len(frame), mine)
                    if home.frame != frame:
                        order = [home.frame.index(dim) for dim in frame]
                        tile = vectors.transposed(tile, order)
                    operands[value] = tile
        output = self.homes[op.output].whole
        vectors.chain(op.stages, operands, body.part(output, [0] * len(frame), sizes))

    def _product(self, op: ComputeOp, spans: Spans, summed: tuple[Value, ...]) -> None:
        stage, body = op.stages[0], self.body
        values = stage.parameters
        flags = [f"{side}_transpose" for side in "ab" if values.get(f"transpose_{side}", False)]
        operands = [self.homes[value].whole for value in stage.inputs]
        window = windows_of(stage)[-1]
        rows, columns = self._axes(window, stage.result, "the result")[-2:]
        sizes = [body.index(spans[dim].size if dim else 1) for dim in (rows, "ci", columns)]
        attributes = f" {{{', '.join(flags)}}}" if flags else ""
        target = self.homes[op.output].whole
        body.product(operands, body.first(summed), sizes, target, attributes)


def function_name(symbol: str) -> str:
    """The name of a kernel's function."""
    return identifier(symbol, "kernel")


def axis_order(value: SSAValue) -> tuple[int, ...] | None:
    """A tensor's axes as they lie in main memory, outermost first; None if some are in blocks."""
    factors = Layout.parse(layout_of(value), len(shape_of(value))).factors
    if any(factor.modulus or factor.divisor != 1 for factor in factors):
        return None
    return tuple(factor.axis for factor in factors)
