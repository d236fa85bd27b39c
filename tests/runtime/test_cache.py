"""The cache of packages: found again, bounded, shared by processes, never trusted."""

import gc
import json
import multiprocessing
import os
import shutil
import stat
import time
from pathlib import Path

import pytest

from tilewright import Cache, TilewrightError
from tilewright.runtime.executable import Executable
from tilewright.runtime.links import SMALLEST
from tilewright.runtime.manifest import Manifest
from tilewright.targets.base import find_target

MACHINE = find_target("cambricon-x").machine().model_dump(mode="json", exclude_none=True)


def small_package(place: Path, name: str, size: int = 10, shared: bytes = b"") -> None:
    """A package without kernels: a file of its own, and one that may be like others'."""
    (place / "program").mkdir()
    (place / "program" / "own.bin").write_bytes(name.encode() * size)
    (place / "program" / "shared.bin").write_bytes(shared)
    Manifest(
        tilewright="0", target="cambricon-x", machine=MACHINE, model=name, element="fixed16",
        inputs=(), outputs=(), kernels=(), peak_memory_bytes=0, activation_bytes=0,
        lower_bound_memory_bytes=0,
    ).write(place)  # fmt: skip
    (place / "program" / "build").mkdir()
    (place / "program" / "build" / "library.so").write_bytes(b"built" + name.encode())


class Builds:
    """Counts what is built and said."""

    def __init__(self, cache: Cache, size: int = 10, shared: bytes = b"") -> None:
        self.cache, self.size, self.shared = cache, size, shared
        self.built: list[str] = []
        self.said: list[str] = []

    def obtain(self, key: str) -> Executable:
        def build(place: Path) -> None:
            self.built.append(key)
            small_package(place, key, self.size, self.shared)

        return self.cache.obtain(key, build, self.said.append)


