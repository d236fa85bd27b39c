"""Runs of pixels alike, batch by batch: products of some, and what follows the sums of others.

While the matrix unit works on a batch, the vector unit finishes the one before. A batch is a pixel
where that has more channels than there is room for sums of: they come part by part then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.emitter import Value
from tilewright.targets.cambricon.lowering.epilogue import Epilogue
from tilewright.targets.cambricon.lowering.gathered import Gathered
from tilewright.targets.cambricon.lowering.operands import Operand
from tilewright.targets.cambricon.lowering.pixels import Pixels
from tilewright.targets.cambricon.lowering.tiles import Tile
from tilewright.targets.cambricon.lowering.windows import UNROLLED, Run

WRITTEN_OUT = 28
"""Products of a batch's pixels behind the first ones up to which these are no loop."""


class Batches(Pixels):
    """The batches of one product; product.py makes the choices, and fills in a tile's numbers."""

    turns = False
    """Whether the run at hand has places for the step to the next tile."""
    gathered: Gathered | None = None
    """Where a group's pixels are gathered, those of the tile at hand."""
    epilogue: Epilogue
    bias: Operand | None
    biases: int
    """Address of copies of the biases for a batch, if there are any."""
    sums: int
    other_sums: int
    """Addresses of the sums of two batches in turn."""
    batch: int
    """Most pixels of a batch."""
    band: int
    """Pixels that a product computes at once."""
    parts: list[int]
    """A pixel's channels, as they are summed up at once."""
    last: tuple[Register, Register, Register, Register] | None = None
    """Of the last sums of a tile, if they may be finished later: their address, that of results,
    how many they are, and their biases."""
    carries = False
    """Whether a tile's last sums may be left to the next tile, whose first pixels take them up."""
    carried = False
    """Whether they are."""
    by_rows = False
    """Whether all pixels are multiplied by one row of the kernel before the next."""
    parted: bool
    """Whether loops within the result's residency step through a pixel's channels."""
    zeros: int
    """Address of zeros, if there are any."""
    table: int

    channels: Value
    """Of the tile: channels of a pixel that are summed up at once, of all groups."""
    result: Register
    added: Register | None
    """Addresses of the next pixel in the result and the residual."""
    bias_at: Value | None
    biases_at: list[Value | None]
    """Addresses of the biases of what is pending, and of each part."""
    base: Register
    halves: Register
    """Where a batch's sums begin; and that and where those of the next one do, added up."""
    pending: Register
    """Elements of the sums that are to be finished."""
    passed: list[Register]
    steps: list[Value]
    """Bytes past the pending pixel in the result and the residual, and past each other one."""

    @property
    def needs_zeros(self) -> bool:
        """Whether ReLU, or the start of sums without a bias, needs zeros."""
        return self.epilogue.reads_zeros or self.by_rows or (self.split and self.bias is None)

    def _take(self, channels: Value) -> None:
        """Sum up so many channels at once."""
        e = self.e
        self.co = channels
        self.channels = e.multiply(channels, self.groups)
        self.co_register = e.held(channels)
        self.position = e.settled(lambda: e.multiply(e.multiply(self.ci, self.co), 2))
        self.matrix_row = e.multiply(self.position, self.columns.kernel)

    @property
    def _residual_bytes(self) -> int:
        one = self.epilogue.residual
        assert one is not None
        return 4 if one.wide else 2

    def _run(self, run: Run, base: Value) -> None:
        """Pixels whose windows lie alike."""
        e = self.e
        at, width, pixels, kernel = run.at, run.width, run.pixels, run.rows
        if len(self.parts) > 1:
            self._run_in_parts(run, base)
            return
        with e.scope():
            self._measure(run)
            matrices = self._matrices(run, base)
            if isinstance(width, Register) and self.dense:
                e.emit("SMUL", width, width, self.ci)
            if self.split:
                each = self.each_pixel(at, matrices, width, kernel)
                e.repeat(pixels, lambda: each(self._ending()), least=1)
                return
            # Most pixels are in such runs, and no tile is without them for long.
            self.turns = self.full and run.pixels != 1
            if isinstance(pixels, int):
                full, rest = divmod(pixels, self.batch)
                e.repeat(full, lambda: self._batch(at, matrices, width, self.batch, kernel))
                self.turns &= not full
                if rest:
                    self._batch(at, matrices, width, rest, kernel)
                return
            if self.batch == 1:
                one = partial(self._batch, at, matrices, width, 1, kernel)
                e.repeat(pixels, one, least=1)
                return
            left = e.variable(pixels)
            again = e.label("batch")
            e.place(again)
            with e.scope():
                count = self.batch if self._whole_batches() else e.minimum(left, self.batch)
                self._batch(at, matrices, width, count, kernel)
                e.emit("SSUB", left, left, count)
            e.emit("CB", left, again)

    def _whole_batches(self) -> bool:
        """Whether every run of pixels is a number of batches, though it is not known how many."""
        c, out = self.c, self.columns.out
        sizes = c.extent(out), c.tile_size(out)
        # All windows of one pixel lie alike: a run is a row of a tile.
        rows = self.columns.kernel == self.band == 1 and not any(n % self.batch for n in sizes)
        return rows or self.batch == 1

    def _run_in_parts(self, run: Run, base: Value) -> None:
        """Pixels whose windows lie alike, part by part of each one's channels."""
        e, pixel = self.e, self.pixel
        size = 2 * self.c.extent("ci") * self.columns.kernel * self.rows.kernel
        starts = [self.parts[0] * number for number in range(len(self.parts))]
        self._measure(run)
        with e.scope():
            matrices: list[list[Register]] = []
            for start, channels in zip(starts, self.parts, strict=True):
                self._take(channels)
                skipped = run.skipped
                own = e.variable(skipped) if isinstance(skipped, Register) else skipped
                matrices.append(
                    self._matrices(replace(run, skipped=own), e.add(base, start * size))
                )
            if isinstance(run.width, Register) and self.dense:
                e.emit("SMUL", run.width, run.width, self.ci)

            def one() -> None:
                for number, channels in enumerate(self.parts):
                    self._take(channels)
                    last = number == len(self.parts) - 1
                    self.pixel = pixel if last else 0
                    self.bias_at = self.biases_at[number - 1]
                    self.turns = self.full and not number and run.pixels != 1
                    self._batch(run.at, matrices[number], run.width, 1, run.rows)

            with e.scope():
                e.repeat(run.pixels, one)
        self.bias_at = self.biases_at[-1]

    def _ending(self) -> list[Callable[[], None]]:
        """What follows the sums of the pixel before the one at hand, if that is their last tile."""
        return []

    def _row_cycles(self, width: int) -> int:
        """Cycles of the products of a row of the kernel that so many of its positions meet."""
        raise NotImplementedError

    def _measure(self, run: Run) -> None:
        """How long the products of a run take, if it is known."""
        self.full, width = run.width == self.columns.kernel, run.width
        self.product = 0.0
        if isinstance(width, int) and self.dense:
            self.product = self._row_cycles(width) / len(self.parts)

    def _matrices(self, run: Run, base: Value) -> list[Register]:
        """The matrices of a window's rows, or the first one."""
        e, first = self.e, self._first_row(run, base)
        matrices = [e.held(first)]
        if isinstance(run.rows, int) and run.rows <= UNROLLED and self.dense:
            for number in range(1, run.rows):
                if isinstance(first, int):
                    # None takes an instruction where registers are left to hold them.
                    matrices.append(e.held(e.add(first, e.multiply(self.matrix_row, number))))
                else:
                    matrices.append(e.held(e.add(matrices[-1], self.matrix_row)))
        return matrices

    def _first_row(self, run: Run, base: Value) -> Value:
        """The matrix that belongs to the first element of a run's windows."""
        e, place = self.e, run.skipped
        if not isinstance(place, Register):
            rows = e.multiply(run.skipped_rows, self.matrix_row)
            return e.add(e.add(base, rows), e.multiply(place, self.position))
        e.emit("SMUL", place, place, self.position)
        e.increase(place, base)
        with e.scope():
            e.increase(place, e.multiply(run.skipped_rows, self.matrix_row))
        return place

    def _batch(
        self, at: Register, matrices: list[Register], width: Value, count: Value, kernel: Value
    ) -> None:
        """A few pixels, and what follows the sums of those before them.

        The vector unit's instructions stand apart, between products, so that none of them waits in
        the queue, and all behind it, for the one before.
        """
        e = self.e
        with e.scope():
            each = self.each_pixel(at, matrices, width, kernel)
            steps = self._pending_steps()
            if self.gathered is not None:
                steps += self.gathered.steps()
            places = self._places(len(steps), count)
            apart = max(places, default=0) + 1
            for number in range(apart):
                between = [step for step, at in zip(steps, places, strict=True) if at == number]
                if number == apart - 1:
                    # Beside products: behind the last one nothing would hide it.
                    between.append(lambda: self._past_pending(count))
                each(between)
                if not number and self.turns:
                    self.c.turn()
            rest = e.subtract(count, apart)
            if isinstance(rest, int) and rest * len(matrices) <= WRITTEN_OUT:
                # Behind a loop the branch that ends it would have been foreseen otherwise.
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

    def _places(self, steps: int, count: Value) -> list[int]:
        """Behind the first product of which pixel of a batch each step stands.

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
        """What is pending is finished: the sums of these pixels are, now."""
        e = self.e
        self._advance()
        self.c.finish()
        with e.scope():
            e.set(self.pending, e.multiply(self.channels, count))
            if self.carried:
                size = e.multiply(self.channels, count)
                e.set(self.passed[0], e.multiply(size, self.c.output.element))
        if not self.alone:
            e.emit("SSUB", self.base, self.halves, self.base)
        # Short batches at the edges of an image would be no measure of time.
        if not self.hooks and (not isinstance(count, int) or 2 * count > self.batch):
            self.c.hook()

    def _pending_steps(self) -> list[Callable[[], None]]:
        """What follows the pending sums."""
        e = self.e
        sums = e.register()
        e.emit("SSUB", sums, self.halves, self.base)
        return self.steps_of(sums)

    def steps_of(self, sums: Register) -> list[Callable[[], None]]:
        """What makes results of the pending sums."""
        e = self.e
        parts: dict[str, Value | None] = {
            "bias": self.bias_at,
            "residual": self.added,
            "zeros": self.zeros if self.needs_zeros else None,
        }
        others = {name: None if at is None else e.held(at) for name, at in parts.items()}
        return self.epilogue.steps(e, sums, self.result, self.pending, others, table=self.table)

    def _advance(self) -> None:
        """Past the pending pixels in the result and the residual."""
        e = self.e
        if self.carried:
            e.increase(self.result, self.passed[0])
            return
        if self.parted:
            for place, passed, step in zip(
                (self.result, self.added), self.passed, self.steps, strict=False
            ):
                assert place is not None
                e.increase(place, passed)
                e.set(passed, step)
            return
        with e.scope():
            e.increase(self.result, e.multiply(self.pending, self.c.output.element))
            if self.added is not None:
                e.increase(self.added, e.multiply(self.pending, self._residual_bytes))

    def _finishes_first(self) -> bool:
        """Whether what follows pending sums stands before any hook that may be due behind it."""
        if not self.hooks:
            # The only one of a batch stands behind that.
            return True
        at = Register(0)
        others: dict[str, Register | None] = {"bias": at, "residual": at, "zeros": at}
        steps = self.epilogue.steps(self.e, at, at, at, others)
        return self.batch == 1 and (not self.row_hooks or self._stand_together(len(steps)))

    def _carry(self) -> None:
        """Registers for sums that one tile leaves to the next: nothing is pending at first."""
        e = self.e
        self.carries = True
        self.result, self.passed = e.variable(0), [e.variable(0)]
        self.pending, self.base = e.variable(0), e.variable(self.sums)

    def _may_carry(self, tile: Tile) -> bool:
        """Whether a tile's last sums may be left to the next one, as its biases are the same."""
        bias = self.bias
        if not self.carries or bias is None:
            return self.carries
        static = self.biases > 0 or isinstance(tile.bases[bias.buffer], int)
        return static and not {"co", "g"} & self.c.looped

    def _begin(self, result: Value) -> None:
        """A tile whose results begin there: its first batch, and what is pending."""
        e = self.e
        if self.carried:
            with e.scope():
                e.set(self.passed[0], e.subtract(result, self.result))
        else:
            self.base, self.pending = e.variable(self.sums), e.variable(0)
        self.alone = self.batch == 1 and not self.grouped
        self.at = self.base if self.alone else e.variable(self.base)
        self.halves = e.held(self.sums + self.other_sums)

    def _flush(self) -> None:
        """Finish the last pending sums of a tile."""
        e = self.e
        with e.scope():
            sums = e.register()
            e.emit("SSUB", sums, self.halves, self.base)
            self.finish_last(sums)

    def finish_last(self, sums: Register) -> None:
        """Finish the last pending sums of a tile, behind the step to the next one where it may."""
        e, own, bias = self.e, self.last, self.bias_at
        zeros, added = self.zeros if self.needs_zeros else None, self.added

        def finish(at: Register, out: Register, count: Register, biases: Value | None) -> None:
            with e.scope():
                parts = {"bias": biases, "residual": added, "zeros": zeros}
                others = {name: None if at is None else e.held(at) for name, at in parts.items()}
                for step in self.epilogue.steps(e, at, out, count, others, table=self.table):
                    step()

        if own is not None and not self.carried:
            kept = own[3] if isinstance(bias, Register) else bias
            if self.c.later(lambda: finish(*own[:3], kept)):
                for place, value in zip(own, (sums, self.result, self.pending, bias), strict=True):
                    if isinstance(value, Register):
                        e.set(place, value)
                return
        finish(sums, self.result, self.pending, bias)
