"""``tilewright compile``: model in, package out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilewright.cli import console, numbers


def compile_command(
    model: Annotated[Path, typer.Argument(help=console.MODELS)],
    target: console.TargetOption = "cpu",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The package [default: MODEL-TARGET].")
    ] = None,
    format: numbers.NumbersOption = None,
    calibration: numbers.CalibrationOption = None,
    preprocess: numbers.PreprocessOption = None,
    observer: numbers.ObserverOption = None,
    keep_float: numbers.KeepFloatOption = None,
    equalise: numbers.EqualiseOption = None,
    shape: console.ShapeOption = None,
    constant: console.ConstantOption = None,
    weights: console.WeightsOption = None,
    settings: console.SetOption = None,
    exact_convolution: console.ExactOption = False,
    cpu: console.CpuOption = None,
    name: Annotated[
        str | None,
        typer.Option("--name", help="Of the C functions and files [default: the model file's]."),
    ] = None,
    weights_as: Annotated[
        str | None,
        typer.Option(
            "--weights-as", metavar="FORM", help="Of weights in C: file [default] or array."
        ),
    ] = None,
    bare: Annotated[
        bool,
        typer.Option("--bare", help="C without threads, heap, files: for microcontrollers."),
    ] = False,
    planner: console.PlannerOption = "model",
    database: console.DatabaseOption = None,
    dump: Annotated[
        Path | None, typer.Option("--dump", help="Write the representation after every pass here.")
    ] = None,
    exact_memory: console.ExactMemoryOption = False,
    kernels: console.KernelsOption = False,
    no_cache: console.NoCacheOption = False,
    as_json: console.JsonOption = False,
    quiet: console.QuietOption = False,
) -> None:
    """Compile a model into a package.

    Example: tilewright compile resnet50.onnx --target cambricon-x -o resnet50-package
    """
    from tilewright.compiler.api import compile

    with console.refusals(as_json), console.progress(quiet) as progress:
        kind = Path(target).stem if target.endswith(".toml") else target
        place = output or Path(f"{model.stem}-{kind}")
        made = compile(
            model,
            target,
            values=console.machine_values(settings),
            shapes=console.shapes(shape),
            constants=console.constants(constant),
            weights=weights,
            **numbers.chosen(format, calibration, preprocess, observer, keep_float, equalise),
            directory=place,
            dump=dump,
            exact_memory=exact_memory,
            exact_convolution=exact_convolution,
            cpu=cpu,
            name=name,
            weights_as=weights_as,
            bare=bare,
            planner=planner,
            database=database,
            progress=progress,
            cache=None if no_cache else console.cache(),
        )
    if as_json:
        profile = made.summary()
        console.print_json({"target": made.manifest.target, "package": str(place), "plan": profile})
    else:
        console.say(made.report(kernels=kernels))
        free = "".join(f" --shape {name}={bounds.low}" for name, bounds in made.free.items())
        console.say(f"package in {place}; run it: tilewright run {place}{free} --check")
