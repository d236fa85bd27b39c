"""A model that was compiled before is taken from the cache; what differs is compiled."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import tilewright
from tilewright.compiler import pipeline
from tilewright.runtime.cache import Cache
from tilewright.runtime.executable import Executable
from tilewright.runtime.seal import SEALED
from tilewright.system.places import default_directory

LENET = Path(__file__).parents[2] / "examples" / "lenet5" / "lenet5.onnx"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A row for each compilation that really takes place."""
    rows: list[str] = []
    run_pipeline = pipeline.run_pipeline

    def counted(*arguments: object, **options: object) -> object:
        rows.append("compiled")
        return run_pipeline(*arguments, **options)  # pyright: ignore

    monkeypatch.setattr(pipeline, "run_pipeline", counted)
    return rows


def result(executable: Executable) -> bytes:
    image = np.random.default_rng(1).random((1, 1, 32, 32), np.float32)
    return executable.run({"image": image})["probabilities"].tobytes()


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_the_second_time_nothing_is_compiled(tmp_path: Path, compiled: list[str]) -> None:
    cache = Cache(tmp_path / "cache")
    first = tilewright.compile(LENET, cache=cache)
    wanted = result(first)
    kept = files_of(first.directory)
    built = files_of(default_directory() / "libraries")
    assert any(name.endswith(".so") for name in built)
    second = tilewright.compile(LENET, cache=cache)
    assert compiled == ["compiled"] and result(second) == wanted
    assert files_of(second.directory) == kept
    assert files_of(default_directory() / "libraries") == built, "its run has built nothing"
    plain = tilewright.compile(LENET)
    assert len(compiled) == 2 and result(plain) == wanted


def test_copies_belong_to_the_caller(tmp_path: Path, compiled: list[str]) -> None:
    cache = Cache(tmp_path / "cache")
    places = [tmp_path / name for name in ("a", "b", "c")]
    for place in places[:2]:
        tilewright.compile(LENET, directory=place, cache=cache)
    tilewright.compile(LENET, directory=places[2])
    assert len(compiled) == 2
    assert files_of(places[0]) == files_of(places[1]) == files_of(places[2])
    inodes = [{path.stat().st_ino for path in place.rglob("*")} for place in places]
    assert not inodes[0] & inodes[1]


def test_what_differs_is_compiled(tmp_path: Path, compiled: list[str]) -> None:
    cache = Cache(tmp_path / "cache")
    model = tmp_path / "model.onnx"
    shutil.copy(LENET, model)
    kept: list[Executable] = []
    kept.append(tilewright.compile(model, directory=tmp_path / "0", cache=cache))
    kept.append(
        tilewright.compile(model, directory=tmp_path / "1", cache=cache, exact_convolution=True)
    )
    kept.append(tilewright.compile(model, directory=tmp_path / "2", cache=cache, cpu="portable"))
    changed, times = onnx.load(model), model.stat()
    weight = changed.graph.initializer[0]
    weight.raw_data = bytes([weight.raw_data[0] ^ 1]) + weight.raw_data[1:]
    onnx.save(changed, model)
    os.utime(model, ns=(times.st_atime_ns, times.st_mtime_ns))
    kept.append(tilewright.compile(model, directory=tmp_path / "3", cache=cache))
    assert len(compiled) == 4 and len({result_of(one) for one in kept}) == 4


def result_of(executable: Executable) -> str:
    return str(executable.manifest.files) + str(executable.manifest.machine)


def test_what_a_model_names_beside_itself_is_compared_too(
    tmp_path: Path, compiled: list[str]
) -> None:
    cache = Cache(tmp_path / "cache")
    model, data = tmp_path / "model.onnx", tmp_path / "weights.data"
    onnx.save(
        onnx.load(LENET), model,
        save_as_external_data=True, location=data.name, size_threshold=0,
    )  # fmt: skip
    wanted = result(tilewright.compile(model, cache=cache))
    assert result(tilewright.compile(model, cache=cache)) == wanted
    assert compiled == ["compiled"]
    content = bytearray(data.read_bytes())
    for sign in range(3, 400, 4):
        content[sign] ^= 0x80
    data.write_bytes(content)
    assert result(tilewright.compile(model, cache=cache)) != wanted
    assert len(compiled) == 2


def test_answers_go_with_their_entries(tmp_path: Path, compiled: list[str]) -> None:
    cache = Cache(tmp_path / "cache", most_entries=1)
    wanted = result(tilewright.compile(LENET, cache=cache))
    requests = tmp_path / "cache" / "requests"
    assert len(list(requests.iterdir())) == 1
    tilewright.compile(LENET, cache=cache, cpu="portable", directory=tmp_path / "other")
    cache.clear()
    assert not list(requests.iterdir())
    assert result(tilewright.compile(LENET, cache=cache)) == wanted
    assert len(compiled) == 3


def test_damaged_answers_are_none(tmp_path: Path, compiled: list[str]) -> None:
    cache = Cache(tmp_path / "cache")
    wanted = result(tilewright.compile(LENET, cache=cache))
    (answer,) = (tmp_path / "cache" / "requests").iterdir()
    whole = answer.read_text()
    for damaged in ("", "{}", whole[:-9], whole.replace('"key":"', '"key":"../'), "[" * 99999):
        answer.write_text(damaged)
        assert result(tilewright.compile(LENET, cache=cache)) == wanted
        assert answer.read_text() == whole
    assert compiled == ["compiled"], "the entry itself is found by its key"


QUICK = """
import sys
from tilewright.cli.main import main
sys.argv = ["tilewright", "compile", sys.argv[1], "-o", sys.argv[2]]
try:
    main()
except SystemExit as end:  # as every command ends
    assert not end.code
heavy = {"numpy", "onnx", "xdsl", "numba", "rich"} & sys.modules.keys()
heavy |= {n for n in sys.modules if n.startswith(("tilewright.graph.", "tilewright.planning"))}
assert not heavy - {"tilewright.graph.names"}, heavy
"""


def test_what_is_found_needs_no_compiler(tmp_path: Path) -> None:
    def compile_again(script: str) -> str:
        ran = subprocess.run(
            [sys.executable, "-c", script, str(LENET), str(tmp_path / "package")],
            env={**os.environ, "TILEWRIGHT_CACHE": str(tmp_path / "cache")},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    first = compile_again(QUICK.partition("heavy")[0])
    kept = files_of(tmp_path / "package")
    assert compile_again(QUICK) == first and "lenet5 on cpu" in first
    assert files_of(tmp_path / "package") == kept


def test_damaged_entries_are_compiled_again(tmp_path: Path, compiled: list[str]) -> None:
    cache = Cache(tmp_path / "cache")
    wanted = result(tilewright.compile(LENET, cache=cache))
    (seal,) = (tmp_path / "cache" / "entries").rglob(SEALED)
    (weights,) = seal.parent.rglob("weights.bin")
    weights.unlink()  # The file that is mapped stays as it is.
    weights.write_bytes(b"planted")
    assert result(tilewright.compile(LENET, cache=cache)) == wanted
    assert len(compiled) == 2
