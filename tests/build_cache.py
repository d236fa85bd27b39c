"""Objects that the C compiler has made in this run of the tests, by what they were made from.

Many tests compile the same small networks. Equal sources, headers and flags give equal objects, so
each is made once for all of them; what a test does with its package's library is its own.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path


@dataclass(frozen=True)
class BuildCache:
    """Stands for ``run_compiler``; processes that share the folder share the objects."""

    folder: Path
    run: Callable[[Sequence[str], Path | None], None]

    def __call__(self, command: Sequence[str], folder: Path | None = None) -> None:
        """Run the compiler, or take what it made of the same before; errors pass through."""
        *flags, kind, source, _, built = command
        if kind != "-c":
            self.run(command, folder)
            return
        base = folder or Path()
        stored = self.folder / key_of(flags, source, base)
        if not stored.exists():
            self.run(command, folder)
            handle, name = tempfile.mkstemp(dir=self.folder)
            os.close(handle)
            shutil.copyfile(base / built, name)
            Path(name).replace(stored)
            return
        shutil.copyfile(stored, base / built)


INCLUDE = re.compile(rb'^\s*#\s*include\s*["<]([^">]+)[">]', re.MULTILINE)


def key_of(flags: Sequence[str], source: str, base: Path) -> str:
    """A hash of a command: its flags, and all that it reads but the system's headers.

    Names are as seen from the folder ``base``; what lies elsewhere counts by its last part, as
    packages that are alike have folders of their own.
    """
    plain = [flag for flag in flags if not flag.startswith("-I")]
    digest = sha256("\0".join([*plain, Path(source).name]).encode())
    folders = [base / flag[2:] for flag in flags if flag.startswith("-I")]
    waiting, read = [base / source], set[Path]()
    while waiting:
        path = waiting.pop()
        if path in read:
            continue
        read.add(path)
        text = path.read_bytes()
        digest.update(f"\0{path.name} {len(text)}\0".encode() + text)
        for name in INCLUDE.findall(text):
            places = [place / os.fsdecode(name) for place in (path.parent, *folders)]
            waiting += [place for place in places if place.is_file()][:1]
    return digest.hexdigest()
