"""What the system refuses, and ctrl-C: one line, an exit status, and nothing left behind."""

import errno
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.cli.test_commands import LENET, refused
from tilewright.codegen.c.compiler import run_compiler
from tilewright.errors import TilewrightError
from tilewright.graph.weights import Weights
from tilewright.runtime.replacing import replacing

COMMAND = [sys.executable, "-m", "tilewright"]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_results_for_a_folder_that_is_not_there(tmp_path: Path) -> None:
    for option in ("--trace", "--output"):
        place = tmp_path / "none" / "result"
        (problem,) = refused("run", LENET, "--random", 1, "-q", option, place)
        assert problem["code"] == "output-failed" and str(place) in problem["where"]
        assert not place.parent.exists()


def test_models_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_bytes(b"PK")
    (problem,) = refused("compile", tmp_path / "model.pt", "-q")
    assert problem["code"] == "model-format" and "torch.onnx.export" in problem["help"]
    (problem,) = refused("compile", tmp_path, "-q")
    assert problem["code"] == "model-format" and "directory" in problem["reason"]
    (tmp_path / "model").write_bytes(b"")
    (problem,) = refused("compile", tmp_path / "model", "-q")
    assert "suffix" in problem["reason"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def full(self: Weights, path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Weights, "save", full)
    package, temporary = tmp_path / "package", tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    (problem,) = refused("compile", LENET, "-o", package, "-q", "--no-cache")
    assert (problem["code"], problem["where"]) == ("output-failed", str(package))
    assert problem["reason"] == os.strerror(number) and problem["help"]
    (problem,) = refused("run", LENET, "--random", 1, "-q", "--no-cache")
    assert problem["code"] == "system-error" and problem["reason"] == os.strerror(number)
    assert names(tmp_path) == {"temporary"} and not names(temporary)


def test_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(self: Weights, path: Path) -> None:
        raise MemoryError

    monkeypatch.setattr(Weights, "save", none)
    (problem,) = refused("run", LENET, "--random", 1, "-q", "--no-cache")
    assert problem["code"] == "system-memory"


def test_a_package_comes_back_when_its_replacement_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "package"
    place.mkdir()
    (place / "manifest.json").write_text("old")
    rename = Path.rename

    def interrupted(self: Path, target: Path) -> Path:
        if self.name == "new":
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt), replacing(place) as fresh:
        (fresh / "manifest.json").write_text("new")
    assert (place / "manifest.json").read_text() == "old" and names(tmp_path) == {"package"}


def test_a_compiler_that_the_system_ends_is_told() -> None:
    with pytest.raises(TilewrightError, match="ended: Killed"):
        run_compiler([sys.executable, "-c", f"import os; os.kill(os.getpid(), {signal.SIGKILL})"])


def environment(folder: Path) -> Mapping[str, str]:
    temporary = folder / "temporary"
    temporary.mkdir()
    return {**os.environ, "TMPDIR": str(temporary), "XDG_CACHE_HOME": str(folder / "cache")}


@pytest.mark.slow
def test_a_limit_of_file_sizes(tmp_path: Path) -> None:
    ran = subprocess.run(
        [*COMMAND, "run", LENET, "--random", "1", "-q", "-o", tmp_path / "out.npz"],
        env=environment(tmp_path), capture_output=True, text=True, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16)),
    )  # fmt: skip
    assert ran.returncode == 2, ran.stderr
    assert ran.stderr.startswith("error [") and ran.stderr.count("\n") == 1
    assert os.strerror(errno.EFBIG) in ran.stderr
    assert names(tmp_path) <= {"cache", "temporary"}
    assert not names(tmp_path / "temporary")


RUN = [*COMMAND, "run", LENET, "--random", "1", "-q", "--no-cache", "-o"]


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, float]:
    """The results of a run that nobody interrupts, and the seconds that it takes."""
    folder = tmp_path_factory.mktemp("whole")
    begin = time.monotonic()
    subprocess.run([*RUN, folder / "out.npz"], env=environment(folder), check=True, stdout=-1)
    return (folder / "out.npz").read_bytes(), time.monotonic() - begin


@pytest.mark.slow
@pytest.mark.parametrize("part", [0.0, 0.3, 0.6, 0.9])
def test_interrupts_leave_nothing(
    tmp_path: Path, part: float, whole_run: tuple[bytes, float]
) -> None:
    """Ctrl-C after a part of the time that the whole takes."""
    results, seconds = whole_run
    given = environment(tmp_path)
    process = subprocess.Popen(
        [*RUN, tmp_path / "second.npz"],
        env=given, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        start_new_session=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    time.sleep(0.1 + part * seconds)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert not names(tmp_path / "temporary")
    left = {name for name in names(tmp_path) if name.startswith((".", "second"))}
    if process.returncode == 0:
        assert left == {"second.npz"}  # It was done before.
        return
    if left:  # The signal came behind the last step, while Python ended: the file is whole.
        assert left == {"second.npz"}
        assert (tmp_path / "second.npz").read_bytes() == results
        return
    # While Python itself starts, nobody is there to say it in a line.
    if part > 0.0:
        assert process.returncode == 130 and said == "interrupted\n"


HEARD = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
"""Who runs the tests in the background may have let them ignore ctrl-C."""

EARLY = """
import os, signal, sys
sys.argv[0] = "tilewright"


class Finder:
    # Ctrl-C while a module is looked for.
    def find_spec(self, name, path, target=None):
        if name == os.environ["INTERRUPTED_AT"]:
            os.kill(os.getpid(), signal.SIGINT)


sys.meta_path.insert(0, Finder())
from tilewright.__main__ import main
sys.exit(main())
"""


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "module", ["tilewright.cli", "typer", "pathlib", "tilewright.cli.run", "numpy", "onnx"]
)
def test_interrupts_while_modules_are_imported(module: str, tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", HEARD + EARLY, "run", LENET, "--random", "1", "-q", "--no-cache"],
        env={**environment(tmp_path), "INTERRUPTED_AT": module},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "interrupted\n")


def test_what_comes_before_the_handler_is_small() -> None:
    """Ctrl-C ends in a traceback of Python's until then."""
    probe = (
        "import os, signal, sys; before = set(sys.modules); import tilewright.__main__;"
        "print(*sorted(set(sys.modules) - before))"
    )
    ran = subprocess.run(
        [sys.executable, "-S", "-c", probe], capture_output=True, text=True, check=True,
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert set(ran.stdout.split()) == {"tilewright", "tilewright.__main__", "__future__"}


@pytest.mark.slow
def test_what_the_caller_ignores_is_ignored(tmp_path: Path) -> None:
    """As shells do for what runs behind."""
    ignoring = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n" + EARLY
    ran = subprocess.run(
        [sys.executable, "-c", ignoring, "targets"],
        env={**environment(tmp_path), "INTERRUPTED_AT": "typer"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0 and "cpu" in ran.stdout
