"""The choices that a product's kernel makes once, for all tiles: windows, batches, temporaries."""

from __future__ import annotations

from dataclasses import replace

from tilewright.errors import refuse
from tilewright.targets.cambricon.lowering.context import Code, Context
from tilewright.targets.cambricon.lowering.epilogue import epilogue_of
from tilewright.targets.cambricon.lowering.gathered import ring_bytes
from tilewright.targets.cambricon.lowering.nest import Tile
from tilewright.targets.cambricon.lowering.operands import Operand
from tilewright.targets.cambricon.lowering.pixel_packing import banded
from tilewright.targets.cambricon.lowering.sliding import sliding
from tilewright.targets.cambricon.machine import lanes_of, part_of

LONG = 24
"""Cycles of a pixel, or of a row of its kernel, from which on an issue slot follows each one, not
every few: the scalar instructions of a slot pass meanwhile."""


ALONE = 36
"""Cycles of a pixel from which on its sums are finished by themselves: they hide the scalar
instructions, and few sums of a tile are left at its end."""


RINGS_APART = 32
"""Bytes that are lost at most where temporaries are aligned beside the rings."""


class Choices(Code):
    """The choices of one product, which hold for all of its tiles."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        c = self.c
        self.x, access = c.source(c.anchor, 0)
        self.w, _ = c.source(c.anchor, 1)
        self.bias: Operand | None = None
        if len(c.anchor.inputs) == 3:
            self.bias, over = c.source(c.anchor, 2)
            if any(name not in ("co", "g") for axis in over for name in axis.dims):
                raise refuse("lower-bias", "the bias differs from row to row", c.where)
        epilogue = epilogue_of(c.compute.stages, c.where)
        self.split = c.output.buffer.accumulates is not None
        """True if sums are added to those of tiles before."""
        # Sums of several tiles start with the bias, or with zeros.
        zeros = epilogue.relu or (self.split and self.bias is None)
        self.epilogue = replace(epilogue, needs_zeros=zeros)
        columns = next(
            (d for d in ("m", "n") if d in c.nest.extents and "ow" not in c.nest.extents), "ow"
        )
        self.rows = sliding(c, access, self.x, "oh", "kh")
        self.columns = sliding(c, access, self.x, columns, "kw")
        inner = [a for a, axis in enumerate(access) if "ci" in axis.dims]
        if self.x.order[-1] not in inner and c.nest.extent("ci") > 1:
            raise refuse("lower-layout", "input channels do not lie side by side", c.where)
        self.columns, self.band = banded(c, self.w, self.rows, self.columns)
        """Windows along a row, and the pixels that a product computes at once."""
        self.multiply = "VMM"
        """The instruction of the products: VMM or MMV."""
        if not c.transfers.by_segment(self.w):
            self._plain_weights()
        self.parts = self._parts()
        """A pixel's channels, as they are summed up at once."""
        self.rings = self._rings()
        self.dense = self.columns.dilation == 1 and not c.nest.inside(self.x)
        """True if the pixels below a row of the kernel are one vector."""
        self.dense |= self.rings > 0
        residual = self.epilogue.residual
        self.residual = None if residual is None else c.nest.operands[residual.buffer]
        self.parted = bool(c.nest.inside(c.output)) and not self.split
        """True if loops within the result's residency step through a pixel's channels."""
        self._check_loops()
        cycles = self._pixel_cycles()
        self.slots_per_pixel = self.split or cycles >= LONG
        self.slots_per_row = self.dense and cycles >= LONG * self.rows.kernel
        """True if issue slots follow each row of the kernel; ``slots_per_pixel``: each pixel."""
        self._reserve()
        products = c.nest.tile_size("kh") * len(self.parts)
        between = cycles / (products if self.slots_per_row else len(self.parts))
        c.transfers.space_slots(between if self.slots_per_pixel else between * self.batch)
        if self.biases and self.bias is not None:
            c.transfers.on_refill(self.bias, self._replicate)
        busy = self._row_cycles(self.columns.kernel) * c.nest.tile_size("kh") * self._most_pixels()
        self.split_load = (
            c.transfers.split_load(self.w, busy, c.temporaries) if self.split else None
        )
        """Weights that come by both DMAs."""
        if self.residual is not None and not self.split:
            # Of as many elements as the result, each read just before its result is written.
            c.transfers.replace_in_place(self.residual)

    def _most_pixels(self) -> int:
        """Return the most output pixels of a tile."""
        return self.c.nest.tile_size(self.columns.out) * self.c.nest.tile_size("oh")

    def _check_loops(self) -> None:
        """Within the residency of what lies in VSM, only channels of the result may be stepped, or
        rows of its pixels where sums wait there."""
        c = self.c
        others = [operand for operand in (self.x, self.bias, self.residual) if operand is not None]
        stepped = frozenset[str]().union(
            *(c.nest.inside(operand) for operand in (*others, c.output))
        )
        allowed = {"oh"} if self.split else {"g", "co"}
        if not stepped <= allowed:
            raise refuse("lower-nest", "loops step through a resident tile", c.where)

    def _parts(self) -> list[int]:
        """A pixel's channels, where they are summed up part by part."""
        c, whole = self.c, self.c.nest.tile_size("co")
        part = whole if self.split else part_of(c.machine, whole)
        if part == whole:
            return [whole]
        if "co" in c.nest.looped or self.band > 1 or self.c.nest.inside(self.x):
            raise refuse("lower-temporaries", "channels are too many for their sums", c.where)
        plain = not c.transfers.by_segment(self.w)
        if plain and self.multiply != "MMV" and c.nest.extent("ci") > 1:
            raise refuse("lower-weights", "weights of a part lie apart", c.where)
        return [min(part, whole - start) for start in range(0, whole, part)]

    def _pixel_cycles(self) -> int:
        """Cycles of the matrix unit for one pixel, or one band of them, of a whole tile."""
        return self.c.nest.tile_size("kh") * self._row_cycles(self.columns.kernel)

    def _row_cycles(self, width: int) -> int:
        """Return the cycles of a kernel row of which ``width`` positions meet the image."""
        c, lanes = self.c, lanes_of(self.c.machine)
        return -(-c.nest.tile_size("co") * self.band // lanes) * -(
            -width * c.nest.tile_size("ci") // lanes
        )

    def _rings(self) -> int:
        """Bytes in which a group's pixels are gathered; 0 where they are taken as they lie."""
        c = self.c
        if self.split or self.band > 1 or self.multiply != "VMM":
            return 0
        size = ring_bytes(c, self.x, self.rows, self.columns)
        sums = (8 + self.epilogue.bytes) * c.nest.tile_size("co")
        return size if size + sums + RINGS_APART <= c.temporaries.left else 0

    def _plain_weights(self) -> None:
        """Weights as they lie in main memory: matrices of one position each."""
        c, w = self.c, self.w
        windows = [axis.dims for axis in w.buffer.window.data]
        rows = [windows[axis] for axis in w.order if w.buffer.tensor_shape[axis] != 1]
        if c.nest.extent("kh") * c.nest.extent("kw") != 1:
            raise refuse("lower-weights", "two kernels share the weights of a window", c.where)
        if rows and "ci" in rows[-1]:
            self.multiply = "MMV"

    def _reserve(self) -> None:
        """Temporaries for as many pixels as fit them."""
        c, t = self.c, self.c.temporaries
        self.ring = t.take(self.rings) if self.rings else 0
        most = self.parts[0] * self.band
        pixels = self._most_pixels()
        each = most * (4 * (self.bias is not None) + 8 * (not self.split) + self.epilogue.bytes)
        room = max(t.left // max(each, 1), 1)
        width = c.nest.tile_size(self.columns.out) // self.band
        alone = self.parted or self.rings or len(self.parts) > 1
        if alone or (not self.split and self._pixel_cycles() >= ALONE):
            self.batch = 1
        elif self.split:
            self.batch = min(room, pixels)
        else:
            # As many batches of a row as are needed, all alike.
            self.batch = -(-width // -(-width // min(room, width)))
        """Most pixels of a batch."""
        size = self.batch * most
        self.epilogue = self.epilogue.placed(t, size, c.tables)
        self.biases = (
            t.take(4 * size) if self.bias is not None and self.batch * self.band > 1 else 0
        )
        self.sums = 0 if self.split else t.take(4 * size)
        self.other_sums = 0 if self.split else t.take(4 * size)
        """Addresses of the sums of batches, in turn."""
        self.size = size
        lanes = lanes_of(c.machine)
        self.step_cycles = -(-size // lanes)
        """Cycles of the vector unit's longest instruction for the sums of a batch."""
        self.product_cycles = self._row_cycles(self.columns.kernel) // len(self.parts)

    def _replicate(self, tile: Tile) -> None:
        """The biases of as many pixels as are finished together: each copy is twice as long."""
        e = self.e
        assert self.bias is not None
        base = tile.bases[self.bias.buffer]
        single = tile.spans.of("co")
        first = e.reg(self.biases)
        e.emit("VMOVE.wide.wide0", first, e.reg(single), e.reg(base))
        done, count = 1, self.batch * self.band
        while done < count:
            more = min(done, count - done)
            at = e.reg(e.add(first, e.multiply(single, 4 * done)))
            e.emit("VMOVE.wide.wide0", at, e.reg(e.multiply(single, more)), first)
            done += more
