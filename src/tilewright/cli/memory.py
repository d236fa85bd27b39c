"""``tilewright memory``: the plan of memory, before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilewright.cli import console
from tilewright.cli.groups import ModelOptions, grouped
from tilewright.cli.numbers import NumberOptions
from tilewright.system.files import written


@grouped
def memory(
    model: Annotated[Path, typer.Argument(help="A model file.")],
    *,
    target: console.TargetOption = "cpu",
    svg: Annotated[
        Path | None,
        typer.Option("--svg", metavar="FILE", help="Draw lifetimes and offsets here."),
    ] = None,
    exact_memory: console.ExactMemoryOption = False,
    formats: NumberOptions,
    options: ModelOptions,
    as_json: console.JsonOption = False,
    quiet: console.QuietOption = False,
) -> None:
    """Print the memory that a model takes: peak, bound, and the tensors live at the peak.

    Example: tilewright memory resnet50.onnx --target cpu --svg resnet50.svg
    """
    from tilewright.compiler.pipeline import resolve, run_pipeline
    from tilewright.graph.dialect import network_of
    from tilewright.graph.passes.memory_plan import memory_plan_of
    from tilewright.report.memory import memory_report
    from tilewright.report.picture import picture

    with console.refusals(as_json), console.progress(quiet) as progress:
        chosen, machine = resolve(target, None, options.values)
        state = run_pipeline(
            options.source(model),
            chosen,
            machine,
            **options.given,
            **formats.on(machine),
            progress=progress,
            exact_memory=exact_memory,
            until="numbers, layouts, memory",
        )
        network = network_of(state.network)
        apart = machine.temporary_space
        plan = memory_plan_of(network, exact=exact_memory, temporary=apart)
        report = memory_report(state.name, chosen.name, network, plan)
        if svg is not None:
            with written(svg) as fresh:
                fresh.write_text(picture(report), encoding="utf-8")
    console.show(as_json, report.to_json(), report)
