"""C made for this process alone: built in a folder that is removed again, loaded, and unloaded."""

from __future__ import annotations

import ctypes
from collections.abc import Generator, Mapping
from contextlib import contextmanager

from tilewright.codegen.c.compiler import FLAGS, build_library
from tilewright.system.temporary import temporary_folder
from tilewright.targets.cpu.headers import HEADERS, header
from tilewright.targets.cpu.processors import this_processor


@contextmanager
def loaded(sources: Mapping[str, str]) -> Generator[ctypes.CDLL]:
    """A library of C sources by file name, built as packages are for the processor at hand.

    They may include the packages' headers. Nothing of it may be used after the context: a long
    search would otherwise keep thousands in memory. Raises TilewrightError when the compiler fails.
    """
    with temporary_folder() as folder:
        for name in HEADERS:
            (folder / name).write_text(header(name))
        paths = [folder / name for name in sources]
        for path, text in zip(paths, sources.values(), strict=True):
            path.write_text(text)
        built = folder / "library.so"
        build_library(paths, built, (folder,), (*FLAGS, *this_processor().flags))
        library = ctypes.CDLL(str(built))
        try:
            yield library
        finally:
            close = ctypes.CDLL(None).dlclose
            close.argtypes = [ctypes.c_void_p]
            close(library._handle)  # pyright: ignore[reportPrivateUsage]: ctypes has no other way
