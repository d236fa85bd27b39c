"""Compiled functions are cached, and a change of what they call is seen."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CALLED = """from tilewright.simulate.compiled import compiled_together
@compiled_together
def called(x):
    return x + {amount}
"""
CALLER = """from called import called
from tilewright.simulate.compiled import compiled_together
@compiled_together
def caller(x):
    return called(x) * 2
print(caller(1), sum(caller.stats.cache_hits.values()))
"""


def call(folder: Path) -> list[int]:
    command = [sys.executable, "-W", "error", "caller.py"]
    found = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return [int(text) for text in found.stdout.split()]


@pytest.mark.slow
def test_a_change_in_another_file_of_the_folder_is_seen(tmp_path: Path) -> None:
    (tmp_path / "caller.py").write_text(CALLER)
    (tmp_path / "called.py").write_text(CALLED.format(amount=1))
    assert call(tmp_path) == [4, 0]
    assert call(tmp_path) == [4, 1]
    (tmp_path / "called.py").write_text(CALLED.format(amount=10))
    assert call(tmp_path) == [22, 0]
