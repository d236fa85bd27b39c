"""What targets take from tile programs: passes for the rest do not run, and the page says so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tilewright.system.choices import target_names
from tilewright.targets.base import find_target
from tilewright.tile.decisions import EVERY_DECISION, Decision
from tilewright.tile.passes import pipeline

BUNDLED = [
    name for name in target_names() if type(find_target(name)).__module__.startswith("tilewright.")
]
"""Without targets that other packages bring (examples/targets)."""

TOUR = Path(__file__).parents[2] / "docs" / "tour.md"


@pytest.mark.parametrize("name", [name for name in BUNDLED if name != "generic"])
def test_passes_decide_only_what_is_taken(name: str) -> None:
    target = find_target(name)
    machine = target.machine()
    names = {entry.step.name for entry in pipeline(machine, honours=target.honours)}
    whole = {entry.step.name for entry in pipeline(machine)}
    left = {
        Decision.WAITS: {"synchronise", "assign-events"},
        Decision.ORDER: {"prefetch", "group-loads"},
    }
    for decision, passes in left.items():
        if decision not in target.honours:
            assert not names & passes
            whole -= passes
    assert names == whole


def test_the_page_says_what_each_target_takes() -> None:
    order = (Decision.ADDRESSES, Decision.WAITS, Decision.ORDER, Decision.SLOTS)
    told: dict[str, set[Decision]] = {}
    for line in TOUR.read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) != 6 or not cells[0].startswith("`"):
            continue
        taken = {
            decision for decision, cell in zip(order, cells[1:5], strict=True) if cell == "yes"
        }
        for text in re.findall(r"`([a-z0-9*-]+)`", cells[0]):
            pattern = text.replace("*", "[a-z0-9-]*")
            told |= {name: taken for name in BUNDLED if re.fullmatch(pattern, name)}
    assert sorted(told) == BUNDLED
    for name, taken in told.items():
        assert find_target(name).honours == taken, name


def test_all_of_a_program_is_taken_unless_said_otherwise() -> None:
    assert find_target("generic").honours == EVERY_DECISION
