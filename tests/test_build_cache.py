"""Objects are kept by all that they are made from, and by nothing else."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.build_cache import BuildCache
from tests.quick_build import build_libraries_as_one
from tilewright.codegen.c import compiler, libraries

FILES = {
    "layers/layer.c": '#include <math.h>\n#include "../shim/shim.h"\n#include "sizes.h"\n',
    "layers/sizes.h": "#define SIZE 1\n",
    "layers/other.h": "",
    "shim/shim.h": '#  include "inner.h"\n',
    "shim/inner.h": "",
}


def package(folder: Path) -> Path:
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.fixture
def compiled(tmp_path: Path) -> Callable[..., bool]:
    """Whether the compiler ran for a package's layer; its object is right either way."""
    runs: list[Path | None] = []

    def run(command: Sequence[str], folder: Path | None) -> None:
        runs.append(folder)
        Path(command[-1]).write_text("object")

    store = tmp_path / "store"
    store.mkdir()
    cache = BuildCache(store, run)

    def asks(folder: Path, *flags: str) -> bool:
        before, built = len(runs), folder / "layer.o"
        cache(["cc", *flags, "-Ishim", "-c", "layers/layer.c", "-o", str(built)], folder)
        assert built.read_text() == "object"
        return len(runs) > before

    return asks


def test_equal_packages_share_objects(compiled: Callable[..., bool], tmp_path: Path) -> None:
    assert compiled(package(tmp_path / "a"))
    other = package(tmp_path / "b")
    (other / "layers" / "other.h").write_text("int unasked;\n")
    assert not compiled(other)
    assert compiled(other, "-O2")


def test_libraries_of_other_kinds_of_build_are_others() -> None:
    kinds = [compiler.compiler_version()]
    for optimise in (False, True):
        build_libraries_as_one(optimise)
        kinds.append(libraries.compiler_version())
    assert len(set(kinds)) == 3


@pytest.mark.parametrize("name", ["layers/layer.c", "layers/sizes.h", "shim/inner.h"])
def test_what_differs_is_compiled(compiled: Callable[..., bool], tmp_path: Path, name: str) -> None:
    assert compiled(package(tmp_path / "a"))
    other = package(tmp_path / "b")
    (other / name).write_text(FILES[name] + "int more;\n")
    assert compiled(other)
