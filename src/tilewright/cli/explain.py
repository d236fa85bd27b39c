"""``tilewright explain``: where each node runs, and why."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tilewright.cli import console
from tilewright.cli.groups import ModelOptions, grouped
from tilewright.cli.numbers import NumberOptions
from tilewright.errors import refuse


@grouped
def explain_command(
    model: Annotated[Path | None, typer.Argument(help="A model file.")] = None,
    *,
    target: console.TargetOption = "cpu",
    operators: Annotated[
        bool, typer.Option("--operators", help="List the operations that the target runs.")
    ] = False,
    formats: NumberOptions,
    options: ModelOptions,
    as_json: console.JsonOption = False,
    quiet: console.QuietOption = False,
) -> None:
    """Print where each node of a model runs; for the host, the reason and a change that helps.

    Example: tilewright explain mobilenetv2.onnx --target cambricon-x --set memory.nbin.bytes=4096
    """
    from tilewright.compiler.pipeline import resolve
    from tilewright.report.explain import explain
    from tilewright.report.operators import operation_rows, operators_table

    with console.refusals(as_json), console.progress(quiet) as progress:
        if (model is None) != operators:
            raise refuse("option-model", "give a model file, or --operators", "MODEL")
        chosen, machine = resolve(target, None, options.values)
        if model is None:
            if as_json:
                console.print_json([asdict(row) for row in operation_rows(machine)])
            else:
                console.write(operators_table([(machine.name, machine)]))
            return
        told = explain(
            options.source(model),
            chosen,
            machine,
            **options.given,
            **formats.on(machine),
            progress=progress,
        )
    console.show(as_json, told.to_json(), told)
