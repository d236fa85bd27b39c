"""Images between NCHW and NC1HWC0: 16 channels at a time, transposed by scatters.

Of NCHW a channel's positions lie in a row; of NC1HWC0 the 16 channels of a position. A chunk of
positions of 16 channels passes UB: one scatter transposes it, block of 16 x 16 by block. Channels
that fill the last 16 up are zeros in NC1HWC0.

Rows whose length is no multiple of 32 bytes are loaded, and stored where they are shorter than a
block of positions, up to 30 bytes past their end: stores go up in addresses, so that the next row
mends its beginning, and the last ends in ``SLACK``. Where a row has several chunks, they are of one
size, and the last of them begins early instead.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.codegen.nest.value import Value
from tilewright.errors import refuse
from tilewright.targets.ascend import isa
from tilewright.targets.ascend.formats import padded
from tilewright.targets.ascend.kernels.shares import Extent, share_of, total
from tilewright.targets.ascend.kernels.tiles import cut, each
from tilewright.targets.ascend.kernels.transfers import SLACK, move
from tilewright.targets.ascend.kernels.vectors import fill
from tilewright.targets.ascend.machine import BLOCK, CUBE, MAX_REPEAT, REPEAT_BLOCKS, DaVinci
from tilewright.targets.ascend.program import (
    Buffer,
    Loop,
    Place,
    Program,
    Statement,
    Tensor,
    block_places,
)


@dataclass
class _Channels:
    batch: Extent
    planes: Extent
    """The planes of 16 channels, where blocks share them; 16 divides the channels then."""
    channels: int
    area: Extent
    """Positions of a plane."""
    core: DaVinci
    back: bool
    buffers: list[Buffer] = field(default_factory=list[Buffer])

    def __post_init__(self) -> None:
        blocks = -(-self.channels // CUBE)
        self.images, self.positions = total(self.batch), total(self.area)
        share = share_of(self.area)
        plain = Tensor("plain", self.images * self.channels * self.positions * 2 + SLACK)
        blocked = Tensor("blocked", self.images * blocks * self.positions * BLOCK)
        self.plain, self.blocked = plain, blocked
        (plain if self.back else blocked).written = True
        # Two slots of a chunk before and after the scatter, apart for whole and for ragged planes.
        kinds = 1 if self.channels % CUBE == 0 or self.channels < CUBE else 2
        room = self.core.ub // (4 * kinds)
        if room // 2 < BLOCK * CUBE:
            needed = f"{CUBE} positions of {CUBE} channels"
            reason = f"{self.core.ub} bytes of UB have no room for {needed}"
            raise refuse("plan-capacity", reason)
        most = min(room // BLOCK // CUBE, MAX_REPEAT) * CUBE
        # Rows that are no whole blocks are stored in two chunks at least, the last of which ends
        # with the row, in one slot: none writes past it, and flags order what chunks share.
        ragged = self.back and self.positions % CUBE > 0 and self.positions > CUBE
        self.tile = cut(share, min(padded(-(-share.part // (1 + ragged))), most), CUBE)
        self.pitch = padded(self.tile.size) * 2
        self.size = self.pitch * CUBE
        # Each kind of planes takes events of its own, of which there are few.
        self.slots = 2 if kinds == 1 and not ragged else 1

    def program(self, name: str) -> Program:
        images, planes = each(self.batch), each(self.planes)
        around = Loop("n", images.count)
        image = images.start(around.variable)
        whole, rest = divmod(self.channels, CUBE)
        if whole:
            loop = Loop("q", planes.count)
            around.body.append(loop)
            self._plane(loop.body, loop, image, planes.start(loop.variable), CUBE)
        if rest:
            self._plane(around.body, around, image, whole, rest)
        what = f"{self.images} x {self.channels} x {self.positions}"
        about = f"{what}: NC1HWC0 to NCHW" if self.back else f"{what}: NCHW to NC1HWC0"
        tensors = (self.blocked, self.plain) if self.back else (self.plain, self.blocked)
        before = self._filled(len(self.buffers) // 2)
        shares = share_of(self.batch), share_of(self.planes), share_of(self.area)
        places = [place for share in shares for place in share.places]
        constants, parts = block_places(places)
        return Program(
            *(name, tensors, [*before, around], tuple(self.buffers), about),
            blocks=parts,
            constants=constants,
        )

    def _plane(
        self, body: list[Statement], scope: Loop, image: Value, inner: Value, rows: int
    ) -> None:
        """The chunks of 16 channels, or of the last few: ``inner`` is their number."""
        blocks = -(-self.channels // CUBE)
        plane = image * blocks + inner
        channel = image * self.channels + inner * CUBE
        loop = Loop("p", self.tile.count)
        start = self.tile.start(loop.variable)
        number, count = len(self.buffers) // 2, self.tile.size
        around = loop if self.tile.most > 1 else scope
        slots = min(self.slots, around.count) if isinstance(around.count, int) else self.slots
        slot = around.variable % slots if slots > 1 else 0
        at = 4 * self.size * number
        lines = Buffer(f"rows{number}", "ub", at, self.size, slots, slot, loop)
        cubes = Buffer(f"blocks{number}", "ub", at + 2 * self.size, self.size, slots, slot, loop)
        self.buffers += [lines, cubes]
        row = Loop("r", rows)
        length = -(-count // CUBE)
        outside = Place(self.plain, (channel + row.variable) * (self.positions * 2) + start * 2)
        inside = Place(lines, row.variable * self.pitch)
        target = Place(self.blocked, (plane * self.positions + start) * BLOCK)
        by_rows, by_blocks = (Place(lines), self.pitch, 1), (Place(cubes), BLOCK, CUBE)
        row.body.append(move(inside, outside, 1, length, (0, 0), not self.back))
        blocks_moved = move(Place(cubes), target, 1, count, (0, 0), self.back)
        if self.back:
            loop.body += [blocks_moved, *isa.scatter(by_rows, by_blocks, length), row]
        else:
            loop.body += [row, *isa.scatter(by_blocks, by_rows, length), blocks_moved]
        body.append(loop)

    def _filled(self, kinds: int) -> list[Statement]:
        """Zeros where scatters read and no load writes: channels that there are not, and positions
        behind the last."""
        ragged = self.positions % CUBE if self.back else self.channels % CUBE
        if not ragged:
            return []
        everything = Buffer("all", "ub", 0, 4 * self.size * kinds)
        self.buffers.append(everything)
        repeats = everything.bytes // (REPEAT_BLOCKS * BLOCK)
        return [isa.mask_of(128, 128), fill(Place(everything), repeats, "z")]


def to_blocks(
    images: Extent,
    channels: int,
    positions: Extent,
    core: DaVinci,
    name: str,
    planes: Extent | None = None,
    *,
    back: bool = False,
) -> Program:
    """NCHW to NC1HWC0, or ``back``; parameters are ``plain`` and ``blocked``, what is read first.
    Blocks may share ``planes`` of 16 channels, where there are no others."""
    planes = planes or channels // CUBE
    return _Channels(images, planes, channels, positions, core, back).program(name)
