"""Which images come row by row: those of one slot whose rows may take their places in turn.

row_ring.py has the loads and the windows of such an image.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.targets.cambricon.lowering.boxes import Spans
from tilewright.targets.cambricon.lowering.emitter import Emitter
from tilewright.targets.cambricon.lowering.operands import Operand
from tilewright.targets.cambricon.lowering.sliding import Sliding
from tilewright.targets.cambricon.lowering.streams import pause_of
from tilewright.targets.cambricon.lowering.weight_places import WeightPlaces
from tilewright.targets.cambricon.lowering.windows import UNROLLED, VARIANTS


@dataclass(frozen=True)
class ImageRows:
    """An image whose rows come one by one."""

    operand: Operand
    rows: Sliding
    row_bytes: int
    places: int
    first: int
    """Rows of the first tile."""
    reach: int
    """Those and the rows before the image that its windows would meet."""
    total: int
    """Rows that windows meet."""
    main: int
    """Where the first one lies in main memory."""
    text: str
    pause: int

    @property
    def end(self) -> int:
        """The address behind the last place."""
        return self.operand.address + self.places * self.row_bytes


class RolledImages(WeightPlaces):
    """What a kernel's lowering knows of rows that come one by one."""

    def _first_tile(self, operand: Operand) -> tuple[str, int]:
        """The load of an operand's first tile, one contiguous block, and its address."""
        load = next(load for load in self.nest.loads if load.buffer is operand.buffer)
        extents, e = self.program.extents, Emitter(self.e.where, "first")
        steps = {loop.dim.data: loop.step_size for loop in self.nest.loops[: load.depth]}
        first = {dim: min(steps.get(dim, extent), extent) for dim, extent in extents.items()}
        runs = self._runs(operand, Spans(dict.fromkeys(extents, 0), first), e)
        assert isinstance(runs.address, int) and not runs.loops
        return self._text(operand), runs.address + runs.offset

    def roll(self, operand: Operand, rows: Sliding) -> bool:
        """Let the rows of an image come one by one; False where they cannot.

        It has one slot and changes with the outermost loop alone, which goes down its rows; these
        lie one behind the other, and windows go down them without leaving any out.
        """
        walk, loops, axis = self.walk, self.nest.loops, rows.axis
        dims = [loop.dim.data for loop in loops]
        if operand.held or operand.places > 1 or axis is None or not walk.turns:
            return False
        if walk.depth(operand.buffer) != 1 or dims[0] != rows.out or rows.out in dims[1:]:
            return False
        plain = rows.apart is None and rows.dilation == 1 and rows.stride <= rows.kernel
        known = 1 < rows.kernel <= UNROLLED and len(rows.cut) <= VARIANTS
        before = -operand.buffer.window.data[axis].offset
        if not (plain and known) or before < 0 or self._kind_of_runs(operand).loops:
            return False
        row, windows = operand.place.strides[axis], self.program.extents[rows.out]
        height = min(loops[0].step_size, windows)
        reach = (height - 1) * rows.stride + rows.kernel
        places = operand.slot_bytes // row
        if reach > places or operand.slot_bytes % row:
            return False
        text, main = self._first_tile(operand)
        extent = operand.buffer.tensor_shape[axis]
        total = min((windows - 1) * rows.stride + rows.kernel - before, extent)
        first = min(reach - before, extent)
        move = self.machine.move(self.machine.main, operand.buffer.memory)
        assert walk.interval is not None
        pause = pause_of(move.latency + row / move.bytes_per_cycle, walk.interval, self.earliness())
        walk.image_rows = ImageRows(
            operand, rows, row, places, first, reach, total, main, text, pause
        )
        return True
