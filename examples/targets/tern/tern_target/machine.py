"""Tern's data (tern.toml), and the one key of its memories that other machines do not have."""

from pathlib import Path
from typing import ClassVar

from tilewright.machine.load import load_machine
from tilewright.machine.records import MemoryRecord


class TernMemory(MemoryRecord):
    """A memory of Tern."""

    family: ClassVar[str] = "tern"

    stays: bool = False
    """True if results may stay in it until all kernels that read them have run."""

    def keeps_values(self) -> bool:
        """Return ``stays``."""
        return self.stays


MACHINE = load_machine(Path(__file__).with_name("tern.toml"))
"""The machine; ``--set memory.tile.bytes=32768`` makes another one of it."""
