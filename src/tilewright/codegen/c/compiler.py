"""The system's C compiler: finding it, and building a package's shared library.

Whoever loads a library that is there asks for the flags alone: what running a compiler needs is
imported where it is run.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tilewright.errors import TilewrightError, refuse
from tilewright.system.temporary import temporary_folder

FLAGS = ("-std=gnu99", "-O2", "-fno-math-errno", "-fPIC", "-pthread", "-Wall", "-Wextra")
"""-O2 does not vectorise by itself where it should not, and contracts multiply-adds;
-fno-math-errno lets square roots be vectors; C99 with GNU's vectors is what GCC and Clang share."""

CHOICE = ("-O2", "-Wall", "-Wextra")
"""The flags of ``FLAGS`` that whoever builds a package may replace; the sources need the others."""

COMPILERS = ("cc", "gcc", "clang")
"""Tried in this order where the environment's CC names none."""

TIMEOUT_SECONDS = 600


def find_compiler() -> tuple[str, ...]:
    """The command of the C compiler: the environment's CC, as make has it, else the system's.

    CC may hold options (``ccache gcc -m64``). Refuses (``cpu-compiler``) when there is none.
    """
    command = _named(os.environ.get("CC", ""))
    if command:
        return command
    raise refuse(
        "cpu-compiler",
        "no C compiler was found: the cpu target needs one to build packages",
        help=f"install one of {', '.join(COMPILERS)} (Debian: apt-get install gcc), or name one: "
        "CC=/path/to/cc",
    )


def has_compiler() -> bool:
    """Return True if a C compiler is installed."""
    try:
        return bool(_named(os.environ.get("CC", "")))
    except TilewrightError:
        return False


def _named(asked: str) -> tuple[str, ...]:
    """The command that CC asks for, its program's path in full; () without a CC and a compiler."""
    import shutil

    if not asked.strip():
        paths = [path for name in COMPILERS if (path := shutil.which(name))]
        return tuple(paths[:1])
    import shlex

    try:
        first, *options = shlex.split(asked)
    except ValueError:
        first, options = asked, []
    path = shutil.which(first)
    if path is None:
        raise refuse(
            "cpu-compiler", f"CC names {asked[:200]!r}, which is no program", "CC",
            "name another compiler, or unset CC",
        )  # fmt: skip
    return (path, *options)


def compiler_version() -> str:
    """First line of what the compiler says of itself; "" when there is none."""
    command = _named(os.environ.get("CC", ""))
    return _version(command) if command else ""


@cache
def _version(command: tuple[str, ...]) -> str:
    import subprocess

    ran = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
    said = [*ran.stdout.strip().splitlines(), *ran.stderr.strip().splitlines()]
    # One that says nothing is still a compiler, of which its path is all that is known.
    return " ".join([*(said[:1] or command[:1]), *command[1:]])


def defines(macro: str, flags: tuple[str, ...]) -> bool:
    """Return True if the compiler predefines a macro under ``flags``, or if none is installed."""
    command = _named(os.environ.get("CC", ""))
    return _defines(macro, (*command, *flags)) if command else True


@cache
def _defines(macro: str, command: tuple[str, ...]) -> bool:
    import subprocess

    try:
        ran = subprocess.run(
            [*command, "-x", "c", "-dM", "-E", "-"],
            input="",
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return any(line.split()[1:2] == [macro] for line in ran.stdout.splitlines())


def build_library(
    sources: Sequence[Path],
    target: Path,
    includes: Sequence[Path],
    flags: Sequence[str],
) -> None:
    """Compile sources side by side and link them; ``target`` appears only when all is well.

    Raises TilewrightError with the compiler's first words if it fails.
    """
    import shutil
    import tempfile
    from concurrent.futures import ThreadPoolExecutor

    compiler = find_compiler()
    search = [f"-I{path}" for path in includes]
    with temporary_folder() as scratch:
        objects = [scratch / f"{number}.o" for number in range(len(sources))]

        def compile_one(pair: tuple[Path, Path]) -> None:
            source, built = pair
            run_compiler([*compiler, *flags, *search, "-c", str(source), "-o", str(built)])

        with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
            list(pool.map(compile_one, zip(sources, objects, strict=True)))
        linked = scratch / "linked.so"
        linking = [flag for flag in flags if flag.startswith(("-f", "-O", "-m"))]
        run_compiler([*compiler, *linking, "-shared", *map(str, objects), "-o", str(linked), "-lm"])
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=".building-")
        os.close(handle)
        shutil.copyfile(linked, name)
        Path(name).chmod(0o755)
        Path(name).replace(target)


def precompile(header: Path, includes: Sequence[Path], flags: Sequence[str]) -> None:
    """Read a header once for all sources that begin with it: GCC finds what it leaves beside it.

    A compiler that makes nothing of it reads the header again.
    """
    search = [f"-I{path}" for path in includes]
    compiled = header.with_name(f"{header.name}.gch")
    command = [
        *find_compiler(),
        *flags,
        *search,
        "-x",
        "c-header",
        str(header),
        "-o",
        str(compiled),
    ]
    try:
        run_compiler(command)
    except TilewrightError:
        compiled.unlink(missing_ok=True)


def run_compiler(command: Sequence[str], folder: Path | None = None) -> None:
    """Run the compiler in a folder.

    If it fails, raises TilewrightError with its first lines and the command.
    """
    import shlex
    import signal
    import subprocess

    try:
        ran = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=TIMEOUT_SECONDS,
            cwd=folder,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise refuse("cpu-compiler", f"the C compiler failed: {error}", command[0]) from error
    if ran.returncode < 0:
        ended = signal.strsignal(-ran.returncode) or f"signal {-ran.returncode}"
        raise refuse("cpu-compiler", f"the C compiler was ended: {ended}", shlex.join(command))
    if ran.returncode:
        lines = (ran.stderr.strip() or ran.stdout.strip() or "it says nothing").splitlines()
        message = "\n".join([f"the C compiler failed with status {ran.returncode}:", *lines[:12]])
        raise refuse("cpu-compiler", message, shlex.join(command))
