"""First tiles of a kernel that load while the kernel before computes its last one.

The first tile of an image has mostly been stored long before: it is at the other end of it. So it
loads in the last tile of the kernel before (last_tile.py), as do the first biases and residuals, if

- they go to bytes of the vector scratchpad that this kernel does not use any more, such as the slot
  of its image that the last tile does not lie in, and
- they are no results of its last two tiles, which are stored later.

Before::

    kernel 1: ..., compute the last tile, VSTORE y
    kernel 2: VLOAD y (waits for the store), compute

After::

    kernel 1: ..., VLOAD the begin of y, compute the last tile, VSTORE the end of y
    kernel 2: compute

The buffers of kernel 2 change places, so that what it needs first goes to such bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, permutations, product
from math import prod

from tilewright.targets.cambricon.lowering.early import Interval
from tilewright.targets.cambricon.lowering.emitter import Emitter
from tilewright.targets.cambricon.lowering.image_rows import RolledImages
from tilewright.targets.cambricon.lowering.last_tile import MOST, Opening, Transfer
from tilewright.targets.cambricon.lowering.moves import Runs, runs_of
from tilewright.targets.cambricon.lowering.operands import Operand
from tilewright.targets.cambricon.lowering.temporaries import ALIGNMENT, Temporaries
from tilewright.targets.cambricon.lowering.walk import Walk
from tilewright.tile.dialect import BufferOp

BUFFERS = 5
"""Most buffers of which all orders in the scratchpad are tried."""

ROLES = ("input", "residual", "bias")
"""What loads early, in this order."""


@dataclass(frozen=True)
class Arrangement:
    """Where buffers lie in the scratchpad."""

    bases: tuple[int, ...]
    later: bool
    """Whether the image's first tile goes to the second slot."""


@dataclass(frozen=True)
class Arrivals:
    """What loads in the last tile of the kernel before."""

    buffers: tuple[BufferOp, ...] = ()
    loads: tuple[Transfer, ...] = ()
    rest: tuple[Transfer, ...] = ()
    """What this kernel loads itself of these buffers' first tiles."""


