"""Machines without a folder of their own, simulated through instructions derived from them."""

from tilewright.targets.generic.target import GenericTarget

TARGET = GenericTarget()
"""What the entry point names."""

__all__ = ["TARGET", "GenericTarget"]
