"""The same input gives the same bytes."""

from pathlib import Path

import pytest

import tilewright

LENET = Path(__file__).parents[2] / "examples" / "lenet5" / "lenet5.onnx"


@pytest.mark.parametrize("target", ["cpu", "cambricon-x"])
def test_two_compiles_give_identical_bytes(target: str, tmp_path: Path) -> None:
    for name in ("one", "two"):
        tilewright.compile(LENET, target, directory=tmp_path / name)
    one, two = (
        {
            p.relative_to(tmp_path / n): p.read_bytes()
            for p in (tmp_path / n).rglob("*")
            if p.is_file()
        }
        for n in ("one", "two")
    )
    assert one.keys() == two.keys()
    assert [path for path in one if one[path] != two[path]] == []
