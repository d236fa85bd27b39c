"""Libraries that a package brings, built from the C beside them: which of them may be loaded.

    libraries/SHA256.so       what a compiler made of the package's C
    libraries/libraries.json  of each: what it was made from, what it needs, and its seal

A library cannot be read as C can, so none is loaded because it is there. Its seal is a keyed digest
(HMAC) of the library and of all that it was made from, under a key of the user's own (keys.py): who
has no key cannot make one, and one of another package's library does not fit. Whoever opens the
package may also say that its libraries are to be trusted as they are. What is not taken is built
from the C, with the reason at hand for those who have no compiler.
"""

from __future__ import annotations

import ctypes
import json
import platform
import re
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from hashlib import file_digest
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct, to_builtins
from msgspec.structs import asdict, replace

from tilewright.codegen.c.keys import is_sealed, sealed
from tilewright.system.typed_json import JsonError, from_json

LIBRARIES = "libraries"
"""The folder of a package."""

LIST = "libraries.json"

_MOST_BYTES = 1 << 20

_EXTENSIONS = re.compile(
    r"(s?sse|avx|amx|fma|f16c|bmi|sha|v?pclmul|v?aes|xop|tbm|3dnow)\w*"
    r"|pni|abm|lzcnt|movbe|popcnt|gfni|adx|cx16|lahf_lm"
)
"""Names of the processor flags for instructions that a compiler puts into a program by itself."""


@cache
def extensions() -> tuple[str, ...]:
    """The instructions beyond the architecture's own that C built for this processor may have;
    what tells one kind of processor from another where the system does not say."""
    path = Path("/proc/cpuinfo")
    text = path.read_text() if path.exists() else ""
    match = re.search(r"^(flags|Features)\s*:\s*(.*)$", text, re.MULTILINE)
    if match is None:
        return (platform.processor() or "unknown",)
    names = set(match[2].split())
    if match[1] == "flags":
        names = {name for name in names if _EXTENSIONS.fullmatch(name)}
    return tuple(sorted(names))


@cache
def platform_name() -> str:
    """The system and the architecture, as ``linux x86_64``."""
    return f"{sys.platform} {platform.machine()}"


class Library(Struct, frozen=True):
    """One library of a package."""

    digest: str
    """SHA-256 of the C that it was made from, and of the compiler's flags."""
    platform: str
    extensions: tuple[str, ...]
    """The instruction sets that the library needs beyond those of the architecture."""
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
    """SHA-256 of the library's file."""
    seal: str = ""

    @property
    def stated(self) -> str:
        """The text that the seal covers: all fields but the seal, as JSON."""
        content = {key: value for key, value in asdict(self).items() if key != "seal"}
        return json.dumps(content, sort_keys=True)

    @property
    def file(self) -> str:
        """The library's file name in the folder."""
        return f"{self.sha256}.so"


def read_list(path: Path) -> tuple[Library, ...]:
    """The libraries that a list names; () where the list is missing or invalid: what is built from
    C needs no list."""
    with suppress(OSError, JsonError):
        if path.stat().st_size <= _MOST_BYTES:
            return from_json(tuple[Library, ...], path.read_bytes())
    return ()


@dataclass
class Packaged:
    """The libraries of a package that is open, and those that were built from its C."""

    folder: Path
    files: frozenset[str]
    """Names in the folder of the files that the package lists: no others are looked at."""
    trusted: bool = False
    """True if the caller that opened the package vouches for its libraries."""
    built: dict[Library, Path] = field(default_factory=dict["Library", Path])
    """Paths of the libraries that were built here, or found in the user's cache."""
    refused: list[str] = field(default_factory=list[str])
    """Reasons why libraries of the package were not taken, in words."""

    @property
    def listed(self) -> tuple[Library, ...]:
        """The libraries that the package contains, by its list."""
        return read_list(self.folder / LIST) if LIST in self.files else ()

    def find(self, digest: str) -> Path | None:
        """A library of the package made from this C that may and can be loaded here."""
        for library in self.listed:
            if library.digest != digest or library.file not in self.files:
                continue
            path = self.folder / library.file
            reason = self._reason(library, path)
            if not reason:
                return path
            self.refused.append(reason)
        return None

    def _reason(self, library: Library, path: Path) -> str:
        """The reason why a library is not loaded; "" if it may be."""
        if library.platform != platform_name():
            return f"it is for {library.platform}"
        lacking = [name for name in library.extensions if name not in extensions()]
        if lacking:
            return f"this processor lacks {', '.join(lacking[:4])}"
        if not self.trusted and not is_sealed(library.stated, library.seal):
            return "it is not sealed with your key, and nobody said that it is to be trusted"
        try:
            with path.open("rb") as file:
                if file_digest(file, "sha256").hexdigest() != library.sha256:
                    return "it has changed since it was built"
            ctypes.CDLL(str(path))
        except OSError as error:
            return f"the system does not load it: {error}"
        return ""

    def add(self, digest: str, path: Path, *, native: bool) -> None:
        """Note a library that was built here, ``native`` for the processor at hand."""
        with path.open("rb") as file:
            name = file_digest(file, "sha256").hexdigest()
        library = Library(digest, platform_name(), extensions() if native else (), name)
        self.built[library] = path

    def write(self, folder: Path) -> list[str]:
        """Put what was built beside the libraries of a copy of the package, with a list of all.

        Returns the names of what was written; raises OSError.
        """
        import shutil

        folder.mkdir(exist_ok=True)
        new = [replace(library, seal=sealed(library.stated)) for library in self.built]
        for library, path in self.built.items():
            shutil.copyfile(path, folder / library.file)
        names = {library.stated for library in new}
        rows = [library for library in self.listed if library.stated not in names] + new
        (folder / LIST).write_text(json.dumps(to_builtins(rows), indent=1) + "\n")
        return [LIST, *(library.file for library in new)]

    @contextmanager
    def at_hand(self) -> Generator[None]:
        """Let ``libraries.obtain`` inside take this package's libraries, and note others."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)


_current: ContextVar[Packaged | None] = ContextVar("packaged", default=None)


def current() -> Packaged | None:
    """The package whose libraries are asked for, if one is."""
    return _current.get()
