"""``tilewright sweep``: models planned on many variants of a machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli import console
from tilewright.cli.groups import ModelOptions, grouped
from tilewright.cli.numbers import NumbersOption
from tilewright.cli.refusals import errors
from tilewright.runtime.texts import table
from tilewright.system.choices import EFFORTS, SEARCHES

if TYPE_CHECKING:
    from tilewright.sweeps import Rows

SHOWN = 40
"""The most rows that are printed."""


@grouped
def sweep_command(
    models: Annotated[
        list[Path] | None, typer.Argument(metavar="MODEL...", help=console.MODELS)
    ] = None,
    *,
    target: console.TargetOption = "cpu",
    vary: Annotated[
        list[str] | None,
        typer.Option(
            "--vary",
            metavar="KEY=VALUES",
            help="Vary a key of the machine, planner or model: memory.sram.bytes=64K..4M:2x, "
            "move.load.latency=0..90:+30, clock_hz=4e8,8e8 (repeatable).",
        ),
    ] = None,
    search: Annotated[
        str,
        typer.Option(
            "--search",
            metavar="NAME",
            help="grid: all points; random: some of them; pareto: NSGA-II.",
            autocompletion=console.completion(lambda: SEARCHES),
        ),
    ] = "grid",
    samples: Annotated[
        int | None,
        typer.Option("--samples", min=1, help="Points of a search but a grid [default: 100]."),
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", min=0, max=2**32 - 1, help="Of a random or Pareto search.")
    ] = 0,
    objective: Annotated[
        list[str] | None,
        typer.Option(
            "--objective",
            metavar="COLUMN",
            help="A column that is to be small, or large as in --objective=-COLUMN (repeatable) "
            "[default: seconds and all that varies].",
        ),
    ] = None,
    planner: console.PlannerOption = "model",
    effort: Annotated[
        str,
        typer.Option(
            "--effort",
            metavar="NAME",
            help="quick: the first schedule by the cost model, timed; full: as compile chooses.",
            autocompletion=console.completion(lambda: EFFORTS),
        ),
    ] = "quick",
    format: NumbersOption = None,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Rows as .csv or .parquet, a journal beside it."
        ),
    ] = Path("sweep.csv"),
    on: Annotated[
        str | None,
        typer.Option(
            "--on",
            metavar="PLACE",
            help="dask: a local cluster of --jobs workers; dask://HOST:PORT: that scheduler's.",
        ),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, max=1024, help="Worker processes.")] = 1,
    options: ModelOptions,
    as_json: console.JsonOption = False,
    quiet: console.QuietOption = False,
) -> None:
    """Plan models on many variants of a machine: a row for each, the best of them marked.

    A sweep that is stopped goes on where it was by the same command.

    Example: tilewright sweep lenet5.onnx -t npu.toml --vary memory.sram.bytes=64K..4M:2x

    Example: tilewright sweep a.onnx b.onnx -t npu.toml --vary clock_hz=4e8,8e8 --jobs 2
    """
    from tilewright.sweeps import axis_of, sweep

    with console.refusals(as_json):
        try:
            with console.progress(quiet) as progress:
                rows = sweep(
                    [os.fspath(model) for model in models or ()],
                    target,
                    [axis_of(text) for text in vary or ()],
                    output=output,
                    search=search,
                    samples=samples,
                    seed=seed,
                    objectives=objective or (),
                    planner=planner,
                    effort=effort,
                    values=options.values,
                    shapes=options.shapes,
                    constants=console.constants(options.constant),
                    caffemodel=options.caffemodel,
                    numbers=format,
                    on=on,
                    jobs=jobs,
                    progress=progress,
                )
        except KeyboardInterrupt:
            errors().print(
                f"finished points are in {output}.journal: the same command goes on from there",
                markup=False,
            )
            raise
    if as_json:
        facts: list[dict[str, Any]] = rows.table()[1]
        console.print_json({"output": str(output), "rows": facts})
    else:
        say_rows(rows)
        console.say(f"{len(rows)} rows in {output}")
    if rows and all(row.status == "refused" for row in rows):
        raise typer.Exit(1)  # Nothing of what was asked for can be.


def say_rows(rows: Rows) -> None:
    """Print a table of rows: all of a few, of many those that no other row betters."""
    from tilewright.sweeps.rows import lines_of, shown_rows

    shown = shown_rows(rows)
    heads, lines = lines_of(rows, shown[:SHOWN])
    first, *texts = table([heads, *lines], texts=0)
    console.write(f"  {first}")
    for row, text in zip(shown, texts, strict=False):
        code = f"  [{row.code}]" if row.status == "refused" else ""
        console.write(f"{'*' if row.pareto else ' '} {text}{code}")
    if len(shown) > SHOWN:
        console.say(f"{len(shown) - SHOWN} rows more in the file")
    if refused := [row for row in rows if row.status == "refused"]:
        console.say(f"{len(refused)} refused; the first: [{refused[0].code}] {refused[0].reason}")
    if any(row.pareto for row in rows):
        console.say("* no other row is better in one objective and as good in all")
