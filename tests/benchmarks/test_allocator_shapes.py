"""Generated allocation problems, their files, and the table of how far from the bound we are."""

import sys
from pathlib import Path

import pytest
from benchmarks.allocator import __main__ as command
from benchmarks.allocator.files import check, read_problem, write_problem
from benchmarks.allocator.shapes import SHAPES
from benchmarks.tables import allocator

from tilewright.memory import Problem, allocate


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes_are_repeatable_and_survive_files(shape: str, tmp_path: Path) -> None:
    buffers = SHAPES[shape](60, 5)
    assert buffers == SHAPES[shape](60, 5) != SHAPES[shape](60, 6)
    assert 50 <= len(buffers) <= 60
    assert all(b.size > 0 and 0 <= b.first <= b.last for b in buffers)
    assert len({b.name for b in buffers}) == len(buffers)
    path = tmp_path / "problem.csv"
    problem = Problem(tuple(buffers), 1)
    write_problem(path, problem)
    assert path.read_text().startswith("id,lower,upper,size\n")
    assert read_problem(path) == (problem, ())
    if shape == "cut":
        assert allocate(problem).bound == 1024


@pytest.mark.parametrize(
    "row", ["a,3,3,1", "a,3,2,1", "a,-1,2,1", "a,0,2,-1", "a,0,x,1", "a,0", "a,0,1,2,3"]
)
def test_rows_that_are_no_buffers(row: str, tmp_path: Path) -> None:
    path = tmp_path / "problem.csv"
    path.write_text(f"id,lower,upper,size\nb,0,4,16\n{row}\n")
    with pytest.raises(ValueError, match="line 3"):
        read_problem(path)


@pytest.mark.parametrize(
    "head",
    ["name,size", "", "id,lower,size", "id,lower,upper,size,size", "id,lower,upper,size,gaps"],
)
def test_first_lines_that_are_not_understood(head: str, tmp_path: Path) -> None:
    path = tmp_path / "problem.csv"
    path.write_text(f"{head}\n")
    with pytest.raises(ValueError, match=r"first line|column twice|gaps"):
        read_problem(path)


def test_older_names_capacities_alignments_and_solutions(tmp_path: Path) -> None:
    old = tmp_path / "A.4096.csv"
    old.write_text("buffer_id,start,end,size,alignment,offset\na,0,3,100,64,0\nb,2,5,10,1,128\n")
    found, offsets = read_problem(old)
    assert [(b.first, b.last, b.size) for b in found.buffers] == [(0, 3, 100), (2, 5, 10)]
    assert (found.capacity, found.alignment, offsets) == (4096, 64, (0, 128))
    assert check(found.buffers, (0, 128)) == 138
    with pytest.raises(ValueError, match="overlap"):
        check(found.buffers, (0, 64))
    write_problem(old, found, offsets)
    assert read_problem(old) == (found, offsets)
    assert old.read_text().startswith("id,lower,upper,size,alignment,offset\na,0,4,100,64,0\n")


@pytest.mark.slow
def test_table(monkeypatch: pytest.MonkeyPatch) -> None:
    problems = ("cut-20-1", "branches-20-1")
    monkeypatch.setattr(allocator, "PROBLEMS", problems)
    (table,) = allocator.tables(problems)
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
    printed = capsys.readouterr().out
    assert "prefetch-40-2" in printed and "capacity" not in printed
    published = folder / "B.131.csv"
    (folder / "prefetch-40-2.csv").rename(published)
    monkeypatch.setattr(
        sys, "argv", ["allocator", str(published), "--solutions", str(tmp_path / "solved")]
    )
    command.main()
    assert "| 131      | yes  |" in capsys.readouterr().out
    answer, offsets = read_problem(tmp_path / "solved" / "B.131.csv")
    assert check(answer.buffers, offsets) <= 131
