"""Kernels in CCE C, read, verified and printed again: ``python -m benchmarks.papers.ascend.reader
FILE``."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.papers.ascend.reader.kernels import read_kernels, verified
from tilewright.targets.ascend.emit import kernel_text
from tilewright.targets.ascend.machine import CORES


def main() -> None:
    """Read a file; raises TilewrightError for what is no kernel, or not right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--core", choices=[core.name for core in CORES], default=CORES[0].name)
    given = parser.parse_args()
    (core,) = (core for core in CORES if core.name == given.core)
    for program in read_kernels(given.file.read_text(), core):
        verified(program, core)
        print(kernel_text(program))


if __name__ == "__main__":
    main()
