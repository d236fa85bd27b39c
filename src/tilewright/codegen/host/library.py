"""Shared libraries of packages' C, and the memory that they work in."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tilewright.codegen.c import libraries
from tilewright.codegen.c.compiler import build_library, precompile
from tilewright.errors import refuse
from tilewright.memory.alignment import align_up
from tilewright.system.temporary import temporary_folder

if TYPE_CHECKING:
    from numpy.typing import NDArray

LARGEST_ARENA = 1 << 36
"""The largest number of bytes of an arena."""

_HUGE = 2 << 20

SOURCES_WITH_HEADER = 8
"""Sources from which on it takes less time to compile their common header first."""

SOURCES = (
    *(("src", "*.c"), ("src", "*.h"), ("include", "*.h")),
    *(("shim", "*.c"), ("shim", "*.h")),
)
"""Folders and patterns of the package files from which a library is built; some have functions of a
machine in ``shim``."""


def load_library(program: Path, prefix: str, flags: Sequence[str]) -> Path:
    """Return the shared library of a package's sources, built once with these compiler flags.

    It is built from a copy of the sources, and kept in the user's cache under a digest of all that
    it is built from, unless the package brings it (codegen/c/packaged.py).
    """
    texts = {
        path.relative_to(program): path.read_bytes()
        for folder, pattern in SOURCES
        for path in sorted((program / folder).glob(pattern))
    }
    if not any(path.suffix == ".c" for path in texts):
        raise refuse("package-invalid", "there are no C sources", str(program))
    return library_of(texts, prefix, flags, libraries.of_package)


def library_of(
    texts: Mapping[Path, bytes],
    prefix: str,
    flags: Sequence[str],
    obtain: Callable[..., Path] = libraries.obtain,
) -> Path:
    """The shared library of C files and headers in folders of a package, built once."""
    digest = sha256()
    for path, text in texts.items():
        digest.update(f"{path.as_posix()} {len(text)}\n".encode() + text)
    digest.update(" ".join(flags).encode())

    def build(library: Path) -> None:
        with temporary_folder() as scratch:
            for path, text in texts.items():
                place = scratch / path
                place.parent.mkdir(exist_ok=True)
                place.write_bytes(text)
            sources = [scratch / path for path in texts if path.suffix == ".c"]
            includes = (Path(scratch, "include"), Path(scratch, "src"))
            common = Path(scratch, "src", f"{prefix}_kernels.h")
            if len(sources) > SOURCES_WITH_HEADER and common.is_file():
                precompile(common, includes, flags)
            build_library(sources, library, includes, flags)

    native = any("native" in flag for flag in flags)
    return obtain(prefix, digest.hexdigest(), build, native=native)


def opened(library: Path, *functions: str) -> ctypes.CDLL:
    """A package's library in this process; refuses (``package-invalid``) it without a function."""
    loaded = ctypes.CDLL(str(library))
    for function in functions:
        if not hasattr(loaded, function):
            raise refuse("package-invalid", f"its C has no function {function}")
    return loaded


def arena(size: int) -> NDArray[np.uint8]:
    """Zeroed memory of ``size`` bytes, in large pages where the system gives them.

    Only private memory gets them: Python's maps are shared unless they say otherwise.
    """
    if size > LARGEST_ARENA:
        raise refuse("package-invalid", f"an arena of {size} bytes is too large")
    length = align_up(max(size, 1), _HUGE) + _HUGE
    if hasattr(mmap, "MAP_PRIVATE"):
        space = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    else:
        space = mmap.mmap(-1, length)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        # A kernel that is built without large pages refuses; small ones do as well.
        with suppress(OSError):
            space.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(space, np.uint8)
    start = -whole.ctypes.data % _HUGE
    return whole[start : start + size]


def read_weights(path: Path, size: int) -> NDArray[np.uint8]:
    """A file of ``size`` bytes in memory of its own.

    A mapped file would share its pages between processes, but these are small: ResNet-50 and
    VGG-16 take 4 to 5 % longer with small pages.
    """
    if not path.is_file() or path.stat().st_size != size:
        raise refuse("package-invalid", "weights.bin is missing or of another size", str(path))
    space = arena(size)
    with path.open("rb") as file:
        if file.readinto(space.data) != size:
            raise refuse("package-invalid", "weights.bin became shorter", str(path))
    return space
