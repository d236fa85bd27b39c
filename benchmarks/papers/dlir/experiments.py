"""dlir: the thesis' six networks on its machines, with its figures beside ours."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from math import exp, inf, log
from pathlib import Path
from typing import Any

from benchmarks.measuring import alone, kept
from benchmarks.papers.dlir.code import code_of
from benchmarks.papers.dlir.measure import run
from benchmarks.papers.dlir.published import (
    BUFFERING,
    EFFICIENCY,
    OLDER,
    PARTITIONING,
    STUDY,
    digested,
    published,
)
from benchmarks.report import Column, Table, percent, whole

TITLE = "DLIR's experiments (section 5.3 of the thesis), simulated"

SIX = ("lenet5", "cifar10_quick", "alexnet", "vgg16", "vgg19", "resnet34")
"""The thesis' networks."""

NETWORKS = (*SIX, "resnet50")
"""And one that an independent study has on the original machines."""

TARGETS = (
    *("cambricon", "cambricon-s", "cambricon-m"),
    *("cambricon-x", "cambricon-x-m", "cambricon-x-l"),
    *("shidiannao", "shidiannao-s", "shidiannao-l"),
)
"""The configurations of table 5.3; those that are installed are measured."""

ORIGINAL = ("cambricon", "cambricon-x", "shidiannao")
"""The sizes in which the machines were published."""

KEPT = Path("build/benchmarks/dlir")
"""Where each row is kept when it is measured: ``--resume`` goes on from there."""

HAND = (0.708, 0.977)
"""Of hand-optimised code, with automatic double buffering (section 5.3.2.3)."""

SHARES = {
    "cambricon": {"alexnet": 0.96, "vgg16": 0.99, "resnet50": 0.98},
    "cambricon-x": {"alexnet": 0.88, "vgg16": 0.98, "resnet50": 1.00},
    "shidiannao": {"alexnet": 0.98, "vgg16": 1.00, "resnet50": 1.00},
}
"""Of the granule bound, whole network, by an independent model of the same machines: all tilings,
24 orders; convolutions on ACC-C as products of gathered windows."""

GOAL = 0.95
"""Of the granule bound, in the geometric mean over the networks."""

DOUBLE = {"cambricon": 0.0656, "cambricon-x": 0.0329, "shidiannao": 0.0127}
"""What double buffering gains over the six networks at the original sizes (figure 5.12)."""

SAVED = {"alexnet": 161.44}
"""How many times fewer steps the greedy partitioning takes (section 5.2.5.3)."""

CORES = 1

OPTIONS = ("resume", "seconds", "targets")
"""What ``tables`` takes of the command line."""

SMALL = ("lenet5", "cifar10_quick", "alexnet")
"""Networks that take little time to measure."""


def multiple(value: float) -> str:
    """1.234 as 1.23 x."""
    return f"{value:.2f} x"


def mean(values: Sequence[float]) -> float:
    """Geometric mean."""
    return exp(sum(map(log, values)) / len(values))


_WHICH = (Column("network", "network"), Column("target", "target"))

