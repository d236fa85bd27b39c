"""The same input gives the same bytes."""

from pathlib import Path

import pytest

import tilewright
from tests.slow import but_fast

pytestmark = pytest.mark.usefixtures("planned_anew")

LENET = Path(__file__).parents[2] / "examples" / "lenet5" / "lenet5.onnx"


def content(directory: Path) -> dict[Path, bytes]:
    return {
        path.relative_to(directory): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("target", but_fast(["cpu", "cambricon-x"], ["cpu"]))
def test_two_compiles_give_identical_bytes(target: str, tmp_path: Path) -> None:
    for name in ("one", "two"):
        tilewright.compile(LENET, target, directory=tmp_path / name)
    one, two = content(tmp_path / "one"), content(tmp_path / "two")
    assert one.keys() == two.keys()
    assert [path for path in one if one[path] != two[path]] == []


@pytest.mark.slow
def test_one_import_compiled_for_two_targets_gives_what_each_gives_alone(tmp_path: Path) -> None:
    imported = tilewright.load(LENET)
    before = list(imported.weights)
    for target in ("shidiannao", "cpu"):
        tilewright.compile(imported, target, directory=tmp_path / f"{target}-shared")
        tilewright.compile(LENET, target, directory=tmp_path / target)
        shared, alone = content(tmp_path / f"{target}-shared"), content(tmp_path / target)
        assert [path for path in alone if alone[path] != shared.get(path)] == []
    assert list(imported.weights) == before


@pytest.mark.slow
def test_package_keeps_no_weights_that_nothing_reads(tmp_path: Path) -> None:
    from tilewright.graph.weights import Weights

    executable = tilewright.compile(LENET, "shidiannao", directory=tmp_path / "package")
    reference = tmp_path / "package" / "reference"
    text = (reference / "graph.mlir").read_text()
    kept = Weights.load(reference / "weights.safetensors")
    assert len(kept) > 0
    assert [symbol for symbol in kept if symbol not in text] == []
    assert kept.bytes <= executable.manifest.peak_memory_bytes
