"""``tilewright tune``: measure schedules of a model's kernels within a time budget."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated

import typer

from tilewright.cli import console
from tilewright.cli.groups import ModelOptions, grouped
from tilewright.errors import refuse
from tilewright.system.extras import library


@grouped
def tune_command(
    model: Annotated[Path, typer.Argument(help="An ONNX file or a prototxt.")],
    *,
    database: Annotated[
        Path, typer.Option("--database", metavar="FILE", help="The file of measurements.")
    ] = Path("measurements.sqlite"),
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.0, max=1e7, help="About how long to measure.")
    ] = 300.0,
    jobs: Annotated[
        int, typer.Option("--jobs", min=1, max=1024, help="Measurements in parallel.")
    ] = 1,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster", metavar="ADDRESS", help="Measure on the workers of a Dask scheduler."
        ),
    ] = None,
    options: ModelOptions,
    exact_convolution: console.ExactOption = False,
    as_json: console.JsonOption = False,
    quiet: console.QuietOption = False,
) -> None:
    """Measure schedules of the cpu target here, worst kernels first, and store the times.

    It can be interrupted and goes on where it stopped. Measurements disturb each other when there
    are more of them at a time than idle cores.

    Example: tilewright tune resnet50.onnx --seconds 600 --database resnet50.sqlite
    """
    from tilewright.compiler.tune import tune

    with (
        console.refusals(as_json),
        console.progress(quiet) as progress,
        _executor(jobs, cluster) as executor,
    ):
        rows = tune(
            options.source(model),
            database=database,
            seconds=seconds,
            **options.given,
            values=options.values,
            exact_convolution=exact_convolution,
            executor=executor,
            jobs=jobs,
            progress=progress,
        )
    before = sum(row.count * row.model_seconds for row in rows if row.best is not None)
    after = sum(row.count * row.best_seconds for row in rows if row.best is not None)
    if as_json:
        console.print_json(
            {
                "database": str(database),
                "model_seconds": before if before < float("inf") else None,
                "best_seconds": after,
                "kernels": [row.to_json() for row in rows],
            }
        )
        return
    console.say(f"{'kernels':>8}{'measured':>12}{'model us':>12}{'best us':>12}{'gain':>9}  nodes")
    for row in rows:
        known = row.model_seconds < float("inf")
        model_text = f"{1e6 * row.model_seconds:.1f}" if known else "-"
        best_text = f"{1e6 * row.best_seconds:.1f}" if row.best is not None else "-"
        gain = f"{row.model_seconds / row.best_seconds - 1:.1%}" if known and row.best else "-"
        console.say(
            f"{row.count:>8}{f'{row.measured}/{row.space}':>12}{model_text:>12}{best_text:>12}"
            f"{gain:>9}  {', '.join(row.kernel.nodes)[:60]}"
        )
    console.say(f"kept in {database}; use it: tilewright compile {model} --database {database}")


@contextmanager
def _executor(jobs: int, cluster: str | None) -> Generator[Executor | None]:
    """Workers of a cluster, processes of this machine, or none: this process measures."""
    if cluster is not None:
        dask = library("distributed", "cluster", "option-cluster", "workers of a cluster")
        try:
            client = dask.Client(cluster, timeout=10)
        except (OSError, ValueError) as error:
            raise refuse("option-cluster", f"no scheduler answers: {error}", "--cluster") from error
        with client:
            yield client.get_executor()
    elif jobs > 1:
        # Fresh processes: generated code that fails takes no lock or thread of ours with it.
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            yield pool
    else:
        yield None
