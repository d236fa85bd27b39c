"""Loops that load, wait, and compute: the form that the parallel model takes apart.

LOOP:
  load macros, scalar statements
  @barrier
  compute macros
  @barrier                    (may be missing)
  scalar statements
  CB LOOP, $counter
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright.targets.cambricon.hlal.items import (
    BarrierMark,
    Instruction,
    Item,
    LabelMark,
    LabelUse,
    Unit,
)
from tilewright.targets.cambricon.hlal.kinds import computes, is_transfer
from tilewright.targets.cambricon.hlal.parallel.registers import normal
from tilewright.targets.cambricon.isa import Register


@dataclass(frozen=True)
class Loop:
    """A loop in its parts; ``start`` is its label's place and ``end`` that behind its branch."""

    start: int
    end: int
    load: list[Item]
    compute: list[Item]
    update: list[Item]
    waits: bool
    """Whether a barrier stands behind the compute macros."""
    counter: Register
    branch: Instruction


@dataclass(frozen=True)
class Other:
    """A loop with macros of both kinds that has another form, and why."""

    branch: Instruction
    reason: str


def find_loops(items: Sequence[Item], units: Sequence[Unit]) -> Iterator[Loop | Other]:
    """The innermost loops around macros of both kinds, in their order."""
    labels = {
        item.name: index
        for index, item in enumerate(items)
        if isinstance(item, LabelMark) and item.unit is None
    }
    last = -1
    for index, item in enumerate(items):
        if not isinstance(item, Instruction) or item.unit is not None:
            continue
        goals = [part.name for part in item.operands if isinstance(part, LabelUse)]
        start = labels.get(goals[0], index) if goals else index
        if start >= index or start <= last:
            continue
        last = index
        body = items[start + 1 : index]
        kinds = {units[unit].kind for entry in body if (unit := _unit(entry)) is not None}
        if kinds == {"C", "IO"}:
            yield _taken_apart(start, index, item, body, units)


def _unit(item: Item) -> int | None:
    return None if isinstance(item, BarrierMark) else item.unit


def _taken_apart(
    start: int, index: int, branch: Instruction, body: Sequence[Item], units: Sequence[Unit]
) -> Loop | Other:
    parts: list[list[Item]] = [[]]
    for item in body:
        if isinstance(item, BarrierMark):
            parts.append([])
            continue
        if _unit(item) is None and (isinstance(item, LabelMark) or item.mnemonic in ("J", "CB")):
            return Other(branch, "it branches outside of macros")
        parts[-1].append(item)
    counter = normal(branch).operands[0]
    if branch.mnemonic != "CB" or not isinstance(counter, Register):
        return Other(branch, "it does not end with CB")
    if len(parts) not in (2, 3):
        return Other(branch, "it has another number of barriers than one or two")
    load, rest = parts[0], parts[1]
    place = len(rest)
    while len(parts) == 2 and place and _unit(rest[place - 1]) is None:
        place -= 1
    compute, update = (rest, parts[2]) if len(parts) == 3 else (rest[:place], rest[place:])
    for name, part, wanted in (("first", load, "IO"), ("second", compute, "C")):
        for item in part:
            unit = _unit(item)
            if unit is not None and units[unit].kind != wanted:
                return Other(branch, f"its {name} part holds the macro {units[unit].name}")
            if unit is None and isinstance(item, Instruction) and _moves(item):
                return Other(branch, f"{item.mnemonic} stands outside of macros")
    if any(_unit(item) is not None or _moves(item) for item in update):
        return Other(branch, "more than scalar statements stand at its end")
    stores = [
        entry for entry in load if isinstance(entry, Instruction) and "STORE" in entry.mnemonic
    ]
    if stores:
        return Other(branch, f"{stores[0].mnemonic} stands in its first part")
    return Loop(start, index + 1, load, compute, update, len(parts) == 3, counter, branch)


def _moves(item: Item) -> bool:
    """Return True if a statement is a computation or a transfer, and so touches memories."""
    if not isinstance(item, Instruction):
        return False
    return computes(item.mnemonic) or is_transfer(item.mnemonic)
