"""``tilewright import-machine``: other tools' descriptions of hardware as machine files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilewright.cli import console
from tilewright.errors import refuse
from tilewright.system.files import written


def import_machine_command(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="YAML of ZigZag (an accelerator, and a mapping), AccelForge or Timeloop.",
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE.toml", help="Where to write it.")
    ] = Path("machine.toml"),
    element: Annotated[
        str, typer.Option("--element", help="Number format: int8 or fixed16.")
    ] = "int8",
    as_json: console.JsonOption = False,
) -> None:
    """Read other tools' hardware (ZigZag's, AccelForge's, Timeloop's) as a machine file.

    Example: tilewright import-machine tpu_like.yaml mapping.yaml -o tpu-like.toml
    """
    from tilewright.integrations.machines import import_machine

    with console.refusals(as_json):
        if output.suffix != ".toml":
            raise refuse("option-output", "a machine file is a .toml file", str(output))
        imported = import_machine(files, element)
        with written(output) as fresh:
            fresh.write_text(imported.text)
    machine = imported.machine
    lines = [
        f"{machine.name}, imported from {imported.tool}: {len(machine.memories)} memories, "
        f"{len(machine.moves)} moves, {len(machine.primitives)} primitives",
        "what the machine file does not say, or assumes:",
        *(f"- {line}" for line in imported.lost),
        f"written to {output}; use it: tilewright plan MODEL --target {output}",
    ]
    said = {"machine": machine.name, "tool": imported.tool, "output": str(output)}
    console.show(as_json, said | {"lost": list(imported.lost)}, "\n".join(lines))
