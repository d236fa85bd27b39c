"""Packages that need matrix tiles say so, and are refused where there are none to be had."""

import json
import platform
import sys
from pathlib import Path

import pytest
from tests.targets.cpu.piece_networks import AMX, CASES, PLANNED, network
from tests.targets.cpu.test_package import small

from tilewright.codegen.c import compiler
from tilewright.errors import TilewrightError
from tilewright.targets.cpu import TARGET, builds, processors, runner, tiles
from tilewright.targets.cpu.builds import NATIVE, refuse_foreign
from tilewright.targets.cpu.manifest import read_manifest
from tilewright.targets.cpu.processors import Processor
from tilewright.targets.cpu.runner import CpuRunner

X86 = sys.platform == "linux" and platform.machine() == "x86_64"

FLAGS = " ".join(AMX.needs)


def program(folder: Path, processor: Processor) -> Path:
    return network({"one": CASES["1x1"]}, processor).emit(folder)


def refusal(one: Processor, needed: bool) -> str:
    """What is said; "" if it is not refused."""
    try:
        refuse_foreign(one, tiles=needed)
    except TilewrightError as error:
        assert error.problems[0].code == "cpu-foreign"
        return str(error)
    return ""


def machine_has(monkeypatch: pytest.MonkeyPatch, flags: str, granted: bool) -> None:
    for module in (builds, processors):
        monkeypatch.setattr(module, "cpuinfo", lambda: f"flags\t: fpu {flags} sse\n")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(builds, "tiles_granted", lambda: granted)


def test_a_package_says_whether_it_needs_tiles(tmp_path: Path) -> None:
    found = read_manifest(program(tmp_path / "amx", AMX))
    assert (found.processor, found.tiles) == ("amx", True)
    # Built for another processor the same kernels compute by vectors.
    found = read_manifest(program(tmp_path / "avx512", PLANNED))
    assert (found.processor, found.tiles) == ("avx512", False)
    TARGET.emit(small().compilation(), tmp_path)
    assert read_manifest(tmp_path).tiles is False


def test_older_packages_say_nothing_and_damaged_ones_nonsense(tmp_path: Path) -> None:
    TARGET.emit(small().compilation(), tmp_path)
    path = tmp_path / "program.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"tiles": 1}))
    with pytest.raises(TilewrightError, match="package-invalid"):
        read_manifest(tmp_path)
    del content["tiles"]
    path.write_text(json.dumps(content))
    assert read_manifest(tmp_path).tiles is False


def test_processors_without_tiles_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    machine_has(monkeypatch, FLAGS.replace("amx_bf16", ""), granted=True)
    native = Processor(name=NATIVE)
    assert "without amx_bf16" in refusal(AMX, needed=False)
    assert "without amx_bf16" in refusal(native, needed=True)
    assert not refusal(native, needed=False)


def test_systems_that_keep_tiles_back_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    native = Processor(name=NATIVE)
    machine_has(monkeypatch, FLAGS, granted=True)
    assert not refusal(AMX, needed=True) and not refusal(native, needed=True)
    machine_has(monkeypatch, FLAGS, granted=False)
    assert not refusal(AMX, needed=False), "no kernel needs them"
    for one in (AMX, native):
        said = refusal(one, needed=True)
        assert "the system refuses" in said and "--cpu avx512" in said


def test_a_refused_package_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = program(tmp_path, AMX)
    machine_has(monkeypatch, FLAGS, granted=False)
    monkeypatch.setattr(runner, "load_library", lambda *_: pytest.fail("it is built"))
    with pytest.raises(TilewrightError, match="cpu-foreign"):
        CpuRunner(folder)


def test_systems_without_tiles_are_planned_without(monkeypatch: pytest.MonkeyPatch) -> None:
    machine_has(monkeypatch, FLAGS, granted=True)
    for system, macro, cycles in ((1, 1, 48.0), (0, 1, 0.0), (1, 0, 0.0)):
        monkeypatch.setattr(processors, "tiles_supported", lambda known=system: bool(known))
        monkeypatch.setattr(processors, "defines", lambda *_, known=macro: bool(known))
        assert processors.this_processor.__wrapped__().block_cycles == cycles


@pytest.mark.skipif(not X86, reason="asks for processors of x86-64")
def test_the_compiler_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = compiler.defines
    assert asked("__AVX2__", ("-march=x86-64-v3",))
    assert not asked("__AVX2__", ("-march=x86-64",))
    assert not asked("__AVX2__", ("-march=nonsense",))
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.delenv("CC", raising=False)
    assert asked("__AVX2__", ("-march=x86-64",)), "nothing is built, so nothing is emulated"


@pytest.mark.skipif(not X86, reason="needs Linux on x86-64")
def test_the_system_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    supported = tiles.tiles_supported.__wrapped__()
    assert supported == tiles.tiles_granted(), "no signal stack is too small here"
    # No processor has a feature of that number.
    monkeypatch.setattr(tiles, "TILE_DATA", 60)
    assert not tiles.tiles_supported.__wrapped__()
    assert not tiles.tiles_granted()


def test_elsewhere_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(tiles, "prctl", lambda *_: pytest.fail("asked"))
    assert tiles.tiles_granted()
    assert not tiles.tiles_supported.__wrapped__()
