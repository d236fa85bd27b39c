"""Compiled functions are cached, a change of what they call is seen, and no two compile at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CALLED = """from tilewright.numerics.compiled import compiled_together
@compiled_together
def called(x):
    return x + {amount}
"""
CALLER = """from called import called
from tilewright.numerics.compiled import compiled_together
@compiled_together
def caller(x):
    return called(x) * 2
print(caller(1), sum(caller.stats.cache_hits.values()))
"""


COMMAND = [sys.executable, "-W", "error", "caller.py"]


def call(folder: Path) -> list[int]:
    found = subprocess.run(COMMAND, cwd=folder, capture_output=True, text=True, check=True)
    return [int(text) for text in found.stdout.split()]


@pytest.mark.slow
def test_a_change_in_another_file_of_the_folder_is_seen(tmp_path: Path) -> None:
    (tmp_path / "caller.py").write_text(CALLER)
    (tmp_path / "called.py").write_text(CALLED.format(amount=1))
    assert call(tmp_path) == [4, 0]
    assert call(tmp_path) == [4, 1]
    (tmp_path / "called.py").write_text(CALLED.format(amount=10))
    assert call(tmp_path) == [22, 0]


@pytest.mark.slow
def test_of_processes_that_start_together_one_compiles(tmp_path: Path) -> None:
    (tmp_path / "caller.py").write_text(CALLER)
    (tmp_path / "called.py").write_text(CALLED.format(amount=1))
    started = [
        subprocess.Popen(COMMAND, cwd=tmp_path, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    printed = [process.communicate()[0].split() for process in started]
    assert sorted(printed) == [["4", "0"], ["4", "1"], ["4", "1"]]
