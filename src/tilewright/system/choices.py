"""Values that options offer, apart from the code that implements them: ``--help`` lists them and
imports nothing."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


@dataclass(frozen=True)
class PlannerChoice:
    """A planner that can be asked for by name."""

    meaning: str
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Each option's values; FILE is any path."""
    cuts_tiles: bool = True
    """True if it cuts tiles for memories that software manages."""
    maker: str = ""
    """Module and name of the function that makes it (planners/registry.py); "" for the machine's
    cost model, which planning has without one."""

    @property
    def help(self) -> str:
        """The meaning with the options, for ``--help``."""
        options = ", ".join(f"{key}={'|'.join(values)}" for key, values in self.options.items())
        return f"{self.meaning}; {options}" if options else self.meaning


_PLANNERS = "tilewright.planning.planners"

PLANNERS: Mapping[str, PlannerChoice] = {
    "model": PlannerChoice(
        "the best of the whole space by the machine's cost model (the default)", cuts_tiles=False
    ),
    "exact": PlannerChoice("the same, by name, on machines whose software manages the memories"),
    "greedy": PlannerChoice(
        "DLIR's partitioning",
        {"start": ("one", "granule"), "buffers": ("auto", "1", "2")},
        maker=f"{_PLANNERS}.greedy:greedy",
    ),
    "ldm": PlannerChoice(
        "swTVM's tiles, loop orders and parts (cores get operands from those of their row or "
        "column, or one core loads them for all)",
        {
            "block": ("16", "32", "64", "128", "256"),
            "buffers": ("auto", "1", "2"),
            "share": ("none", "mesh", "broadcast"),
        },
        maker=f"{_PLANNERS}.ldm.planner:ldm",
    ),
    "rows": PlannerChoice(
        "swTVM's baseline, rows fetched for each use, as OpenACC compilers do",
        maker=f"{_PLANNERS}.rows:rows",
    ),
    "space": PlannerChoice(
        "the best of the strategies that a file lists for some nodes (docs/scheduling.md), other "
        "kernels by the model",
        {"file": ("FILE",)},
        maker=f"{_PLANNERS}.by_node:space",
    ),
    "stationary": PlannerChoice(
        "products whose operand or result stays on the chip (the DaVinci thesis), other kernels by "
        "the model",
        {"kind": ("os", "is", "ws"), "buffers": ("1", "2")},
        maker=f"{_PLANNERS}.stationary:stationary",
    ),
    "swatop": PlannerChoice(
        "swATOP's static model over all of its strategies, the best few of which the machine's "
        "cost model chooses from",
        {"top": ("1", "4", "16"), "share": ("mesh", "none")},
        maker=f"{_PLANNERS}.swatop:swatop",
    ),
    "blackbox": PlannerChoice(
        "the machine's cost model asked for all of swatop's strategies",
        {"share": ("mesh", "none")},
        maker=f"{_PLANNERS}.swatop:swatop",
    ),
    "measured": PlannerChoice(
        "the best candidates, run on the processor at hand",
        cuts_tiles=False,
        maker=f"{_PLANNERS}.measured:measured",
    ),
}
"""Every planner that can be asked for, by name."""

FUSION_SEARCHES = ("exact", "paths", "greedy")
"""Searches that choose groups of kernels (network/fusion/search/)."""

SIMULATED = "simulated"
"""The source of costs that runs the target's simulator."""

FUSION_COSTS = ("closed", SIMULATED)
"""Sources of the costs of groups: planning's prediction, or the target's simulator."""

ENGINES = ("DLP", "CAFFE")
"""Engines that run a layer of a prototxt (integrations/dlplib/caffe.py): DLP is the accelerator,
CAFFE is Caffe's own name for the processor at hand."""

SAMPLES = 4
"""Samples on which errors of numbers are measured: the first of the calibration data."""


SEARCHES = ("grid", "random", "pareto")
"""Searches for the points of a sweep (sweeps/search.py)."""

EFFORTS = ("quick", "full")
"""Ways in which a sweep chooses schedules: the first by the cost model, timed; or as ``compile``
does, which times many candidates and takes several times as long (sweeps/evaluate.py)."""


def target_points() -> Mapping[str, EntryPoint]:
    """The installed targets by name, not loaded."""
    return _points_along(tuple(sys.path))


@cache
def _points_along(_: tuple[str, ...]) -> Mapping[str, EntryPoint]:
    """Looking through all installed packages takes milliseconds."""
    from importlib.metadata import entry_points  # And so does importing this.

    return {point.name: point for point in entry_points(group="tilewright.targets")}


def target_names() -> list[str]:
    """The names of the installed targets, sorted."""
    return sorted(target_points())
