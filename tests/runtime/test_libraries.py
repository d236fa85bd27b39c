"""Libraries in packages: which are loaded, by whom, and what is done without one."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright
from tilewright import Executable, TilewrightError
from tilewright.codegen.c import keys, libraries, packaged
from tilewright.runtime.manifest import Manifest
from tilewright.system.typed_json import from_json

X = np.random.default_rng(1).standard_normal((3, 7), np.float32)
W = np.random.default_rng(2).standard_normal((7, 5), np.float32)


def network(path: Path, operation: str = "Relu", rows: int | str = 3) -> Path:
    """A product and a function of its elements."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (rows, 7))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, (rows, 5))
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node(operation, ["h"], ["y"]),
    ]
    weight = onnx.numpy_helper.from_array(W, "w")
    graph = helper.make_graph(nodes, "net", [x], [y], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


WANT = np.maximum(X @ W, 0)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    return tilewright.compile(network(folder / "net.onnx"), cpu="native").save(folder / "package")


@pytest.fixture
def package(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "package"))


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A server: no C compiler, and nothing was built on it before."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def other_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Somebody who has another key."""
    monkeypatch.setenv("TILEWRIGHT_KEY", str(tmp_path / "other" / "key"))


def runs(package: Path, *, trust: bool = False) -> None:
    found = Executable.load(package, trust=trust).run({"x": X})["y"]
    np.testing.assert_allclose(found, WANT, rtol=1e-5, atol=1e-6)


def refusal(action: Callable[[], object]) -> str:
    with pytest.raises(TilewrightError) as caught:
        action()
    return str(caught.value)


def sole_library(package: Path) -> Path:
    (path,) = (package / "libraries").glob("*.so")
    return path


def relist(package: Path) -> None:
    """Make the manifest agree with changed files, as a stranger would."""
    from_json(Manifest, (package / "manifest.json").read_text()).write(package)


@pytest.mark.usefixtures("no_compiler")
def test_a_saved_package_runs_without_a_compiler(package: Path, tmp_path: Path) -> None:
    before = sorted(package.rglob("*"))
    runs(package)
    assert sorted(package.rglob("*")) == before
    assert not (tmp_path / "cache").exists()


@pytest.mark.usefixtures("no_compiler", "other_user")
def test_anothers_library_is_loaded_by_those_alone_who_trust_it(package: Path) -> None:
    message = refusal(lambda: runs(package))
    assert "cpu-compiler" in message and "not sealed with your key" in message
    assert "--trust-library" in message
    runs(package, trust=True)


