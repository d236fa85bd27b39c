"""The ``tilewright`` command."""

from __future__ import annotations

from typing import Annotated

import typer

import tilewright
from tilewright.cli.asm import asm, disasm
from tilewright.cli.bench import bench
from tilewright.cli.cache import cache_command
from tilewright.cli.calibrate import calibrate_command
from tilewright.cli.compile import compile_command
from tilewright.cli.diff import diff
from tilewright.cli.dlplib import dlplib_command
from tilewright.cli.explain import explain_command
from tilewright.cli.hlal import trace_command
from tilewright.cli.memory import memory
from tilewright.cli.opt import opt
from tilewright.cli.plan import plan_command
from tilewright.cli.quantise import quantise
from tilewright.cli.replay import replay
from tilewright.cli.run import run
from tilewright.cli.targets import targets
from tilewright.cli.tune import tune_command

app = typer.Typer(
    name="tilewright",
    help="Compile neural networks for processors whose fast memory is managed by software.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("compile")(compile_command)
app.command("run")(run)
app.command("plan")(plan_command)
app.command("explain")(explain_command)
app.command("diff")(diff)
app.command("replay")(replay)
app.command("memory")(memory)
app.command("quantise")(quantise)
app.command("bench")(bench)
app.command("cache")(cache_command)
app.command("tune")(tune_command)
app.command("calibrate")(calibrate_command)
app.command("dlplib")(dlplib_command)
app.command("targets")(targets)
app.command("opt")(opt)
app.command("asm")(asm)
app.command("disasm")(disasm)
app.command("trace")(trace_command)


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
    """Entry point of the installed command."""
    app()


if __name__ == "__main__":
    main()
