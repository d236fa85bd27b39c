"""The ``tilewright`` command. A command's file is imported when the command is called."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import tilewright
from tilewright.cli.refusals import REFUSED, refusals

GARBAGE = 50_000
"""New objects after which Python looks for garbage."""

COMMANDS: Mapping[str, tuple[str, str]] = {
    "compile": ("compile:compile_command", "Compile a model into a package."),
    "run": ("run:run", "Run a model, a package or an HLAL program, and report what it took."),
    "llm": ("llm:llm_command", "Compile a language model of Llama's kind into a package of C."),
    "generate": ("llm:generate_command", "Continue a text by a package of `tilewright llm`."),
    "plan": (
        "plan:plan_command",
        "Print the schedule of every kernel, its predicted cost and its bounds.",
    ),
    "sweep": (
        "sweep:sweep_command",
        "Plan models on many variants of a machine: a row for each, the best of them marked.",
    ),
    "fuse": (
        "fuse:fuse_command",
        "Search for kernels that are worth computing as one: candidates, costs and plans.",
    ),
    "explain": (
        "explain:explain_command",
        "Print where each node of a model runs; for the host, the reason and a change that helps.",
    ),
    "diff": (
        "diff:diff",
        "Compare a model with a reference, layer by layer.",
    ),
    "replay": ("replay:replay", "Run a model on every engine and compare the results."),
    "memory": (
        "memory:memory",
        "Print the memory that a model takes: peak, bound, and the tensors live at the peak.",
    ),
    "quantise": (
        "quantise:quantise",
        "Print the error that each layer adds in another number format, worst first.",
    ),
    "report": (
        "report:report",
        "Write one page, which works offline, about where time and memory go.",
    ),
    "bench": (
        "bench:bench",
        "Run a model or a package several times; print minimum, median and maximum.",
    ),
    "cache": (
        "cache:cache_command",
        "Print the folder of the cache, its number of packages and their bytes.",
    ),
    "tune": (
        "tune:tune_command",
        "Measure schedules of the cpu target here, worst kernels first, and store the times.",
    ),
    "calibrate": (
        "calibrate:calibrate_command",
        "Measure clock, peak, bandwidths and register tiles of one core of an idle machine.",
    ),
    "dlplib": (
        "dlplib:dlplib_command",
        "Write dlplib.h and build libdlplib.so, through which programs in C call DLPlib.",
    ),
    "targets": (
        "targets:targets",
        "List the targets, or show the machine of one of them or of a file.",
    ),
    "import-machine": (
        "import_machine:import_machine_command",
        "Read other tools' hardware (ZigZag's, AccelForge's, Timeloop's) as a machine file.",
    ),
    "opt": ("opt:opt", "Parse a graph or tile file, run passes, and print it."),
    "asm": ("asm:asm", "Assemble text into instruction words."),
    "disasm": (
        "asm:disasm",
        "Disassemble words or a package's program; the text assembles to the same words.",
    ),
    "trace": (
        "hlal:trace_command",
        "Run an HLAL program and write its timeline for Perfetto, each instruction with its line.",
    ),
}
"""Command -> its ``module:function`` in ``tilewright.cli``, and the first line of its help."""


@cache
def command(name: str) -> Any:
    """A command with its options; imports what it needs."""
    file, _, function = COMMANDS[name][0].partition(":")
    single = typer.Typer(
        add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None
    )
    single.command(name)(getattr(import_module(f"tilewright.cli.{file}"), function))
    return typer.main.get_command(single)


class Commands(TyperGroup):
    """The group of commands: it lists and completes them without importing their files."""

    def __init__(self, **options: Any) -> None:
        """Names and first lines stand for the commands until one is called."""
        super().__init__(**options)
        for name, (_, help) in COMMANDS.items():
            self.add_command(TyperCommand(name, help=help, rich_markup_mode=None))

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Read the options; typer imports pydantic for it, which takes time enough for ctrl-C."""
        with refusals():
            return super().make_context(*arguments, **options)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that is called, with its options."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, None if name is None else command(name), rest

    def invoke(self, ctx: Any) -> Any:
        """Import and call a command; whatever ends it outside its own care is told in one line."""
        with refusals():
            return super().invoke(ctx)


app = typer.Typer(
    name="tilewright",
    cls=Commands,
    help="Compile neural networks for processors whose fast memory is managed by software.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tilewright {tilewright.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Compile neural networks for processors whose fast memory is managed by software."""


def main() -> None:
    """Run the command that the arguments name; ``tilewright.__main__`` calls it."""
    # Imports and networks are made of many objects that stay: collecting garbage as often as Python
    # does takes a twentieth of the time, and looking for typer's plug-ins of pydantic another.
    gc.set_threshold(GARBAGE)
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except OSError as error:
        # The place where results are printed is full; Python would try again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.stderr.write(f"error [output-failed] standard output: {error.strerror}\n")
        sys.exit(REFUSED)
