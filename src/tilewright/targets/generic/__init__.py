"""Machines without a folder of their own, simulated through instructions derived from them."""

from tilewright.targets.generic.target import GenericTarget

TARGET = GenericTarget()
"""The target of the entry point ``generic``."""

__all__ = ["TARGET", "GenericTarget"]
