"""Listing 2 case by case, across runs: what a run has planned is written at once, and not planned
again.

A file of lines, each a case, in the order in which they are planned: scattered over the listing, so
that any beginning of it is a fair sample. Nothing in the file depends on when or where it was run.
Whether an earlier run's cases are still what the code of today plans is asked of the first
``CHECKED``: if any differs, all are planned anew. (A digest of the code would throw all of them
away for a change that decides nothing; a change that decides a few cases alone may pass.)
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Sizes = tuple[int, int, int]

STEP = 100
"""Cases from one that is planned to the next; the 559 have no divisor in common with it."""

CHECKED = 8
"""Cases of an earlier run that are planned once more."""

FIGURES = 6
"""Digits of a kept figure: beyond these, processors and libraries differ."""


def scattered(cases: Sequence[Sizes]) -> list[Sizes]:
    """All cases, in an order whose every beginning is spread over them."""
    count = len(cases)
    order = sorted(range(count), key=lambda place: (place * STEP % count, place))
    return [cases[place] for place in order]


def rows_of(
    cases: Sequence[Sizes],
    planned: Callable[[Sizes], dict[str, Any]],
    path: Path,
    resume: bool = False,
    seconds: float | None = None,
) -> list[dict[str, Any]]:
    """Rows of the cases that are planned, in the order of ``cases``.

    With ``resume`` those are taken that the file at ``path`` has; after ``seconds`` no further case
    is begun.
    """
    end = None if seconds is None else time.monotonic() + seconds
    order = scattered(cases)
    known = _known(path) if resume else {}
    for case in [case for case in order if _name(case) in known][:CHECKED]:
        if _row(planned(case)) != known[_name(case)]:
            print(f"{_name(case)} is planned otherwise now: all cases begin anew", flush=True)
            known = {}
            break
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(_line(name, row) for name, row in known.items()))
    with path.open("a") as file:
        for case in order:
            if _name(case) in known or (end is not None and time.monotonic() >= end):
                continue
            known[_name(case)] = row = _row(planned(case))
            file.write(_line(_name(case), row))
            file.flush()
    return [known[_name(case)] for case in cases if _name(case) in known]


def _known(path: Path) -> dict[str, dict[str, Any]]:
    """Rows by case, up to a line that was cut off."""
    rows: dict[str, dict[str, Any]] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            break
        rows[row.pop("case")] = row
    return rows


def _row(planned: dict[str, Any]) -> dict[str, Any]:
    return {
        key: float(f"{value:.{FIGURES}g}") if isinstance(value, float) else value
        for key, value in planned.items()
    }


def _line(name: str, row: dict[str, Any]) -> str:
    return json.dumps({"case": name} | row) + "\n"


def _name(case: Sizes) -> str:
    return "x".join(map(str, case))
