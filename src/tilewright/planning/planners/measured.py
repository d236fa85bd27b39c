"""The ``measured`` planner: candidates are built and timed on the machine itself.

swATOP (section 5.2) compares its cost model with a "black-box autotuner" that runs every schedule
of the space. This planner is both: the whole space in the order of the cost model, as far as a
budget allows; what was measured once is looked up (measurements.py).
"""

from __future__ import annotations

from collections.abc import Container, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from tilewright.errors import refuse
from tilewright.machine import Machine
from tilewright.planning.domain import Kernel
from tilewright.planning.plan import Plan
from tilewright.planning.planners.caches import in_place_planning
from tilewright.planning.planners.measurements import Measure, Measurements
from tilewright.planning.schedule import Schedule

if TYPE_CHECKING:
    from tilewright.planning import Ask
    from tilewright.planning.planners.registry import Request

BATCH = 16
"""Candidates that are built and timed together."""

CANDIDATES = 32
"""Candidates of a kernel that are measured unless the caller says otherwise."""


def candidates(kernel: Kernel, machine: Machine, most: int | None = None) -> list[Schedule]:
    """The first ``most`` schedules of a kernel in the order of the cost model, or all."""
    ranked = in_place_planning(machine).ranked(kernel, machine)
    return [schedule for _, _, schedule in ranked[:most]]


def batches(
    schedules: Sequence[Schedule], measured: Container[Schedule]
) -> Iterator[tuple[Schedule, ...]]:
    """Yield the schedules still to be measured, batch by batch."""
    missing = [schedule for schedule in schedules if schedule not in measured]
    for start in range(0, len(missing), BATCH):
        yield tuple(missing[start : start + BATCH])


def plan_measured(
    kernel: Kernel,
    machine: Machine,
    measure: Measure,
    known: Measurements,
    *,
    most: int | None = CANDIDATES,
) -> Plan:
    """The fastest measured schedule among the ``most`` that the cost model likes best (None: all).

    Measurements of these and others that ``known`` holds count too. The plan's ``timed_cycles``
    are seconds by the machine's clock. Raises TilewrightError as ``plan`` and ``measure`` do.
    """
    schedules = candidates(kernel, machine, most)
    for batch in batches(schedules, known.of(kernel, machine)):
        seconds = measure(kernel, machine, batch)
        known.add(kernel, machine, dict(zip(batch, seconds, strict=True)))
    return best_known(kernel, machine, known) or in_place_planning(machine).plan(kernel, machine)


def best_known(kernel: Kernel, machine: Machine, known: Measurements) -> Plan | None:
    """The plan of the fastest schedule that was measured; None if nothing was."""
    have = known.of(kernel, machine)
    usable = {s: seconds for s, seconds in have.items() if seconds != float("inf")}
    if not usable:
        return None
    best = min(usable, key=lambda schedule: (usable[schedule], str(schedule)))
    own = in_place_planning(machine)
    plain = own.plan(kernel, machine)
    cost = next((c for c, _, s in own.ranked(kernel, machine) if s == best), plain.predicted_cycles)
    return replace(
        plain,
        schedule=own.share(kernel, machine, best, cost)[1],
        predicted_cycles=cost,
        timed_cycles=usable[best] * machine.clock_hz,
        timed=len(have),
        planner="measured",
    )


@contextmanager
def measured(request: Request) -> Generator[Ask]:
    """Schedules that were measured, or, by the planner ``measured``, are now."""
    machine, measure = request.machine, request.measure
    if measure is None:
        raise refuse("target-measure", f"{machine.name} is not this computer to measure on")
    with Measurements(request.database or ":memory:", request.built) as known:
        if request.name == "measured":
            yield lambda kernel: plan_measured(kernel, machine, measure, known)
        else:
            yield lambda kernel: best_known(kernel, machine, known)
