"""Which C compiler is taken, and what is said where it is none."""

from pathlib import Path

import pytest

from tilewright.codegen.c import compiler
from tilewright.errors import TilewrightError


def recording_compiler(folder: Path) -> tuple[Path, Path]:
    """A compiler that writes down its arguments, and where it does."""
    log = folder / "log"
    script = folder / "mycc"
    script.write_text(f'#!/bin/sh\necho "$@" >> {log}\nexec cc "$@"\n')
    script.chmod(0o755)
    return script, log


def test_the_environments_compiler_builds_libraries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, log = recording_compiler(tmp_path)
    monkeypatch.setenv("CC", f"{script} -DASKED=7")
    (tmp_path / "asked.c").write_text("int asked(void) { return ASKED; }\n")
    compiler.build_library([tmp_path / "asked.c"], tmp_path / "asked.so", (), compiler.FLAGS)
    assert (tmp_path / "asked.so").exists()
    assert len([line for line in log.read_text().splitlines() if "-DASKED=7" in line]) >= 1
    assert compiler.compiler_version().endswith(" -DASKED=7")
    assert compiler.defines("__ELF__", ()) and not compiler.defines("NO_SUCH_MACRO", ())


def test_another_compiler_builds_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = compiler.compiler_version()
    monkeypatch.setenv("CC", "cc -DOTHER")
    assert compiler.compiler_version() != plain


@pytest.mark.parametrize("asked", ["no-such-compiler", "'unfinished", "/etc/passwd"])
def test_a_compiler_that_is_none_is_refused(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", asked)
    with pytest.raises(TilewrightError, match=r"cpu-compiler.*CC"):
        compiler.find_compiler()


@pytest.mark.parametrize("said", ["", "echo mycc 1.2 >&2", "echo; echo mycc 1.2"])
def test_a_compiler_without_a_version_on_its_first_line_is_one(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only where there is no compiler may a library of any be taken from the cache."""
    script = tmp_path / "mycc"
    script.write_text(f"#!/bin/sh\n{said}\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setenv("CC", f"{script} -m64")
    assert compiler.compiler_version() == ("mycc 1.2 -m64" if said else f"{script} -m64")


FAILING = r"""#!/bin/sh
case "$*" in *--version*) exit 0;; esac
for line in 1 2 3 4 5 6 7 8 9 10 11 12 13 14; do echo "net.c:$line: no vec\351tors here" >&2; done
exit 3
"""


def test_a_failing_compiler_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it says, how it ended, and the command, whatever its encoding."""
    script = tmp_path / "failing"
    script.write_text(FAILING)
    script.chmod(0o755)
    monkeypatch.setenv("CC", f"{script} -DWHY='a b'")
    (tmp_path / "net.c").write_text("int net;\n")
    with pytest.raises(TilewrightError) as caught:
        compiler.build_library([tmp_path / "net.c"], tmp_path / "net.so", (), ("-O2",))
    (problem,) = caught.value.problems
    assert problem.code == "cpu-compiler"
    assert problem.where.startswith(f"{script} '-DWHY=a b' -O2 -c {tmp_path}/net.c -o ")
    first, *lines = problem.reason.splitlines()
    assert first == "the C compiler failed with status 3:"
    assert [line.partition(": ")[0] for line in lines] == [f"net.c:{n}" for n in range(1, 13)]


def test_a_compiler_that_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "false")
    (tmp_path / "net.c").write_text("int net;\n")
    with pytest.raises(TilewrightError, match=r"status 1:\nit says nothing"):
        compiler.build_library([tmp_path / "net.c"], tmp_path / "net.so", (), ())
