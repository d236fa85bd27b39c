"""Identifiers: the one place where names from models become names that code may use."""

from __future__ import annotations

import re
from hashlib import sha256

from tilewright.errors import refuse
from tilewright.system.c_words import RESERVED

LONGEST = 64
"""The most characters of an identifier."""


def identifier(name: str, fallback: str = "value") -> str:
    """A C identifier that is as close to ``name`` as may be; the same for the same name.

    What is not a letter, digit or underscore of ASCII becomes one underscore; names that are cut
    to ``LONGEST`` end with a hash, so that they stay distinct. Never starts with an underscore,
    never is a word of C or C++.
    """
    text = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_") or fallback
    if text[0].isdigit():
        text = f"{fallback}_{text}"
    if text in RESERVED or re.fullmatch(r"u?int(_(fast|least))?\d+_t|s?size_t", text):
        text += "_"
    if len(text) > LONGEST:
        digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        text = f"{text[: LONGEST - 9]}_{digest}"
    return text


_HEADER_NAMES = """
    aio alloca arpa assert byteswap complex cpio ctype dirent dlfcn elf endian errno fcntl
    features fenv float fnmatch ftw getopt glob grp iconv inttypes iso646 langinfo libgen limits
    link locale malloc math memory monetary mqueue ndbm netdb nl_types omp poll pthread pwd
    regex resolv sched search semaphore setjmp signal spawn stdalign stdarg stdatomic stdbit
    stdbool stdckdint stddef stdint stdio stdlib stdnoreturn string strings stropts syslog tar
    termios tgmath threads time uchar ucontext ulimit unistd utime utmpx values wait wchar
    wctype wordexp
"""

_HEADERS = frozenset(_HEADER_NAMES.split())
"""Headers of C and of systems, which a package's own would hide."""


def network_name(name: str) -> str:
    """Name a package's functions, files and headers, as close to ``name`` as C allows."""
    text = identifier(name, "network").rstrip("_")
    return f"{text}_network" if text.lower() in _HEADERS or text in RESERVED else text


def chosen_name(name: str) -> str:
    """A name that someone asks for; refuses (``option-name``) what cannot be a C identifier."""
    if network_name(name) != name:
        raise refuse(
            "option-name", f"{name[:80]!r} cannot be the name of a package's functions and files",
            "name",
            f"letters, digits and single underscores, no word of C, at most {LONGEST} characters: "
            f"{network_name(name)!r} is",
        )  # fmt: skip
    return name


def value_hint(name: str) -> str:
    """A name for an SSA value in text; numbers at the end stay (xDSL counts with ``_1``)."""
    return re.sub(r"_(\d+)$", r".\1", identifier(name))


class Namer:
    """Hands out identifiers that are unique among those that it handed out."""

    def __init__(self) -> None:
        self.originals: dict[str, str] = {}
        """Identifier -> the name that it stands for."""
        self.known: set[str] = set()
        """The names that identifiers stand for."""
        self._next: dict[str, int] = {}

    def unique(self, name: str, fallback: str = "value") -> str:
        """An identifier for ``name``: itself made safe, else with _2, _3, ... appended."""
        base = identifier(name, fallback)
        candidate = base
        while candidate in self.originals:
            number = self._next.get(base, 2)
            self._next[base] = number + 1
            candidate = f"{base.rstrip('_')}_{number}"
        self.originals[candidate] = name
        self.known.add(name)
        return candidate
