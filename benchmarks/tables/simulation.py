"""simulation: how many cycles of ACC-C a second of the processor simulates, values included."""

from __future__ import annotations

import time
from collections.abc import Sequence
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.measuring import alone, model_path
from benchmarks.models import feeds
from benchmarks.report import Column, Table, whole

TITLE = "Speed of ACC-C's simulator"

NETWORKS = ("lenet5", "vgg16")

ROUNDS = 3
"""Runs, of which the fastest counts: the first one compiles and touches memory."""

TARGET = 20e6
"""Cycles a second on VGG16 that the project asks for."""


def run(name: str) -> dict[str, Any]:
    """Compile one network for ``cambricon`` and simulate it; seconds are the processor's."""
    import onnx

    from tilewright.compiling import compile

    path = model_path(name)
    inputs = feeds(onnx.load(path))
    with TemporaryDirectory() as folder:
        executable = compile(path, "cambricon", directory=f"{folder}/package")
        seconds: list[float] = []
        for _ in range(ROUNDS):
            begin = time.process_time()
            executable.run(inputs)
            seconds.append(time.process_time() - begin)
        cycles = executable.profile.cycles or 0
    return {"network": name, "cycles": cycles, "seconds": min(seconds)}


def tables(networks: Sequence[str]) -> list[Table]:
    """One row a network."""
    rows = [alone(1, run, name) for name in networks]
    for row in rows:
        row["speed"] = row["cycles"] / max(row["seconds"], 1e-9)
        row["slowdown"] = 1e9 / max(row["speed"], 1e-9)
    columns = (
        Column("network", "network"),
        Column("cycles", "cycles", whole),
        Column("seconds", "seconds", "{:.3f}".format),
        Column("speed", "million cycles a second", lambda value: f"{value / 1e6:.1f}"),
        Column("slowdown", "slower than the machine", lambda value: f"{value:.0f} times"),
    )
    remarks = (
        "Whole runs, the host's steps included, in seconds of the processor on one core; the "
        f"fastest of {ROUNDS}.",
        f"Asked for on VGG16: {TARGET / 1e6:.0f} million cycles a second.",
    )
    return [Table("Whole networks", columns, rows, remarks)]
