"""Weights that are prefetched while an earlier kernel computes.

The matrix scratchpad has a DMA of its own, and its first tile of weights depends on no kernel. So a
kernel leaves **prefetch slots**: places that it passes once, after all of its own loads of weights
and before the tiles that they are for. The first load of a kernel that follows goes there if

- no kernel from the slot on uses the bytes that it fills before their own kernel does, and
- the load in the slot before is over by then, as far as the planner can tell: the queue is in
  order, and a second transfer of one engine would hold up all after it.

Before::

    kernel 1: MLOAD weights of 1, VLOAD x, compute, VSTORE y
    kernel 2: MLOAD weights of 2, VLOAD y (waits for the store), compute

After::

    kernel 1: MLOAD weights of 1, VLOAD x, MLOAD weights of 2, compute, VSTORE y
    kernel 2: VLOAD y (waits for the store), compute

A load before the first tile waits until that tile's operands are there: beside them it would
take half of the bandwidth, while no product runs.

Where in the scratchpad a kernel's weights lie is chosen for that, too: so that they meet those of
as few kernels before as possible, and their last tile leaves the next kernel as much room in one
piece as it can: a slot in front of the last tile has all bytes but that tile's to fill. Where a
kernel's weights have two slots, their first tile may go to the second one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.machine import Machine
from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.statements import Statement, statement

ALIGNMENT = 64
"""Bytes to which weights are aligned in the scratchpad."""

AMPLE = 2.0
"""Cycles from a slot to a load's kernel, in those of the load, that are enough: other transfers
take half of the bandwidth."""

Interval = tuple[int, int]
"""An interval of bytes: the first one, and the one after the last."""


@dataclass(frozen=True)
class FirstLoad:
    """The load of a kernel's first weights: all of it is known when it is compiled."""

    chip: int
    """Address in the matrix scratchpad."""
    elements: int
    main: int
    """Address in main memory."""

    @property
    def filled(self) -> Interval:
        """The bytes that it fills."""
        return self.chip, self.chip + 2 * self.elements

    def cycles(self, machine: Machine) -> float:
        """Return the cycles of the transfer when nothing else uses main memory."""
        move = machine.move(machine.main, "msm")
        return move.latency + 2 * self.elements / move.bytes_per_cycle

    def statements(self, registers: Sequence[Register], *, waits: bool) -> list[Statement]:
        """The load, by three registers that are free; ``waits`` for all before it, if it is to."""
        at, count, zero = registers
        operands = at, count, zero, self.main
        return [
            statement("SMOVE", zero, 0, remark="weights of a kernel that follows"),
            statement("SMOVE", at, self.chip),
            statement("SMOVE", count, self.elements),
            *([statement("MLOAD.barrier", *operands)] if waits else []),
            statement("MLOAD", *operands),
        ]


@dataclass(frozen=True)
class WeightRequest:
    """The room of a kernel's weights in the scratchpad, and their first load as if at byte 0."""

    load: FirstLoad
    bytes: int
    """Bytes of all slots."""
    apart: int = 0
    """Bytes from the first slot to the second; 0 where there is one."""
    tiles: int = 1
    """Tiles that are loaded, one after the other."""

    def first(self, base: int, later: bool) -> FirstLoad:
        """The first load, to the first slot or the second, where slots begin at ``base``."""
        return replace(self.load, chip=base + later * self.apart)

    def last(self, base: int, later: bool) -> Interval:
        """The bytes of the last tile."""
        if not self.apart:
            return base, base + self.bytes
        start = base + (self.tiles - 1 + later) % 2 * self.apart
        return start, start + self.apart


@dataclass(frozen=True)
class PlacedWeights:
    """The place of a kernel's weights, and the load that an earlier kernel issues for them."""

    base: int
    """Address of the first slot of the weights in the matrix scratchpad."""
    later: bool = False
    """True if the first tile goes to the second of two slots."""
    prefetch: FirstLoad | None = None
    """The load that an earlier kernel issues."""
    slot: int | None = None
    """The number of that kernel."""


