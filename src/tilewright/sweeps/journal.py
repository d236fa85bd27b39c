"""The journal of a sweep: every finished row, kept on disk at once, so that a sweep can go on.

One line of JSON a row, each written by one call and flushed to the disk. A line that was cut off,
as a crash leaves it, is taken away when the journal is opened; nothing else is ever rewritten.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from tilewright.errors import TilewrightError, refuse
from tilewright.sweeps.evaluate import Study
from tilewright.sweeps.rows import Row
from tilewright.sweeps.space import Point
from tilewright.system.files import problem_of

FORMAT = "tilewright-sweep-1"
"""The first line's mark."""


class Journal:
    """The finished rows beside a sweep's output, by what they depend on."""

    def __init__(self, path: Path) -> None:
        """Open or begin the journal; refuses a file of another kind (``sweep-journal``), a journal
        that another sweep writes to, and a place that cannot be written (``output-failed``)."""
        self.path = path
        self.rows: dict[str, Row] = {}
        try:
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise TilewrightError(problem_of(error, "output-failed", str(path))) from error
        try:
            self._begin()
        except BaseException:
            os.close(self._handle)
            raise

    def _begin(self) -> None:
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            reason = "another sweep writes to this journal"
            raise refuse("sweep-journal", reason, str(self.path), "name another --output") from None
        with os.fdopen(os.dup(self._handle), "rb") as file:
            file.seek(0)
            whole = file.read()
        end = whole.rfind(b"\n") + 1
        lines = whole[:end].splitlines()
        first = json.dumps({"journal": FORMAT}).encode()
        if (lines and lines[0] != first) or (not lines and not first.startswith(whole)):
            reason = "this file is no journal of a sweep"
            raise refuse("sweep-journal", reason, str(self.path), "move it away")
        for number, line in enumerate(lines[1:], 2):
            try:
                entry = json.loads(line)
                self.rows[entry["key"]] = Row.from_json(entry["row"])
            except (ValueError, TypeError, KeyError) as error:
                where = f"{self.path}:{number}"
                help = "take the line away: its point is then planned again"
                raise refuse("sweep-journal", "damaged", where, help) from error
        self._size = end
        if end < len(whole):
            os.ftruncate(self._handle, end)
        if not lines:
            self._write(first + b"\n")

    def add(self, key: str, row: Row) -> None:
        """Keep a row; refuses (``output-failed``) when the disk does, and stays whole."""
        if key not in self.rows:
            line = json.dumps({"key": key, "row": row.to_json()}, sort_keys=True)
            self._write(line.encode() + b"\n")
            self.rows[key] = row

    def _write(self, line: bytes) -> None:
        try:
            written = os.write(self._handle, line)
            if written < len(line):
                # The system says why when it is asked for the rest.
                written += os.write(self._handle, line[written:])
            os.fsync(self._handle)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._handle, self._size)
            problem = problem_of(error, "output-failed", str(self.path))
            raise TilewrightError(problem) from error
        self._size += len(line)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._handle)


def key_of(study: Study, point: Point) -> str:
    """The key of a point's row: a digest of model, machine, values, planner, options, version."""
    whole: Mapping[str, Any] = {
        "model": study.digests[point.model],
        "caffemodel": study.digests.get(study.caffemodel or "", ""),
        "target": study.target,
        "machine": study.machine,
        "values": sorted(point.values),
        "planner": point.planner,
        "shapes": dict(study.shapes),
        "constants": repr(sorted(study.constants.items())),
        "numbers": study.numbers,
        "effort": study.effort,
        "version": study.version,
    }
    return sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()
