"""Comparison of runs: kernels that compute the same nodes of the model, in every run.

Runs may fuse differently, so kernels are matched by what they compute: nodes that are in one kernel
of any run belong together, and a run's time for such a group is that of all its kernels in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.report.page.data import Figures


def compared(runs: Sequence[Figures]) -> list[dict[str, Any]]:
    """The groups in the order of the first run: their nodes, and the microseconds of each run.

    Kernels without nodes are matched by their names. A group that a run does not have has no time
    there; the times of all groups sum to those of all kernels.
    """
    parents: dict[str, str] = {}

    def root(key: str) -> str:
        while parents[key] != key:
            parents[key] = parents[parents[key]]
            key = parents[key]
        return key

    keys: list[list[str]] = []
    for figures in runs:
        firsts: list[str] = []
        for kernel in figures.kernels:
            named = [f"node {node}" for node in kernel.nodes] or [f"kernel {kernel.name}"]
            for key in named:
                parents.setdefault(key, key)
            for key in named[1:]:
                parents[root(key)] = root(named[0])
            firsts.append(named[0])
        keys.append(firsts)
    groups: dict[str, dict[str, Any]] = {}
    for number, figures in enumerate(runs):
        for key, kernel in zip(keys[number], figures.kernels, strict=True):
            group = groups.setdefault(
                root(key), {"nodes": {}, "times": [None] * len(runs), "kernels": [0] * len(runs)}
            )
            group["nodes"] |= dict.fromkeys(kernel.nodes or (kernel.name,))
            group["kernels"][number] += 1
            if kernel.seconds is not None:
                group["times"][number] = (group["times"][number] or 0.0) + kernel.seconds * 1e6
    return [{**group, "nodes": ", ".join(group["nodes"])} for group in groups.values()]
