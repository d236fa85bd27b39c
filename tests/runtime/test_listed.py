"""What a package's manifest does not list is never built, loaded or run; bad lists are refused."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tilewright import Executable, TilewrightError
from tilewright.codegen.c import libraries

LENET = Path(__file__).parents[2] / "examples" / "lenet5" / "lenet5.onnx"
INPUT = {"image": np.random.default_rng(1).random((1, 1, 32, 32), np.float32)}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("packages") / "lenet5"
    tilewright.compile(LENET, directory=place)
    return place


@pytest.fixture
def package(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "package"))


EVIL = "#include <stdio.h>\n__attribute__((constructor)) static void evil(void)\n{\n"
EVIL += '    fclose(fopen("MARK", "w"));\n}\n'


def plant_source(package: Path, evil: str) -> None:
    (package / "program/src/zz.c").write_text(evil)


def plant_header(package: Path, evil: str) -> None:
    """Found before the system's: the folder is searched first."""
    for folder in ("src", "include"):
        (package / f"program/{folder}/math.h").write_text(f"{evil}#include_next <math.h>\n")


def plant_link(package: Path, evil: str) -> None:
    (package / "outside.c").write_text(evil)
    (package / "program/src/zz.c").symlink_to(package / "outside.c")


@pytest.mark.parametrize("plant", [plant_source, plant_header, plant_link])
@pytest.mark.usefixtures("built_apart")
def test_unlisted_sources_are_not_built(
    package: Path, tmp_path: Path, plant: Callable[[Path, str], None]
) -> None:
    expected = Executable.load(package).run(INPUT)
    mark = tmp_path / "mark"
    plant(package, EVIL.replace("MARK", str(mark)))
    libraries.clear()
    found = Executable.load(package).run(INPUT)
    assert not mark.exists()
    np.testing.assert_array_equal(found["probabilities"], expected["probabilities"])


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_make_builds_what_the_package_lists(package: Path) -> None:
    plant_source(package, EVIL)
    told = subprocess.run(
        ["make", "-n", "-C", package / "program"], capture_output=True, text=True, check=True
    ).stdout
    listed = json.loads((package / "manifest.json").read_text())["files"]
    sources = {Path(name).name for name in listed if name.startswith("program/src/")}
    sources = {name for name in sources if name.endswith(".c")}
    assert set(re.findall(r"src/(\w+\.c)\b", told)) == sources and len(sources) > 1


def test_a_planted_source_would_run(package: Path, tmp_path: Path) -> None:
    """The test above sees what it looks for: listed, the same file does run."""
    from tilewright.runtime.manifest import Manifest
    from tilewright.system.typed_json import from_json

    mark = tmp_path / "mark"
    plant_source(package, EVIL.replace("MARK", str(mark)))
    from_json(Manifest, (package / "manifest.json").read_text()).write(package)
    Executable.load(package).run(INPUT)
    assert mark.exists()


def test_no_library_is_taken_from_a_package_or_put_there(package: Path) -> None:
    before = sorted(package.rglob("*"))
    Executable.load(package).run(INPUT)
    assert sorted(package.rglob("*")) == before
    kept = list((libraries.default_directory() / "libraries").glob("lenet5-*.so"))
    assert kept
    (package / "program/build").mkdir()
    for path in kept:  # Of the name that is looked for, with other content.
        (package / "program/build" / path.name).write_bytes(b"evil")
    assert Executable.load(package).run(INPUT)


def test_a_changed_library_is_built_again(package: Path) -> None:
    libraries.clear()
    first = Executable.load(package).run(INPUT)
    kept = list((libraries.default_directory() / "libraries").glob("lenet5-*.so"))
    for path in kept:
        content = path.read_bytes()
        path.unlink()  # What this process has loaded stays as it is.
        path.write_bytes(content[:-8] + b"evil!!!!")
    again = Executable.load(package).run(INPUT)
    np.testing.assert_array_equal(first["probabilities"], again["probabilities"])
    for path in kept:
        assert not path.exists() or not path.read_bytes().endswith(b"evil!!!!")


def test_a_cache_that_others_may_write_to_is_refused(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    (shared / "libraries").mkdir(parents=True)
    (shared / "libraries").chmod(0o777)
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(shared))
    with pytest.raises(TilewrightError, match="cache-unsafe"):
        Executable.load(package).run(INPUT)


def test_libraries_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "own"))
    monkeypatch.setattr(libraries, "MOST_LIBRARIES", 3)
    for number in range(6):
        path = libraries.obtain("key", f"{number}", lambda place: place.write_bytes(b"x") and None)
        assert path.read_bytes() == b"x"
    assert len(list((tmp_path / "own/libraries").iterdir())) == 3
    libraries.clear()
    assert list((tmp_path / "own/libraries").iterdir()) == []


def test_a_cache_that_cannot_be_written_is_gone_around(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "file" / "below"))
    path = libraries.obtain("key", "1", lambda place: place.write_bytes(b"x") and None)
    assert path.read_bytes() == b"x" and tmp_path not in path.parents


NAMES = {
    "NUL": "program/a\0b",
    "long": "program/" + "x" * 5000,
    "long part": "program/" + "x" * 300,
    "up": "program/../../outside",
    "absolute": "/etc/passwd",
    "empty": "",
    "dot": ".",
    "twice": "program//program.json",
    "line": "program/a\nb",
    "surrogate": "program/\ud800",
    "link": "linked",
    "through a link": "folder/outside",
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_names_that_no_package_has_are_refused(package: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "outside").write_text("secret")
    (package / "linked").symlink_to(tmp_path / "outside")
    (package / "folder").symlink_to(tmp_path)
    manifest = json.loads((package / "manifest.json").read_text())
    manifest["files"][name] = {"bytes": 6, "sha256": "0" * 64}
    (package / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(TilewrightError) as caught:
        Executable.load(package)
    assert caught.value.problems[0].code in ("package-invalid", "package-damaged")


def test_a_manifest_that_lists_nothing_is_refused(package: Path) -> None:
    manifest = json.loads((package / "manifest.json").read_text())
    manifest["files"] = {}
    (package / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(TilewrightError, match=r"package-invalid.*lists no program"):
        Executable.load(package)


def test_an_unlisted_part_is_as_if_it_were_not_there(package: Path) -> None:
    """A program file that the manifest leaves out is missed, not read."""
    manifest = json.loads((package / "manifest.json").read_text())
    del manifest["files"]["program/program.json"]
    (package / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(TilewrightError, match="package-invalid"):
        Executable.load(package).run(INPUT)


def test_a_copy_has_the_listed_files_alone(package: Path, tmp_path: Path) -> None:
    (package / "program/src/zz.c").write_text("#error")
    copy = Executable.load(package).save(tmp_path / "copy")
    assert not (copy / "program/src/zz.c").exists()
    assert Executable.load(copy).run(INPUT)
