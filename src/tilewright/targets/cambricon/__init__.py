"""Cambricon (ACC-C): matrix and vector instructions with scalar control flow, simulated."""

from tilewright.targets.cambricon.machine import MEDIUM as _MEDIUM
from tilewright.targets.cambricon.machine import SMALL as _SMALL
from tilewright.targets.cambricon.target import CambriconTarget

TARGET = CambriconTarget()
"""The target of the entry point ``cambricon``."""
SMALL = CambriconTarget(_SMALL)
MEDIUM = CambriconTarget(_MEDIUM)

__all__ = ["MEDIUM", "SMALL", "TARGET", "CambriconTarget"]
