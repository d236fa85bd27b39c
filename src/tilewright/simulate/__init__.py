"""Simulation shared by all simulated targets: timing, race detection, traces."""

from tilewright.simulate.commands import (
    ACCESS,
    MAX_ENGINES,
    TIMED,
    access_table,
    timed_table,
    transfer_bytes,
)
from tilewright.simulate.races import Race, RaceReport, UnwrittenRead, find_races
from tilewright.simulate.timing import Timeline, simulate
from tilewright.simulate.trace import write_trace

__all__ = [
    "ACCESS",
    "MAX_ENGINES",
    "TIMED",
    "Race",
    "RaceReport",
    "Timeline",
    "UnwrittenRead",
    "access_table",
    "find_races",
    "simulate",
    "timed_table",
    "transfer_bytes",
    "write_trace",
]
