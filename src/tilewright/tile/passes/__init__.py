"""Passes on tile programs, and the order in which the compiler runs them."""

from __future__ import annotations

from tilewright.ir import ModulePass
from tilewright.ir.passes import PassEntry
from tilewright.machine import Machine
from tilewright.planning.space.levels import is_deep
from tilewright.tile.decisions import EVERY_DECISION, Decision
from tilewright.tile.passes.allocate import Allocate, last_used
from tilewright.tile.passes.assign_events import AssignEvents
from tilewright.tile.passes.base import TilePass
from tilewright.tile.passes.boundary import Boundary
from tilewright.tile.passes.check import Check
from tilewright.tile.passes.double_buffer import DoubleBuffer
from tilewright.tile.passes.group_loads import GroupLoads
from tilewright.tile.passes.place_moves import PlaceMoves
from tilewright.tile.passes.prefetch import Prefetch
from tilewright.tile.passes.synchronise import Synchronise

PASSES: dict[str, type[ModulePass]] = {
    step.name: step
    for step in (
        *(PlaceMoves, DoubleBuffer, GroupLoads),
        *(Prefetch, Boundary, Allocate, Synchronise, AssignEvents, Check),
    )
}
"""The tile passes by their names on the command line."""


def pipeline(
    machine: Machine,
    avoid: tuple[str, ...] = (),
    *,
    order: PassEntry | None = None,
    check: bool = True,
    honours: frozenset[Decision] = EVERY_DECISION,
) -> list[PassEntry]:
    """The passes between a built program and a target, each with its reason.

    ``avoid`` gives the bytes that the kernel before uses to its end; see ``Allocate``. ``order`` is
    a pass that decides in what order commands run, in place of ours (as benchmarks/papers/dlir
    brings). Without ``check``, for candidates that are only timed, nothing is proven. A target's
    ``honours`` leaves out the passes whose decisions the target makes anew, and their proof.
    """
    entries = [
        PassEntry(PlaceMoves(), "first: where a buffer stands decides how often it is filled"),
        PassEntry(DoubleBuffer(), "slots are counted per visit, which place-moves settled"),
    ]
    if order is not None:
        entries.append(order)
    else:
        deep = any(is_deep(machine, primitive) for primitive in machine.primitives)
        issues = bool(machine.synchronisation.issuer)
        if deep and machine.synchronisation.style == "flags" and Decision.ORDER in honours:
            reason = "before allocate: it changes how long buffers are in use"
            entries.append(PassEntry(GroupLoads(), reason))
        ahead = issues or (deep and not machine.synchronisation.signals)
        if ahead and Decision.ORDER in honours:
            reason = "after double-buffer: loads that are issued ahead take two slots"
            entries.append(PassEntry(Prefetch(), reason))
    if any(primitive.sizes == "fixed" for primitive in machine.primitives):
        entries.append(
            PassEntry(Boundary(), "before allocate: each clone of a buffer needs an address")
        )
    entries.append(PassEntry(Allocate(avoid), "sizes of boxes are final; overflow is found here"))
    style = machine.synchronisation.style
    waits = Decision.WAITS in honours and style != "none"
    if waits:
        entries.append(
            PassEntry(
                # Signals take places in queues, so that of them there must be the fewest; among
                # flags, assign-events finds these.
                Synchronise(fewest=style != "flags" and (check or machine.synchronisation.signals)),
                "after allocate: buffers that share an address need waits",
            )
        )
    # Ids follow the order of the text.
    ordered = machine.synchronisation.signals and Decision.ORDER in honours
    if waits and ordered and not machine.synchronisation.by_rows:
        reason = "after synchronise, whose waits it turns into what the machine has"
        entries.append(PassEntry(AssignEvents(), reason))
    if check:
        entries.append(PassEntry(Check(waits), "last: proves what the others promise"))
    return entries


__all__ = [
    "PASSES",
    "Allocate",
    "AssignEvents",
    "Boundary",
    "Check",
    "DoubleBuffer",
    "GroupLoads",
    "PlaceMoves",
    "Prefetch",
    "Synchronise",
    "TilePass",
    "last_used",
    "pipeline",
]
