"""Macro reordering (figure 4.11): transfers go before computes that they need not wait for.

The queue is short: a transfer behind a compute starts only when that has left it. Between two
barriers, transfers and computes have no order of the language's own, so that loads may go before
computes if no register is in the way.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.targets.cambricon.hlal.items import BarrierMark, Instruction, Item, Unit
from tilewright.targets.cambricon.hlal.parallel.registers import exposed, writes


def reorder(
    items: Sequence[Item], units: Sequence[Unit]
) -> tuple[list[Item], list[tuple[Unit, Unit]]]:
    """The statements in a better order, and which macros went before which."""
    groups = _groups(items)
    moved: list[tuple[Unit, Unit]] = []
    for index in range(1, len(groups)):
        place = index
        while place > 0 and _may_swap(groups[place - 1], groups[place], units):
            before, unit = _unit(groups[place - 1], units), _unit(groups[place], units)
            if before is not None and unit is not None:
                moved.append((unit, before))
            groups[place - 1], groups[place] = groups[place], groups[place - 1]
            place -= 1
    return [item for group in groups for item in group], moved


def _groups(items: Sequence[Item]) -> list[list[Item]]:
    """Macros whole, all other statements alone."""
    groups: list[list[Item]] = []
    last: int | None = None
    for item in items:
        unit = None if isinstance(item, BarrierMark) else item.unit
        if unit is not None and unit == last:
            groups[-1].append(item)
        else:
            groups.append([item])
        last = unit
    return groups


def _unit(group: Sequence[Item], units: Sequence[Unit]) -> Unit | None:
    first = group[0]
    number = None if isinstance(first, BarrierMark) else first.unit
    return None if number is None else units[number]


def _may_swap(before: Sequence[Item], group: Sequence[Item], units: Sequence[Unit]) -> bool:
    """Return True if a macro of loads may move before a compute macro."""
    unit, other = _unit(group, units), _unit(before, units)
    if unit is None or other is None or (unit.kind, other.kind) != ("IO", "C"):
        return False
    names = [item.mnemonic for item in group if isinstance(item, Instruction)]
    if not any("LOAD" in name for name in names) or any("STORE" in name for name in names):
        return False
    sets, reads = writes(group), exposed(group)
    return not (sets & (writes(before) | exposed(before)) or reads & writes(before))
