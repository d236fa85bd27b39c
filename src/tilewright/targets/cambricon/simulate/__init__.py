"""The simulator of ACC-C's words: values and time in one compiled loop."""

from tilewright.targets.cambricon.simulate.simulator import (
    LIMIT,
    Race,
    Result,
    Simulator,
    run,
)

__all__ = ["LIMIT", "Race", "Result", "Simulator", "run"]
