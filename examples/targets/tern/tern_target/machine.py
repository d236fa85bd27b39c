"""Tern's data (tern.toml)."""

from pathlib import Path

from tilewright.machine.load import load_machine

MACHINE = load_machine(Path(__file__).with_name("tern.toml"))
"""The machine; ``--set memory.tile.bytes=32768`` makes another one of it."""
