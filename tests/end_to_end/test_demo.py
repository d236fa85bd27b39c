"""`make demo` keeps its promises: both targets within one image of float32, every file there."""

import re
import runpy
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[2] / "examples" / "lenet5" / "demo.py"


@pytest.mark.slow
def test_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [str(DEMO), str(tmp_path)])
    runpy.run_path(str(DEMO), run_name="__main__")
    text = capsys.readouterr().out
    right = [int(count) for count in re.findall(r"\((\d+) of 360\)", text)]
    assert len(right) == 3 and min(right) > 350
    assert all(abs(count - right[0]) <= 1 for count in right)
    assert text.count("check        passed") == 2
    named = re.findall(r"^  (?:package|C|words|disassembly|trace) +(.+)$", text, re.MULTILINE)
    assert len(named) == 7
    for path in named:
        assert Path(path).exists(), path
