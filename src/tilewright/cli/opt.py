"""``tilewright opt``: run passes on text, in the manner of mlir-opt."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tilewright.cli import console
from tilewright.errors import refuse
from tilewright.system.files import need_file, reason_of

WRITTEN = "tilewright compile --emit graph or --emit tile writes one"
"""Help of messages about what is neither a graph nor a tile file."""


def opt(
    file: Annotated[str, typer.Argument(help="A graph or tile file; - is standard input.")] = "-",
    passes: Annotated[
        str, typer.Option("--passes", "-p", metavar="PASS,PASS", help="Passes to run, in order.")
    ] = "",
    target: console.TargetOption = "cambricon-x",
    settings: console.SetOption = None,
    weights: Annotated[
        Path | None, typer.Option("--weights", help="The weights of a graph (.safetensors).")
    ] = None,
    list_passes: Annotated[bool, typer.Option("--list", help="List the passes and stop.")] = False,
) -> None:
    """Parse a graph or tile file, run passes, and print it.

    Example: tilewright opt kernel.mlir -p place-moves,double-buffer,allocate -t cambricon-x
    """
    from tilewright.cli.optimise import all_passes, optimise_text

    with console.refusals():
        if list_passes:
            for name, pass_class in sorted(all_passes().items()):
                first = (pass_class.__doc__ or "").strip().splitlines()
                console.say(f"{name:<20} {first[0] if first else ''}")
            return
        text = _read(file)
        values = console.machine_values(settings)
        optimised = optimise_text(text, passes, target, values=values, weights=weights, name=file)
        console.write(optimised)


def _read(file: str) -> str:
    if file != "-":
        need_file(Path(file), "input-file", WRITTEN)
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise refuse("input-file", reason_of(error), file, WRITTEN) from error