COLUMNS = (
    *_WHICH,
    Column("passed", "bit for bit", lambda passed: "yes" if passed else "NO"),
    Column("host", "nodes' kernels on the host"),
    Column("cycles", "cycles", whole),
    Column("milliseconds", "ms", "{:.3f}".format),
    Column("granule_bound", "granule bound", whole),
    Column("physical_bound", "physical bound", whole),
    Column("granule_efficiency", "of granule", percent),
    Column("network_efficiency", "of network bound", percent),
    Column("latency_efficiency", "of latency bound", percent),
    Column("mean_granule_efficiency", "geo. mean of kernels", percent),
    Column("physical_efficiency", "of physical", percent),
    Column("code", "code"),
)
BESIDE = (
    *_WHICH,
    Column("passed", "bit for bit", lambda passed: "yes" if passed else "NO"),
    Column("cycles", "cycles", whole),
    Column("granule_bound", "granule bound", whole),
    Column("granule_efficiency", "of granule", percent),
    Column("study", "study", percent),
    Column("latency_efficiency", "of latency bound", percent),
    Column("code", "code"),
)
MEANS = (
    Column("target", "target"),
    Column("networks", "networks"),
    Column("mean", "of granule, geo. mean", percent),
    Column("latency", "of latency bound", percent),
    Column("least", "least", percent),
    Column("goal", "goal", percent),
    Column("hand", "thesis, of hand-optimised"),
)
GAINS = (
    *_WHICH,
    Column("single", "single", whole),
    Column("double", "double", whole),
    Column("gain", "gain", percent),
    Column("paper", "thesis", percent),
    Column("lost", "kernels that lose"),
    Column("best_gain", "gain, off where it loses", percent),
    Column("exact_gain", "exact over single", percent),
)
STEPS = (
    *_WHICH,
    Column("start", "start"),
    Column("slower", "time / exact's", multiple),
    Column("worst", "worst kernel", multiple),
    Column("steps", "steps", whole),
    Column("exact_steps", "exact's tilings", whole),
    Column("saved", "saved", multiple),
    Column("tilings", "all tilings", whole),
    Column("saved_of_all", "saved of all", multiple),
    Column("paper", "thesis", multiple),
)


def measured(network: str, target: str) -> dict[str, Any]:
    """One network on one configuration, in a process of its own."""
    return alone(CORES, run, network, target)


