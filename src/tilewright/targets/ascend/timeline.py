"""The events of a trace: the pipes of the core that computes a launch's first block.

A package keeps the commands of that block with their simulated times (timing.py), with all cores at
work: of each function, at each length that was simulated. Launches follow each other as in the
report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import BadZipFile

import numpy as np

from tilewright.errors import refuse
from tilewright.ir.types import Array
from tilewright.simulate.commands import timed_table
from tilewright.simulate.timing import Spans
from tilewright.simulate.trace import Events
from tilewright.targets.ascend.command_tables import COMMAND, FILE, key_of

if TYPE_CHECKING:
    from tilewright.targets.ascend.runner import AscendRunner


def events_of(runner: AscendRunner) -> Events:
    """Return the events of a run of the runner's last length.

    Refuses (``package-invalid``) a package without its commands.
    """
    rows, machine = runner.parts.file.kernels, runner.parts.machine
    engines = {engine.name: number for number, engine in enumerate(machine.engines)}
    parts: list[Array] = []
    kernels: list[int] = []
    begins: list[float] = []
    clock = 0.0
    launches = [
        (number, launch)
        for number, row in enumerate(rows)
        for launch in runner.launches[row.start : row.end]
    ]
    keys = [key_of(each.function, each.simulated(runner.size)) for _, each in launches]
    tables = _read(runner.parts.directory, keys)
    for (number, launch), key in zip(launches, keys, strict=True):
        parts.append(tables[key])
        kernels += [number] * len(parts[-1])
        begins += [clock] * len(parts[-1])
        clock += launch.at(runner.size).cycles
    commands = np.concatenate([np.empty(0, COMMAND), *parts])
    table = timed_table(len(commands))
    table["engine"] = [engines[pipe.decode().lower()] for pipe in commands["pipe"]]
    table["kernel"] = kernels
    table["bytes"] = commands["bytes"]
    start, end = np.array(begins) + commands["start"], np.array(begins) + commands["end"]
    times = runner.times()
    spans = Spans(start, start, end, times.kernel_end, times.kernel_bytes)
    return spans, table, lambda command: commands["name"][command].decode()


def _read(directory: Path, keys: Sequence[str]) -> Mapping[str, Array]:
    """The records of some keys."""
    try:
        with np.load(directory / FILE, allow_pickle=False) as file:
            tables = {key: file[key] for key in dict.fromkeys(keys)}
    except (OSError, KeyError, ValueError, BadZipFile) as error:
        raise refuse("package-invalid", f"{FILE}: {error}", str(directory)) from None
    if any(table.dtype != COMMAND or table.ndim != 1 for table in tables.values()):
        raise refuse("package-invalid", f"{FILE} has no commands", str(directory))
    return tables
