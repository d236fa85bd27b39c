"""The planners by name: which there are, their options, and which machines they are for."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from tilewright.errors import refuse
from tilewright.machine import Machine
from tilewright.planning import PlanCache, Timer, plan
from tilewright.planning.domain import Kernel
from tilewright.planning.measurements import Measurements
from tilewright.planning.plan import Plan
from tilewright.planning.planners.greedy import AUTOMATIC, Greedy
from tilewright.planning.planners.measured import Measure, best_known, plan_measured

PLANNERS = {
    "model": "the best of the whole space by the machine's cost model (the default)",
    "exact": "the same, by name, on machines whose software manages the memories",
    "greedy": "DLIR's partitioning; options start=one|granule and buffers=auto|1|2",
    "measured": "the best candidates, run on the processor at hand",
}
"""Every planner and what it does."""

CUTTING = ("exact", "greedy")
"""Planners that cut tiles for memories that software manages."""

Chosen = Callable[[Kernel], Plan | None]
"""A kernel's plan, or None where the machine's cost model is to say."""

_TEXT = re.compile(r"([a-z]{1,20})(?:\{([^{}]{0,100})\})?")

_GREEDY = {"start": ("one", "granule"), "buffers": ("auto", "1", "2")}


@contextmanager
def planner_of(
    text: str,
    machine: Machine,
    *,
    timer: Timer | None = None,
    measure: Measure | None = None,
    built: str = "",
    database: str | Path | None = None,
) -> Generator[Chosen | None]:
    """The planner that a text names (``greedy{start=granule buffers=1}``), its database open.

    None for the machine's cost model alone. ``timer``, ``measure`` and ``built`` are the target's.
    Raises TilewrightError (``option-planner``, ``target-measure``).
    """
    name, options = _parsed(text)
    if name in CUTTING:
        places = [p.operands["output"] for p in machine.primitives if "output" in p.operands]
        if all(place.memory == machine.main for place in places):
            raise refuse(
                "option-planner",
                f"{machine.name} computes in place behind caches, and {name} cuts tiles for "
                "memories that software manages",
                help="model, measured",
            )
        if database is not None:
            raise refuse(
                "option-planner", f"{name} asks no database of measured schedules", help="model"
            )
    if name == "greedy":
        search = _greedy(options)
        cache: PlanCache = {}
        yield lambda kernel: plan(kernel, machine, timer=timer, cache=cache, search=search)
        return
    if name == "exact" or (name == "model" and database is None):
        yield None
        return
    if measure is None:
        raise refuse("target-measure", f"{machine.name} is not at hand to measure anything on")
    with Measurements(database or ":memory:", built) as known:
        if name == "measured":
            yield lambda kernel: plan_measured(kernel, machine, measure, known)
        else:
            yield lambda kernel: best_known(kernel, machine, known)


def _parsed(text: str) -> tuple[str, dict[str, str]]:
    """Name and options."""
    found = _TEXT.fullmatch(text)
    if found is None or found[1] not in PLANNERS:
        raise refuse("option-planner", f"no planner {text[:80]!r}", help=", ".join(PLANNERS))
    options: dict[str, str] = {}
    for part in (found[2] or "").replace(",", " ").split():
        key, _, value = part.partition("=")
        options[key] = value
    if options and found[1] != "greedy":
        raise refuse("option-planner", f"planner {found[1]} takes no options", text[:80])
    return found[1], options


def _greedy(options: dict[str, str]) -> Greedy:
    """The greedy planner with its options."""
    allowed = ", ".join(f"{key}={'|'.join(values)}" for key, values in _GREEDY.items())
    for key, value in options.items():
        if value not in _GREEDY.get(key, ()):
            raise refuse("option-planner", f"greedy takes no {key}={value}", help=allowed)
    buffers = options.get("buffers", "auto")
    return Greedy(
        start=options.get("start", "one"),
        buffers=AUTOMATIC if buffers == "auto" else int(buffers),
    )
