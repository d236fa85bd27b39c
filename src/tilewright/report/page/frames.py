"""Tables of figures as pandas DataFrames."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tilewright.system.extras import library

if TYPE_CHECKING:
    from tilewright.report.page.data import Figures


def frames(figures: Figures) -> dict[str, Any]:
    """Tables by name: ``kernels``, ``engines``, ``intervals``, ``memories``, ``occupants`` and
    ``edges``."""
    pandas = library("pandas", "report", "report-library", "DataFrames")
    starts = {name: (start, end) for name, start, end in figures.windows}
    rows: dict[str, list[dict[str, Any]]] = {
        "kernels": [
            {
                **asdict(kernel),
                "start": starts[kernel.name][0],
                "end": starts[kernel.name][1],
            }
            for kernel in figures.kernels
        ],
        "engines": [
            {
                "engine": engine.name,
                "moves": engine.moves,
                "busy": engine.busy,
                "commands": engine.commands,
            }
            for engine in figures.engines
        ],
        "memories": [
            {"memory": memory.name, "bytes": memory.bytes, "peak": memory.peak}
            for memory in figures.memories
        ],
        "occupants": [asdict(each) for memory in figures.memories for each in memory.occupants],
        "edges": [asdict(edge) for edge in figures.edges],
    }
    tables: dict[str, Any] = {name: pandas.DataFrame(table) for name, table in rows.items()}
    columns = ("start", "end", "busy", "commands", "bytes", "kernel")
    parts = [
        pandas.DataFrame(
            {"engine": engine.name, **{name: getattr(engine.finest, name) for name in columns}}
        )
        for engine in figures.engines
    ]
    tables["intervals"] = pandas.concat(parts, ignore_index=True) if parts else pandas.DataFrame()
    return tables