def rows_of(
    networks: Sequence[str],
    targets: Sequence[str],
    resume: bool,
    seconds: float,
    chosen: Sequence[str],
) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows in the order of targets and networks, and what there was no time for.

    The original machines come first, then small networks on the others. With ``resume`` a row that
    was kept here, or is on the page, is taken if it is of today's code, or if it cannot be measured
    now: its target is not one of ``chosen``, or time is up.
    """
    begin, found, missing = time.monotonic(), dict[tuple[str, str], dict[str, Any]](), list[str]()
    page = published() if resume else {}
    pairs = [
        (target, network)
        for target in targets
        for network in networks
        if network in SIX or target in ORIGINAL
    ]
    for target, network in sorted(pairs, key=lambda p: (p[0] not in ORIGINAL, p[1] not in SMALL)):
        path, code = KEPT / f"{target}-{network}.json", code_of(target)
        old = page.get((network, target))
        if resume and path.exists():
            old = digested(json.loads(path.read_text()))
        if old is not None and old.get("code") == code:
            row = old
        elif target in chosen and time.monotonic() - begin < seconds:
            row = digested(kept(path, False, measured, network, target, code=code))
        elif old is not None:
            row = old | {"code": f"{old.get('code', 'unknown')}{OLDER}"}
        else:
            missing.append(f"{network} on {target}")
            continue
        found[target, network] = row
    return [found[pair] for pair in pairs if pair in found], missing


def tables(
    networks: Sequence[str],
    resume: bool = False,
    seconds: float = inf,
    targets: Sequence[str] | None = None,
) -> list[Table]:
    """Measure networks on every configuration that there is.

    With ``resume`` those are left out that an earlier run has measured; nothing new begins after
    ``seconds``, and nothing on others than ``targets``: the table says what is missing, or older
    than the code.
    """
    from tilewright.system.choices import target_names

    known = [name for name in TARGETS if name in target_names()]
    measurements, missing = rows_of(networks, known, resume, seconds, targets or known)
    everything = [
        {key: value for key, value in result.items() if key not in ("gains", "partitioning")}
        | {
            "study": SHARES.get(result["target"], {}).get(result["network"]),
            "latency_efficiency": _of_latency_bound(result),
            "network_efficiency": _of_network_bound(result),
        }
        for result in measurements
    ]
    flat = [row for row in everything if row["network"] in SIX]
    results = [result for result in measurements if result["network"] in SIX]
    buffering = [result["gains"] for result in results]
    split = [
        row | {"paper": SAVED.get(row["network"])}
        for result in results
        for row in result["partitioning"]
    ]
    return [
        Table(
            EFFICIENCY,
            COLUMNS,
            flat,
            (
                "Cycles are those of the words that ran, planned by `exact`; bounds: "
                "planning/cost/bounds.py. Latency bound: the granule bound with the latencies that "
                "transfers no larger than the memories pay one after the other (not for ACC-C, "
                "where values stay on the chip from kernel to kernel).",
                "The bounds of a network are its kernels' in a sum, but for the network bound, "
                "which knows that operands of a kernel may come while those before compute "
                "(benchmarks/papers/dlir/bounds.py). On ACC-C weights do, so a small network can "
                "be below the sum (LeNet-5).",
                "Bit for bit: the whole network's outputs on a random input, words against the "
                "graph's interpreter.",
                "Code: a digest of the sources that decide a row (papers/dlir/code.py).",
                "The thesis' absolute times are in figures 5.9 and 5.10 alone, as speed-ups over "
                "a GPU, which cannot be compared here.",
                *([f"Not measured: {', '.join(missing)}."] if missing else []),
            ),
        ),
        Table("Efficiency over the networks", MEANS, means(flat)),
        Table(
            STUDY,
            BESIDE,
            [row for row in everything if row["study"] is not None],
            (
                "Study: a model of the same machines, serial latency, whole networks; its share "
                "of the granule bound is rounded to a percent.",
                *_behind(everything),
            ),
        ),
        Table(
            BUFFERING,
            GAINS,
            [*buffering, *_overall(buffering)],
            (
                "Cycles are sums over kernels that run alone. Double buffering halves the "
                "memories that tiles are cut for, as in the thesis; off where it loses: "
                "`greedy{start=granule}`, which plans each kernel both ways and never loses.",
                "The thesis' gains are over its six networks at the original sizes.",
            ),
        ),
        Table(
            PARTITIONING,
            STEPS,
            split,
            (
                "Steps are tilings looked at. All tilings: every combination of the sizes that "
                "greedy may take from a start of 1, what an exhaustive search without pruning "
                "would look at.",
                "The thesis counts 161.44 x on AlexNet and does not say on which machine.",
            ),
        ),
    ]


def _of_latency_bound(result: dict[str, Any]) -> float | None:
    """None where values stay on the chip: the bound has every kernel load and store its own."""
    from tilewright.targets.base import find_target

    if any(memory.resident for memory in find_target(result["target"]).machine().memories):
        return None
    return result["latency_bound"] / result["cycles"]


def _of_network_bound(result: dict[str, Any]) -> float | None:
    """None in rows of a page that is older than this bound."""
    bound = result.get("network_bound")
    return None if bound is None else bound / result["cycles"]


def _behind(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Where a network stays behind the study by more than its rounding."""
    return [
        f"Behind the study: {row['network']} on {row['target']}, "
        f"{percent(row['granule_efficiency'])} where it has {percent(row['study'])}."
        for row in rows
        if row["study"] is not None and row["granule_efficiency"] < row["study"] - 0.005
    ]


def means(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for each configuration."""
    found: list[dict[str, Any]] = []
    for target in dict.fromkeys(row["target"] for row in rows):
        mine = [row for row in rows if row["target"] == target]
        shares = [row["granule_efficiency"] for row in mine]
        known = [row["latency_efficiency"] for row in mine]
        latency = [share for share in known if share is not None]
        found.append(
            {
                "target": target,
                "networks": len(shares),
                "mean": mean(shares),
                "latency": mean(latency) if latency else None,
                "least": min(shares),
                "goal": GOAL,
                "hand": f"{percent(HAND[0])} to {percent(HAND[1])}",
            }
        )
    return found


def _overall(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The mean gain of each configuration, beside the thesis' where it has one."""
    found: list[dict[str, Any]] = []
    for target in dict.fromkeys(row["target"] for row in rows):
        mine = [row for row in rows if row["target"] == target]
        found.append(
            {
                "network": f"mean of {len(mine)}",
                "target": target,
                **{
                    key: mean([1 + row[key] for row in mine]) - 1
                    for key in ("gain", "best_gain", "exact_gain")
                },
                "lost": sum(row["lost"] for row in mine),
                "paper": DOUBLE.get(target),
            }
        )
    return found
