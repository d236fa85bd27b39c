"""The timed commands of a package's functions, kept for traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tilewright.ir.types import Array
from tilewright.targets.ascend.timing import Timed

FILE = "commands.npz"
"""The file of a package that has an array of ``COMMAND`` for each of ``key_of``."""

COMMAND = np.dtype(
    [("name", "S32"), ("pipe", "S4"), ("start", "<f8"), ("end", "<f8"), ("bytes", "<i8")]
)
"""An instruction, its pipe, its start and end in cycles from the launch, and its bytes of main
memory."""


def key_of(function: str, length: int = 0) -> str:
    """The name of a function's commands at a length; 0 for the longest, or for none."""
    return f"{function}@{length}" if length else function


def table_of(commands: Sequence[Timed]) -> Array:
    """The records (``COMMAND``) of timed commands."""
    rows = [(c.command.name, c.command.pipe, c.start, c.end, c.main_bytes) for c in commands]
    return np.array(rows, COMMAND)


def write_commands(directory: Path, tables: Mapping[str, Array]) -> None:
    """Write the file of the commands."""
    np.savez_compressed(directory / FILE, allow_pickle=False, **tables)
