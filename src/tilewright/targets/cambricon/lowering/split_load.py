"""Weights that come by both DMAs, so that neither one's latency leaves main memory idle.

Where a product takes its weights once, as fully connected layers do, main memory is what it waits
for, and a DMA begins the latency of a transfer when the one before has ended. So the end of each
tile's weights comes by the other DMA: into VSM, just before the tile's long transfer can begin, and
while that has its latency. The matrix unit, which has time, copies it from there to where it
belongs: the outer product of a one and a vector is that vector::

    matrix_dma   ... tile 1 ------|latency| tile 2 -------
    vector_dma            |latency| end of 2 |
    matrix                            product 1 | copy |

A loop that waits delays the other transfer, for as long as the tile's products and moves are known
to take.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from tilewright.machine import Machine
from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.emitter import Emitter, Value
from tilewright.targets.cambricon.lowering.temporaries import Temporaries, fill
from tilewright.targets.cambricon.machine import lanes_of

AMPLE = 2.5
"""Times the bytes that main memory moves in a latency, what comes by the other DMA: so it lasts
until the long transfer's latency is over, also if it begins early."""

SAFE = 20
"""Cycles by which it begins earlier than it has to: a long transfer that is late costs more."""

ROUND = 2
"""Cycles of a loop that waits, each time."""


@dataclass
class SplitLoad:
    """The loads of one operand's tiles, a part of each by way of VSM."""

    elements: int
    """Elements of the part that goes through VSM."""
    place: int
    """Address of that part in VSM."""
    unit: int
    """The address of a one."""
    spent: float
    """Cycles that are left for the other moves of a tile, and for the part of the next one."""
    rate: float
    """Bytes that main memory moves in a cycle."""
    rounds: Register
    """Iterations that are left of the loop that waits."""
    copied: Register
    """Address in the matrix scratchpad to which the part in VSM is copied."""
    to_copy: Register
    """Positive until it is there."""

    def prologue(self, e: Emitter) -> None:
        """Emit the code that runs before all tiles."""
        fill(e, self.unit, 1, 1)
        e.set(self.to_copy, 0)

    def load(self, e: Emitter, base: Value, count: Value, address: Value, start: int) -> None:
        """A tile's elements to ``base``; they lie ``address`` bytes after the tensor's start."""
        e.aside(self.to_copy, lambda: self._copy(e))
        part, matrix = e.reg(self.elements), e.reg(base)
        others = e.reg(e.add(count, -self.elements))
        main = e.reg(address)
        end = e.reg(e.add(main, e.multiply(others, 2)))
        e.emit("VLOAD", e.reg(self.place), part, end, start)
        e.emit("MLOAD", matrix, others, main, start)
        e.set(self.copied, e.add(matrix, e.multiply(others, 2)))
        rounds = e.divide(count, ceil(ROUND * self.rate / 2))
        e.set(self.rounds, e.add(rounds, -round(self.spent / ROUND)))
        e.set(self.to_copy, 1)

    def _copy(self, e: Emitter) -> None:
        unit, place = e.reg(self.unit), e.reg(self.place)
        e.emit("OP", self.copied, unit, e.reg(1), place, e.reg(self.elements))
        e.set(self.to_copy, 0)

    def wait(self, e: Emitter) -> None:
        """Wait after a tile's products, until the part of the tile after the next one may come.

        The copy enters the queue when the long transfer before it has left that; so time is
        measured from there, whatever the other transfer has taken.
        """

        def block() -> None:
            self._copy(e)
            again, ready = e.label("wait"), e.label("ready")
            e.emit("CB", self.rounds, again)
            e.jump(ready)
            e.place(again)
            e.emit("SSUB", self.rounds, self.rounds, 1)
            e.emit("CB", self.rounds, again)
            e.place(ready)

        e.aside(self.to_copy, block)


def split_load_of(
    e: Emitter,
    machine: Machine,
    t: Temporaries,
    sizes: tuple[int, int],
    busy: float,
    moves: float,
) -> SplitLoad | None:
    """The split load of tiles of ``sizes`` elements, the least and the most; None where it does not
    pay.

    ``busy`` and ``moves`` are cycles of a tile's products and of its other moves.
    """
    least, most = sizes
    move = machine.move(machine.main, "msm")
    other = machine.move(machine.main, "vsm")
    lanes, rate = lanes_of(machine), move.bytes_per_cycle
    elements = min(int(AMPLE * move.latency * rate) // 2, t.beside // 2 - lanes) // lanes * lanes
    if 2 * elements < move.latency * rate or least <= elements:
        return None
    # Beside the transfer that it waits for, it has half of the bandwidth.
    lead = other.latency + 2 * (2 * elements / rate - move.latency) + SAFE
    copy, load = elements / lanes, 2 * most / rate
    if load < max(busy + copy, moves + lead + copy + move.latency):
        return None
    place, unit = t.beside_them(2 * elements), t.beside_them(2)
    counters = e.register(), e.register(), e.register()
    return SplitLoad(elements, place, unit, moves + lead, rate, *counters)
