"""The Cambricon-X accelerator, simulated, in its three sizes."""

from tilewright.targets.cambricon_x.machine import LARGE as _LARGE
from tilewright.targets.cambricon_x.machine import MEDIUM as _MEDIUM
from tilewright.targets.cambricon_x.target import CambriconXTarget

TARGET = CambriconXTarget()
"""What the entry point ``cambricon-x`` names."""
MEDIUM = CambriconXTarget(_MEDIUM)
LARGE = CambriconXTarget(_LARGE)

__all__ = ["LARGE", "MEDIUM", "TARGET", "CambriconXTarget"]
