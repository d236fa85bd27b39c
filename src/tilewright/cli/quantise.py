"""``tilewright quantise``: what other numbers cost, layer by layer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilewright.cli import console
from tilewright.cli.groups import ModelOptions, grouped
from tilewright.cli.numbers import NumberOptions, numbers_on
from tilewright.cli.sizes import bound_model
from tilewright.errors import refuse
from tilewright.system.choices import SAMPLES


@grouped
def quantise(
    model: Annotated[Path, typer.Argument(help="A model file.")],
    *,
    target: console.TargetOption = "cpu",
    formats: NumberOptions,
    samples: Annotated[
        int,
        typer.Option("--samples", min=1, max=10_000, help="Samples that errors are measured on."),
    ] = SAMPLES,
    options: ModelOptions,
    as_json: console.JsonOption = False,
    quiet: console.QuietOption = False,
) -> None:
    """Print the error that each layer adds in another number format, worst first.

    Give the nodes at the top to --keep-float, here and in compile, to trade speed for accuracy.

    Example: tilewright quantise resnet50.onnx --numbers int8 --calibration images/
    """
    from tilewright.compiler.pipeline import resolve
    from tilewright.numerics.formats import numbers_of
    from tilewright.report.quantisation import quantisation_report

    with console.refusals(as_json), console.progress(quiet) as progress:
        chosen, machine = resolve(target, None, options.values)
        if formats.format is None and machine.computes_as_given:
            raise refuse("option-numbers", "say which: --numbers int8", "--numbers")
        choices = formats.chosen
        source, shapes = bound_model(model, options, None, progress)
        report = quantisation_report(
            source,
            chosen,
            machine,
            numbers_on(machine, choices) or numbers_of(machine.element),
            shapes=shapes,
            caffemodel=options.caffemodel,
            calibration=choices.get("calibration"),
            samples=samples,
            progress=progress,
        )
    console.show(as_json, report.to_json(), report)
