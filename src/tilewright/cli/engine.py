"""``tilewright run --engine``: a prototxt layer by layer through DLPlib."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilewright.cli import console
from tilewright.cli.groups import ModelOptions
from tilewright.cli.inputs import inputs_for
from tilewright.cli.numbers import NumberOptions, samples
from tilewright.errors import refuse
from tilewright.system.choices import ENGINES

EngineOption = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="NAME",
        help=f"Run a prototxt layer by layer through DLPlib: {' or '.join(ENGINES)}.",
    ),
]


def run_layers(
    model: Path,
    engine: str,
    target: str | None,
    options: ModelOptions,
    formats: NumberOptions,
    inputs: list[str] | None,
    random: int | None,
    *,
    check: bool,
    output: Path | None,
    as_json: bool,
    others: bool,
) -> None:
    """Run a network once and print what its layers took.

    ``check`` compares every call with the graph interpreter; ``others`` says whether options were
    given that are for compiled models.
    """
    from tilewright.integrations.dlplib.caffe import Net
    from tilewright.shapes.forms import concrete

    with console.refusals(as_json):
        if model.suffix.lower() != ".prototxt":
            raise refuse("option-engine", "DLPlib runs Caffe's networks", str(model))
        if others:
            raise refuse(
                "option-engine", "DLPlib compiles operators one by one", "--engine",
                "leave out options for whole models",
            )  # fmt: skip
        net = Net(
            model,
            options.caffemodel,
            engine=engine,
            target=target or "cambricon-x",
            shapes={name: concrete(text, name) for name, text in options.shapes.items()},
            calibration=samples(formats.calibration, formats.preprocess),
            check=check,
        )
        results = net.forward(inputs_for(net.inputs, inputs, random))
        if output is not None:
            console.save_arrays(output, results)
    if not as_json:
        console.say(net.report())
        if check:
            console.say("check passed: every call gave what the graph interpreter gives")
        return
    console.print_json(
        {
            "engine": engine,
            "target": net.handle.target.name,
            "outputs": console.describe(results),
            "cycles": net.cycles,
            "layers": [
                {
                    "name": layer.name,
                    "type": layer.type,
                    "operators": [
                        {"operator": run.operator, "cycles": run.cycles, "seconds": run.seconds}
                        for run in net.ran[layer.name]
                    ],
                }
                for layer in net.layers
            ],
        }
    )
