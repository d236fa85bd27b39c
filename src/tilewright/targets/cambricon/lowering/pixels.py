"""The products of one pixel: one for each row of the kernel, or for each of its positions.

Steps of the vector unit and issue slots stand between them. The steps finish sums that are pending:
those of the batch of pixels before. The last ones of a tile are finished after all of its products.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.choices import Choices
from tilewright.targets.cambricon.lowering.emitter import Value
from tilewright.targets.cambricon.lowering.windows import UNROLLED

Steps = Sequence[Callable[[], None]]
"""Instructions of the vector unit, each emitted by one call."""


class Pixel(Protocol):
    """Function that emits the code of a pixel, with ``between`` between its products."""

    def __call__(self, between: Steps = ()) -> None:
        """Emit the code, with the given steps in between."""
        ...


class Pixels(Choices):
    """The numbers of a tile from which its pixels' code is emitted."""

    full = True
    """True if the current windows have all columns."""
    product = 0.0
    """Cycles of one product of the windows at hand; 0 where they are not known."""
    at: Register
    """Address of the pixel's sums."""
    alone = False
    """True if a batch has one pixel: its sums begin where the batch's do."""
    ci: Value
    co: Value
    """Output channels of the tile that are summed up at once; ``ci``: its input channels."""
    co_register: Register
    pixel: Value
    row: Value
    """Bytes from one pixel of the image to the next, and from one row."""
    position: Value
    matrix_row: Value
    """Bytes of the weights of one position of the kernel, and of one row."""
    result: Register
    added: Register | None = None
    """Addresses of what is pending in the result and the residual."""
    next_places: list[Register]
    """Addresses of the current pixels, where a pixel's channels are parted, or the one that both
    have. Others lie side by side with the pending ones."""
    sizes: list[int]
    """Bytes of an element in them."""
    steps: list[Value]
    """Bytes from one pixel to the next in them, where a pixel's channels are parted."""
    pending: Register
    """Elements of the sums that are to be finished."""
    bias_at: Value | None
    """Address of the biases of what is pending."""
    base: Register
    halves: Register
    """Sum of the addresses of two batches' sums; ``base``: that of the current one."""

    def each_pixel(
        self, at: Register, matrices: list[Register], width: Value, kernel: Value
    ) -> Pixel:
        """Emits one pixel's products with steps between them, and goes on to the next pixel."""
        e = self.e
        forward = e.multiply(self.pixel, self.columns.stride)
        sums = e.multiply(self.co, 4)
        down = e.multiply(self.row, self.rows.dilation)
        dense = self.dense
        if dense and isinstance(width, Register):
            size = width  # In elements already; see _run.
        else:
            size = e.reg(e.multiply(self.ci, width) if dense else self.ci)

        def each(between: Steps = ()) -> None:
            written = isinstance(kernel, int) and kernel <= UNROLLED and dense
            rolled = dense and not self.split
            if written:
                self._written_out(at, matrices, size, down, between)
            else:
                steps = between if rolled else ()
                self._rolled(at, matrices[0], size, width, kernel, down, steps)
            for step in () if written or rolled else between:
                step()
            e.increase(at, forward)
            if not self.alone:
                e.increase(self.at, sums)
            # Windows that are cut off are few: one slot after each is less code.
            by_row = self.slots_per_row and (self.full or not written)
            if self.slots_per_pixel and not by_row:
                cycles = self.product * kernel if isinstance(kernel, int) else 0.0
                self.c.transfers.issue_slot(cycles or None)

        return each

    def _text(self, first: bool) -> str:
        return f"{self.multiply}.wide" if first and not self.split else f"{self.multiply}.acc.wide"

    def _written_out(
        self, at: Register, matrices: list[Register], size: Register, down: Value, between: Steps
    ) -> None:
        """One product for each kernel row; steps stand between them.

        They are as far apart as they can, so that none waits for the one before; where the first
        product lasts until all have started, they stand after that. The queue then holds products
        alone, which hide the scalar instructions after them.
        """
        e, co, rows = self.e, self.co_register, len(matrices)
        places = [(n + 1) * rows // (len(between) + 1) - 1 for n in range(len(between))]
        if (len(between) - 1) * self.step_cycles <= self.product_cycles:
            # All steps have started before the first product is over.
            places = [0] * len(between)
        place = at
        for number, matrix in enumerate(matrices):
            e.emit(self._text(number == 0), self.at, co, matrix, place, size)
            for step, after in zip(between, places, strict=True):
                if max(after, 0) == number:
                    step()
            if self.slots_per_row and self.full:
                self.c.transfers.issue_slot(self.product or None)
            if number + 1 < rows:
                further = e.register() if number == 0 else place
                e.emit("SADD", further, place, down)
                place = further

    def _rolled(
        self,
        at: Register,
        matrix: Register,
        size: Register,
        width: Value,
        kernel: Value,
        down: Value,
        between: Steps,
    ) -> None:
        """A loop over kernel rows, and over their positions where those lie apart.

        Steps stand after the first product: after the last ones they would fill the queue, and
        nothing would hide the scalar instructions from one pixel to the next.
        """
        e, co, dense = self.e, self.co_register, self.dense
        place, rows = e.variable(at), e.variable(matrix)
        if not self.split and dense:
            e.emit(self._text(True), self.at, co, rows, place, size)
            for step in between:
                step()
            e.increase(place, down)
            e.increase(rows, self.matrix_row)
            kernel = e.subtract(kernel, 1)

        def row(fresh: bool = False) -> None:
            if dense:
                e.emit(f"{self.multiply}.acc.wide", self.at, co, rows, place, size)
                if self.slots_per_row:
                    self.c.transfers.issue_slot(self.product or None)
            else:
                x, m = e.variable(place), e.variable(rows)
                apart = e.multiply(self.pixel, self.columns.dilation)

                def position(text: str) -> None:
                    e.emit(text, self.at, co, m, x, size)
                    e.increase(x, apart)
                    e.increase(m, self.position)

                more = f"{self.multiply}.acc.wide"
                if fresh:
                    position(self._text(True))
                left = e.subtract(width, int(fresh))
                e.repeat(left, lambda: position(more), least=1 - int(fresh))
            e.increase(place, down)
            e.increase(rows, self.matrix_row)

        if not dense and not self.split:
            row(fresh=True)
            kernel = e.subtract(kernel, 1)
        e.repeat(kernel, row)

    @property
    def _residual_bytes(self) -> int:
        residual = self.epilogue.residual
        assert residual is not None
        return 4 if residual.wide else 2

    def _element_sizes(self) -> list[int]:
        """Bytes of an element in the result and the residual."""
        others = [] if self.residual is None else [self._residual_bytes]
        return [self.c.output.element, *others]

    def _arrive(self, places: Sequence[Value], bias: Value | None) -> None:
        """A tile begins, whose results and residuals lie at these places."""
        e, sizes = self.e, self._element_sizes()
        shared = len(places) == 2 and places[0] == places[1] and sizes[0] == sizes[1]
        if shared and not self.parted:
            places, sizes = places[:1], sizes[:1]
        self.sizes = sizes
        self.bias_at = bias
        variables = [e.variable(place) for place in places]
        self.result = variables[0]
        self.added = None if self.residual is None else variables[-1]
        # What is pending says how far the next ones lie, but for pixels whose channels are parted.
        self.next_places = [e.variable(place) for place in places] if self.parted else []
        self.pending = e.variable(0)

    @property
    def _own(self) -> list[Register]:
        """Addresses of the pending results and residuals."""
        return [register for register in (self.result, self.added) if register is not None]

    def _pass(self, count: Value) -> None:
        """Finish the pending sums, and make those of ``count`` pixels the pending ones."""
        e = self.e
        if not self.next_places:
            for register, size in zip(self._own, self.sizes, strict=False):
                e.increase(register, e.multiply(self.pending, size))
        elements = e.multiply(self.co, count)
        e.set(self.pending, elements)
        for number, next_places in enumerate(self.next_places):
            e.set(self._own[number], next_places)
            e.increase(next_places, self.steps[number])

    def steps_of(self, sums: Register) -> list[Callable[[], None]]:
        """Return the epilogue's steps for the pending sums at address ``sums``."""
        epilogue = self.epilogue
        return epilogue.steps(self.e, sums, self.result, self.pending, self.bias_at, self.added)

    def _pending_steps(self) -> list[Callable[[], None]]:
        """Return the steps for the pending sums that run while other sums are computed."""
        sums = self.e.register()
        self.e.emit("SSUB", sums, self.halves, self.base)
        return self.steps_of(sums)

    def _flush(self) -> None:
        """Finish the pending sums after all products."""
        for step in self._pending_steps():
            step()
