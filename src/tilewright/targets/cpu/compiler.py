"""The system's C compiler: finding it, and building a package's shared library."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from tilewright.errors import refuse

FLAGS = ("-std=gnu99", "-O2", "-fno-math-errno", "-fPIC", "-pthread", "-Wall", "-Wextra")
"""-O2 does not vectorise by itself where it should not, and contracts multiply-adds;
-fno-math-errno lets square roots be vectors; C99 with GNU's vectors is what GCC and Clang share."""

CHOICE = ("-O2", "-Wall", "-Wextra")
"""Of these, what whoever builds a package may replace; the sources need the others."""

COMPILERS = ("cc", "gcc", "clang")
"""Tried in this order."""

TIMEOUT_SECONDS = 600


@cache
def find_compiler() -> str:
    """Path of the system's C compiler; refuses when there is none."""
    for name in COMPILERS:
        path = shutil.which(name)
        if path is not None:
            return path
    raise refuse(
        "cpu-compiler",
        "no C compiler was found: the cpu target needs one to build packages",
        help=f"install one of {', '.join(COMPILERS)} (Debian: apt-get install gcc)",
    )


def compiler_version() -> str:
    """First line of what the compiler says of itself; "" when there is none."""
    path = next((found for name in COMPILERS if (found := shutil.which(name))), None)
    if path is None:
        return ""
    ran = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    return ran.stdout.splitlines()[0] if ran.stdout else ""


@cache
def defines(macro: str, flags: tuple[str, ...]) -> bool:
    """Whether the compiler, told so, predefines a macro; True where there is none to ask."""
    path = next((found for name in COMPILERS if (found := shutil.which(name))), None)
    if path is None:
        return True
    command = [path, *flags, "-x", "c", "-dM", "-E", "-"]
    try:
        ran = subprocess.run(
            command, input="", capture_output=True, text=True, check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return any(line.split()[1:2] == [macro] for line in ran.stdout.splitlines())


def openmp_flags() -> tuple[str, ...]:
    """What makes the compiler use OpenMP; () where it has none, and threads are POSIX's."""
    path = next((found for name in COMPILERS if (found := shutil.which(name))), None)
    return () if path is None else _openmp_flags(path)


@cache
def _openmp_flags(path: str) -> tuple[str, ...]:
    program = "#include <omp.h>\nint main(void) { return omp_get_max_threads() < 1; }\n"
    with tempfile.TemporaryDirectory(prefix="tilewright-") as scratch:
        command = [path, "-fopenmp", "-x", "c", "-", "-o", str(Path(scratch) / "probe")]
        try:
            ran = subprocess.run(
                command, input=program, capture_output=True, text=True, check=False, timeout=60
            )
        except (OSError, subprocess.TimeoutExpired):
            return ()
    return () if ran.returncode else ("-fopenmp",)


def build_library(
    sources: Sequence[Path],
    target: Path,
    includes: Sequence[Path],
    flags: Sequence[str],
) -> None:
    """Compile sources side by side and link them; ``target`` appears only when all is well.

    Raises TilewrightError with the compiler's first words if it fails.
    """
    compiler = find_compiler()
    search = [f"-I{path}" for path in includes]
    with tempfile.TemporaryDirectory(prefix="tilewright-") as scratch:
        objects = [Path(scratch) / f"{number}.o" for number in range(len(sources))]

        def compile_one(pair: tuple[Path, Path]) -> None:
            source, built = pair
            run_compiler([compiler, *flags, *search, "-c", str(source), "-o", str(built)])

        with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
            list(pool.map(compile_one, zip(sources, objects, strict=True)))
        linked = Path(scratch) / "linked.so"
        linking = [flag for flag in flags if flag.startswith(("-f", "-O", "-m"))]
        run_compiler([compiler, *linking, "-shared", *map(str, objects), "-o", str(linked), "-lm"])
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=".building-")
        os.close(handle)
        shutil.copyfile(linked, name)
        Path(name).chmod(0o755)
        Path(name).replace(target)


def run_compiler(command: Sequence[str]) -> None:
    """Run the compiler; raises TilewrightError with its first words if it fails."""
    try:
        ran = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise refuse("cpu-compiler", f"the C compiler failed: {error}", command[0]) from error
    if ran.returncode < 0:
        ended = signal.strsignal(-ran.returncode) or f"signal {-ran.returncode}"
        raise refuse("cpu-compiler", f"the C compiler was ended: {ended}", " ".join(command[-3:]))
    if ran.returncode:
        said = "\n".join((ran.stderr or ran.stdout).splitlines()[:12])
        raise refuse("cpu-compiler", f"the C compiler failed: {said}", " ".join(command[-3:]))
