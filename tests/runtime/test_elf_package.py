"""Packages as one ELF file: readelf shows their parts, they run alone, others are refused."""

import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright
from tests.end_to_end.end_to_end_models import image, lenet
from tests.targets.dpu.test_dpu_networks import Net
from tilewright.errors import TilewrightError
from tilewright.runtime import Executable
from tilewright.runtime.elf import Symbol, elf_bytes, elf_sections, note
from tilewright.runtime.elf_package import read_elf


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> tuple[Executable, Path, dict]:
    """A network of which the host computes a layer, whose windows have gaps, in C."""
    folder = tmp_path_factory.mktemp("elf")
    net = Net(1, 8, 14, 14)
    x = net.conv("x", 8, 16, 3, pads=[2, 2, 2, 2], dilations=[2, 2])
    onnx.save(net.model(net.conv(net.conv(x, 16, 24, 3), 24, 70, 1)), folder / "net.onnx")
    sample = image(onnx.load(folder / "net.onnx"))
    made = tilewright.compile(folder / "net.onnx", "zu2", calibration=[sample])
    made.save(folder / "net.elf")
    return made, folder / "net.elf", sample


def test_it_runs_from_the_file_alone(package, tmp_path: Path) -> None:
    made, path, sample = package
    alone = tmp_path / "elsewhere" / "other.elf"
    alone.parent.mkdir()
    shutil.copyfile(path, alone)
    loaded = Executable.load(alone)
    found, want = loaded.run(sample, check_races=True), made.run(sample)
    assert all(np.array_equal(found[name], want[name]) for name in want)
    assert loaded.check(sample, found).equal
    assert loaded.profile.cycles == made.profile.cycles
    assert any(kernel.on_host and "conv0" in kernel.nodes for kernel in loaded.profile.kernels)


def test_the_same_package_gives_the_same_bytes(package, tmp_path: Path) -> None:
    made, path, _ = package
    made.save(tmp_path / "again.elf")
    Executable.load(path).save(tmp_path / "other.elf")
    assert (tmp_path / "again.elf").read_bytes() == path.read_bytes()
    assert (tmp_path / "other.elf").read_bytes() == path.read_bytes()


@pytest.mark.skipif(shutil.which("readelf") is None, reason="no readelf")
def test_readelf_shows_sections_and_kernels(package) -> None:
    made, path, _ = package
    shown = subprocess.run(["readelf", "-SWsn", path], capture_output=True, text=True, check=True)
    assert not shown.stderr
    compiler = shutil.which("cc") or shutil.which("gcc")
    for name in (".dpu.text", ".dpu.params", ".dpu.bias", ".dpu.meta", ".note.tilewright"):
        assert f" {name} " in shown.stdout
    for name in (".tilewright", *([".host.text"] if compiler else []), ".symtab", ".strtab"):
        assert f" {name} " in shown.stdout
    kernels = [k.symbol for k in made.runner.parts.file.kernels]  # type: ignore[attr-defined]
    rows = [line.split() for line in shown.stdout.splitlines() if " FUNC " in line]
    assert [row[-1] for row in rows] == kernels
    ends = [int(row[1], 16) + int(row[2], 0) for row in rows]
    assert [int(row[1], 16) for row in rows] == [0, *ends[:-1]]
    assert "Tilewright" in shown.stdout


@pytest.mark.slow
def test_other_files_and_targets_are_refused(package, tmp_path: Path) -> None:
    made, _, _ = package
    (tmp_path / "text.elf").write_text("no ELF")
    with pytest.raises(TilewrightError, match="output-exists"):
        made.save(tmp_path / "text.elf")
    with pytest.raises(TilewrightError, match="package-elf"):
        Executable.load(tmp_path / "text.elf")
    model = lenet_file(tmp_path)
    plain = tilewright.compile(model, "cambricon-x", calibration=[image(onnx.load(model))])
    with pytest.raises(TilewrightError, match="option-form"):
        plain.save(tmp_path / "other.elf")
    assert not (tmp_path / "other.elf").exists()


def lenet_file(folder: Path) -> Path:
    onnx.save(lenet(), folder / "lenet5.onnx")
    return folder / "lenet5.onnx"


def test_a_changed_section_is_found(package, tmp_path: Path) -> None:
    _, path, _ = package
    data = bytearray(path.read_bytes())
    view = elf_sections(memoryview(bytes(data)), "")
    at = bytes(data).index(bytes(view[".dpu.text"]))
    data[at + 40] ^= 1
    (tmp_path / "changed.elf").write_bytes(data)
    with pytest.raises(TilewrightError, match="package-damaged"):
        Executable.load(tmp_path / "changed.elf")


@pytest.mark.parametrize("name", ["../out", "/out", "a/../../out", "", "a//b", "a\\b", "x" * 2000])
def test_names_that_lead_out_are_refused(name: str, tmp_path: Path) -> None:
    import json

    table = json.dumps({"form": 1, "files": {name: "data"}}).encode()
    path = tmp_path / "hostile.elf"
    path.write_bytes(elf_bytes({".tilewright": table, "data": b"x"}, [], 62))
    inside = tmp_path / "inside"
    inside.mkdir()
    with pytest.raises(TilewrightError, match="package-elf"):
        read_elf(path, inside)
    assert not list(inside.iterdir())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["hostile.elf", "inside"]


SMALL = elf_bytes(
    {".note.x": note("x", 1, b"abc"), "a": b"first", "b": b"", "c": b"third"},
    [Symbol("one", "a", 0, 3), Symbol("two", "c", 1, 2)],
    183,
)


def test_sections_come_back() -> None:
    found = elf_sections(memoryview(SMALL), "")
    assert {name: bytes(found[name]) for name in "abc"} == {"a": b"first", "b": b"", "c": b"third"}


@pytest.mark.parametrize("size", [0, 3, 63, 64, 100, len(SMALL) - 1])
def test_cut_files_are_refused(size: int) -> None:
    with pytest.raises(TilewrightError, match="package-elf"):
        elf_sections(memoryview(SMALL[:size]), "")


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(SMALL) - 1), st.integers(0, 255)), max_size=6))
def test_damaged_files_give_sections_inside_of_them_or_one_error(changes) -> None:
    data = bytearray(SMALL)
    for place, value in changes:
        data[place] = value
    try:
        found = elf_sections(memoryview(bytes(data)), "")
    except TilewrightError as error:
        assert [problem.code for problem in error.problems] == ["package-elf"]
    else:
        assert sum(len(section) for section in found.values()) <= len(data)


def test_sections_on_one_another_are_refused() -> None:
    data = bytearray(SMALL)
    (table,) = struct.unpack_from("<Q", data, 40)
    first = struct.unpack_from("<Q", data, table + 64 + 24)
    struct.pack_into("<Q", data, table + 2 * 64 + 24, *first)
    with pytest.raises(TilewrightError, match="on one another"):
        elf_sections(memoryview(bytes(data)), "")
