"""Objects that the C compiler has made in this run of the tests, by what they were made from.

Many tests compile the same small networks. Equal sources, headers and flags give equal objects, so
each is made once for all of them; what a test does with its package's library is its own.
"""

from __future__ import annotations

import os
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
        """Run the compiler, or take what it made of the same before; errors pass through.

        What runs in a folder of its own names its files from there, and is always compiled.
        """
        if folder is not None:
            self.run(command, folder)
            return
        *flags, kind, source, _, built = command
        if kind != "-c":
            self.run(command, None)
            return
        stored = self.folder / key_of(flags, Path(source))
        if not stored.exists():
            self.run(command, None)
            handle, name = tempfile.mkstemp(dir=self.folder)
            os.close(handle)
            shutil.copyfile(built, name)
            Path(name).replace(stored)
            return
        shutil.copyfile(stored, built)


def key_of(flags: Sequence[str], source: Path) -> str:
    """A hash of a command: its flags, the source, and all headers where it looks for them."""
    digest = sha256()
    folders = [Path(flag[2:]) for flag in flags if flag.startswith("-I")]
    plain = [flag for flag in flags if not flag.startswith("-I")]
    digest.update("\0".join([*plain, source.name]).encode() + b"\0")
    digest.update(source.read_bytes())
    for folder in (*folders, source.parent):
        for header in sorted(folder.glob("*.h")):
            digest.update(b"\0" + header.name.encode() + b"\0" + header.read_bytes())
    return digest.hexdigest()
