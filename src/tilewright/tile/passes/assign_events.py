"""Turn waits into what the machine has: flags, reply words, or tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from tilewright.errors import refuse
from tilewright.machine import Machine
from tilewright.machine.synchronisation import Synchronisation
from tilewright.tile.dialect import ProgramOp
from tilewright.tile.event_ids import APART, Request, give_ids, needed
from tilewright.tile.handovers import Handover, Placed, handovers_of, merged, place, remove
from tilewright.tile.issued import handovers_of_issued
from tilewright.tile.iteration import Order
from tilewright.tile.operations import Ordering
from tilewright.tile.passes.base import TilePass
from tilewright.tile.passes.synchronise import PROVEN
from tilewright.tile.queues import commands_of
from tilewright.tile.races import Fault, Proof, Race


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
    ahead. Where engines set flags, hand-overs that stand side by side are one, which hands on all
    that the source has brought. Hand-overs without which the proof (races.py) still holds are left
    out, in programs of at most ``PROVEN`` executions.

    Parts that cores share are told apart by a barrier at the end of each, as kernels are: signals
    order what one part does.

    Where a pair of engines has too few ids, hand-overs share one if the proof holds with it, as
    registers are shared by values that do not live at once. What is still too much is made
    narrower, least executed first: half of the slots of a buffer take turns (its engines wait for
    a later visit), and then a barrier, which takes no id, stands in place of a wait and says
    why.

    Where one engine gives the others their commands, each transfer counts up words of its own, and
    is waited for once (issued.py).

    A program that also runs with fewer indices of some dims (``shorter``) is proven for these
    extents, too: a hand-over that another implies may be needed where a loop runs less often.

    Refuses (``tile-event``) programs whose commands stand in their queues otherwise than in the
    text (``ahead``, containers): no id follows them.
    """

    name = "assign-events"

    shorter: tuple[Mapping[str, int], ...] = ()

    def run(self, program: ProgramOp, machine: Machine) -> None:
        """Replace the waits of one program."""
        limits = machine.synchronisation
        if not limits.signals or limits.by_rows:
            return
        issued = program.issuer is not None
        if not issued:
            _refuse_reordered(program, limits)
        handovers = list(handovers_of_issued(program)) if issued else handovers_of(program)
        if limits.style == "flags":
            handovers = merged(handovers)
        for op in commands_of(program):
            op.properties.pop("waits", None)
        if handovers:
            _Assignment(program, limits, handovers).run(self.shorter)


def _refuse_reordered(program: ProgramOp, limits: Synchronisation) -> None:
    reordered = program.groups is not None or any(
        op.properties.get("ahead") is not None for op in commands_of(program)
    )
    if reordered:
        raise refuse(
            "tile-event",
            f"queues have another order than the program, which {limits.style} do not support",
            program.symbol.data,
            'without prefetch and groups of commands; or synchronisation = "counters"',
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
        self.extents: list[Mapping[str, int]] = [{}]
        """Of dims that end early: what the program is proven for."""

    def run(self, shorter: Sequence[Mapping[str, int]]) -> None:
        """Leave the program with signals that are proven."""
        items, runs = self.items, dict(self.runs)
        while True:
            self._settle()
            rest = (extents for extents in shorter if extents not in self.extents)
            wrong = next((each for each in rest if self._wrong(Order(self.program, each))), None)
            if wrong is None:
                return
            self.extents.append(wrong)
            self.items, self.runs = items, dict(runs)

    def _wrong(self, order: Order) -> bool:
        proof = Proof(order)
        return bool(proof.races() or proof.faults(self.limits))

    def _settle(self) -> None:
        """Leave the program with signals that are proven for the extents that are known."""
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
        placed, proofs = self._placed(items)
        signals = any(item.ids for item in items)
        for proof in proofs:
            bad = proof.faults(self.limits) if signals else []
            problems = [_Problem(fault, placed[fault.op][0]) for fault in bad]
            if problems := problems or [_Problem(race) for race in proof.races()]:
                return problems
        return []

    def _placed(self, items: Sequence[Placed]) -> tuple[dict[Ordering, list[Placed]], list[Proof]]:
        remove(self.program)
        placed = place(self.program, items)
        return placed, [Proof(Order(self.program, extents)) for extents in self.extents]

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

        apart = {
            item: item if item.reason else replace(item, ids=self._ids(APART * (n + 1), item))
            for n, item in enumerate(self.items)
        }
        # Signals that do not count stay where they are, which takes less time than other programs.
        placed, proofs = self._placed(list(apart.values()))

        def holds(items: Sequence[Placed]) -> bool:
            kept = {apart[item] for item in items}
            idle = frozenset(op for op, of in placed.items() if kept.isdisjoint(of))
            return not any(proof.races(idle) or proof.faults(self.limits, idle) for proof in proofs)

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
                self._fewer_slots(item)
                return
        asked = sum(self._size(item) for item in mine)
        resources = {"flags": "flags", "replies": "reply words", "tokens": "queues of tokens"}
        between = "" if pair == ("", "") else f" from {pair[0]} to {pair[1]}"
        has = self.limits.count
        self._bar(
            mine[0], f"{asked} {resources[self.limits.style]}{between} are asked for; {has} exist"
        )

    def _fewer_slots(self, item: Placed) -> None:
        """Let half of a buffer's slots take turns, or one of an odd number."""
        of, slots = item.handover.of, item.handover.slots
        fewer = 1 if slots % 2 else slots // 2
        for n, other in enumerate(self.items):
            if other.handover.of is of:
                turns = of if fewer > 1 else None
                self._replace(n, replace(other.handover, of=turns, slots=fewer))

    def _replace(self, n: int, handover: Handover) -> None:
        self.runs[handover] = self.runs[self.items[n].handover]
        self.items[n] = replace(self.items[n], handover=handover)

    def _bar(self, item: Placed, reason: str) -> None:
        self.items[self.items.index(item)] = replace(item, ids=(), reason=reason)

    def _mend(self, problem: _Problem) -> None:
        """Add what orders a signal after the wait that takes the one before; or a barrier."""
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
