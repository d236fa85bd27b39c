"""Plans that this run of the tests has made, by what they were made of.

Many tests compile the same small networks, and planning takes most of that time. Equal kernels on
equal machines have equal plans, so each is found once for all of them. What plans are is for
tests/planning to say, which plans anew; so does a test with the fixture ``planned_anew``.
"""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from tilewright.machine import Machine
from tilewright.planning import Budget, Plan, PlanCache, PlanKey, Planner, Search, Timer
from tilewright.planning.planners.greedy import Greedy
from tilewright.planning.planners.ldm.planner import Ldm
from tilewright.planning.planners.rows import Rows
from tilewright.planning.planners.swatop import Swatop
from tilewright.targets.cambricon.timer import timer as cambricon_timer
from tilewright.targets.generic.isa import InstructionSet
from tilewright.targets.generic.timer import timer as generic_timer
from tilewright.targets.sunway.chip import ChipPlanner
from tilewright.targets.sunway.plans import Plans

TIMERS = {
    f"{one.__module__}.{one.__qualname__}.<locals>.cycles"
    for one in (cambricon_timer, generic_timer)
}
"""What times a kernel by nothing but its machine and the numbers that it was made with."""

WORTH = 0.005
"""Seconds of planning from which a plan is written for other processes, which takes one or two
thousandths itself."""


MACHINES = 100
"""Whose descriptions are kept as text."""


@dataclass(frozen=True)
class KnownPlans:
    """A store of plans (``Planner.sharing``) for the processes that share its folder."""

    folder: Path
    found: dict[str, dict[PlanKey, Plan]] = field(default_factory=dict[str, dict[PlanKey, Plan]])
    texts: dict[int, tuple[Machine, str]] = field(default_factory=dict[int, tuple[Machine, str]])
    """Of the machines that came last, by their identity: a network's kernels have one."""
    timers: dict[int, tuple[Timer, str | None]] = field(
        default_factory=dict[int, tuple[Timer, str | None]]
    )
    """What ``described`` says of the timers that came last, by their identity."""

    def cache(self, planner: Planner) -> PlanCache:
        """What is known of a planner whose timer and search can be told apart from others."""
        told, asked = self._described(planner.timer), options_of(planner.search)
        if told is None or asked is None:
            return planner.cache
        budget = planner.budget or Budget()
        key = f"{self._text(planner.machine)}\n{told}\n{asked}\n{budget}"
        return Shared(planner.cache, self.found.setdefault(key, {}), self.folder, key)

    def _described(self, timer: Timer | None) -> str | None:
        if timer is None:
            return ""
        if id(timer) not in self.timers:
            if len(self.timers) >= MACHINES:
                self.timers.clear()
            self.timers[id(timer)] = timer, described(timer)
        return self.timers[id(timer)][1]

    def _text(self, machine: Machine) -> str:
        if id(machine) not in self.texts:
            if len(self.texts) >= MACHINES:
                self.texts.clear()
            self.texts[id(machine)] = machine, machine.model_dump_json()
        return self.texts[id(machine)][1]


def described(timer: Timer) -> str | None:
    """What a timer's cycles depend on, or None for one of which that is not known."""
    code: Any = timer
    name = f"{code.__module__}.{code.__qualname__}"
    if name not in TIMERS:
        return None
    parts = [name]
    for cell in code.__closure__:
        match cell.cell_contents:
            case Machine() as machine:
                parts.append(machine.model_dump_json())
            case InstructionSet() as known:
                parts.append(f"{known.machine.model_dump_json()} {known.instructions}")
            case bool() as flag:
                parts.append(str(flag))
            case _:
                pass  # a function's cache
    return "\n".join(parts)


def options_of(search: Search | None) -> str | None:
    """What a search finds depends on, or None for one of which that is not known."""
    match search:
        case None:
            return ""
        case Swatop() | Greedy() | Ldm() | Rows():
            return repr(search)
        case ChipPlanner(planner=None):
            return "ChipPlanner"  # It knows the same machine.
        case _:
            plans = getattr(search, "__self__", None)
            return f"Plans {plans.strategies}" if isinstance(plans, Plans) else None


@dataclass
class Shared(MutableMapping[PlanKey, Plan]):
    """A cache of plans that looks where others keep theirs, too."""

    own: PlanCache
    known: dict[PlanKey, Plan]
    folder: Path
    machine: str
    """And the timer."""

    def __contains__(self, key: object) -> bool:
        asked = cast(PlanKey, key)
        if asked in self.own:
            return True
        if asked not in self.known and (path := self._path(asked)).exists():
            stored, made = pickle.loads(path.read_bytes())
            if stored == asked:
                self.known[asked] = made
        if asked in self.known:
            self.own[asked] = self.known[asked]
        return asked in self.own

    def __getitem__(self, key: PlanKey) -> Plan:
        return self.own[key]

    def __setitem__(self, key: PlanKey, made: Plan) -> None:
        self.own[key] = self.known[key] = made
        if made.seconds < WORTH:
            return
        handle, name = tempfile.mkstemp(dir=self.folder)
        with os.fdopen(handle, "wb") as file:
            file.write(pickle.dumps((key, made)))
        Path(name).replace(self._path(key))

    def __delitem__(self, key: PlanKey) -> None:
        del self.own[key]

    def __iter__(self) -> Iterator[PlanKey]:
        return iter(self.own)

    def __len__(self) -> int:
        return len(self.own)

    def _path(self, key: PlanKey) -> Path:
        digest = sha256(self.machine.encode())
        digest.update(repr(key).encode())
        return self.folder / digest.hexdigest()
