"""``tilewright learn``: what kernels of a machine cost, learned from its simulator."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilewright.choices import LEARNED_SAMPLES
from tilewright.cli import console
from tilewright.files import written


def learn_command(
    models: Annotated[list[Path], typer.Argument(help=console.MODELS)],
    target: console.TargetOption,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The costs [default: TARGET-cost.json]."
        ),
    ] = None,
    samples: Annotated[
        int, typer.Option("--samples", min=1, help="Kernels that are simulated.")
    ] = LEARNED_SAMPLES,
    settings: console.SetOption = None,
    as_json: console.JsonOption = False,
    quiet: console.QuietOption = False,
) -> None:
    """Simulate some kernels of models, alone and fused, and learn what others cost.

    What was learned is used by `fuse --cost learned=FILE` and `compile --fusion-cost learned=FILE`.

    Example: tilewright learn vgg16.onnx resnet50.onnx --target zu2 -o zu2-cost.json
    """
    from tilewright.compiler.learn import learn
    from tilewright.compiler.pipeline import resolve

    with console.refusals(as_json), console.progress(quiet) as progress:
        chosen, machine = resolve(target, None, console.machine_values(settings))
        learned = learn(models, chosen, machine, samples=samples, progress=progress)
        place = output or Path(f"{Path(target).stem}-cost.json")
        with written(place) as fresh:
            fresh.write_text(learned.text(), encoding="utf-8")
    if as_json:
        console.print_json({"target": chosen.name, "file": str(place)} | learned.model_dump())
        return
    console.say(
        f"learned from {learned.samples} kernels, which it predicts to "
        f"{learned.mean_deviation:.1%} in the mean, {learned.greatest_deviation:.1%} at worst\n"
        f"stored in {place}; use it: tilewright fuse MODEL --target {target} --cost learned={place}"
    )
