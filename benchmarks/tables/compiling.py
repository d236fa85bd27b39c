"""compile: seconds of each stage of the pipeline, and the most memory that it takes."""

from __future__ import annotations

from collections.abc import Sequence
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.measuring import Stopwatch, alone, model_path, peak_bytes
from benchmarks.report import Column, Table, megabytes, seconds

TITLE = "Time and memory of compiling, on two cores"

NETWORKS = ("lenet5", "alexnet", "vgg16", "resnet50")

TARGETS = ("cpu", "cambricon-x")

LIMIT = {("resnet50", "cpu"): 60.0}
"""Seconds that the project allows, C compiler included."""


def run(name: str, target: str) -> dict[str, Any]:
    """Compile one network and load the package, which builds its C."""
    from tilewright.compiler.api import compile

    watch = Stopwatch()
    with TemporaryDirectory() as folder:
        executable = compile(
            model_path(name), target, directory=f"{folder}/package", progress=watch
        )
        watch.lap("load")
        assert executable.runner.inputs
        watch.stop()
    return {
        "network": name,
        "target": target,
        **watch.seconds,
        "total": sum(watch.seconds.values()),
        "limit": LIMIT.get((name, target)),
        "process_bytes": peak_bytes(),
        "weight_bytes": executable.manifest.peak_memory_bytes
        - executable.manifest.activation_bytes,
    }


def tables(networks: Sequence[str]) -> list[Table]:
    """Compile networks for every target."""
    rows = [alone(2, run, name, target) for target in TARGETS for name in networks]
    known = ("network", "target", "total", "limit", "process_bytes", "weight_bytes")
    stages = [key for key in rows[0] if key not in known]
    columns = (
        Column("network", "network"),
        Column("target", "target"),
        *(Column(stage, stage, seconds) for stage in stages),
        Column("total", "total s", seconds),
        Column("limit", "limit", seconds),
        Column("weight_bytes", "weights MB", megabytes),
        Column("process_bytes", "process MB", megabytes),
    )
    remarks = (
        "Emit writes the package and checks it once; load is what a first run needs besides: on "
        "cpu the C compiler.",
    )
    return [Table("Seconds by stage", columns, rows, remarks)]
