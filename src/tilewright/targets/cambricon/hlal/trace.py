"""A run's timeline as Perfetto trace JSON: one track a unit, every event with its line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tilewright.machine import Machine
from tilewright.targets.cambricon.formats import UNITS
from tilewright.targets.cambricon.hlal.assemble import Program
from tilewright.targets.cambricon.simulate.simulator import Result
from tilewright.targets.cambricon.statements import mnemonic_text


def write_timeline(path: Path, program: Program, machine: Machine, result: Result) -> None:
    """Write one event an instruction of the units; needs a run that kept its events."""
    scale = 1e6 / machine.clock_hz
    names = [mnemonic_text(statement) for statement in program.statements if statement.mnemonic]
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write('{"displayTimeUnit": "ns", "traceEvents": [\n')
        file.write(
            _line({"ph": "M", "pid": 0, "name": "process_name", "args": {"name": program.name}})
        )
        for track, name in enumerate(UNITS):
            meta = {"ph": "M", "pid": 0, "tid": track, "name": "thread_name"}
            file.write(",\n" + _line({**meta, "args": {"name": name}}))
        for (word, unit, _, size), (start, end) in zip(
            result.events.tolist(), result.times.tolist(), strict=True
        ):
            file.write(
                ",\n"
                + _line(
                    {
                        "ph": "X",
                        "pid": 0,
                        "tid": unit,
                        "name": names[word],
                        "ts": round(start * scale, 6),
                        "dur": round((end - start) * scale, 6),
                        "args": {"line": program.where(word), "bytes": size},
                    }
                )
            )
        file.write("\n]}\n")


def _line(value: dict[str, Any]) -> str:
    return json.dumps(value, sort_keys=True)
