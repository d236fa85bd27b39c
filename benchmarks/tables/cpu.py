"""cpu: against its peers, in turns, on one thread and two; see benchmarks/cpu for more options."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from shutil import rmtree
from statistics import geometric_mean
from typing import Any

import onnx

from benchmarks import models
from benchmarks.cpu import memory
from benchmarks.cpu.__main__ import NETWORKS
from benchmarks.cpu.kernels import LOW, Kernel, timed
from benchmarks.cpu.peers import PEERS
from benchmarks.cpu.timing import build, compare
from benchmarks.measuring import alone, calibrated, cores, kept, model_path
from benchmarks.report import Column, Table, megabytes, percent, seconds, whole
from tilewright.runtime.executable import Executable

TITLE = (
    "The cpu target against ONNX Runtime and OpenVINO: one thread and two, batch 1, float32 and "
    "int8"
)

ROUNDS = 10
"""Of a network that takes long; of others there are more, for ``SECONDS``."""

SECONDS = 4.0

THREADS = (1, 2)

OPTIONS = ("resume", "threads")
"""What ``tables`` takes of the command line."""

SHARE = 0.01
"""Part of a network's time from which on a slow kernel is listed."""

KEPT = Path("build/benchmarks/cpu")
"""Where each network's rows are kept when they are measured: ``--resume`` goes on from there."""


def timing(name: str, threads: int) -> dict[str, Any]:
    """Time one network on so many threads."""
    folder = KEPT / name
    if not folder.exists():
        building(name)
    times = compare(model_path(name), folder, threads, ROUNDS, SECONDS)
    return {**asdict(times), **times.theirs, "ratio": times.ratio, "speed_up": 1 / times.ratio}


def kernels(path: Path, folder: Path) -> dict[str, Any]:
    """Each kernel of a package against the roofline, on one thread."""
    return _kernels(timed(Executable.load(folder), models.feeds(onnx.load(path)), ROUNDS))


def _kernels(found: Sequence[Kernel]) -> dict[str, Any]:
    total = sum(kernel.seconds for kernel in found)
    low = [kernel for kernel in found if kernel.efficiency < LOW]
    return {
        "kernels": len(found),
        "kernel_ms": total * 1e3,
        "efficiency": sum(kernel.bound for kernel in found) / total,
        "low": len(low),
        "low_share": sum(kernel.seconds for kernel in low) / total,
        "slow": [
            {
                "kernel": kernel.symbol,
                "microseconds": kernel.seconds * 1e6,
                "share": kernel.seconds / total,
                "efficiency": kernel.efficiency,
                "primitive": kernel.schedule.partition(" ")[0],
                "reason": kernel.reason,
            }
            for kernel in sorted(low, key=lambda kernel: -kernel.seconds)
            if kernel.seconds >= SHARE * total
        ],
    }


def building(name: str) -> dict[str, Any]:
    """Compile a network, and look at its memory and kernels, each in a process of its own."""
    path, folder = model_path(name), KEPT / name
    rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    processor = alone(1, calibrated, KEPT.parent)
    compiling, c_compiler = alone(2, partial(build, cpu=str(processor)), path, folder)
    sizes = alone(1, memory.ours, path, folder)
    least = alone(1, memory.bound, path)
    peers = {peer: alone(1, memory.theirs, peer, path) for peer in PEERS}
    arenas = sizes["weights"] + sizes["workspace"]
    return {
        **alone(1, kernels, path, folder / "package"),
        "cores": alone(2, cores),
        "compile_seconds": compiling,
        "c_seconds": c_compiler,
        "memory": {
            **sizes,
            "arenas": arenas,
            "bound": least,
            "ratio": arenas / least,
            "growth_ratio": sizes["growth"] / least,
            "peers": peers,
        },
    }


def run(name: str, resume: bool, threads: Collection[int]) -> dict[str, Any]:
    """Everything about one network, as far as it is asked for or kept."""
    row = kept(KEPT / f"{name}.json", resume, building, name)
    times: dict[int, dict[str, Any]] = {}
    for count in THREADS:
        path = KEPT / f"{name}-{count}.json"
        if count in threads:
            times[count] = kept(path, resume, timing, name, count)
        elif resume and path.exists():
            times[count] = json.loads(path.read_text())
    if len(times) == len(THREADS):
        rmtree(KEPT / name, ignore_errors=True)
    return {"name": name, "times": times, **row}


