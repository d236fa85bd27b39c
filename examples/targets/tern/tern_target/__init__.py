"""Tern, a made-up processor: words of 192 bytes, order by flags, two levels of memory."""

from tern_target.target import TernTarget

TARGET = TernTarget()
"""What the entry point ``tern`` names."""