def files_of(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_what_was_built_is_found_again(tmp_path: Path) -> None:
    builds = Builds(Cache(tmp_path / "cache"))
    one = builds.obtain("aa")
    two = Builds(Cache(tmp_path / "cache"))
    assert files_of(one.directory) == files_of(two.obtain("aa").directory)
    assert (builds.built, two.built) == (["aa"], [])
    assert two.obtain("ab").manifest.model == "ab"
    assert two.cache.usage().entries == 2
    assert stat.S_IMODE((tmp_path / "cache").stat().st_mode) == 0o700


DAMAGES = {
    "a file changed": lambda p: (p / "program/own.bin").write_bytes(b"x" * 20),
    "a file cut short": lambda p: (p / "program/own.bin").write_bytes(b"a"),
    "a file lost": lambda p: (p / "program/own.bin").unlink(),
    "a library changed": lambda p: (p / "program/build/library.so").write_bytes(b"evil!aa"),
    "a library added": lambda p: (p / "program/build/other.so").write_bytes(b"evil"),
    "a library lost": lambda p: (p / "program/build/library.so").unlink(),
    "the manifest changed": lambda p: (p / "manifest.json").write_text("{}"),
    "the manifest lost": lambda p: (p / "manifest.json").unlink(),
    "the seal changed": lambda p: (p.parent / "sealed.json").write_text('{"files": []}'),
    "the seal emptied": lambda p: (p.parent / "sealed.json").write_text('{"files": {}}'),
    "the seal lost": lambda p: (p.parent / "sealed.json").unlink(),
    "everything lost": lambda p: shutil.rmtree(p.parent),
    "a file in its place": lambda p: (shutil.rmtree(p.parent), p.parent.write_text("no")),
    "a link in its place": lambda p: (shutil.rmtree(p), p.symlink_to("/etc")),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_entries_are_built_again(tmp_path: Path, damage: str) -> None:
    builds = Builds(Cache(tmp_path))
    one = builds.obtain("aa")
    want = files_of(one.directory)
    place = one.directory
    DAMAGES[damage](place)
    again = builds.obtain("aa")
    assert builds.built == ["aa", "aa"]
    assert files_of(again.directory) == want
    assert again.directory == place
    assert builds.obtain("aa") and builds.built == ["aa", "aa"]


@pytest.mark.slow
def test_the_entries_used_longest_ago_go_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path, most_entries=3)
    builds = Builds(cache)

    def obtain(key: str) -> None:
        builds.obtain(key)
        # Times of use far enough apart for any file system.
        for entry in (tmp_path / "entries").iterdir():
            seal = entry / "sealed.json"
            then = seal.stat().st_mtime - 10
            os.utime(seal, (then, then))
        gc.collect()

    for key in ("a1", "b2", "c3", "a1", "d4"):
        obtain(key)
    assert sorted(path.name for path in (tmp_path / "entries").iterdir()) == ["a1", "c3", "d4"]
    assert builds.built == ["a1", "b2", "c3", "d4"]
    assert list((tmp_path / "work").iterdir()) == []


@pytest.mark.slow
def test_bytes_are_bounded_and_entries_in_use_stay(tmp_path: Path) -> None:
    builds = Builds(Cache(tmp_path, most_bytes=150_000), size=25_000)
    held = builds.obtain("a1")
    for key in ("b2", "c3", "d4", "e5"):
        builds.obtain(key)
        gc.collect()
    assert builds.cache.usage().bytes < 150_000
    names = {path.name for path in (tmp_path / "entries").iterdir()}
    assert {"a1", "e5"} <= names and len(names) < 5
    assert held.manifest == Executable.load(held.directory).manifest
    builds.cache.clear()
    assert {path.name for path in (tmp_path / "entries").iterdir()} == {"a1"}
    del held
    gc.collect()
    builds.cache.clear()
    assert builds.cache.usage().bytes == builds.cache.usage().entries == 0
    assert list((tmp_path / "blobs").iterdir()) == []


def test_large_files_of_one_content_are_kept_once(tmp_path: Path) -> None:
    shared = os.urandom(SMALLEST)
    builds = Builds(Cache(tmp_path), shared=shared)
    found = [builds.obtain(key) for key in ("a1", "b2", "c3")]
    places = [one.directory / "program" / "shared.bin" for one in found]
    assert {path.read_bytes() for path in places} == {shared}
    assert len({path.stat().st_ino for path in places}) == 1
    assert builds.cache.usage().bytes < 2 * SMALLEST
    # A blob that was damaged is not linked to again.
    places[0].write_bytes(bytes(SMALLEST))
    assert builds.obtain("d4").directory.joinpath("program/shared.bin").read_bytes() == shared
    assert builds.obtain("a1").directory.joinpath("program/shared.bin").read_bytes() == shared
    assert builds.built == ["a1", "b2", "c3", "d4", "a1"]


def test_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    cache = Cache(tmp_path)

    def fail(place: Path) -> None:
        (place / "half").write_text("half")
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        cache.obtain("aa", fail, print)
    assert cache.usage().entries == 0 and list((tmp_path / "work").iterdir()) == []
    (tmp_path / "work" / "left-by-a-process-that-ended").mkdir()
    Builds(cache).obtain("aa")
    assert list((tmp_path / "work").iterdir()) == []


def test_directories_that_others_may_write_to_are_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(TilewrightError) as caught:
        Builds(Cache(tmp_path)).obtain("aa")
    assert caught.value.problems[0].code == "cache-unsafe"
    assert list(tmp_path.iterdir()) == []


def test_without_a_place_to_write_it_is_built_aside(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    builds = Builds(Cache(tmp_path / "file" / "cache"))
    found = builds.obtain("aa")
    place = found.directory
    assert found.manifest.model == "aa" and "cannot be used" in builds.said[0]
    assert not place.is_relative_to(tmp_path)
    del found
    gc.collect()
    assert not place.exists()


def _race(directory: Path, number: int, log: Path) -> None:
    """A process that asks for entries again and again, in a cache that is too small for them."""
    cache = Cache(directory, most_entries=2)
    for turn in range(12):
        key = f"{(number + turn) % 4:02d}"

        def build(place: Path, key: str = key) -> None:
            with log.open("a") as file:
                file.write(f"{key}\n")
            time.sleep(0.02)
            small_package(place, key, 40_000)

        found = cache.obtain(key, build, lambda what: None)
        content = (found.directory / "program" / "own.bin").read_bytes()
        assert content == key.encode() * 40_000 and found.manifest.model == key
        if turn % 5 == 4:  # Somebody damages an entry while others use it.
            (found.directory / "program" / "build" / "library.so").write_bytes(b"broken")


@pytest.mark.slow
def test_processes_that_race_all_get_what_they_ask_for(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    log = tmp_path / "log"
    processes = [
        context.Process(target=_race, args=(tmp_path / "cache", number, log)) for number in range(4)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * 4
    assert set(log.read_text().split()) == {"00", "01", "02", "03"}
    cache = Cache(tmp_path / "cache", most_entries=2)
    cache.tidy()
    assert cache.usage().entries <= 2
    assert list((tmp_path / "cache" / "work").iterdir()) == []


def _once(directory: Path, log: Path) -> None:
    def build(place: Path) -> None:
        with log.open("a") as file:
            file.write("built\n")
        time.sleep(0.5)
        small_package(place, "aa")

    Cache(directory).obtain("aa", build, lambda what: None)


@pytest.mark.slow
def test_one_process_builds_while_the_others_wait(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    log = tmp_path / "log"
    processes = [context.Process(target=_once, args=(tmp_path / "c", log)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * 3
    assert log.read_text() == "built\n"


def test_the_seal_is_readable(tmp_path: Path) -> None:
    place = Builds(Cache(tmp_path)).obtain("aa").directory
    sealed = json.loads((place.parent / "sealed.json").read_text())["files"]
    assert set(sealed) == {"manifest.json", "program/build/library.so"}
