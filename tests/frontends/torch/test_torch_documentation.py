"""The Python of docs/pytorch.md runs as it stands, and so does the example."""

import re
import runpy
from pathlib import Path

import pytest

import tilewright.integrations.torch
from tests.frontends.torch.modules import TORCH_WARNS, torch

ROOT = Path(__file__).parents[3]
BLOCKS = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

pytestmark = TORCH_WARNS


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch.compiler.reset()
    tilewright.integrations.torch.forget()


def test_the_page_runs(tmp_path: Path) -> None:
    blocks = BLOCKS.findall((ROOT / "docs" / "pytorch.md").read_text(encoding="utf-8"))
    assert len(blocks) == 4
    page = tmp_path / "page.py"
    page.write_text("\n".join(blocks), encoding="utf-8")
    runpy.run_path(str(page), run_name="page")
    assert tilewright.integrations.torch.fallbacks() == ()
    assert [graph.runs for graph in tilewright.integrations.torch.graphs()] == [1, 1]


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "pytorch" / "classify.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    errors = [float(line.split(" of ")[0].rsplit(" ", 1)[1]) for line in lines[:2]]
    assert max(errors) < 1e-5
    assert re.fullmatch(r"graph \d+: 7 operations, 1 run, none of it left to PyTorch", lines[2])
    assert len(lines) == 3