@pytest.mark.usefixtures("no_compiler")
def test_a_key_that_is_given_to_a_server_opens_what_it_sealed(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    shutil.copy(os.environ["TILEWRIGHT_KEY"], secret)
    secret.chmod(0o400)
    monkeypatch.setenv("TILEWRIGHT_KEY", str(secret))
    runs(package)
    secret.chmod(0o644)  # Others could seal with it.
    assert "not sealed" in refusal(lambda: runs(package))


EVIL = """#include <stdio.h>
__attribute__((constructor)) static void evil(void)
{
    fclose(fopen("MARK", "w"));
}
"""


def evil_library(folder: Path) -> tuple[bytes, Path]:
    """A library that leaves a mark where it is loaded."""
    mark = folder / "mark"
    (folder / "evil.c").write_text(EVIL.replace("MARK", str(mark)))
    command = ["cc", "-shared", "-fPIC", str(folder / "evil.c"), "-o", str(folder / "evil.so")]
    subprocess.run(command, check=True)
    return (folder / "evil.so").read_bytes(), mark


def plant(package: Path, content: bytes, **changes: str) -> None:
    """Put a library where the package's own was, and a list that names it."""
    sole_library(package).unlink()
    (package / "libraries/evil").write_bytes(content)
    with (package / "libraries/evil").open("rb") as file:
        name = libraries.file_digest(file, "sha256").hexdigest()
    (package / "libraries/evil").rename(package / f"libraries/{name}.so")
    rows = json.loads((package / "libraries/libraries.json").read_text())
    rows[0] |= {"sha256": name, **changes}
    (package / "libraries/libraries.json").write_text(json.dumps(rows))
    relist(package)


@pytest.mark.parametrize("seal", ["as it was", "", "0" * 64, "é"])
def test_a_planted_library_is_not_loaded(package: Path, tmp_path: Path, seal: str) -> None:
    content, mark = evil_library(tmp_path)
    plant(package, content, **({} if seal == "as it was" else {"seal": seal}))
    runs(package)  # It is built from the C.
    assert not mark.exists()


def test_a_planted_library_would_run(package: Path, tmp_path: Path) -> None:
    """The test above sees what it looks for."""
    content, mark = evil_library(tmp_path)
    plant(package, content)
    with pytest.raises(TilewrightError, match="has no function"):
        runs(package, trust=True)
    assert mark.exists()


@pytest.mark.parametrize("claims", [False, True])
def test_a_sealed_library_of_other_c_is_not_loaded(
    package: Path, tmp_path: Path, claims: bool
) -> None:
    """A seal is of the library and of the C: a package cannot take another's."""
    own = json.loads((package / "libraries/libraries.json").read_text())
    other = tilewright.compile(network(tmp_path / "net.onnx", "Neg"), cpu="native")
    saved = other.save(tmp_path / "other")
    shutil.rmtree(package / "libraries")
    shutil.copytree(saved / "libraries", package / "libraries")
    if claims:
        rows = json.loads((saved / "libraries/libraries.json").read_text())
        rows[0]["digest"] = own[0]["digest"]
        (package / "libraries/libraries.json").write_text(json.dumps(rows))
    relist(package)
    runs(package)


def test_an_unlisted_library_is_not_looked_at(package: Path, tmp_path: Path) -> None:
    content, mark = evil_library(tmp_path)
    plant(package, content)
    manifest = json.loads((package / "manifest.json").read_text())
    for name in [name for name in manifest["files"] if name.endswith(".so")]:
        del manifest["files"][name]
    (package / "manifest.json").write_text(json.dumps(manifest))
    runs(package, trust=True)
    assert not mark.exists()


def test_a_changed_library_is_a_damaged_package(package: Path) -> None:
    path = sole_library(package)
    path.write_bytes(path.read_bytes()[:-8] + b"evil!!!!")
    assert "package-damaged" in refusal(lambda: Executable.load(package))


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[1]", "[[]]", '[{"digest": 1}]', "[" * 100_000, '[{"sha256": "../../x"}]'],
)
def test_a_list_that_is_none_is_as_if_there_were_none(package: Path, text: str) -> None:
    (package / "libraries/libraries.json").write_text(text)
    relist(package)
    runs(package)


@pytest.mark.usefixtures("no_compiler")
@pytest.mark.parametrize("change", ["extensions", "platform"])
def test_another_processors_library_is_not_loaded(
    package: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    if change == "extensions":
        monkeypatch.setattr(packaged, "extensions", lambda: ())
    else:
        monkeypatch.setattr(packaged, "platform_name", lambda: "linux riscv64")
    message = refusal(lambda: runs(package, trust=True))
    assert ("lacks" if change == "extensions" else "it is for linux") in message


def test_another_processor_builds_once_and_keeps_it_in_the_cache(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(packaged, "platform_name", lambda: "linux riscv64")
    runs(package)
    (kept,) = (tmp_path / "cache/libraries").glob("*.so")
    monkeypatch.setenv("PATH", "")  # What is kept needs no compiler any more.
    monkeypatch.delenv("CC", raising=False)
    runs(package)
    assert kept.exists()
    monkeypatch.undo()
    both = Executable.load(package)
    monkeypatch.setattr(packaged, "platform_name", lambda: "linux riscv64")
    saved = both.save(tmp_path / "both")
    platforms = [row.platform for row in packaged.read_list(saved / "libraries/libraries.json")]
    assert sorted(platforms) == sorted([f"{sys.platform} {os.uname().machine}", "linux riscv64"])
    runs(saved)


def test_a_library_that_does_not_load_is_built(package: Path, tmp_path: Path) -> None:
    """As one built against a newer C library does not."""
    plant(package, b"\x7fELF of another kind")
    runs(package, trust=True)


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_a_package_that_cannot_be_written_runs(package: Path) -> None:
    for path in (package, *package.rglob("*")):
        path.chmod(path.stat().st_mode & ~0o222)
    runs(package)


def test_save_leaves_it_out_where_it_is_told_to_or_cannot(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = network(tmp_path / "net.onnx")
    plain = tilewright.compile(model, cpu="native").save(tmp_path / "plain", build=False)
    assert not (plain / "libraries").exists()
    foreign = tilewright.compile(model, cpu="neon")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    assert not (foreign.save(tmp_path / "neon") / "libraries").exists()
    assert "cpu-foreign" in refusal(lambda: foreign.save(tmp_path / "no", build=True))
    assert not (tmp_path / "no").exists()
    elf = tmp_path / "net.elf"
    assert "option-form" in refusal(lambda: Executable.load(plain).save(elf, build=True))


def test_saved_again_a_package_keeps_its_library(package: Path, tmp_path: Path) -> None:
    again = Executable.load(package).save(tmp_path / "again")
    files = lambda folder: {p.name: p.read_bytes() for p in (folder / "libraries").iterdir()}  # noqa: E731
    assert files(again) == files(package)
    assert (again / "manifest.json").read_bytes() == (package / "manifest.json").read_bytes()


def test_the_key_is_the_users_alone_and_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "below" / "key"
    monkeypatch.setenv("TILEWRIGHT_KEY", str(path))
    assert not keys.is_sealed("text", "")
    seal = keys.sealed("text")
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700
    assert keys.sealed("text") == seal != keys.sealed("another")
    assert keys.is_sealed("text", seal) and not keys.is_sealed("another", seal)
    path.write_text("short")
    assert keys.sealed("text") == "" and not keys.is_sealed("text", seal)
    monkeypatch.setenv("TILEWRIGHT_KEY", str(tmp_path / "below" / "key" / "none"))
    assert keys.sealed("text") == ""


BUILD = """
import sys, time
from pathlib import Path
from tilewright.codegen.c import libraries

def build(path):
    with open(sys.argv[1], "a") as log:
        log.write("built\\n")
    time.sleep(0.3)
    path.write_bytes(b"x")

libraries.obtain("net", "digest", build)
"""


def test_of_two_processes_one_builds(tmp_path: Path) -> None:
    log = tmp_path / "log"
    environment = {**os.environ, "TILEWRIGHT_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-c", BUILD, str(log)]
    both = [subprocess.Popen(command, env=environment) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    assert log.read_text() == "built\n"
    (kept,) = (tmp_path / "cache/libraries").iterdir()
    assert kept.suffix == ".so"


def test_a_full_disk_is_one_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))

    def build(path: Path) -> None:
        raise OSError(28, "No space left on device", str(path))

    message = refusal(lambda: libraries.obtain("net", "digest", build))
    assert "output-failed" in message and "No space left" in message


HEAVY = (
    *("pydantic", "xdsl", "onnx", "numba", "llvmlite", "safetensors", "rich", "typer", "lark"),
    *("google", "ml_dtypes", "subprocess", "importlib.metadata", "shutil"),
    *("tilewright.planning", "tilewright.graph.", "tilewright.tile.dialect", "tilewright.ir"),
    *("tilewright.machine.model", "tilewright.frontends", "tilewright.compiler.api"),
    *("tilewright.runtime.dynamic", "tilewright.targets.cpu.processors"),
)
"""Modules, and beginnings of modules' names, that a server's start has no time for."""

LIGHT = ("tilewright.graph.names",)


@pytest.mark.parametrize("name", ["tilewright", "tilewright.runtime"])
def test_running_a_package_imports_no_compiler(package: Path, name: str) -> None:
    """Graph, planning and machines take longer to import than a library to load."""
    program = f"""
import sys
import numpy
before = set(sys.modules)
from {name} import Executable
Executable.load({str(package)!r}).run({{"x": numpy.zeros((3, 7), numpy.float32)}})
found = [name for name in sys.modules if name not in before and name.startswith({HEAVY})]
print(*(name for name in found if name not in {LIGHT}))
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == []
