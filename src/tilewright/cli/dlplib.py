"""``tilewright dlplib``: the library for programs in C."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilewright.cli import console


def dlplib_command(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIRECTORY", help="Where the files go.")
    ],
    as_json: console.JsonOption = False,
) -> None:
    """Write dlplib.h and build libdlplib.so, through which programs in C call DLPlib.

    Example: tilewright dlplib -o dlp && gcc program.c -Idlp -Ldlp -ldlplib -Wl,-rpath,dlp
    """
    from tilewright.integrations.dlplib.library import write_library

    with console.refusals(as_json):
        header, built = write_library(output)
    facts = {"header": str(header), "library": str(built)}
    console.show(as_json, facts, f"{header}\n{built}")
