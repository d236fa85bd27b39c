"""Planning: domains, layouts, schedules, the cost model, the planners: a schedule per kernel.

plan = Planner(machine, timer).plan(kernel)
plan.schedule, plan.predicted_cycles, plan.granule_bound, plan.efficiency
"""

from __future__ import annotations

from tilewright.planning.layout import Layout
from tilewright.planning.plan import Budget, Plan, Timer
from tilewright.planning.planner import (
    Ask,
    PlanCache,
    PlanKey,
    Planner,
    PlanStore,
    Search,
    planner_in,
)

__all__ = [
    "Ask",
    "Budget",
    "Layout",
    "Plan",
    "PlanCache",
    "PlanKey",
    "PlanStore",
    "Planner",
    "Search",
    "Timer",
    "planner_in",
]
