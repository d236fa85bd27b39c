"""The CPU target: readable C without dependencies, built by the system's compiler."""

from tilewright.targets.cpu.target import CpuTarget

TARGET = CpuTarget()

__all__ = ["TARGET", "CpuTarget"]
