"""Heron's data (heron.toml)."""

from pathlib import Path

from tilewright.machine.load import load_machine

MACHINE = load_machine(Path(__file__).with_name("heron.toml"))
"""The machine; ``--set memory.local.bytes=32768`` makes another one of it."""
