"""The records of ACC-C's machines alone: their own facts about memories, moves and primitives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from tilewright.graph.passes.own import OwnPasses
from tilewright.ir.passes import PassEntry
from tilewright.machine import Machine, Primitive
from tilewright.machine.records import Finding, MoveRecord
from tilewright.planning.domain import Kernel
from tilewright.planning.own import FormsKernels, StoresTiles
from tilewright.planning.space.footprint import Ints
from tilewright.planning.space.join_pixels import moves_blocks
from tilewright.planning.space.nests import Arrangement, TakesTurns
from tilewright.planning.space.tilings import Space
from tilewright.targets.cambricon.passes.block_channels import BlockChannels
from tilewright.targets.cambricon.planning.channel_blocks import by_channel_blocks
from tilewright.targets.cambricon.planning.replaced import slots_in_turn


class CambriconMachine(FormsKernels, OwnPasses):
    """Its images move block by block, so blocks of channels have dims of their own."""

    family: ClassVar[str] = "cambricon"

    def formed(self, kernel: Kernel, machine: Machine) -> Kernel:
        """The kernel with dims for blocks of channels."""
        return by_channel_blocks(kernel) if moves_blocks(machine) else kernel

    def layout_passes(self) -> list[PassEntry]:
        """Results in blocks of channels."""
        reason = "after layouts: transfers of one contiguous block ask for more"
        return [PassEntry(BlockChannels(), reason)]


class CambriconMove(MoveRecord):
    """The facts about a transfer of ACC-C that planning reads."""

    family: ClassVar[str] = "cambricon"

    linear: bool = False
    """True if a transfer is one contiguous block: a box takes as many, one after the other, as it
    has blocks, each with its latency."""

    def block_by_block(self) -> bool:
        """Return ``linear``: True if a box moves as contiguous blocks, one after the other."""
        return self.linear


class CambriconPrimitive(TakesTurns):
    """The facts about a primitive of ACC-C, whose instructions run several loops over a tile."""

    family: ClassVar[str] = "cambricon"

    skip_padding: bool = False
    """True if positions of a window outside of the image take no time; the bounds leave them out.
    Every window meets the image then."""
    in_place: str = ""
    """Role of an operand in whose place results of as many bytes may lie, element by element: where
    both have one slot, they take turns at two (targets/cambricon/planning/replaced.py)."""

    def skips_padding(self) -> bool:
        """Return ``skip_padding``: True if window positions outside of the image take no time."""
        return self.skip_padding

    def slots(self, space: Space, arrangement: Arrangement) -> Mapping[str, Ints]:
        """Slots of results in the place of what they replace."""
        return slots_in_turn(space, arrangement, self.in_place)

    def findings(self, primitive: Primitive, dims: frozenset[str]) -> Iterator[Finding]:
        """A role that it lacks."""
        if self.in_place and self.in_place not in primitive.operands:
            yield "in_place", f"the primitive has no operand {self.in_place[:80]!r}", ""


class CambriconOperand(StoresTiles):
    """An operand of such an instruction."""

    family: ClassVar[str] = "cambricon"

    by_tile: bool = False
    """True if constants lie in main memory by segment: a tile in one piece (weights.py)."""
    waits: tuple[str, ...] = ()
    """Dims of the output along which sums of several tiles may wait here for the rest of their
    reduction while other operands in the same memory come anew for each tile."""

    def lies_by_tile(self) -> bool:
        """Return ``by_tile`` under the name that planning calls."""
        return self.by_tile

    def keeps_sums_along(self) -> tuple[str, ...]:
        """Return ``waits`` under the name that planning calls."""
        return self.waits

    def findings(self, dims: frozenset[str]) -> Iterator[Finding]:
        """Dims that no operation has."""
        for name in self.waits if dims else ():
            if name not in dims:
                yield "waits", f"no operation of the primitive has a dim {name[:80]!r}", ""