@dataclass(frozen=True)
class PrefetchSlot:
    """A place in a kernel's statements that takes one load."""

    place: Statement
    """A remark that stands there; it is found by identity."""
    registers: tuple[Register, ...]
    busy: tuple[Interval, ...] = ()
    """Bytes of the matrix scratchpad that the kernel still uses after it."""
    waits: bool = False
    """True if the first tile's operands come before it: beside them, the load would take half of
    the bandwidth, and the first product wait."""


@dataclass
class _Passed:
    """A kernel that has been lowered."""

    used: tuple[Interval, ...]
    slot: PrefetchSlot | None
    cycles: float
    load: FirstLoad | None = None
    """The load that takes the kernel's slot."""
    owner: int = 0
    """The number of the kernel that this is for."""


class Prefetches:
    """The slot in which each load of the next kernel is issued, kernel by kernel."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._passed: list[_Passed] = []
        self.begin = 0
        """The first kernel whose slot may take loads of those that follow."""

    def place(self, request: WeightRequest, room: int) -> PlacedWeights:
        """Choose the place of a kernel's weights, and the slot that takes their first load.

        The next slot that leaves the load time enough is best: it shares main memory with the moves
        of the kernels after it.
        """
        ends = [end for kernel in reversed(self._passed) for _, end in kernel.used]
        after = -(-ends[0] // ALIGNMENT) * ALIGNMENT if ends else 0
        bases = (after, 0, (room - request.bytes) // ALIGNMENT * ALIGNMENT)
        whole: list[PlacedWeights] = []
        for base in bases:
            for later in (False, True)[: 2 if request.apart else 1]:
                load = request.first(base, later)
                if 0 <= base <= room - request.bytes:
                    whole.append(PlacedWeights(base, later, load, self.earlier_slot(load)))
        possible = [choice for choice in whole if choice.slot is not None]

        def left(choice: PlacedWeights) -> tuple[int, int]:
            """Bytes beside the last tile for a kernel that follows, best before it: what takes
            all of the scratchpad begins there."""
            start, end = request.last(choice.base, choice.later)
            return max(start, room - end), start

        return max(
            possible,
            key=lambda choice: (self._time_after(choice.slot or 0), left(choice)),
            default=PlacedWeights(whole[0].base),
        )

    def _time_after(self, number: int) -> float:
        """Cycles from a kernel's slot to the next kernel to be lowered, about."""
        return sum(kernel.cycles for kernel in self._passed[number:])

    def earlier_slot(self, load: FirstLoad) -> int | None:
        """The last slot that gives a load time enough, or else the first one that can take it."""
        slot_number: int | None = None
        for number in range(len(self._passed) - 1, self.begin - 1, -1):
            kernel = self._passed[number]
            if kernel.load is not None:
                break
            if kernel.slot is not None:
                if any(meet(load.filled, busy) for busy in kernel.slot.busy):
                    break
                if self._free(number):
                    slot_number = number
                    if self._time_after(number) >= AMPLE * load.cycles(self._machine):
                        break
            if any(meet(load.filled, used) for used in kernel.used):
                break
        return slot_number

    def _free(self, number: int) -> bool:
        """Return True if the loads in earlier slots are over when a kernel's slot is reached.

        A load for the kernel itself, or for one before it, is: they wait for it themselves.
        """
        elapsed = 0.0
        for before in reversed(self._passed[:number]):
            elapsed += before.cycles
            if before.load is not None:
                done = before.load.cycles(self._machine) <= elapsed
                return done or before.owner <= number
        return True

    def passed(
        self,
        used: Sequence[Interval],
        slot: PrefetchSlot | None,
        cycles: float,
    ) -> None:
        """Record a lowered kernel: ``cycles`` are those with its first weights on the chip."""
        self._passed.append(_Passed(tuple(used), slot, cycles))

    @property
    def places(self) -> frozenset[int]:
        """Identities of the remarks in slots, filled or not."""
        return frozenset(
            id(kernel.slot.place) for kernel in self._passed if kernel.slot is not None
        )

    def put(self, number: int, load: FirstLoad) -> PrefetchSlot:
        """Take a kernel's slot for a load; the slot."""
        kernel = self._passed[number]
        assert kernel.slot is not None
        kernel.load, kernel.owner = load, len(self._passed)
        return kernel.slot


def meet(a: Interval, b: Interval) -> bool:
    """Return True if two runs of bytes overlap."""
    return a[0] < b[1] and b[0] < a[1]
