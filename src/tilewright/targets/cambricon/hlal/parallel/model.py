"""The parallel model as one step: every loop of the known form is peeled, then macros are moved."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tilewright.targets.cambricon.hlal.items import (
    Instruction,
    Item,
    LabelMark,
    LabelUse,
    Sizes,
    Unit,
)
from tilewright.targets.cambricon.hlal.parallel.loops import Loop, Other, find_loops
from tilewright.targets.cambricon.hlal.parallel.peel import Room, peel
from tilewright.targets.cambricon.hlal.parallel.reorder import reorder
from tilewright.targets.cambricon.isa import REGISTERS, Register


@dataclass(frozen=True)
class Overlap:
    """One thing that the parallel model did, or could not do."""

    where: str
    """The line of the loop's branch, or of the macro that was moved."""
    done: bool
    what: str


@dataclass(frozen=True)
class Scheduled:
    """Statements behind the parallel model, what it did, and the scratchpads' bytes then taken."""

    items: list[Item]
    overlaps: tuple[Overlap, ...]
    vsm_bytes: int
    msm_bytes: int


def schedule(
    items: Sequence[Item], units: Sequence[Unit], sizes: Sizes, vsm: int, msm: int, fixed: bool
) -> Scheduled:
    """Peel loops and move macros; ``vsm`` and ``msm`` are the bytes that on-chip arrays take.

    With ``fixed``, the program names bytes of the scratchpads itself (``tensor_buffer``), so that
    there is no knowing what is free: loops stay as they are.
    """
    now = list(items)
    reports: list[Overlap] = []
    seen: set[int] = set()
    most_vsm, most_msm = vsm, msm
    while True:
        loop = next(
            (candidate for candidate in find_loops(now, units) if id(candidate.branch) not in seen),
            None,
        )
        if loop is None:
            break
        seen.add(id(loop.branch))
        where = _where(loop.branch)
        if isinstance(loop, Other):
            reports.append(Overlap(where, False, f"the loop is not peeled: {loop.reason}"))
            continue
        if fixed:
            reason = "the program names addresses of the scratchpads itself"
            reports.append(Overlap(where, False, f"the loop is not peeled: {reason}"))
            continue
        free = tuple(sorted(set(range(REGISTERS)) - _used(now), reverse=True))
        room = Room(vsm, sizes.vsm_bytes, msm, sizes.msm_bytes, free)
        peeled = peel(now, loop, _around(now, loop), room, _free_name(now, len(seen)))
        if isinstance(peeled, str):
            reports.append(Overlap(where, False, f"the loop is not peeled: {peeled}"))
            continue
        loads, computes = _names(loop.load, units), _names(loop.compute, units)
        reports.append(
            Overlap(
                where,
                True,
                f"the loop is peeled: {loads} of the next round beside {computes}; second buffers "
                f"take {peeled.vsm} bytes of VSM and {peeled.msm} of MSM",
            )
        )
        now[loop.start : loop.end] = peeled.items
        most_vsm, most_msm = max(most_vsm, vsm + peeled.vsm), max(most_msm, msm + peeled.msm)
    now, moved = reorder(now, units)
    for candidate, before in moved:
        reports.append(
            Overlap(str(candidate.places[-1]), True, f"{candidate.name} goes before {before.name}")
        )
    return Scheduled(now, tuple(reports), most_vsm, most_msm)


def _where(branch: Instruction) -> str:
    return " from ".join(str(place) for place in branch.places)


def _names(part: Iterable[Item], units: Sequence[Unit]) -> str:
    names: dict[str, None] = {}
    for item in part:
        if isinstance(item, Instruction) and item.unit is not None:
            names[units[item.unit].name] = None
    return ", ".join(names)


def _used(items: Iterable[Item]) -> set[int]:
    return {
        part.number
        for item in items
        if isinstance(item, Instruction)
        for part in item.operands
        if isinstance(part, Register)
    }


def _around(items: Sequence[Item], loop: Loop) -> int:
    """The end of the outermost loop around a loop."""
    labels = {item.name: index for index, item in enumerate(items) if isinstance(item, LabelMark)}
    end = loop.end
    for index in range(loop.end, len(items)):
        item = items[index]
        if isinstance(item, Instruction):
            goals = [part.name for part in item.operands if isinstance(part, LabelUse)]
            if goals and labels.get(goals[0], index) < loop.start:
                end = index + 1
    return end


def _free_name(items: Iterable[Item], number: int) -> str:
    names = {item.name for item in items if isinstance(item, LabelMark)}
    while any(name.startswith(f"peeled_{number}_") for name in names):
        number += 1
    return f"peeled_{number}"
