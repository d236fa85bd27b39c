"""Turn waits into what the machine has: flags, reply words, or tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.errors import TilewrightError, refuse
from tilewright.machine import Machine
from tilewright.machine.synchronisation import Synchronisation
from tilewright.tile.assignment import Assignment, Finding
from tilewright.tile.dialect import ProgramOp
from tilewright.tile.handovers import Handover, Placed, handovers_of, merged, place, remove
from tilewright.tile.issued import handovers_of_issued
from tilewright.tile.iteration import Order
from tilewright.tile.operations import Ordering
from tilewright.tile.passes.base import TilePass
from tilewright.tile.passes.synchronise import PROVEN
from tilewright.tile.queues import commands_of
from tilewright.tile.races import Proof


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


class _Assignment(Assignment[Handover, Mapping[str, int]]):
    """The hand-overs of a tile program; cases are extents of dims that end early."""

    def __init__(
        self, program: ProgramOp, limits: Synchronisation, handovers: Sequence[Handover]
    ) -> None:
        super().__init__(limits, handovers, {})
        self.program = program
        order = Order(program)
        self._small = sum(order.rows(op).count for op in commands_of(program)) <= PROVEN
        self._runs = {each.block: order.block(each.block).count for each in handovers}

    def runs(self, handover: Handover) -> int:
        return self._runs[handover.block]

    def is_right(self, case: Mapping[str, int]) -> bool:
        proof = Proof(Order(self.program, case))
        return not proof.races() and not proof.faults(self.limits)

    def refusal(self, problem: Finding[Handover]) -> TilewrightError:
        return refuse(
            "tile-event",
            f"{self.limits.style} do not order it",
            self.program.symbol.data,
            'synchronisation = "counters"',
        )

    def holds(self, items: Sequence[Placed]) -> bool:
        return self._problem(items) is None

    def problem(self) -> Finding[Handover] | None:
        return self._problem(self.items)

    def _problem(self, items: Sequence[Placed]) -> Finding[Handover] | None:
        placed, proofs = self._placed(items)
        signals = any(item.ids for item in items)
        for proof in proofs:
            for fault in proof.faults(self.limits) if signals else ():
                return Finding(fault.reason, placed[fault.op][0])
            for race in proof.races():
                return Finding(race.wait)
        return None

    def _placed(self, items: Sequence[Placed]) -> tuple[dict[Ordering, list[Placed]], list[Proof]]:
        remove(self.program)
        placed = place(self.program, items)
        return placed, [Proof(Order(self.program, extents)) for extents in self.cases]

    def prune(self) -> bool:
        if not self._small or self.program.issuer is not None:
            return False
        apart = dict(zip(self.items, self.apart(), strict=True))
        # Signals that do not count stay where they are, which takes less time than other programs.
        placed, proofs = self._placed(list(apart.values()))

        def holds(items: Sequence[Placed]) -> bool:
            kept = {apart[item] for item in items}
            idle = frozenset(op for op, of in placed.items() if kept.isdisjoint(of))
            return not any(proof.races(idle) or proof.faults(self.limits, idle) for proof in proofs)

        self.keep_needed(holds)
        return True

    def mend(self, problem: Finding[Handover]) -> None:
        if self.program.issuer is not None:
            reason = "an operand lies where another is still under way"
            raise refuse("tile-event", reason, self.program.symbol.data, "choose smaller tiles")
        super().mend(problem)
