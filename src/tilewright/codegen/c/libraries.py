"""Shared libraries that were built from packages' C, kept in the user's own directory.

    DIRECTORY/libraries/NAME-KEY-COMPILER-SHA256.so

KEY is a digest of the C, the flags and the processor, COMPILER of the compiler, SHA256 the
library's own: one that has changed since it was built is built again. A file appears by one rename;
one that is loaded may be removed by another process, as the system keeps what is mapped. Those used
longest ago go first. Of several processes that need the same library one builds it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from hashlib import file_digest, sha256
from pathlib import Path

from tilewright.codegen.c import packaged
from tilewright.codegen.c.compiler import compiler_version
from tilewright.errors import TilewrightError, refuse
from tilewright.system.locks import exclusive
from tilewright.system.places import default_directory, make_own
from tilewright.system.temporary import make_folder, temporary_folder

MOST_LIBRARIES = 256
"""Libraries that are kept."""

MOST_BYTES = 1 << 30
"""Bytes of all libraries that are kept."""


def of_package(name: str, digest: str, build: Callable[[Path], None], *, native: bool) -> Path:
    """The library of a package's C: one that the open package brings, or what ``obtain`` gives.

    Raises TilewrightError where nothing can be built.
    """
    package = packaged.current()
    if package is not None and (path := package.find(digest)) is not None:
        return path
    try:
        path = obtain(name, digest, build, native=native)
    except TilewrightError as error:
        raise _explained(error, package) from error
    if package is not None:
        package.add(digest, path, native=native)
    return path


def obtain(name: str, digest: str, build: Callable[[Path], None], *, native: bool = True) -> Path:
    """The library of a name and a digest of its C and flags: one that is kept, or one that
    ``build`` writes to a path now.

    It is of the processor at hand where it is ``native``. Without a compiler, any that was kept of
    the same C will do. Where the directory cannot be written, the library lives as long as this
    process. Refuses (``cache-unsafe``) a directory that other users may write to.
    """
    processor = [packaged.platform_name(), *(packaged.extensions() if native else ())]
    key = f"{name}-{_short(digest, *processor)}"
    folder = default_directory() / "libraries"
    try:
        make_own(folder.parent)
        make_own(folder)
        compiler = compiler_version()
        full = f"{key}-{_short(compiler)[:8]}"
        wanted = full if compiler else key
        kept = _kept(folder, wanted)
        if kept is not None:
            return kept
        with _turn(folder / f".{full}.lock"):
            return _kept(folder, wanted) or _added(folder, full, build)
    except OSError:
        return _aside(build)


def _aside(build: Callable[[Path], None]) -> Path:
    """A library that lives as long as this process."""
    try:
        scratch = make_folder()
        build(scratch / "library.so")
    except OSError as error:
        import tempfile

        where = str(error.filename or tempfile.gettempdir())
        raise refuse(
            "output-failed", f"a library cannot be written: {error.strerror}", where,
            "make room, or name a folder with room: TILEWRIGHT_CACHE and TMPDIR",
        ) from error  # fmt: skip
    return scratch / "library.so"


def _explained(error: TilewrightError, package: packaged.Packaged | None) -> TilewrightError:
    """An error of building, with the reason for which the package's own library was not taken."""
    if package is None or not package.refused:
        return error
    first = error.problems[0]
    reason = f"{first.reason}; and the package's own library is not loaded: {package.refused[-1]}"
    help = f"{first.help}; if you know where the package comes from: --trust-library, trust=True"
    return TilewrightError([replace(first, reason=reason, help=help), *error.problems[1:]])


@contextmanager
def _turn(path: Path) -> Generator[None]:
    """One process at a time builds a library, where the file system has locks."""
    with ExitStack() as stack:
        with suppress(OSError):
            stack.enter_context(exclusive(path))
            stack.callback(path.unlink, missing_ok=True)
        yield


def _short(*texts: str) -> str:
    return sha256("\0".join(texts).encode()).hexdigest()[:32]


def clear() -> None:
    """Remove every library that is kept."""
    _tidy(default_directory() / "libraries", 0)


def _kept(folder: Path, key: str) -> Path | None:
    """The library whose name begins so, unchanged; others of that name go."""
    for path in folder.glob(f"{key}-*.so"):
        with suppress(FileNotFoundError):  # Another process may remove it.
            if path.stem.endswith(f"-{_digest(path)}"):
                os.utime(path)
                return path
            path.unlink()
    return None


def _added(folder: Path, key: str, build: Callable[[Path], None]) -> Path:
    with temporary_folder(folder, "building-") as scratch:
        built = scratch / "library.so"
        build(built)
        place = built.replace(folder / f"{key}-{_digest(built)}.so")
    _tidy(folder, MOST_LIBRARIES)
    return place


def _digest(library: Path) -> str:
    with library.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _tidy(folder: Path, most: int) -> None:
    """Remove the libraries used longest ago beyond the bounds."""
    entries: list[tuple[float, int, Path]] = []
    for path in folder.glob("*.so"):
        with suppress(FileNotFoundError):
            status = path.stat()
            entries.append((status.st_mtime, status.st_size, path))
    size = 0
    for number, (used, bytes_, path) in enumerate(sorted(entries, reverse=True)):
        size += bytes_
        if number >= most or (number and size > MOST_BYTES):
            with suppress(FileNotFoundError):
                if path.stat().st_mtime == used:  # Nobody is about to load it.
                    path.unlink()
