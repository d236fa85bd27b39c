"""import: seconds and memory of reading a model's file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.measuring import Stopwatch, alone, model_path, peak_bytes
from benchmarks.report import Column, Table, megabytes, seconds

TITLE = "Time and memory of importing"

NETWORKS = ("lenet5", "alexnet", "vgg19", "resnet50")

LIMIT = 1.2
"""The most memory that the project allows for a file of 500 MB, as a multiple of the file."""


def run(path: Path) -> dict[str, Any]:
    """Import one file in this process."""
    import tilewright

    watch = Stopwatch()
    watch.lap("import")
    imported = tilewright.load(path)
    watch.stop()
    size = path.stat().st_size
    peak = peak_bytes()
    return {
        "network": path.stem,
        "file_bytes": size,
        "weight_bytes": imported.weights.bytes,
        "seconds": watch.seconds["import"],
        "process_bytes": peak,
        "own_bytes": own_bytes(),
        "ratio": peak / size,
    }


def own_bytes() -> int | None:
    """Memory of this process that no file backs; None where the system does not say."""
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    lines = status.read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def _ratio(value: float) -> str:
    return f"{value:.2f}"


def tables(networks: Sequence[str]) -> list[Table]:
    """Import networks, each in a process of its own."""
    rows = [alone(1, run, model_path(name)) for name in networks]
    columns = (
        Column("network", "network"),
        Column("file_bytes", "file MB", megabytes),
        Column("weight_bytes", "weights MB", megabytes),
        Column("seconds", "s", seconds),
        Column("process_bytes", "peak MB", megabytes),
        Column("own_bytes", "own MB", megabytes),
        Column("ratio", "peak / file", _ratio),
    )
    remarks = (
        f"Peak is the most that the process held, Python and all libraries included, and pages of "
        f"the model's file, which others may share; for 500 MB it must stay below {LIMIT} times "
        "the file. Own is the memory that no file backs, after the import.",
    )
    return [Table("Seconds and megabytes", columns, rows, remarks)]
