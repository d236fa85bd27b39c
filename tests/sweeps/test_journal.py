"""Sweeps that are stopped go on, and lose no finished point: kills, full disks, torn lines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.sweeps.models import MACHINE, VARY, small_model
from tilewright.errors import TilewrightError
from tilewright.sweeps import sweep
from tilewright.sweeps.journal import Journal
from tilewright.sweeps.rows import Row

ROOT = Path(__file__).parents[2]


class Stopped(Exception):
    """What ends a sweep in its middle."""


def stopped_after(rows: int) -> object:
    def progress(activity: str, done: int, total: int) -> None:
        if done >= rows:
            raise Stopped

    return progress


def lines(journal: Path) -> list[str]:
    return journal.read_text().splitlines()[1:]


def test_a_sweep_goes_on_where_it_was_and_gives_the_same_bytes(tmp_path: Path) -> None:
    model = small_model(tmp_path)
    whole, parts = tmp_path / "whole.csv", tmp_path / "parts.csv"
    sweep(model, MACHINE, VARY, output=whole)
    with pytest.raises(Stopped):
        sweep(model, MACHINE, VARY, output=parts, progress=stopped_after(3))  # type: ignore[arg-type]
    journal = tmp_path / "parts.csv.journal"
    assert not parts.exists()
    assert len(lines(journal)) == 3
    # A crash may cut off a line.
    with journal.open("a") as file:
        file.write('{"key": "0000", "ro')
    begun: list[int] = []
    sweep(model, MACHINE, VARY, output=parts, progress=lambda _, done, all: begun.append(done))
    assert begun[0] == 3
    assert parts.read_bytes() == whole.read_bytes()
    assert len(lines(journal)) == 6


def test_a_wider_sweep_plans_only_what_is_new(tmp_path: Path) -> None:
    model, output = small_model(tmp_path), tmp_path / "rows.csv"
    sweep(model, MACHINE, {"memory.feature.bytes": [1024, 2048]}, output=output)
    begun: list[int] = []
    sweep(
        model, MACHINE, {"memory.feature.bytes": [4096, 2048, 1024]}, output=output,
        progress=lambda _, done, all: begun.append(done),
    )  # fmt: skip
    assert begun == [2, 3]
    # Another model, effort or machine is not in the journal, though it has the same keys.
    for changed in ({"effort": "full"}, {"values": {"clock_hz": 123}}):
        begun.clear()
        sweep(
            model, MACHINE, {"memory.feature.bytes": [1024]}, output=output,
            progress=lambda _, done, all: begun.append(done), **changed,
        )  # fmt: skip
        assert begun == [0, 1]


def test_what_is_no_journal_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv.journal"
    path.write_text("dear diary\n")
    with pytest.raises(TilewrightError) as caught:
        Journal(path)
    assert caught.value.problems[0].code == "sweep-journal"
    assert path.read_text() == "dear diary\n"


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv.journal"
    journal = Journal(path)
    journal.add("a", Row("m", "model"))
    journal.close()
    path.write_text(path.read_text() + '{"key": "b", "row": {"model": 1, "size": 2}}\n')
    with pytest.raises(TilewrightError) as caught:
        Journal(path)
    assert caught.value.problems[0].code == "sweep-journal"
    assert caught.value.problems[0].where.endswith(".journal:3")


def test_two_sweeps_do_not_write_to_one_journal(tmp_path: Path) -> None:
    first = Journal(tmp_path / "rows.csv.journal")
    with pytest.raises(TilewrightError) as caught:
        Journal(tmp_path / "rows.csv.journal")
    assert caught.value.problems[0].code == "sweep-journal"
    first.close()
    Journal(tmp_path / "rows.csv.journal").close()


@pytest.mark.parametrize("name", ["missing/rows.csv", "rows.txt", "rows"])
def test_places_that_cannot_be_written_are_refused_before_anything_runs(
    name: str, tmp_path: Path
) -> None:
    done: list[int] = []
    with pytest.raises(TilewrightError) as caught:
        sweep(
            small_model(tmp_path), MACHINE, VARY, output=tmp_path / name,
            progress=lambda _, count, all: done.append(count),
        )  # fmt: skip
    assert caught.value.problems[0].code in ("output-failed", "sweep-output")
    assert not done


LIMITED = """
import resource, signal, sys
from tilewright.errors import TilewrightError
from tilewright.sweeps import sweep
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
model, machine, output, limit = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
vary = {"memory.feature.bytes": "1K..16K:4x", "move.load-weight.bytes_per_cycle": [4, 8]}
try:
    sweep(model, machine, vary, output=output)
except TilewrightError as error:
    print(error.problems[0].code)
"""


@pytest.mark.slow
def test_a_disk_that_fills_is_one_error_and_keeps_every_finished_row(tmp_path: Path) -> None:
    model, output = small_model(tmp_path), tmp_path / "rows.csv"
    whole = tmp_path / "whole.csv"
    sweep(model, MACHINE, VARY, output=whole)
    size = (tmp_path / "whole.csv.journal").stat().st_size
    # The limit falls into the middle of a row.
    limit = size // 2 + 7
    run = subprocess.run(
        [sys.executable, "-c", LIMITED, model, MACHINE, str(output), str(limit)],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert run.stdout == "output-failed\n", run.stderr
    kept = (tmp_path / "rows.csv.journal").read_text()
    assert kept.endswith("\n")
    rows = [json.loads(line) for line in kept.splitlines()[1:]]
    assert 0 < len(rows) < 6
    assert not output.exists()
    sweep(model, MACHINE, VARY, output=output)
    assert output.read_bytes() == whole.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGINT])
def test_a_command_that_is_killed_goes_on(by: signal.Signals, tmp_path: Path) -> None:
    model, output = small_model(tmp_path), tmp_path / "rows.csv"
    command = [
        *(sys.executable, "-m", "tilewright", "sweep", model, "-t", MACHINE, "-o", str(output)),
        *("--vary", "memory.feature.bytes=1K..64K:+512"),
    ]
    journal = tmp_path / "rows.csv.journal"
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        end = time.monotonic() + 300
        while not (journal.exists() and len(lines(journal)) >= 2):
            assert time.monotonic() < end and process.poll() is None
            time.sleep(0.02)
        os.kill(process.pid, by)
        _, told = process.communicate(timeout=300)
    assert process.returncode == (-by if by == signal.SIGKILL else 130)
    if by == signal.SIGINT:
        assert "the same command goes on" in told
        assert "Traceback" not in told
    kept = lines(journal)
    assert 2 <= len(kept) < 127
    assert not output.exists()
    # To the end of what is kept, a narrower sweep needs nothing new.
    sizes = [1024 + 512 * number for number in range(len(kept) - 1)]
    begun: list[int] = []
    sweep(
        model, MACHINE, {"memory.feature.bytes": sizes}, output=output,
        progress=lambda _, done, all: begun.append(done),
    )  # fmt: skip
    assert begun == [len(sizes)]
    alone = tmp_path / "alone.csv"
    sweep(model, MACHINE, {"memory.feature.bytes": sizes}, output=alone)
    assert output.read_bytes() == alone.read_bytes()
