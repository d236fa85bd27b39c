"""A timeline for Perfetto: kernels, and the pipes of the core that computes a launch's first block.

The commands are those of the emitted C, which is read back; their times are the simulation's
(timing.py), with all cores at work. Launches follow each other as in the report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tilewright.codegen.program.stepped import Times
from tilewright.simulate.commands import timed_table
from tilewright.simulate.timing import Timeline
from tilewright.simulate.trace import write_trace
from tilewright.targets.ascend.package import FOLDER
from tilewright.targets.ascend.reader.kernels import read_kernels
from tilewright.targets.ascend.sharing import first_block
from tilewright.targets.ascend.timing import Timed

if TYPE_CHECKING:
    from tilewright.targets.ascend.runner import AscendRunner


def write_timeline(path: Path, runner: AscendRunner, times: Times) -> None:
    """Write the timeline of a run of the runner's last length.

    ``times`` are the run's. Raises TilewrightError for C that is none of ours (``cce-``).
    """
    rows, machine = runner.parts.file.kernels, runner.parts.machine
    engines = {engine.name: number for number, engine in enumerate(machine.engines)}
    commands = _commands(runner)
    entries: list[tuple[int, float, Timed]] = []
    clock = 0.0
    for number, row in enumerate(rows):
        for launch in runner.launches[row.start : row.end]:
            entries += [(number, clock, timed) for timed in commands[launch.function]]
            clock += launch.at(runner.size).cycles
    table = timed_table(len(entries))
    table["engine"] = [engines[timed.command.pipe.lower()] for _, _, timed in entries]
    table["kernel"] = [number for number, _, _ in entries]
    table["bytes"] = [timed.main_bytes for _, _, timed in entries]
    start = np.array([begin + timed.start for _, begin, timed in entries], np.float64)
    end = np.array([begin + timed.end for _, begin, timed in entries], np.float64)
    busy = [times.busy.get(engine.name, 0.0) for engine in machine.engines]
    timeline = Timeline(
        start=start,
        data=start,
        end=end,
        cycles=times.cycles,
        busy=np.array(busy),
        main_bytes=times.main_bytes,
        kernel_start=times.kernel_start,
        kernel_end=times.kernel_end,
        kernel_bytes=times.kernel_bytes,
    )
    write_trace(
        path,
        timeline,
        table,
        machine,
        kernels=[row.symbol for row in rows],
        nodes=[row.nodes for row in rows],
        label=lambda command: entries[command][2].command.name,
    )


def _commands(runner: AscendRunner) -> Mapping[str, Sequence[Timed]]:
    """Return the timed commands of the first block's core in a launch of each kernel function, from
    its C."""
    folder = runner.parts.directory / FOLDER
    lengths = {launch.function: launch.longest for launch in runner.launches}
    return {
        name: first_block(program, runner.core, length=runner.size if longest else None)
        for name, longest in lengths.items()
        for program in read_kernels((folder / f"{name}.c").read_text(), runner.core)
        if program.name == name
    }
