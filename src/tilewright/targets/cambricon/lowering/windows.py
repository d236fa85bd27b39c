"""Windows sliding over an image in VSM: rows of the result, and runs of pixels alike.

The part of a window that reaches beyond the image is left out. Along a row of the result, the
pixels whose windows lie wholly in the image are one run; each other pixel is a run of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.errors import refuse
from tilewright.planning.domain import Affine
from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.boxes import Axis, Box
from tilewright.targets.cambricon.lowering.context import Context
from tilewright.targets.cambricon.lowering.emitter import Emitter, Value
from tilewright.targets.cambricon.lowering.operands import Operand

UNROLLED = 8
"""Kernel rows up to which code for whole windows is apart from that for windows cut off."""


@dataclass(frozen=True)
class Sliding:
    """How a kernel meets the image along one axis."""

    kernel: int
    stride: int
    dilation: int
    axis: int | None
    """The input's axis; None for an operation without it."""
    out: str
    """The dim along which the window slides."""

    def stride_in(self, box: Box) -> Value:
        """Bytes from one index to the next."""
        return 0 if self.axis is None else box.strides[self.axis]

    def along(self, box: Box) -> Axis:
        """The interval that is held."""
        return Axis(0, 1, 0, True, False) if self.axis is None else box.axes[self.axis]


def windows_box(box: Box, *axes: Sliding) -> Box:
    """What loops over windows need of a box: the axes along which windows slide."""
    kept = {one.axis for one in axes}
    nothing = Axis(0, 1, 0, True, False)
    return Box(
        tuple(axis if number in kept else nothing for number, axis in enumerate(box.axes)),
        tuple(step if number in kept else 0 for number, step in enumerate(box.strides)),
        0,
    )


@dataclass(frozen=True)
class Run:
    """Pixels of one row of the result whose windows lie alike."""

    at: Register
    """Address of the first window's first element that is in the image."""
    pixels: Value
    skipped_rows: Value
    """Rows of the kernel before the image."""
    rows: Value
    """Rows of the kernel that meet it."""
    skipped: Value
    """Positions of a row of the kernel before the image; a register may be overwritten."""
    width: Value
    """Positions that meet it; a register may be overwritten."""
    y: Value | None
    """Row of the window's first position, from the first row held; None where all are met."""
    x: Value | None


Body = Callable[[Run], None]


def sliding(
    c: Context, access: Sequence[Affine], operand: Operand, out: str, kernel: str
) -> Sliding:
    """The window along the axis over which dim ``out`` moves it."""
    for number, axis in enumerate(access):
        terms = dict(axis.terms)
        if out not in terms and kernel not in terms:
            continue
        found = Sliding(c.extent(kernel), terms.get(out, 1), terms.get(kernel, 1), number, out)
        span = (found.kernel - 1) * found.dilation + 1
        last = axis.offset + (c.extent(out) - 1) * found.stride
        if axis.offset + span <= 0 or last >= operand.buffer.tensor_shape[number]:
            raise refuse("lower-window", "a window lies wholly in the padding", c.where)
        if kernel in c.looped:
            raise refuse("lower-window", f"a tile holds a part of {kernel}", c.where)
        return found
    return Sliding(1, 1, 1, None, out)


