"""Flags of ours beside those that AscendNPU-IR's two passes put into the same loops.

Needs its tool (``make test-oracles``); BISHENGIR_OPT names it where it lies elsewhere.
"""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.papers.ascend.handovers import synchronised
from benchmarks.papers.ascend.injected import Injected
from benchmarks.papers.ascend.loops import LOOPS
from benchmarks.report import Column, Table, whole
from tilewright.targets.ascend.machine import ASCEND_910B1
from tilewright.targets.ascend.program import Barrier, Executed, Flag, trace
from tilewright.targets.ascend.proof import prove_trace
from tilewright.targets.ascend.timing import simulate_trace

TITLE = "DaVinci: flags and barriers, ours and the vendor's"

NETWORKS: tuple[str, ...] = ()

TOOL = Path("build/oracles/ascendnpuir/bin/bishengir-opt")

PASSES = {"inject-sync": "--hivm-inject-sync", "graph solver": "--hivm-graph-sync-solver"}

EVENTS = 8
"""That HIVM has."""

MANY = 100_000

CORE = replace(
    ASCEND_910B1,
    paths={
        **ASCEND_910B1.paths,
        ("gm", "ub"): ASCEND_910B1.paths["gm", "cbuf"],
        ("ub", "gm"): ASCEND_910B1.paths["cc", "gm"],
    },
)
"""A vector core's own paths are not public: they are taken to be the cube core's."""


def printed(text: str, option: str) -> str:
    """What the tool makes of a module: buffers placed, flags put in."""
    options = ("--hacc-append-device-spec=target=Ascend910B2", "--hivm-plan-memory", option)
    tool = Path(os.environ.get("BISHENGIR_OPT", TOOL)).absolute()
    if not tool.is_file():
        raise SystemExit(f"{tool} is missing: make test-oracles installs it")
    done = subprocess.run(
        [tool, "-", *options], input=text, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout


def executions(name: str) -> dict[str, list[Executed]]:
    """A loop's executions with flags, by whose they are."""
    text, program = LOOPS[name]
    ours = synchronised(program, events=ASCEND_910B1.events)
    theirs = {key: Injected.of(printed(text, option)).steps for key, option in PASSES.items()}
    return {"ours": trace(ours), **theirs}


def counts(steps: Sequence[Executed]) -> Mapping[str, float]:
    """Sets, waits and barriers an iteration of the innermost loop: those that are executed more
    than once, so not what stands in front of the loops and behind them."""
    times = Counter(id(step.statement) for step in steps)
    again = [step.statement for step in steps if times[id(step.statement)] > 1]
    iterations = max(times.values())
    kinds = Counter(
        "barrier" if isinstance(statement, Barrier) else statement.kind
        for statement in again
        if isinstance(statement, Barrier | Flag)
    )
    return {kind: kinds[kind] / iterations for kind in ("set", "wait", "barrier")}


def verdict(steps: Sequence[Executed], *, binary: bool) -> str:
    """What the proof says of events that are up or down, or that count."""
    problems = prove_trace(list(steps), events=EVENTS, binary=binary, most=MANY)
    kinds = Counter(problem.kind for problem in problems)
    return (
        ", ".join(f"{KINDS.get(kind, kind)}: {times}" for kind, times in kinds.items()) or "right"
    )


KINDS = {"again": "set twice"}


def tables(networks: Sequence[str] = NETWORKS) -> list[Table]:
    """The page's one table."""
    rows: list[Mapping[str, Any]] = []
    for name in LOOPS:
        for whose, steps in executions(name).items():
            row: dict[str, Any] = {"loop": name, "whose": whose, **counts(steps)}
            row["binary"] = verdict(steps, binary=True)
            row["counting"] = verdict(steps, binary=False)
            row["cycles"] = simulate_trace(steps, CORE).cycles
            rows.append(row)

    def number(value: float) -> str:
        return f"{value:.2f}".rstrip("0").rstrip(".")

    columns = (
        Column("loop", "loop"),
        Column("whose", "flags"),
        *(Column(kind, f"{kind}s", number) for kind in ("set", "wait", "barrier")),
        Column("binary", "events up or down"),
        Column("counting", "events that count"),
        Column("cycles", "cycles", whole),
    )
    remarks = (
        "Sets, waits and barriers an iteration of the innermost loop, within `mmadL1` included.",
        "The verdicts are our proof's, of every execution; cycles are simulated, with the rates of "
        "the 910B1's cube core.",
    )
    return [Table("Three loops, flags by whom", columns, rows, remarks)]
