"""Generated allocation problems, their files, and the table of how far from the bound we are."""

import sys
from pathlib import Path

import pytest
from benchmarks.allocator import __main__ as command
from benchmarks.allocator.shapes import SHAPES, read_csv, write_csv
from benchmarks.tables import allocator

from tilewright.graph.passes.allocator import allocate


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes_are_repeatable_and_survive_files(shape: str, tmp_path: Path) -> None:
    buffers = SHAPES[shape](60, 5)
    assert buffers == SHAPES[shape](60, 5) != SHAPES[shape](60, 6)
    assert 50 <= len(buffers) <= 60
    assert all(b.size > 0 and 0 <= b.first <= b.last for b in buffers)
    assert len({b.name for b in buffers}) == len(buffers)
    write_csv(buffers, tmp_path / "problem.csv")
    assert (tmp_path / "problem.csv").read_text().startswith("id,lower,upper,size\n")
    assert read_csv(tmp_path / "problem.csv") == buffers
    if shape == "cut":
        assert allocate(buffers, alignment=1).bound == 1024


@pytest.mark.parametrize("row", ["a,3,3,1", "a,3,2,1", "a,-1,2,1", "a,0,2,-1", "a,0,x,1", "a,0"])
def test_rows_that_are_no_buffers(row: str, tmp_path: Path) -> None:
    path = tmp_path / "problem.csv"
    path.write_text(f"id,lower,upper,size\nb,0,4,16\n{row}\n")
    with pytest.raises(ValueError, match="line 3"):
        read_csv(path)
    path.write_text("name,size\n")
    with pytest.raises(ValueError, match="first line"):
        read_csv(path)


def test_table() -> None:
    (table,) = allocator.tables(["cut-40-1", "branches-40-1"])
    for row in table.rows:
        assert 0 <= row["exact"] <= row["default"] <= row["best"]
        assert all(value >= row["best"] for key, value in row.items() if key.startswith("peak "))
    assert table.rows[0]["exact"] == 0 and table.rows[0]["proven"] and "proven" in table.markdown()


def test_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "problems"
    monkeypatch.setattr(sys, "argv", ["allocator", "--write", str(folder)])
    command.main()
    assert len(list(folder.iterdir())) == len(allocator.PROBLEMS)
    monkeypatch.setattr(sys, "argv", ["allocator", str(folder / "prefetch-40-2.csv")])
    command.main()
    assert "prefetch-40-2" in capsys.readouterr().out
