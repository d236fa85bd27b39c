"""The assignment of ids to hand-overs, for tile programs and for programs of targets.

A *hand-over* is a place where one engine signals and another waits. ``Assignment`` gives each an
id, as a register allocator gives values registers: it leaves out hand-overs that are not needed,
shares ids where there are too few, and puts barriers where sharing is wrong. All of this asks a
proof of the whole program, which a subclass provides with the way in which hand-overs are written
into its kind of program. A proof is exact where rules of interference would be guesses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, cast

from tilewright.errors import TilewrightError
from tilewright.machine.synchronisation import Synchronisation

APART = 1 << 10
"""Ids from here on stand for those that are not given yet; no two are the same."""

BlockT = TypeVar("BlockT")
StatementT = TypeVar("StatementT")
BufferT = TypeVar("BufferT")


@dataclass(frozen=True)
class Handover(Generic[BlockT, StatementT, BufferT]):
    """An engine signals another: after one statement of a block, before another."""

    source: str
    target: str
    block: BlockT
    after: StatementT
    """The statement after which the source signals."""
    before: StatementT | None
    """The statement before which the target waits; None: right after the signal."""
    back: bool
    """True if the wait is for a signal of an earlier run of the block."""
    slots: int = 1
    """The number of runs back; for other waits, how many runs the source may be ahead."""
    of: BufferT | None = None
    """The buffer whose slots they are, where there are several."""

    @property
    def engines(self) -> tuple[str, str]:
        """The ordered pair of engines: source and target."""
        return self.source, self.target

    @property
    def reverse(self) -> Handover[BlockT, StatementT, BufferT]:
        """The hand-over in the other direction: the source waits until the target has taken the
        signal of as many executions ago as the buffer has slots."""
        before = self.after if self.before is None else self.before
        return replace(
            self,
            source=self.target,
            target=self.source,
            after=before,
            before=self.after,
            back=True,
        )


AnyHandover = TypeVar("AnyHandover", bound=Handover[Any, Any, Any])
Case = TypeVar("Case")


def merged(
    handovers: Sequence[AnyHandover],
    precedes: Callable[[Any, Any], bool],
    turn: Callable[[AnyHandover], object],
) -> list[AnyHandover]:
    """Join hand-overs of the same engines and slots that take turns alike, where their places
    allow: the source signals after all that it hands on, the target waits before it uses any."""

    def both(handover: AnyHandover, other: AnyHandover) -> AnyHandover | None:
        if (handover.engines, handover.block, handover.back, handover.slots, turn(handover)) != (
            *(other.engines, other.block, other.back, other.slots, turn(other)),
        ):
            return None
        if handover.before is None or other.before is None:
            return None
        after = other.after if precedes(handover.after, other.after) else handover.after
        earliest = handover if precedes(handover.before, other.before) else other
        return (
            replace(earliest, after=after)
            if handover.back or precedes(after, earliest.before)
            else None
        )

    whole: list[AnyHandover] = []
    for handover in handovers:
        for number, other in enumerate(whole):
            if (joined := both(handover, other)) is not None:
                whole[number] = joined
                break
        else:
            whole.append(handover)
    return whole


@dataclass(frozen=True)
class Placed(Generic[AnyHandover]):
    """A hand-over with ids, or the barrier that stands for it."""

    handover: AnyHandover
    ids: tuple[int, ...] = ()
    reason: str = ""
    """The reason why a barrier takes its place; "" for signals."""


@dataclass(frozen=True)
class Finding(Generic[AnyHandover]):
    """A fault of a program that its proof finds."""

    text: str
    item: Placed[AnyHandover] | None = None
    """The hand-over whose signal or wait it is; None for a dependence that nothing orders."""


class Assignment(ABC, Generic[AnyHandover, Case]):
    """The hand-overs of one program on their way to ids.

    It is proven for the first of some cases (extents, lengths, blocks), and for each other with
    which a proof then finds something wrong.
    """

    def __init__(
        self, limits: Synchronisation, handovers: Sequence[AnyHandover], case: Case
    ) -> None:
        self.limits = limits
        self.items = [Placed(each) for each in handovers]
        self.cases = [case]

    @abstractmethod
    def prune(self) -> bool:
        """Leave out what the proof does not need; return False if that is not asked."""

    @abstractmethod
    def holds(self, items: Sequence[Placed[AnyHandover]]) -> bool:
        """Return True if nothing is wrong in any known case when these order the program."""

    @abstractmethod
    def problem(self) -> Finding[AnyHandover] | None:
        """Write the program with its items; return what is wrong with it in a known case."""

    @abstractmethod
    def is_right(self, case: Case) -> bool:
        """Return True if nothing is wrong in a case with the program that was written."""

    @abstractmethod
    def refusal(self, problem: Finding[AnyHandover]) -> TilewrightError:
        """Return the error for a program that no signals and barriers order."""

    def runs(self, handover: AnyHandover) -> int:
        """Return the number of times that a hand-over is executed."""
        return 1

    def run(self, cases: Sequence[Case]) -> None:
        """Leave the program with signals that are proven for all cases."""
        items = self.items
        while True:
            self._settle()
            rest = (case for case in cases if case not in self.cases)
            wrong = next((case for case in rest if not self.is_right(case)), None)
            if wrong is None:
                return
            self.cases.append(wrong)
            self.items = items

    def _settle(self) -> None:
        """Leave the program with signals that are proven for the cases that are known."""
        self.prune()
        # Each round makes some hand-over narrower, of which every one can be a barrier at last.
        problem: Finding[AnyHandover] | None = None
        for _ in range(4 * len(self.items) + 4):
            tight = self._number()
            if tight is not None:
                self._narrow(tight)
                continue
            problem = self.problem()
            barred = any(item.reason for item in self.items)
            if problem is not None:
                self.mend(problem)
            elif not (barred and self.prune()) or (
                self._number() is None and self.problem() is None
            ):
                return
        raise self.refusal(problem or Finding("too few ids"))

    def size(self, item: Placed[AnyHandover]) -> int:
        """Return the number of ids that a hand-over takes."""
        depth, slots = self.limits.limit, item.handover.slots
        return slots if depth is not None and depth < slots else 1

    def keep_needed(self, holds: Callable[[Sequence[Placed[AnyHandover]]], bool]) -> None:
        """Leave out each hand-over without which a proof holds.

        Those that hand slots back are tried first: what is handed on is rarely implied by another.
        """
        for item in sorted(self.items, key=lambda each: not each.handover.back):
            fewer = [each for each in self.items if each is not item]
            if holds(fewer):
                self.items = fewer

    def apart(self) -> list[Placed[AnyHandover]]:
        """Return the items with ids that no two of them share."""
        bases = range(APART, APART * (len(self.items) + 1), APART)
        return [self._from(base, item) for base, item in zip(bases, self.items, strict=True)]

    def _from(self, base: int, item: Placed[AnyHandover]) -> Placed[AnyHandover]:
        """A hand-over with ids from a first one; a barrier has none."""
        ids = range(base, base + self.size(item))
        return item if item.reason else replace(item, ids=tuple(ids))

    def _number(self) -> tuple[str, str] | None:
        """Give ids to hand-overs; returns a pair of engines that has too few of them, or None."""
        items = self.items = self.apart()
        pairs: dict[tuple[str, str], list[int]] = {}
        for number, item in enumerate(items):
            if not item.reason:
                pairs.setdefault(self._pair(item), []).append(number)
        for pair, mine in pairs.items():
            sizes = [self.size(items[number]) for number in mine]
            if sum(sizes) <= self.limits.count:
                for place, number in enumerate(mine):
                    items[number] = self._from(sum(sizes[:place]), items[number])
                continue
            for number in sorted(mine, key=lambda n: -self.runs(items[n].handover)):
                item = items[number]
                for base in range(self.limits.count - self.size(item) + 1):
                    items[number] = self._from(base, item)
                    if not self._mixed() and self.holds(items):
                        break
                else:
                    items[number] = item
                    return pair
        return None

    def _pair(self, item: Placed[AnyHandover]) -> tuple[str, str]:
        """Return the owner of the ids: a pair of engines, or, for reply words, the machine."""
        return ("", "") if self.limits.style == "replies" else item.handover.engines

    def _mixed(self) -> bool:
        """Return True if a reply word would serve two pairs of engines; the proof would find it
        later."""
        owner: dict[int, tuple[str, str]] = {}
        return self.limits.style == "replies" and any(
            owner.setdefault(number, item.handover.engines) != item.handover.engines
            for item in self.items
            for number in item.ids
        )

    def _narrow(self, pair: tuple[str, str]) -> None:
        """Let a buffer's slots take turns no more, or put a barrier in place of a hand-over."""
        mine = [item for item in self.items if not item.reason and self._pair(item) == pair]
        mine.sort(key=lambda item: self.runs(item.handover))
        for item in mine:
            if item.handover.of is not None and self.size(item) > 1:
                self._fewer_slots(item.handover)
                return
        asked = sum(self.size(item) for item in mine)
        resources = {"flags": "flags", "replies": "reply words", "tokens": "queues of tokens"}
        between = "" if pair == ("", "") else f" from {pair[0]} to {pair[1]}"
        has = self.limits.count
        self._bar(
            mine[0], f"{asked} {resources[self.limits.style]}{between} are asked for; {has} exist"
        )

    def _fewer_slots(self, handover: AnyHandover) -> None:
        """Let half of a buffer's slots take turns, or one of an odd number."""
        of, slots = handover.of, handover.slots
        fewer = 1 if slots % 2 else slots // 2
        for n, item in enumerate(self.items):
            if item.handover.of is of:
                turns = of if fewer > 1 else None
                narrower = replace(item.handover, of=turns, slots=fewer)
                self.items[n] = replace(item, handover=narrower)

    def _bar(self, item: Placed[AnyHandover], reason: str) -> None:
        self.items[self.items.index(item)] = replace(item, ids=(), reason=reason)

    def mend(self, problem: Finding[AnyHandover]) -> None:
        """Add the hand-over that orders a signal after the wait for the one before; or a
        barrier."""
        item = problem.item
        if item is None:
            # A dependence that pruning and sharing left unordered, which they never do.
            for other in self.items:
                if not other.reason:
                    self._bar(other, "no signals order it")
                    return
            return
        reverse = cast("AnyHandover", item.handover.reverse)
        if item.reason or any(other.handover == reverse for other in self.items):
            self._bar(item, "an id would be signalled again before its wait")
            return
        self.items.append(Placed(reverse))
