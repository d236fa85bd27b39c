"""Design space exploration: models planned on many variants of a machine, a row for each."""

from tilewright.sweeps.rows import Objective, Row, Rows
from tilewright.sweeps.run import sweep
from tilewright.sweeps.space import Axis, Point, Space, axis_of

__all__ = ["Axis", "Objective", "Point", "Row", "Rows", "Space", "axis_of", "sweep"]
