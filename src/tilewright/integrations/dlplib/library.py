"""The library for programs in C: dlplib.h and a shared object beside each other."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tilewright.codegen.c.compiler import build_library
from tilewright.errors import refuse

SOURCES = Path(__file__).parent / "c"
FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-fPIC", "-Wall", "-Wextra")

NAME = "libdlplib.so"


def write_library(directory: str | Path, python: str | None = None) -> tuple[Path, Path]:
    """Write the header and build the shared object into a directory; gives their paths.

    The object starts ``python`` (this interpreter) for every handle, unless the environment
    variable DLPLIB_PYTHON names another. Raises TilewrightError where there is no C compiler or
    the directory cannot be written.
    """
    place = Path(directory)
    interpreter = python or sys.executable
    if '"' in interpreter or "\\" in interpreter:
        raise refuse("output-failed", "its path cannot be written in C", interpreter)
    header, built = place / "dlplib.h", place / NAME
    try:
        place.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(SOURCES / header.name, header)
        build_library(
            sorted(SOURCES.glob("*.c")),
            built,
            [SOURCES],
            (*FLAGS, f'-DDLPLIB_PYTHON="{interpreter}"'),
        )
    except OSError as error:
        raise refuse("output-failed", error.strerror or str(error), str(place)) from error
    return header, built