@dataclass(frozen=True)
class Windows:
    """The windows of one tile."""

    e: Emitter
    rows: Sliding
    columns: Sliding
    box: Box
    base: Value
    height: Value
    """Rows of the result."""
    width: Value

    def emit(self, body: Body) -> None:
        """Emits ``body`` for every kind of run; it runs in the order of the result."""
        e, axis = self.e, self.rows.along(self.box)
        down = self.rows.stride_in(self.box)
        with e.scope():
            if not axis.padded:
                row = e.variable(self.base)

                def whole() -> None:
                    self._columns(row, 0, self.rows.kernel, None, body)
                    e.increase(row, e.multiply(down, self.rows.stride))

                e.repeat(self.height, whole, least=1)
                return
            y = e.variable(e.subtract(0, axis.before))

            def clipped() -> None:
                self._clipped(axis, down, y, body)
                e.increase(y, self.rows.stride)

            e.repeat(self.height, clipped, least=1)

    def _clipped(self, axis: Axis, down: Value, y: Register, body: Body) -> None:
        """A row of the result whose windows may reach beyond the image."""
        e, d, kernel = self.e, self.rows.dilation, self.rows.kernel

        def clip() -> tuple[Value, Value, Register]:
            before = e.maximum(e.subtract(0, y), 0)
            skipped = e.divide(e.add(before, d - 1), d)
            reach = e.add(e.subtract(axis.size, y), d - 1)
            count = e.subtract(e.minimum(e.divide(reach, d), kernel), skipped)
            first = e.add(y, e.multiply(skipped, d))
            return skipped, count, e.variable(e.add(self.base, e.multiply(first, down)))

        partly, done = e.label("partly"), e.label("row")
        if kernel <= UNROLLED:
            with e.scope():
                e.if_less(y, 0, partly)
                e.if_less(e.subtract(axis.size, y), (kernel - 1) * d + 1, partly)
            with e.scope():
                row = e.register()
                with e.scope():
                    e.set(row, e.add(self.base, e.multiply(y, down)))
                self._columns(row, 0, kernel, y, body)
            e.jump(done)
            e.place(partly)
        with e.scope():
            skipped, count, row = e.settled(clip)
            self._columns(row, skipped, count, y, body)
        e.place(done)

    def _columns(
        self, row: Register, skipped: Value, rows: Value, y: Value | None, body: Body
    ) -> None:
        e, one = self.e, self.columns
        axis = one.along(self.box)
        with e.scope():
            if not axis.padded:
                at = e.variable(row)
                body(Run(at, self.width, skipped, rows, 0, one.kernel, y, None))
                return
            x, left = e.variable(e.subtract(0, axis.before)), e.variable(self.width)
            count, out, met = e.register(), e.register(), e.register()
            again = e.label("run")
            e.place(again)
            self._alike(axis, x, left, count, out, met)
            with e.scope():
                at = e.register()
                with e.scope():
                    first = e.add(x, e.multiply(out, one.dilation))
                    e.set(at, e.add(row, e.multiply(first, one.stride_in(self.box))))
                body(Run(at, count, skipped, rows, out, met, y, x))
            with e.scope():
                e.increase(x, e.multiply(count, one.stride))
            e.emit("SSUB", left, left, count)
            e.emit("CB", left, again)

    def _alike(
        self, axis: Axis, x: Register, left: Register, count: Register, out: Register, met: Register
    ) -> None:
        """Pixels of the run at ``x``, positions of the kernel's row before the image, and in it."""
        e, d, k = self.e, self.columns.dilation, self.columns.kernel
        beyond, inside, full, done = (e.label(t) for t in ("beyond", "inside", "full", "alike"))
        e.set(count, 1)
        e.set(out, 0)
        with e.scope():
            before = e.subtract(0, x)
            e.if_positive(before, beyond)
            e.jump(inside)
            e.place(beyond)
            e.set(out, e.divide(e.add(before, d - 1), d))
        e.place(inside)
        with e.scope():
            reach = e.add(e.subtract(axis.size, x), d - 1)
            e.set(met, e.minimum(e.divide(reach, d), k))
            e.emit("SSUB", met, met, out)
            e.if_positive(out, done)
            # How far the window can still move until it reaches beyond the image.
            room = e.subtract(e.subtract(axis.size, x), (k - 1) * d + 1)
            e.if_positive(e.add(room, 1), full)
            e.jump(done)
            e.place(full)
            e.set(count, e.minimum(e.add(e.divide(room, self.columns.stride), 1), left))
        e.place(done)
