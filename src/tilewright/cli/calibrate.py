"""``tilewright calibrate``: measure the processor at hand, for the planner."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilewright.cli import console
from tilewright.errors import refuse
from tilewright.system.files import written


def calibrate_command(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE.json", help="Where to store it.")
    ] = Path("processor.json"),
    as_json: console.JsonOption = False,
    quiet: console.QuietOption = False,
) -> None:
    """Measure clock, peak, bandwidths and register tiles of one core of an idle machine.

    What was stored is used by --cpu FILE.json.

    Example: tilewright calibrate -o processor.json
    """
    from tilewright.targets.cpu.calibrate import calibrate

    with console.refusals(as_json), console.progress(quiet) as progress:
        if output.suffix != ".json":
            raise refuse("option-output", "a calibration is a .json file", str(output))
        measured = calibrate(progress)
        with written(output) as fresh:
            fresh.write_text(measured.model_dump_json(indent=1) + "\n")
    l1, l2, l3, main = measured.bandwidths
    best = min(measured.tiles, key=lambda tile: tile[2] / (tile[0] * tile[1]))
    vectors, points, step, call = best
    console.show(
        as_json,
        measured.model_dump(mode="json"),
        f"{measured.processor}\n"
        f"  clock          {measured.clock_hz / 1e9:.2f} GHz\n"
        f"  multiply-adds  {measured.vectors_per_cycle:.2f} vectors in a cycle\n"
        f"  reads          {l1:.1f}, {l2:.1f}, {l3:.1f} bytes in a cycle from the caches, "
        f"{main:.1f} from main memory\n"
        f"  register tiles {len(measured.tiles)} sizes; at {points:g} points x {vectors:g} vectors "
        f"{step:.1f} K + {call:.0f} cycles\n"
        f"stored in {output}; use it: tilewright compile MODEL --cpu {output}",
    )
