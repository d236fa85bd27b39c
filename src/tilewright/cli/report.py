"""``tilewright report``: one page about packages, models and runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli import console
from tilewright.cli.groups import ModelOptions, grouped
from tilewright.cli.inputs import InputOption, RandomOption, inputs_for
from tilewright.cli.numbers import NumberOptions
from tilewright.errors import refuse
from tilewright.system.files import need_file, written

if TYPE_CHECKING:
    from tilewright.report.page.data import Figures
    from tilewright.runtime.executable import Executable

MOST_JSON = 256 << 20
"""Bytes of the largest file of a run that is read."""


@grouped
def report(
    sources: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RUN_OR_PACKAGE...",
            help="Packages, models, or what `tilewright run --json` printed (.json).",
        ),
    ] = None,
    *,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE.html", help="The page to write.")
    ] = Path("report.html"),
    sweep: Annotated[
        Path | None,
        typer.Option("--sweep", metavar="FILE.csv", help="Draw the Pareto front of these rows."),
    ] = None,
    target: console.OptionalTargetOption = None,
    inputs: InputOption = None,
    random: RandomOption = None,
    formats: NumberOptions,
    options: ModelOptions,
    as_json: console.JsonOption = False,
    quiet: console.QuietOption = False,
) -> None:
    """Write one page, which works offline, about where time and memory go.

    With --random or --input each package runs once first, so that what the host takes is measured;
    without, simulated times are shown where they do not depend on values, else predicted ones.
    Several packages or runs are compared.

    Example: tilewright report lenet5-npu -o report.html
    Example: tilewright report resnet50.onnx --target npu.toml --random 1 -o report.html
    """
    from tilewright.report.page.page import page
    from tilewright.report.page.scripts import vega_script
    from tilewright.report.page.sweep import read_sweep

    with console.refusals(as_json), console.progress(quiet) as progress:
        if not sources and sweep is None:
            raise refuse("option-report", "there is nothing to report on", "RUN_OR_PACKAGE",
                         "name a package, a model, or --sweep FILE.csv")  # fmt: skip
        points = None if sweep is None else read_sweep(sweep)
        runs: list[Figures] = []
        for source in sources or []:
            if source.suffix == ".json":
                runs.append(_read_run(source))
                continue
            executable = _opened(source, target, options, formats, inputs, progress)
            progress("run" if random is not None or inputs else "figures", 0, 0)
            runs.append(_figures(executable, inputs, random))
        progress("page", 0, 0)
        text = page(runs, vega_script(), points)
        with written(output) as fresh:
            fresh.write_text(text, encoding="utf-8", newline="\n")
    told = {"page": str(output), "bytes": len(text.encode()), "runs": [one.name for one in runs]}
    console.show(as_json, told, f"{output}: {told['bytes']:,} bytes")


def _opened(
    source: Path,
    target: str | None,
    options: ModelOptions,
    formats: NumberOptions,
    inputs: list[str] | None,
    progress: Any,
) -> Executable:
    from tilewright.cli.run import is_package, open_or_compile

    # A package beside models keeps its target.
    compiled = is_package(source)
    executable = open_or_compile(
        source,
        None if compiled else target,
        ModelOptions(shape=options.shape) if compiled else options,
        {} if compiled else formats.chosen,
        progress,
        files=inputs,
    )
    if executable.free:
        names = ", ".join(executable.free)
        raise refuse(
            "option-shape", f"{names}: a report is about one size", str(source),
            f"give each a size: --shape {next(iter(executable.free))}=1",
        )  # fmt: skip
    return executable


def _figures(executable: Executable, inputs: list[str] | None, random: int | None) -> Figures:
    """The figures of a package, after a run where there is something to run it on."""
    from tilewright.report.page.data import figures
    from tilewright.runtime.executable import AGAIN, MOST_RUNS
    from tilewright.system.temporary import temporary_folder

    if random is not None or inputs:
        arrays = inputs_for(executable.inputs, inputs, random)
        with temporary_folder() as folder:
            # Some simulators keep their events only for a run that leaves a trace.
            executable.run(arrays, trace=folder / "trace.json")
        if executable.profile.cycles is None:
            executable.measure(arrays, MOST_RUNS, AGAIN)
    return figures(executable)


def _read_run(path: Path) -> Figures:
    """The figures of a run that was printed as JSON; refuses (``report-run``) anything else."""
    from tilewright.report.page.data import figures_of_run

    def refused(reason: str) -> Exception:
        return refuse("report-run", reason, str(path), "write it with `tilewright run --json`")

    need_file(path, "report-run")
    try:
        if path.stat().st_size > MOST_JSON:
            raise refused("is too large for a run")
        told = json.loads(path.read_text(encoding="utf-8"))
        return figures_of_run(told["profile"], path.stem)
    except (OSError, ValueError) as error:
        raise refused(f"cannot be read: {error}") from None
    except (KeyError, TypeError, AttributeError):
        raise refused("is not the JSON of a run") from None
