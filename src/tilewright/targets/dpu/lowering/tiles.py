"""Boxes of tensors in main memory and in the banks, row by row.

A box has rows, pixels and channels whatever its tensor's axes are: the rows of a matrix are those
of an image of one pixel each. In the banks, row L of a box lies in bank L // step % rows of its
group; ``step`` rows share a bank (the stride of the window that reads them), side by side pixel for
pixel, and a turn round the banks takes step * pixels * groups of channels of bank rows. In a
circular buffer row L counts from the place of the box's first row, after the last turn comes the
first one, and a turn takes as much for all tiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod

from tilewright.errors import refuse
from tilewright.targets.dpu.core import DEPTH, BankGroup, Core
from tilewright.targets.dpu.lowering.dependences import Area
from tilewright.targets.dpu.lowering.program import Program

Box = tuple[tuple[int, int], ...]
"""Start and size along each axis of a tensor."""


@dataclass(frozen=True)
class Axes:
    """The axes of a tensor that are channels, rows and pixels; others have one index in a box."""

    channel: int
    rows: tuple[int, ...]
    """The axes of rows, outermost first: a row of a box is an index along each."""
    pixel: int | None

    @classmethod
    def of(cls, rank: int) -> Axes:
        """Return the axes of an image [n, c, h, w], or of a matrix [..., rows, channels]."""
        return cls(1, (2,), 3) if rank == 4 else cls(rank - 1, tuple(range(rank - 1)), None)


@dataclass(frozen=True)
class Tensor:
    """A tensor of bytes in main memory."""

    register: int
    offset: int
    strides: tuple[int, ...]
    """Bytes along each axis."""
    shape: tuple[int, ...]
    name: str

    @cached_property
    def axes(self) -> Axes:
        """The tensor's axes as those of an image."""
        return Axes.of(len(self.shape))

    def address(self, start: Sequence[int]) -> int:
        """The byte offset of an index from the base register."""
        return self.offset + sum(i * s for i, s in zip(start, self.strides, strict=True))


@dataclass(frozen=True)
class Runs:
    """Channel augmentation: a pixel in the banks is a row of a window, all of its channels.

    ``kernel`` pixels of the tensor lie side by side for each of ``count`` results, from the first.
    """

    first: int
    count: int
    kernel: int
    stride: int
    left: int
    """Padding on the left."""


