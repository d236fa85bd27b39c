"""The dense Cambricon-X accelerator, simulated."""

from tilewright.targets.cambricon_x.target import CambriconXTarget

TARGET = CambriconXTarget()
"""What the entry point names."""

__all__ = ["TARGET", "CambriconXTarget"]
