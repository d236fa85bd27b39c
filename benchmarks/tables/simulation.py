"""simulation: how many cycles of ACC-C a second simulates, values included."""

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

ROUNDS = 20
"""Runs, of which the fastest counts: the first one compiles and touches memory."""

TARGET = 20e6
"""Cycles a second on VGG16 that the project asks for."""


def run(name: str) -> dict[str, Any]:
    """Compile one network for ``cambricon`` and simulate it, by the processor and by the clock."""
    import onnx

    from tilewright.compiler.api import compile

    path = model_path(name)
    inputs = feeds(onnx.load(path))
    with TemporaryDirectory() as folder:
        executable = compile(path, "cambricon", directory=f"{folder}/package")
        seconds: list[float] = []
        wall: list[float] = []
        for _ in range(ROUNDS):
            begin, clock = time.process_time(), time.perf_counter()
            executable.run(inputs)
            seconds.append(time.process_time() - begin)
            wall.append(time.perf_counter() - clock)
        cycles = executable.profile.cycles or 0
    return {"network": name, "cycles": cycles, "seconds": min(seconds), "wall": min(wall)}


def tables(networks: Sequence[str]) -> list[Table]:
    """One row a network."""
    rows = [alone(1, run, name) for name in networks]
    for row in rows:
        row["speed"] = row["cycles"] / max(row["seconds"], 1e-9)
        row["wall_speed"] = row["cycles"] / max(row["wall"], 1e-9)
        row["slowdown"] = 1e9 / max(row["speed"], 1e-9)
    columns = (
        Column("network", "network"),
        Column("cycles", "cycles", whole),
        Column("seconds", "processor s", "{:.3f}".format),
        Column("wall", "wall s", "{:.3f}".format),
        Column("speed", "million cycles a processor s", lambda value: f"{value / 1e6:.1f}"),
        Column("wall_speed", "a wall s", lambda value: f"{value / 1e6:.1f}"),
        Column("slowdown", "slower than the machine", lambda value: f"{value:.0f} times"),
    )
    remarks = (
        "Whole runs on one core, the host's steps included; the fastest of "
        f"{ROUNDS}. Wall time is longer where others use the core, too.",
        f"Asked for on VGG16: {TARGET / 1e6:.0f} million cycles a second of wall time.",
    )
    return [Table("Whole networks", columns, rows, remarks)]
