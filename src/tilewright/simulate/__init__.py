"""Simulation shared by all simulated targets: timing, race detection, traces."""

from tilewright.simulate.commands import (
    ACCESS,
    MAX_ENGINES,
    TIMED,
    access_table,
    timed_table,
    transfer_bytes,
)

__all__ = ["ACCESS", "MAX_ENGINES", "TIMED", "access_table", "timed_table", "transfer_bytes"]
