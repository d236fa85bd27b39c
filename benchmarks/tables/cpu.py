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
from benchmarks.measuring import alone, model_path
from benchmarks.report import Column, Table, seconds

TITLE = "The cpu target against ONNX Runtime and OpenVINO: one thread, batch 1, float32"

ROUNDS = 20


def run(name: str) -> dict[str, Any]:
    """Time one network."""
    with TemporaryDirectory() as folder:
        copyfile(model_path(name), Path(folder) / f"{name}.onnx")
        row = measure(name, ROUNDS, Path(folder))
    return {**asdict(row), **row.theirs, "ratio": row.ratio, "speed_up": 1 / row.ratio}


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
    return [Table(title + (f" ({remarks})" if remarks else ""), columns, rows)]


__all__ = ["NETWORKS", "TITLE", "tables"]
