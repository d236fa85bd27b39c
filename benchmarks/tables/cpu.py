"""cpu: against ONNX Runtime, in turns, one thread; see benchmarks/cpu for more options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.measuring import alone, model_path
from benchmarks.report import Column, Table, seconds

TITLE = "The cpu target against ONNX Runtime: one thread, batch 1, float32"

NETWORKS = (
    *("lenet5", "alexnet", "vgg16", "vgg19", "resnet18", "resnet50", "googlenet", "squeezenet"),
    "mobilenet_v2",
)

ROUNDS = 20

LIMIT = {"resnet50": 1.5}
"""Ratio of the times that the project allows."""


def run(name: str) -> dict[str, Any]:
    """Time one network."""
    from benchmarks.cpu.__main__ import measure

    with TemporaryDirectory() as folder:
        copyfile(model_path(name), Path(folder) / f"{name}.onnx")
        row = asdict(measure(name, ROUNDS, Path(folder)))
    return {**row, "ratio": row["ours"] / row["theirs"], "limit": LIMIT.get(name)}


COLUMNS = (
    Column("name", "network"),
    Column("ours", "Tilewright ms", seconds),
    Column("theirs", "ONNX Runtime ms", seconds),
    Column("ratio", "ratio", seconds),
    Column("limit", "limit", seconds),
    Column("ours_best", "Tilewright best ms", seconds),
    Column("theirs_best", "ONNX Runtime best ms", seconds),
    Column("error", "largest rel. difference", lambda error: f"{error:.1e}"),
    Column("compile_seconds", "compile s", seconds),
)


def tables(networks: Sequence[str]) -> list[Table]:
    """Time networks, each in a process on one core."""
    rows = [alone(1, run, name) for name in networks]
    return [Table(f"Medians of {ROUNDS} runs in turns", COLUMNS, rows)]
