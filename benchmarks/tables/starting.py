"""start: milliseconds until a process has opened a package and run it once."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.measuring import THREADS, model_path
from benchmarks.report import Column, Table

TITLE = "A server's start"

NETWORKS = ("lenet5", "squeezenet", "mobilenet_v2")

TURNS = 20
"""Processes whose median is told."""

STARTED = """
import json, sys, time
laps, names = [time.perf_counter()], []
def lap(name):
    laps.append(time.perf_counter())
    names.append(name)
import numpy
lap("numpy")
from tilewright.runtime import Executable
lap("import")
executable = Executable.load(sys.argv[1])
lap("open")
inputs = {t.name: numpy.zeros(t.shape, t.dtype) for t in executable.inputs}
executable.runner
lap("library")
executable.run(inputs)
lap("run")
print(json.dumps({name: b - a for name, a, b in zip(names, laps, laps[1:])}))
"""
"""A process that tells how long each step has taken."""


def run(path: Path) -> dict[str, Any]:
    """Compile a network, save it with its library, and start it again and again."""
    import tilewright

    with TemporaryDirectory() as folder:
        package = tilewright.compile(path, "cpu").save(Path(folder) / "package", build=True)
        size = sum(file.stat().st_size for file in package.rglob("*") if file.is_file())
        environment = os.environ | dict.fromkeys(THREADS, "1")
        # Installed modules lie compiled on a server; an empty value keeps them so here.
        environment["PYTHONDONTWRITEBYTECODE"] = ""
        command = [sys.executable, "-c", STARTED, str(package)]
        texts = [
            subprocess.run(
                command, env=environment, capture_output=True, text=True, check=True
            ).stdout
            for _ in range(TURNS + 1)  # The first fills the system's caches.
        ]
    laps = [json.loads(text) for text in texts[1:]]
    for lap in laps:
        lap["ours"] = sum(lap.values()) - lap["numpy"]
    found = {name: statistics.median(lap[name] for lap in laps) for name in laps[0]}
    return {"network": path.stem, "bytes": size, **found}


def _milliseconds(value: float) -> str:
    return f"{1e3 * value:.1f}"


def tables(networks: Sequence[str]) -> list[Table]:
    """Measure networks one after the other."""
    rows = [run(model_path(name)) for name in networks]
    columns = (
        Column("network", "network"),
        Column("bytes", "package MB", lambda value: f"{value / 1e6:.1f}"),
        Column("numpy", "import numpy", _milliseconds),
        Column("import", "import ours", _milliseconds),
        Column("open", "open", _milliseconds),
        Column("library", "library", _milliseconds),
        Column("run", "first run", _milliseconds),
        Column("ours", "all but numpy", _milliseconds),
    )
    remarks = (
        f"Medians of {TURNS} processes, on one thread, files in the system's cache. Open is "
        "`Executable.load`, which compares every file with its digest. Library is the library's "
        "seal, its loading, and the weights.",
    )
    return [Table("Milliseconds", columns, rows, remarks)]