ROOFLINE = (
    Column("name", "network"),
    Column("kernels", "kernels"),
    Column("kernel_ms", "their ms", seconds),
    Column("efficiency", "of the roofline", percent),
    Column("low", "below 70 %"),
    Column("low_share", "their share of the time", percent),
)

SLOW = (
    Column("network", "network"),
    Column("kernel", "kernel"),
    Column("microseconds", "microseconds", whole),
    Column("share", "of its network's time", percent),
    Column("efficiency", "of the roofline", percent),
    Column("primitive", "primitive"),
    Column("reason", "why"),
)

COMPILE = (
    Column("name", "network"),
    Column("cores", "cores"),
    Column("compile_seconds", "model to package that runs, s", seconds),
    Column("c_seconds", "of them the C compiler", seconds),
)


SATURATED = (
    "largest difference: from ONNX Runtime, whose sums of two products of bytes may saturate at 16 "
    "bits on processors without dot products of bytes; Tilewright's are exact"
)


def _compared(rows: Sequence[dict[str, Any]], threads: int) -> Table:
    """The table of times for one number of threads."""
    found: list[dict[str, Any]] = [
        {"name": row["name"], **row["times"][threads]} for row in rows if threads in row["times"]
    ]
    peers = list(found[0]["theirs"]) if found else []
    columns = (
        Column("name", "network"),
        Column("ours", "Tilewright ms", seconds),
        Column("ours_best", "its best", seconds),
        *(Column(name, f"{name} ms", seconds) for name in peers),
        Column("ratio", "ratio to the faster", seconds),
        Column("speed_up", "speed-up", seconds),
        Column("rounds", "turns"),
        Column("error", "largest rel. difference", lambda error: f"{error:.1e}"),
    )

    def mean(integer: bool) -> str:
        ratios = [row["speed_up"] for row in found if ("-int8" in row["name"]) == integer]
        return f"{geometric_mean(ratios):.2f}" if ratios else "-"

    count = "one thread" if threads == 1 else f"{threads} threads"
    clock = "processor time" if threads == 1 else "wall time"
    remarks = [*(found[0]["remarks"] if found else []), SATURATED]
    title = (
        f"{count}: medians of turns, {clock}; geometric mean of the speed-ups "
        f"{mean(False)} in float32, {mean(True)} in int8"
    )
    return Table(title[0].upper() + title[1:], columns, found, remarks)


def _memory(rows: Sequence[dict[str, Any]]) -> Table:
    columns = (
        Column("name", "network"),
        Column("weights", "weights MB", megabytes),
        Column("workspace", "workspace MB", megabytes),
        Column("bound", "bound MB", megabytes),
        Column("ratio", "weights and workspace to bound", seconds),
        Column("growth", "process grows by MB", megabytes),
        Column("growth_ratio", "growth to bound", seconds),
        *(Column(peer, f"{peer} grows by MB", megabytes) for peer in PEERS),
    )
    found = [{"name": row["name"], **row["memory"], **row["memory"]["peers"]} for row in rows]
    remarks = (
        "bound: the model's weights, and the most activations that are live at once, with direct "
        "convolutions (tilewright memory)",
        "growth: of a process's resident memory from loaded libraries to its peak, loading the "
        "model and three runs on one thread included; mapped files count",
    )
    return Table("Memory while running, one thread", columns, found, remarks)


def tables(
    networks: Sequence[str], resume: bool = False, threads: Sequence[int] = THREADS
) -> list[Table]:
    """Measure networks; with ``resume`` what an earlier run has measured is left out.

    Times are taken on ``threads`` alone: the rest can be measured later, with ``resume``.
    """
    rows = [run(name, resume, threads) for name in networks]
    slow = [{"network": row["name"], **kernel} for row in rows for kernel in row["slow"]]
    return [
        *(
            _compared(rows, count)
            for count in THREADS
            if any(count in row["times"] for row in rows)
        ),
        _memory(rows),
        Table("Compiling", COMPILE, rows),
        Table("Kernels against the roofline, the least of all runs", ROOFLINE, rows),
        Table("Kernels below 70 % that take 1 % of their network's time or more", SLOW, slow),
    ]


__all__ = ["NETWORKS", "TITLE", "tables"]
