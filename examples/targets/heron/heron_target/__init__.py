"""Heron, a made-up accelerator that is programmed in C: asynchronous copies, waits, intrinsics."""

from heron_target.target import HeronTarget

TARGET = HeronTarget()
"""What the entry point ``heron`` names."""
