"""The events of a trace: the pipes of the core that computes a launch's first block.

The commands are those of the emitted C, which is read back; their times are the simulation's
(timing.py), with all cores at work. Launches follow each other as in the report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tilewright.simulate.commands import timed_table
from tilewright.simulate.timing import Spans
from tilewright.simulate.trace import Events
from tilewright.targets.ascend.package import FOLDER
from tilewright.targets.ascend.reader.kernels import read_kernels
from tilewright.targets.ascend.sharing import first_block
from tilewright.targets.ascend.timing import Timed

if TYPE_CHECKING:
    from tilewright.targets.ascend.runner import AscendRunner


def events_of(runner: AscendRunner) -> Events:
    """Return the events of a run of the runner's last length.

    Raises TilewrightError (``cce-``) for C that this target did not emit.
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
    times = runner.times()
    spans = Spans(start, start, end, times.kernel_end, times.kernel_bytes)
    return spans, table, lambda command: entries[command][2].command.name


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
