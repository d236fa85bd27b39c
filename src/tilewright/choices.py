"""What options offer, apart from the code that does it: ``--help`` lists it and imports nothing."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points

PLANNERS: Mapping[str, str] = {
    "model": "the best of the whole space by the machine's cost model (the default)",
    "exact": "the same, by name, on machines whose software manages the memories",
    "greedy": "DLIR's partitioning; options start=one|granule and buffers=auto|1|2",
    "ldm": "swTVM's tiles, loop orders and parts; options block=16|...|256, buffers=auto|1|2 "
    "and share=none|mesh|broadcast (cores get operands from those of their row or column, or one "
    "core loads them for all)",
    "rows": "swTVM's baseline, rows fetched for each use, as OpenACC compilers do; no options",
    "space": "the best of the strategies that a file lists for some nodes (docs/scheduling.md), "
    "other kernels by the model; option file=FILE",
    "stationary": "products whose operand or result stays on the chip (the DaVinci thesis), other "
    "kernels by the model; options kind=os|is|ws and buffers=1|2",
    "swatop": "swATOP's static model over all of its strategies; options top=1|4|16 (of so many "
    "the machine's cost model chooses) and share=mesh|none",
    "blackbox": "the machine's cost model asked for all of swatop's strategies; option "
    "share=mesh|none",
    "measured": "the best candidates, run on the processor at hand",
}
"""Every planner and what it does (planning/planners/choice.py)."""

FUSION_SEARCHES = ("exact", "paths", "greedy")
"""Searches that choose groups of kernels (network/fusion/search/)."""

SIMULATED = "simulated"
"""The source of costs that runs the target's simulator."""

LEARNED = "learned"
"""The source of costs that is given with a file, ``learned=FILE``."""

FUSION_COSTS = ("closed", SIMULATED, LEARNED)
"""Where the costs of groups come from: planning's prediction, the target's simulator, or what was
learned from it."""

LEARNED_SAMPLES = 32
"""Kernels that are simulated for a learned cost unless another number is given."""

ENGINES = ("DLP", "CAFFE")
"""What runs a layer of a prototxt (integrations/dlplib/caffe.py): DLP is the accelerator, CAFFE is
Caffe's own name for the processor at hand."""

SAMPLES = 4
"""Samples on which errors of numbers are measured: the first of the calibration data."""


def target_points() -> Mapping[str, EntryPoint]:
    """The installed targets by name, not loaded."""
    return _points_along(tuple(sys.path))


@cache
def _points_along(_: tuple[str, ...]) -> Mapping[str, EntryPoint]:
    """Looking through all installed packages takes milliseconds."""
    return {point.name: point for point in entry_points(group="tilewright.targets")}


def target_names() -> list[str]:
    """The names of the installed targets, sorted."""
    return sorted(target_points())
