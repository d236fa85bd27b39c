"""Refusals, errors of the system, and ctrl-C: one message and an exit status each."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import typer

from tilewright.errors import Problem, TilewrightError
from tilewright.system.files import problem_of

if TYPE_CHECKING:
    from rich.console import Console

REFUSED = 2
"""Exit status when an input is refused."""

INTERRUPTED = 128 + signal.SIGINT
"""Exit status after ctrl-C, as shells give it."""


@cache
def errors() -> Console:
    """Return the console of messages and progress; imported late, as rich takes 0.3 s."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=True)


def on_terminal() -> bool:
    """Return True if messages go to a terminal; rich is asked where a variable of its own is set.

    (FORCE_COLOR and TTY_COMPATIBLE let output that is caught look like a terminal's.)
    """
    if {"FORCE_COLOR", "TTY_COMPATIBLE"} & os.environ.keys():
        return errors().is_terminal
    return sys.stderr.isatty()


@contextmanager
def refusals(as_json: bool = False) -> Generator[None]:
    """Turn every refusal into a message (and JSON, if asked for) and exit status 2.

    What the system refuses (a full disk, a folder that is not there, no memory) is a refusal too.
    """
    try:
        yield
    except TilewrightError as error:
        raise _told(error.problems, as_json) from None
    except KeyboardInterrupt:
        errors().print("interrupted", style="red")
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        raise typer.Exit(0) from None
    except OSError as error:
        raise _told([problem_of(error, "system-error")], as_json) from None
    except MemoryError as error:
        reason = f"there is not enough memory: {error}" if str(error) else "there is not enough"
        raise _told([Problem("system-memory", reason, "memory")], as_json) from None


def _told(problems: Sequence[Problem], as_json: bool) -> typer.Exit:
    for problem in problems:
        errors().print(f"error {problem}", style="red", markup=False)
    if as_json:
        rows: list[dict[str, Any]] = [
            {
                "code": problem.code,
                "where": problem.where,
                "reason": problem.reason,
                "help": problem.help,
            }
            for problem in problems
        ]
        typer.echo(json.dumps({"errors": rows}, indent=1))
    return typer.Exit(REFUSED)
