"""Turn waits into what the machine has: flags, reply words, or tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from tilewright.errors import refuse
from tilewright.machine import Machine
from tilewright.machine.synchronisation import Synchronisation
from tilewright.tile.dialect import ProgramOp
from tilewright.tile.event_ids import APART, Request, give_ids, needed
from tilewright.tile.handovers import Handover, Placed, handovers_of, place, remove
from tilewright.tile.issued import handovers_of_issued
from tilewright.tile.iteration import Order
from tilewright.tile.passes.base import TilePass
from tilewright.tile.passes.synchronise import PROVEN
from tilewright.tile.queues import Queues, commands_of
from tilewright.tile.races import Fault, Race, faults, races


@dataclass(frozen=True)
class AssignEvents(TilePass):
    """Puts signals and waits for them in the place of waits, each with an id of its pair of engines
    that the machine has (``machine.synchronisation``), on machines where engines signal.

    Before::

        tile.loop "oh" 0 to 56 step 4 {
          tile.move %x to %bx on "load" waits ["free x"]
          tile.compute "conv" on "compute" to %by waits ["ready x"] {...}

    After (flags, two slots)::

        tile.signal "compute" to "load" ids [0]
        tile.signal "compute" to "load" ids [1]
        tile.loop "oh" 0 to 56 step 4 {
          tile.wait "compute" to "load" ids [0, 1] of %bx
          tile.move %x to %bx on "load"
          tile.signal "load" to "compute" ids [0, 1] of %bx
          tile.wait "load" to "compute" ids [0, 1] of %bx
          tile.compute "conv" on "compute" to %by {...}
          tile.signal "compute" to "load" ids [0, 1] of %bx
        }
        tile.wait "compute" to "load" ids [0]
        tile.wait "compute" to "load" ids [1]

    A hand-over takes one id where ids count, and else one for each slot, so that the source can be
    ahead. Hand-overs without which the proof (races.py) still holds are left out, in programs of at
    most ``PROVEN`` executions.

    Where a pair of engines has too few ids, hand-overs share one if the proof holds with it, as
    registers are shared by values that do not live at once. What is still too much is made
    narrower, least executed first: the slots of a buffer take turns no more (its engines wait for
    the visit before), and then a barrier, which takes no id, stands in place of a wait and says
    why.

    Where one engine gives the others their commands, each transfer counts up words of its own, and
    is waited for once (issued.py).

    Refuses (``tile-event``) programs whose commands stand in their queues otherwise than in the
    text (``late``, ``ahead``, containers): no id follows them.
    """

    name = "assign-events"

    def run(self, program: ProgramOp, machine: Machine) -> None:
        """Replace the waits of one program."""
        limits = machine.synchronisation
        if not limits.signals or limits.by_rows:
            return
        issued = program.issuer is not None
        if not issued:
            _refuse_reordered(program, limits)
        handovers = list(handovers_of_issued(program)) if issued else handovers_of(program)
        for op in commands_of(program):
            op.properties.pop("waits", None)
        if handovers:
            _Assignment(program, limits, handovers).run()


def _refuse_reordered(program: ProgramOp, limits: Synchronisation) -> None:
    reordered = program.groups is not None or any(
        op.properties.get(key) is not None
        for op in commands_of(program)
        for key in ("late", "ahead")
    )
    if reordered:
        raise refuse(
            "tile-event",
            f"queues have another order than the program, which {limits.style} do not support",
            program.symbol.data,
            'without late-loads, prefetch and groups of commands; or synchronisation = "counters"',
        )


class _Assignment:
    """The hand-overs of one program on their way to ids."""

    def __init__(
        self, program: ProgramOp, limits: Synchronisation, handovers: Sequence[Handover]
    ) -> None:
        self.program = program
        self.limits = limits
        order = Order(program)
        self.proven = sum(order.rows(op).count for op in commands_of(program)) <= PROVEN
        self.runs = {each: order.block(each.block).count for each in handovers}
        """The number of times that each hand-over is executed."""
        self.items = [Placed(each) for each in handovers]

    def run(self) -> None:
        """Leave the program with signals that are proven."""
        if self.proven and self.program.issuer is None:
            self._prune()
        # Each round makes some hand-over narrower, of which every one can be a barrier at last.
        for _ in range(4 * len(self.items) + 4):
            tight = self._number()
            if tight is not None:
                self._narrow(tight)
                continue
            problems = self._problems(self.items)
            if not problems:
                if any(item.reason for item in self.items) and self.proven:
                    self._prune()
                    if self._number() is not None or self._problems(self.items):
                        continue
                remove(self.program)
                place(self.program, self.items)
                return
            self._mend(problems[0])
        raise refuse(
            "tile-event",
            f"{self.limits.style} do not order it",
            self.program.symbol.data,
            'synchronisation = "counters"',
        )

    def _problems(self, items: Sequence[Placed]) -> list[_Problem]:
        """Return the problems of the program when some hand-overs alone order it."""
        remove(self.program)
        placed = place(self.program, items)
        order = Order(self.program)
        queues = Queues(order)
        bad = faults(queues, self.limits) if any(item.ids for item in items) else []
        problems = [_Problem(fault, placed[fault.op]) for fault in bad]
        return problems or [_Problem(race) for race in races(order, queues)]

    def _with(self, ids: Sequence[range]) -> list[Placed]:
        """The items, with ids for those that are no barriers."""
        id_ranges = iter(ids)
        return [
            item if item.reason else replace(item, ids=tuple(next(id_ranges)))
            for item in self.items
        ]

    def _size(self, item: Placed) -> int:
        """Ids that a hand-over takes."""
        depth, slots = self.limits.limit, item.handover.slots
        return slots if depth is not None and depth < slots else 1

    def _prune(self) -> None:
        """Leave out what the proof does not need."""

        def holds(items: Sequence[Placed]) -> bool:
            apart = [
                item if item.reason else replace(item, ids=self._ids(APART * (n + 1), item))
                for n, item in enumerate(items)
            ]
            return not self._problems(apart)

        self.items = needed(self.items, lambda item: item.handover.back, holds)

    def _ids(self, base: int, item: Placed) -> tuple[int, ...]:
        return tuple(range(base, base + self._size(item)))

    def _number(self) -> tuple[str, str] | None:
        """Give ids; the pair of engines that has too few of them, if one has."""
        requests = [
            Request(self._pair(item), self._size(item), self.runs[item.handover])
            for item in self.items
            if not item.reason
        ]

        def holds(ids: Sequence[range]) -> bool:
            items = self._with(ids)
            return not self._mixed(items) and not self._problems(items)

        assignment = give_ids(requests, self.limits.count, holds)
        self.items = self._with(assignment.ids)
        return cast("tuple[str, str] | None", assignment.tight)

    def _pair(self, item: Placed) -> tuple[str, str]:
        """Return the owner of the ids: a pair of engines, or, for reply words, the machine."""
        return ("", "") if self.limits.style == "replies" else item.handover.engines

    def _mixed(self, items: Sequence[Placed]) -> bool:
        """Return True if a reply word would serve two pairs of engines; the proof would find it
        later."""
        owner: dict[int, tuple[str, str]] = {}
        return self.limits.style == "replies" and any(
            owner.setdefault(number, item.handover.engines) != item.handover.engines
            for item in items
            for number in item.ids
        )

    def _narrow(self, pair: tuple[str, str]) -> None:
        """Let a buffer's slots take turns no more, or put a barrier in place of a hand-over."""
        mine = [item for item in self.items if not item.reason and self._pair(item) == pair]
        mine.sort(key=lambda item: self.runs[item.handover])
        for item in mine:
            if item.handover.of is not None and self._size(item) > 1:
                self._one_slot(item)
                return
        asked = sum(self._size(item) for item in mine)
        resources = {"flags": "flags", "replies": "reply words", "tokens": "queues of tokens"}
        between = "" if pair == ("", "") else f" from {pair[0]} to {pair[1]}"
        has = self.limits.count
        self._bar(
            mine[0], f"{asked} {resources[self.limits.style]}{between} are asked for; {has} exist"
        )

    def _one_slot(self, item: Placed) -> None:
        of = item.handover.of
        for n, other in enumerate(self.items):
            if other.handover.of is of:
                self._replace(n, replace(other.handover, of=None, slots=1))

    def _replace(self, n: int, handover: Handover) -> None:
        self.runs[handover] = self.runs[self.items[n].handover]
        self.items[n] = replace(self.items[n], handover=handover)

    def _bar(self, item: Placed, reason: str) -> None:
        self.items[self.items.index(item)] = replace(item, ids=(), reason=reason)

    def _mend(self, problem: _Problem) -> None:
        """Add what orders a signal behind the wait that takes the one before; or a barrier."""
        item = problem.item
        if self.program.issuer is not None:
            reason = "an operand lies where another is still under way"
            raise refuse("tile-event", reason, self.program.symbol.data, "choose smaller tiles")
        if item is None:
            # A dependence that pruning and sharing left unordered, which they never do.
            for other in self.items:
                if not other.reason:
                    self._bar(other, "no signals order it")
                    return
            return
        reverse = item.handover.reverse
        if reverse in self.runs or item.reason:
            self._bar(item, "an id would be signalled again before its wait")
            return
        self.runs[reverse] = self.runs[item.handover]
        self.items.append(Placed(reverse))


@dataclass(frozen=True)
class _Problem:
    fault: Fault | Race
    item: Placed | None = None
    """The hand-over whose signal or wait it is."""