@dataclass(frozen=True)
class Tile:
    """A box of a tensor in one group of banks."""

    core: Core
    group: BankGroup
    base: int
    """Row of the banks at which it begins."""
    tensor: Tensor
    box: Box
    step: int = 1
    runs: Runs | None = None
    place: int = 0
    """The place of its first row, in a circular buffer."""
    circle: int = 0
    """Rows of the circular buffer, a number of whole turns round the banks; 0: not circular."""
    widest: int = 0
    """Bank rows of a turn of the circular buffer's widest tile. All tiles have as much, so that
    rows take the places of those that are oldest, whatever the widths of their tiles."""
    whole: Tile | None = None
    """The tile of which this one is a part, and has the ways from row to row and pixel to pixel."""
    waited: bool = field(default=False, compare=False)
    """True if the command that uses it waits for the rows of its buffer."""

    def part(self, box: Box) -> Tile:
        """The part of this tile that is a smaller box of the tensor."""
        axes = self.tensor.axes
        starts = [start - begin for (start, _), (begin, _) in zip(box, self.box, strict=True)]
        first, rest = divmod(starts[axes.channel], self.core.channels)
        inner = [axis for axis in axes.rows[1:] if box[axis] != self.box[axis]]
        if rest or inner or self.runs is not None:
            raise refuse(
                "lower-layout",
                "a part of what stays in the banks begins within a group of channels, or is no run "
                "of rows",
                self.tensor.name,
            )
        pixel = 0 if axes.pixel is None else starts[axes.pixel]
        return replace(
            self,
            base=self.base + pixel * self.jump + first,
            box=box,
            place=self.place + starts[axes.rows[0]],
            whole=self,
        )

    def _along(self, axis: int | None) -> tuple[int, int]:
        return (0, 1) if axis is None else self.box[axis]

    @property
    def first_row(self) -> int:
        """Index of an image's first row in the tensor; rows of matrices count from the tile's."""
        axes = self.tensor.axes
        return 0 if axes.pixel is None else self.box[axes.rows[0]][0]

    @property
    def rows(self) -> int:
        """Number of its rows."""
        return prod(self.box[axis][1] for axis in self.tensor.axes.rows)

    @property
    def images(self) -> int:
        """Number of its images, or matrices: what it holds beside rows, pixels and channels."""
        axes = self.tensor.axes
        within = {axes.channel, axes.pixel, *axes.rows}
        return prod(size for axis, (_, size) in enumerate(self.box) if axis not in within)

    def index(self, row: int) -> list[int]:
        """The tensor's index of the first element of a row."""
        index = [start for start, _ in self.box]
        for axis in reversed(self.tensor.axes.rows):
            row, along = divmod(row, self.box[axis][1])
            index[axis] += along
        return index

    @property
    def first_pixel(self) -> int:
        """Index of its first pixel in a row of the tensor."""
        if self.runs is not None:
            return self.runs.first
        return self._along(self.tensor.axes.pixel)[0]

    @property
    def pixels(self) -> int:
        """Pixels of a row."""
        if self.runs is not None:
            return self.runs.count
        return self._along(self.tensor.axes.pixel)[1]

    @property
    def channels(self) -> int:
        """Channels of a pixel."""
        width = 1 if self.runs is None else self.runs.kernel
        return width * self.box[self.tensor.axes.channel][1]

    @property
    def height(self) -> int:
        """Rows of the whole image, beyond which is padding; a matrix has none beyond its tile."""
        axes = self.tensor.axes
        return self.rows if axes.pixel is None else self.tensor.shape[axes.rows[0]]

    @property
    def width(self) -> int:
        """Pixels of a whole row, beyond which is padding."""
        axis = self.tensor.axes.pixel
        if self.runs is not None:
            return self.runs.first + self.runs.count
        return 1 if axis is None else self.tensor.shape[axis]

    @property
    def turns(self) -> int:
        """Turns round the banks that its rows take, or those of the circular buffer."""
        return -(-(self.circle or self.rows) // (self.step * self.core.rows))

    @property
    def groups(self) -> int:
        """Bank rows of a pixel."""
        return -(-self.channels // self.core.channels)

    @property
    def row_jump(self) -> int:
        """Bank rows from a pixel to that of the next row of the same bank and turn."""
        return self.groups if self.whole is None else self.whole.row_jump

    @property
    def jump(self) -> int:
        """Bank rows from pixel to pixel."""
        return self.step * self.row_jump

    @property
    def turn(self) -> int:
        """Bank rows of a turn round the banks."""
        if self.widest:
            return self.widest
        return self.pixels * self.jump if self.whole is None else self.whole.turn

    def line(self, row: int) -> tuple[int, int, int]:
        """Turn, bank in the group, and place in the bank of a row, counted from the first.

        Rows before the first have the places that they would have: they are padding.
        """
        place = self.place + row
        slot, line = divmod(place % self.circle if self.circle else place, self.step)
        turn, bank = divmod(slot, self.core.rows)
        return turn, bank, line

    def address(self, row: int) -> tuple[int, int]:
        """Bank, and row of the bank, of the first pixel of a row."""
        turn, bank, line = self.line(row)
        return self.group.first + bank, (self.beginning(turn) + line * self.row_jump) % DEPTH

    def beginning(self, turn: int) -> int:
        """The row of the banks at which a turn begins, not yet modulo the depth."""
        turns = self.circle // (self.step * self.core.rows)
        return self.base + (turn % turns if turns else turn) * self.turn

    def following(self, row: int) -> int:
        """The most rows, from one on, that one instruction can write.

        In a circular buffer they end with the last turn, and where several rows share a bank with
        every turn: the field for the way to the next turn is then that to the bank's next row.
        """
        place = self.place + row
        round_banks = self.step * self.core.rows
        last = self.circle if self.step == 1 else round_banks
        return last - place % last if self.circle else self.rows - row

    def bank(self, row: int) -> tuple[int, int]:
        """As ``address``, of the first row that lies in the row's bank in the same turn."""
        bank, address = self.address(row)
        return bank, (address - self.line(row)[2] * self.row_jump) % DEPTH

    def block(self, first: int, count: int, bank: int = 0, banks: int = 0) -> Area:
        """The place of some rows of all of the group's banks, or of some; no feature map's."""
        begin = self.group.first + bank
        return Area(
            slice(begin, begin + (banks or self.group.count)),
            slice(first, first + count),
            self.waited,
        )

    def areas(self, first: int, count: int) -> list[Area]:
        """The places of some of a feature map's rows, as far as they are in the tile."""
        row, end = max(first, 0), min(first + count, self.rows)
        round_banks, areas = self.step * self.core.rows, list[Area]()
        while row < end:
            place = self.place + row
            turn, start = divmod(place % self.circle if self.circle else place, round_banks)
            many = min(end - row, round_banks - start)
            areas += self._areas_of_turn(turn, start, start + many)
            row += many
        return areas

    def _areas_of_turn(self, turn: int, start: int, end: int) -> list[Area]:
        """The places of the rows ``start`` to ``end`` of a turn round the banks."""
        begin, size = self.beginning(turn), self.pixels * self.jump
        rows, step, first = slice(begin, begin + size), self.step, self.group.first
        whole = -(-start // step), end // step
        if step == 1 or self.whole is not None or whole == (start / step, end / step):
            banks = slice(first + start // step, first - (-end // step))
            return [Area(banks, rows, self.waited)]
        areas = list[Area]()
        for bank in range(start // step, -(-end // step)):
            low, high = max(start - bank * step, 0), min(end - bank * step, step)
            lines = slice(low * self.row_jump, high * self.row_jump)
            banks = slice(first + bank, first + bank + 1)
            areas.append(Area(banks, rows, self.waited, lines, self.jump))
        return areas

    def transfer(self, build: Program, mnemonic: str) -> None:
        """Append the LOADs or SAVEs of all rows of the tile."""
        tensor = self.tensor
        axes = tensor.axes
        if tensor.strides[axes.channel] != 1 and self.channels > 1:
            raise refuse(
                "lower-layout",
                f"channels lie {tensor.strides[axes.channel]} bytes apart in main memory",
                tensor.name,
            )
        if self.runs is not None:
            return self._load_runs(build, self.runs)
        inside, outside = ("jump_write", "jump_read")[:: 1 if mnemonic == "load" else -1]
        apart = 1 if axes.pixel is None else tensor.strides[axes.pixel]
        for row in range(self.rows):
            bank, address = self.address(row)
            values = {inside: self.jump, outside: apart if self.pixels > 1 else 1}
            build.transfer(
                mnemonic, self.areas(row, 1), bank_id=bank, bank_addr=address, length=self.pixels,
                channel=self.channels, reg_id=tensor.register,
                ddr_addr=tensor.address(self.index(row)), **values,
            )  # fmt: skip
        return None

    def _load_runs(self, build: Program, runs: Runs) -> None:
        """LOADs of rows whose pixels are the windows of results, padding filled with zeros."""
        tensor, axes = self.tensor, self.tensor.axes
        assert axes.pixel is not None
        apart, size = tensor.strides[axes.pixel], self.box[axes.channel][1]
        jump = runs.stride * apart
        if apart != size or jump > self.channels:
            raise refuse(
                "lower-layout",
                f"pixels lie {apart} bytes apart and windows {jump}: they are no runs of bytes",
                tensor.name,
                "an input of its own, and strides up to the kernel",
            )
        first = runs.first * runs.stride - runs.left
        ends = [
            min((tensor.shape[axes.pixel] - first) * apart - run * jump, self.channels)
            for run in range(runs.count)
        ]
        short = [end for end in ends if end < self.channels]
        padding = {"pad_start": max(0, -first) * apart}
        if short:
            whole = self.groups * self.core.channels
            padding |= {"pad_idx": len(short), "pad_end": whole - short[0]}
        for row in range(self.rows):
            bank, address = self.address(row)
            index = self.index(row)
            index[axes.pixel] = first
            build.transfer(
                "load", self.areas(row, 1), bank_id=bank, bank_addr=address,
                length=runs.count, channel=self.channels,
                jump_read=jump, jump_write=self.jump, reg_id=tensor.register,
                ddr_addr=tensor.address(index), **padding,
            )  # fmt: skip