class FirstTiles(RolledImages):
    """What a kernel's lowering knows of its first tile, and of its last one."""

    def _temporaries(self, memory: str) -> Temporaries:
        """The end of a memory, which buffers leave to the primitive."""
        assert self.nest.compute is not None
        primitive = self.machine.primitive(self.nest.compute.primitive.data)
        left = self.machine.memory_beside(primitive, memory)
        return Temporaries(left.room or 0, left.reserved, self.program.symbol.data)

    def _in_vector(self) -> list[Operand]:
        """What lies in the vector scratchpad while this kernel runs, and no longer."""
        operands = [operand for operand in self.operands.values() if operand.buffer.memory == "vsm"]
        return [operand for operand in operands if not operand.held]

    def arrive(self, opening: Opening | None, room: int) -> Arrivals:
        """Choose where buffers lie, so that as much as possible loads in the kernel before.

        They have ``room`` at the begin of the scratchpad.
        """
        own = self._in_vector()
        if opening is None or not 0 < len(own) <= BUFFERS:
            return Arrivals()
        firsts = {operand.buffer: self._first_tile(operand) for operand in own}

        ways = [
            (self._arrivals(arrangement, own, firsts, opening), arrangement)
            for arrangement in self._ways(own, opening, room)
        ]
        best, way = max(ways, key=lambda pair: self._taken(pair[0].loads))
        if best.loads:
            for operand, base in zip(own, way.bases, strict=True):
                operand.moved_to = base
                operand.later = way.later and operand.role == "input"
        return best

    def _ways(self, own: Sequence[Operand], opening: Opening, room: int) -> Iterator[Arrangement]:
        """Ways to lay buffers out in ``room``: as they lie, then all others."""
        image = next((n for n, operand in enumerate(own) if operand.role == "input"), None)
        turns = [False]
        if image is not None and own[image].slots > 1 and self.walk.depth(own[image].buffer):
            turns.append(True)
        for later in turns:
            yield Arrangement(tuple(operand.address for operand in own), later)
        sizes = [_aligned(operand.bytes) for operand in own]
        slack = room - sum(sizes)
        if slack < 0:
            return
        starts = sorted({_aligned(start) for start, _ in opening.free})
        for order, later in product(permutations(range(len(own))), turns):
            ends = [*accumulate((sizes[number] for number in order), initial=0)]
            for front in range(len(own) + 1):
                # So many lie at the start, the others at the end.
                bases = [0] * len(own)
                for place, number in enumerate(order):
                    bases[number] = ends[place] + slack * (place >= front)
                yield Arrangement(tuple(bases), later)
                if image is None or order[front - 1 : front] != (image,):
                    continue
                # The image may lie anywhere between.
                low, offset = bases[image], later * own[image].slot_bytes
                for start in starts:
                    if low < start - offset < low + slack:
                        bases[image] = start - offset
                        yield Arrangement(tuple(bases), later)

    def _arrivals(
        self,
        way: Arrangement,
        own: Sequence[Operand],
        firsts: dict[BufferOp, list[Transfer]],
        opening: Opening,
    ) -> Arrivals:
        """What may load early if buffers lie so."""
        bases = {operand.buffer: base for operand, base in zip(own, way.bases, strict=True)}
        arrivals = Arrivals()
        for role in ROLES:
            for operand in own:
                if operand.role != role:
                    continue
                base = bases[operand.buffer]
                if role == "input" and way.later:
                    base += operand.slot_bytes
                if self._in_result(operand):
                    assert self.nest.output is not None
                    base = bases[self.nest.output.buffer]
                loads = [replace(load, chip=base + load.chip) for load in firsts[operand.buffer]]
                now, rest = arrivals.loads, list[Transfer]()
                for load in loads:
                    early = len(now) < MOST and self._taken((*now, load)) <= opening.cycles
                    if early and opening.takes(load):
                        now = (*now, load)
                    else:
                        rest.append(load)
                # What the first products wait for may come in parts.
                if now != arrivals.loads and (role == "input" or not rest):
                    buffers = (*arrivals.buffers, operand.buffer)
                    arrivals = Arrivals(buffers, now, (*arrivals.rest, *rest))
        return arrivals

    def _taken(self, loads: Sequence[Transfer]) -> float:
        """Cycles of loads, one after the other."""
        move = self.machine.move(self.machine.main, "vsm")
        sizes = [load.elements * load.element for load in loads]
        return sum(move.latency + size / move.bytes_per_cycle for size in sizes)

    def _in_result(self, operand: Operand) -> bool:
        """Whether an operand's first tile lies where the first results go (Stepping)."""
        out = self.nest.output
        assert out is not None
        if self.walk.in_turn() is not operand.buffer or operand.slots > 1:
            return False
        return self._streams(operand) and self._streams(self.operands[out.buffer])

    def _room(self, temporaries: Temporaries, beside: int) -> int:
        """Bytes in front of temporaries, and of what they have been given of the ``beside`` bytes
        that no buffer used."""
        whole = temporaries.start < self._temporaries("vsm").start
        return temporaries.start - (0 if whole or temporaries.beside == beside else beside)

    def choose_opening(self, temporaries: Temporaries, beside: int) -> Opening | None:
        """The last tile as a place for loads, if the code has room for them.

        ``beside`` bytes in front of the temporaries were left for them at first.
        """
        flat = self.walk.flat
        unstored = self._unstored()
        if flat is None or flat.last_tile is None or unstored is None:
            return None
        plain = self._temporaries("vsm")
        end = plain.start + plain.size
        used = [(plain.start - beside, temporaries.start - temporaries.beside)]
        used.append((temporaries.start, end))
        for operand in self._in_vector():
            # The next one would load where the last one is not.
            is_image = operand.role == "input"
            whole = operand.address, operand.address + operand.bytes
            used.append(self._last_of(operand.buffer) if is_image else whole)
        return replace(
            flat.last_tile.opening,
            free=_free(used, end),
            unstored=unstored,
            cycles=self._last_cycles(),
        )

    def _last_cycles(self) -> float:
        """Cycles of the last tile's products behind the store of the tile before."""
        assert self.nest.output is not None
        walk, extents = self.walk, self.program.extents
        if walk.interval is None or walk.places is None:
            return 0.0
        output = self.operands[self.nest.output.buffer]
        cycles = walk.interval * walk.places
        for loop in self.nest.loops:
            step = min(loop.step_size, extents[loop.dim.data])
            cycles *= (extents[loop.dim.data] % step or step) / step
        return cycles - (0.0 if output.held else self._pieces(output) * self._longest(output))

    def _unstored(self) -> tuple[Interval, ...] | None:
        """The bytes of main memory that the last two tiles of the result take; None: not known."""
        assert self.nest.output is not None
        buffer, depth = self.nest.output.buffer, self.nest.output.depth
        operand, loops = self.operands[buffer], self.nest.loops
        if operand.held:
            return ()
        if self._uneven(buffer):
            return None
        trial = Emitter(self.e.where, "last")
        walk = Walk(trial, self.nest, {})
        lasts = [(loop.upper_bound - 1) // loop.step_size for loop in loops[:depth]]
        total = prod(last + 1 for last in lasts)
        intervals: list[Interval] = []
        for visit in range(max(total - 2, 0), total):
            starts, left = [0] * len(loops), visit
            for number in range(depth - 1, -1, -1):
                left, at = divmod(left, lasts[number] + 1)
                starts[number] = at * loops[number].step_size
            box = operand.box(trial, walk.spans(starts, depth), self.program.extents)
            intervals.append(
                _hull(runs_of(trial, box, operand.place, operand.order), operand.element)
            )
        return tuple(intervals)


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _free(used: Sequence[Interval], end: int) -> tuple[Interval, ...]:
    """What is left of the bytes before ``end``."""
    intervals: list[Interval] = []
    at = 0
    for start, behind in sorted(used):
        if start > at:
            intervals.append((at, start))
        at = max(at, behind)
    return (*intervals, (at, end)) if at < end else tuple(intervals)


def _hull(runs: Runs, element: int) -> Interval:
    """From the first byte of a box in main memory to behind its last one."""
    assert isinstance(runs.elements, int) and isinstance(runs.address, int)
    start = runs.address + runs.offset
    reach = sum((count - 1) * stride for count, stride in runs.loops if isinstance(count, int))
    return start, start + reach + runs.elements * element
