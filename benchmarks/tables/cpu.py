"""cpu: against its peers, in turns, one thread; see benchmarks/cpu for more options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from shutil import copyfile
from statistics import geometric_mean
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.cpu.__main__ import NETWORKS, measure
from benchmarks.cpu.kernels import LOW, Kernel, timed
from benchmarks.measuring import alone, model_path
from benchmarks.report import Column, Table, percent, seconds, whole
from tilewright.runtime.executable import Executable

TITLE = "The cpu target against ONNX Runtime and OpenVINO: one thread, batch 1, float32 and int8"

ROUNDS = 20


SHARE = 0.01
"""Part of a network's time from which on a slow kernel is listed."""


def run(name: str) -> dict[str, Any]:
    """Time one network, and its kernels."""
    found: list[Kernel] = []

    def watch(package: Executable, feeds: dict[str, Any]) -> None:
        found.extend(timed(package, feeds, ROUNDS))

    with TemporaryDirectory() as folder:
        copyfile(model_path(name), Path(folder) / f"{name}.onnx")
        row = measure(name, ROUNDS, Path(folder), watch=watch)
    total = sum(kernel.seconds for kernel in found)
    low = [kernel for kernel in found if kernel.efficiency < LOW]
    return {
        **asdict(row),
        **row.theirs,
        "ratio": row.ratio,
        "speed_up": 1 / row.ratio,
        "kernels": len(found),
        "kernel_ms": total * 1e3,
        "efficiency": sum(kernel.bound for kernel in found) / total,
        "low": len(low),
        "low_share": sum(kernel.seconds for kernel in low) / total,
        "slow": [
            {
                "network": name,
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


def tables(networks: Sequence[str]) -> list[Table]:
    """Time networks, each in a process on one core."""
    rows = [alone(1, run, name) for name in networks]
    peers = list(rows[0]["theirs"]) if rows else []
    columns = (
        Column("name", "network"),
        Column("ours", "Tilewright ms", seconds),
        Column("ours_best", "its best", seconds),
        *(Column(name, f"{name} ms", seconds) for name in peers),
        Column("ratio", "ratio to the faster", seconds),
        Column("speed_up", "speed-up", seconds),
        Column("error", "largest rel. difference", lambda error: f"{error:.1e}"),
        Column("compile_seconds", "compile s", seconds),
    )
    remarks = "; ".join(rows[0]["remarks"]) if rows else ""
    mean = geometric_mean([row["speed_up"] for row in rows]) if rows else 1.0
    title = f"Medians of {ROUNDS} runs in turns; geometric mean of the speed-ups {mean:.2f}"
    slow = [kernel for row in rows for kernel in row.pop("slow")]
    return [
        Table(title + (f" ({remarks})" if remarks else ""), columns, rows),
        Table("Kernels against the roofline, the least of as many runs", ROOFLINE, rows),
        Table("Kernels below 70 % that take 1 % of their network's time or more", SLOW, slow),
    ]


__all__ = ["NETWORKS", "TITLE", "tables"]
