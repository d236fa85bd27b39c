"""Measured times of schedules, kept in a database (SQLite) between runs.

A row is found again by what was measured: the kernel without its names, the machine, and the text
that tells how it was built (compiler, flags). Batches are committed as they come, so an
interruption loses one at most; several processes may use one file.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Self

from tilewright.errors import refuse
from tilewright.machine import Machine
from tilewright.planning.canonical import canonical, renamed
from tilewright.planning.domain import Kernel
from tilewright.planning.schedule import Schedule

Measure = Callable[[Kernel, Machine, Sequence[Schedule]], list[float]]
"""Seconds that one core takes for each schedule of a kernel."""

_TABLE = """
create table if not exists measurements (
    kernel text not null,
    machine text not null,
    schedule text not null,
    seconds real not null,
    primary key (kernel, machine, schedule)
) without rowid
"""

_WAIT_SECONDS = 60.0
"""Seconds for which a process waits while another writes."""


class Measurements:
    """Seconds by kernel, machine and schedule. Use as a context manager, or ``close`` it."""

    def __init__(self, path: str | Path, built: str = "") -> None:
        """Open or create the file (":memory:" for none); ``built`` tells how kernels are built.

        Raises TilewrightError (``tuning-database``) for a file that is no such database.
        """
        self.path = str(path)
        self.built = built
        try:
            if self.path != ":memory:":
                Path(path).parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(self.path, timeout=_WAIT_SECONDS)
            with self._database:
                self._database.execute(_TABLE)
        except (sqlite3.Error, OSError) as error:
            raise refuse(
                "tuning-database", f"is no database of measurements: {error}", self.path,
                "name another file; a new one is made",
            ) from error  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the database file of the measurements."""
        self._database.close()

    def of(self, kernel: Kernel, machine: Machine) -> dict[Schedule, float]:
        """All schedules of a kernel that were measured, with their seconds."""
        form, names = canonical(kernel)
        back = {new: old for old, new in names.items()}
        rows = self._read(
            "select schedule, seconds from measurements where kernel = ? and machine = ?",
            (_digest(asdict(form)), self._machine(machine)),
        )
        times: dict[Schedule, float] = {}
        for text, seconds in rows:
            try:
                times[renamed(Schedule.from_json(json.loads(text)), back)] = float(seconds)
            except ValueError:
                continue  # written by another version; it is measured again
        return times

    def add(self, kernel: Kernel, machine: Machine, seconds: Mapping[Schedule, float]) -> None:
        """Keep measurements; of one measured before, the lesser time."""
        form, names = canonical(kernel)
        key = (_digest(asdict(form)), self._machine(machine))
        rows = [
            (*key, _text(renamed(schedule, names).to_json()), took)
            for schedule, took in seconds.items()
        ]
        try:
            with self._database:
                self._database.executemany(
                    "insert into measurements values (?, ?, ?, ?) on conflict do update "
                    "set seconds = min(seconds, excluded.seconds)",
                    rows,
                )
        except sqlite3.Error as error:
            raise refuse("tuning-database", f"cannot be written: {error}", self.path) from error

    def _read(self, query: str, values: tuple[str, ...]) -> list[tuple[str, float]]:
        try:
            return self._database.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise refuse("tuning-database", f"cannot be read: {error}", self.path) from error

    def _machine(self, machine: Machine) -> str:
        return _digest([machine.to_json(), self.built])


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def _digest(value: object) -> str:
    return sha256(_text(value).encode()).hexdigest()
