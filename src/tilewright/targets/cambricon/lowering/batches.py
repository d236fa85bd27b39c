"""Runs of pixels alike, batch by batch: products of some, and what follows the sums of others.

While the matrix unit works on a batch, the vector unit finishes the one before. A batch is a pixel
where that has more channels than there is room for sums of: they come part by part then.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.emitter import Value
from tilewright.targets.cambricon.lowering.gathered import Gathered
from tilewright.targets.cambricon.lowering.pixels import Pixels
from tilewright.targets.cambricon.lowering.windows import UNROLLED, Run

WRITTEN_OUT = 28
"""Products of a batch's pixels after the first ones up to which these are no loop."""


class Batches(Pixels):
    """The batches of one product."""

    gathered: Gathered | None = None
    """The gather buffers of a group's pixels in the current tile; None where pixels are not
    gathered."""
    biases_at: list[Value | None]
    """Addresses of the biases of each part."""

    def _take(self, channels: Value) -> None:
        """Sum up ``channels`` output channels at once."""
        e = self.e
        self.co = channels
        self.co_register = e.reg(channels)
        self.position = e.multiply(e.multiply(self.ci, self.co), 2)
        self.matrix_row = e.multiply(self.position, self.columns.kernel)

    def _run(self, run: Run, base: Value) -> None:
        """Pixels whose windows lie alike."""
        e = self.e
        at, width, pixels, kernel = run.at, run.width, run.pixels, run.rows
        if len(self.parts) > 1:
            self._run_in_parts(run, base)
            return
        self._measure(run)
        matrices = self._matrices(run, base)
        if isinstance(width, Register) and self.dense:
            e.emit("SMUL", width, width, self.ci)
        if self.split:
            e.repeat(pixels, self.each_pixel(at, matrices, width, kernel), least=1)
            return
        if isinstance(pixels, int):
            full, rest = divmod(pixels, self.batch)
            e.repeat(full, lambda: self._batch(at, matrices, width, self.batch, kernel))
            if rest:
                self._batch(at, matrices, width, rest, kernel)
            return
        if self.batch == 1:
            pixel_body = partial(self._batch, at, matrices, width, 1, kernel)
            e.repeat(pixels, pixel_body, least=1)
            return
        left = e.variable(pixels)
        again = e.label("batch")
        e.place(again)
        # Where windows are one pixel, a run is a row of a tile.
        out, nest = self.columns.out, self.c.nest
        sizes = nest.extent(out), nest.tile_size(out)
        whole = self.columns.kernel == 1 and not any(size % self.batch for size in sizes)
        count = self.batch if whole else e.minimum(left, self.batch)
        self._batch(at, matrices, width, count, kernel)
        e.emit("SSUB", left, left, count)
        e.emit("CB", left, again)

    def _run_in_parts(self, run: Run, base: Value) -> None:
        """Pixels whose windows lie alike, part by part of each one's channels."""
        e, pixel = self.e, self.pixel
        size = 2 * self.c.nest.extent("ci") * self.columns.kernel * self.rows.kernel
        starts = [self.parts[0] * number for number in range(len(self.parts))]
        self._measure(run)
        matrices: list[list[Register]] = []
        for start, channels in zip(starts, self.parts, strict=True):
            self._take(channels)
            skipped = run.skipped
            low = e.variable(skipped) if isinstance(skipped, Register) else skipped
            matrices.append(self._matrices(replace(run, skipped=low), e.add(base, start * size)))
        if isinstance(run.width, Register) and self.dense:
            e.emit("SMUL", run.width, run.width, self.ci)

        def pixel_body() -> None:
            for number, channels in enumerate(self.parts):
                self._take(channels)
                last = number == len(self.parts) - 1
                self.pixel = pixel if last else 0
                self.bias_at = self.biases_at[number - 1]
                self._batch(run.at, matrices[number], run.width, 1, run.rows)

        e.repeat(run.pixels, pixel_body)
        self.bias_at = self.biases_at[-1]

    def _measure(self, run: Run) -> None:
        """Set the cycles of the products of a run; 0 if they are not known."""
        self.full, width = run.width == self.columns.kernel, run.width
        self.product = 0.0
        if isinstance(width, int) and self.dense:
            self.product = self._row_cycles(width) / len(self.parts)

    def _matrices(self, run: Run, base: Value) -> list[Register]:
        """The matrices of a window's rows, or the first one."""
        e, first = self.e, self._first_row(run, base)
        matrices = [e.reg(first)]
        if isinstance(run.rows, int) and run.rows <= UNROLLED and self.dense:
            for number in range(1, run.rows):
                if isinstance(first, int):
                    # None takes an instruction where registers are left to hold them.
                    matrices.append(e.reg(e.add(first, e.multiply(self.matrix_row, number))))
                else:
                    matrices.append(e.reg(e.add(matrices[-1], self.matrix_row)))
        return matrices

    def _first_row(self, run: Run, base: Value) -> Value:
        """The matrix that belongs to the first element of a run's windows."""
        e, place = self.e, run.skipped
        if not isinstance(place, Register):
            rows = e.multiply(run.skipped_rows, self.matrix_row)
            return e.add(e.add(base, rows), e.multiply(place, self.position))
        e.emit("SMUL", place, place, self.position)
        e.increase(place, base)
        e.increase(place, e.multiply(run.skipped_rows, self.matrix_row))
        return place

    def _batch(
        self, at: Register, matrices: list[Register], width: Value, count: Value, kernel: Value
    ) -> None:
        """A few pixels, and what follows the sums of those before them.

        The vector unit's instructions stand apart, between products, so that none of them waits in
        the queue, and all after it, for the one before.
        """
        e = self.e
        each = self.each_pixel(at, matrices, width, kernel)
        steps = self._pending_steps()
        if self.gathered is not None:
            steps += self.gathered.steps()
        places = self.step_pixels(len(steps), count)
        apart = max(places, default=0) + 1
        for number in range(apart):
            between = [step for step, at in zip(steps, places, strict=True) if at == number]
            if number == apart - 1:
                # Beside products: after the last one nothing would hide it.
                between.append(lambda: self._past_pending(count))
            each(between)
        rest = e.subtract(count, apart)
        if isinstance(rest, int) and rest * len(matrices) <= WRITTEN_OUT:
            # After a loop the branch that ends it would have been foreseen otherwise.
            for _ in range(rest):
                each()
        else:
            e.repeat(rest, each)
        if self.gathered is not None:
            self.gathered.forward(at)
        # The next pixels' sums lie in the other half.
        if self.alone:
            e.emit("SSUB", self.base, self.halves, self.base)
        e.set(self.at, self.base)

    def step_pixels(self, steps: int, count: Value) -> list[int]:
        """After the first product of which pixel of a batch each step stands.

        They are so far apart that each one is over before the next one, if pixels suffice.
        """
        if not isinstance(count, int):
            return [0] * steps
        if steps > count:
            return [number * count // steps for number in range(steps)]
        pixel = max(self.product_cycles * self.rows.kernel, 1)
        room = (count - 1) // max(steps - 1, 1)
        apart = max(min(-(-self.step_cycles // pixel), room), 1)
        return [number * apart for number in range(steps)]

    def _past_pending(self, count: Value) -> None:
        """Finish the pending pixels, and make these pixels' sums the pending ones."""
        e = self.e
        self._pass(count)
        if not self.alone:
            e.emit("SSUB", self.base, self.halves, self.base)
        # Short batches at the edges of an image would be no measure of time.
        if not self.slots_per_pixel and (not isinstance(count, int) or 2 * count > self.batch):
            self.c.transfers.issue_slot()
