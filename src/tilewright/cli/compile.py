"""``tilewright compile``: model in, package out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from tilewright.cli import console
from tilewright.cli.groups import ModelOptions, grouped
from tilewright.cli.numbers import NumberOptions
from tilewright.errors import refuse
from tilewright.system.files import written


@grouped
def compile_command(
    model: Annotated[Path, typer.Argument(help=console.MODELS)],
    *,
    target: console.TargetOption = "cpu",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The package [default: MODEL-TARGET].")
    ] = None,
    formats: NumberOptions,
    options: ModelOptions,
    exact_convolution: console.ExactOption = False,
    cpu: console.CpuOption = None,
    name: Annotated[
        str | None,
        typer.Option("--name", help="Name of the C files and functions [default: the model's]."),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option("--weights", metavar="FORM", help="Form of weights: file [default] or array."),
    ] = None,
    bare: Annotated[
        bool,
        typer.Option("--bare", help="C without threads, heap, files: for microcontrollers."),
    ] = False,
    build: Annotated[
        bool,
        typer.Option("--build", help="Put the library for this processor into the package."),
    ] = False,
    planner: console.PlannerOption = "model",
    database: console.DatabaseOption = None,
    dump: Annotated[
        Path | None, typer.Option("--dump", help="Write the representation after every pass here.")
    ] = None,
    emit: Annotated[
        str | None,
        typer.Option(
            "--emit",
            metavar="LEVEL",
            help="Print the network as text, and write no package: graph, tile or program; on "
            "DaVinci cores also called ascend, cce and hivm. -o names a file.",
        ),
    ] = None,
    exact_memory: console.ExactMemoryOption = False,
    kernels: console.KernelsOption = False,
    no_cache: console.NoCacheOption = False,
    as_json: console.JsonOption = False,
    quiet: console.QuietOption = False,
) -> None:
    """Compile a model into a package.

    Example: tilewright compile resnet50.onnx --target cambricon-x -o resnet50-package

    Example: tilewright compile lenet5.onnx --target ascend910 --emit hivm -o lenet5.c
    """
    from tilewright.compiler.api import compile
    from tilewright.runtime.replacing import replacing

    if emit is not None:
        others = {"--weights": weights, "--bare": bare, "--database": database}
        others |= {"--build": build, "--dump": dump, "--kernels": kernels, "--json": as_json}
        with console.refusals(), console.progress(quiet) as progress:
            for option, value in others.items():
                if value:
                    raise refuse("option-emit", "--emit has no such option", option, "leave it out")
            text = _text(
                options.source(model),
                target,
                emit,
                formats,
                values=options.values,
                cpu=cpu,
                **options.given,
                exact_memory=exact_memory,
                exact_convolution=exact_convolution,
                name=name or "",
                planner=planner,
                progress=progress,
            )
            _print(text, output)
        return
    with console.refusals(as_json), console.progress(quiet) as progress:
        kind = Path(target).stem if target.endswith(".toml") else target
        place = output or Path(f"{model.stem}-{kind}")
        replacing(place).refuse_early()
        executable = compile(
            model,
            target,
            values=options.values,
            constants=console.constants(options.constant),
            **options.given,
            **formats.chosen,
            directory=None if build else place,
            dump=dump,
            exact_memory=exact_memory,
            exact_convolution=exact_convolution,
            cpu=cpu,
            name=name,
            weights=weights,
            bare=bare,
            planner=planner,
            database=database,
            progress=progress,
            cache=None if no_cache else console.cache(),
        )
        if build:
            executable.save(place, build=True)
    if as_json:
        profile = executable.summary()
        console.print_json(
            {"target": executable.manifest.target, "package": str(place), "plan": profile}
        )
    else:
        console.say(executable.report(kernels=kernels))
        free = "".join(f" --shape {name}={bounds.low}" for name, bounds in executable.free.items())
        next_step = f"; run it: tilewright run {place}{free} --check"
        console.say(f"package in {place}{next_step if executable.manifest.runs else ''}")


def _text(
    model: Any,
    target: str,
    level: str,
    formats: NumberOptions,
    /,
    *,
    values: Mapping[str, float] | None,
    cpu: str | None,
    **options: Any,
) -> str:
    """The representation that ``--emit`` names."""
    from tilewright.compiler.pipeline import resolve
    from tilewright.compiler.representation import representation

    device, machine = resolve(target, None, values, cpu)
    return representation(
        model,
        device,
        machine,
        level,
        **formats.on(machine),
        **options,
    )


def _print(text: str, output: Path | None) -> None:
    """Write a text to a file, or print it."""
    if output is None:
        console.write(text)
        return
    with written(output) as fresh:
        fresh.write_text(text.rstrip("\n") + "\n")
