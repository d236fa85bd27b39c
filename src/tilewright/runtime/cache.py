"""A directory of packages by key: what was built once is found again, by any process.

    DIRECTORY/entries/KEY/package     a package
    DIRECTORY/entries/KEY/sealed.json size and SHA-256 of what its manifest does not list
    DIRECTORY/requests/REQUEST        the key of what was asked for so before (requests.py)
    DIRECTORY/blobs/SHA256            large files, of which entries hold hard links
    DIRECTORY/work/                   entries that are being built, or removed
    DIRECTORY/lock, locks/            locks of the operating system, released when a process ends

An entry appears by one rename, so it is whole or not there. Each of its files is compared with its
digest before it is used; an entry that is damaged is built again. Who uses an entry holds a shared
lock on its directory, which keeps others from removing it. Entries that were used longest ago go
first when there are too many, or too many bytes.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tilewright.errors import TilewrightError
from tilewright.runtime.executable import Executable
from tilewright.runtime.links import drop_unused, inodes, share_blobs
from tilewright.runtime.manifest import read_own
from tilewright.runtime.requests import Answer, drop_dangling, read_answer, write_answer
from tilewright.runtime.seal import SEALED, check_seal, seal
from tilewright.system.locks import exclusive, in_use, share
from tilewright.system.places import default_directory, make_own
from tilewright.system.temporary import make_folder, remove_folder

MOST_BYTES = 4 << 30
"""Bytes that a cache keeps unless it is told otherwise."""

MOST_ENTRIES = 128
"""Entries that a cache keeps unless it is told otherwise."""

PACKAGE = "package"

REQUESTS = "requests"

Build = Callable[[Path], None]
"""Fills an empty directory with a package."""

Say = Callable[[str], None]
"""Tells a person what is being done."""


@dataclass(frozen=True)
class Usage:
    """The entries and bytes that a cache holds."""

    entries: int
    bytes: int
    """The bytes of all files, each counted once however many entries link to it."""


@dataclass(frozen=True)
class Recalled:
    """The package with which a request was answered before."""

    executable: Executable
    notes: tuple[str, ...]


class Cache:
    """A bounded cache of packages, safe for several processes at the same time."""

    def __init__(
        self,
        directory: str | Path | None = None,
        *,
        most_bytes: int = MOST_BYTES,
        most_entries: int = MOST_ENTRIES,
    ) -> None:
        """Nothing is written before the first entry."""
        self.directory = default_directory() if directory is None else Path(directory)
        self.most_bytes = most_bytes
        self.most_entries = most_entries

    def obtain(self, key: str, build: Build, say: Say) -> Executable:
        """The package of a key: the one that is kept, or one that ``build`` makes now.

        It stays in the cache at least as long as the result lives. Where the cache cannot be
        written, the package is built in a temporary directory.
        """
        try:
            self._prepare()
        except OSError as error:
            say(f"the cache {self.directory} cannot be used ({error.strerror}); building aside")
            return self._aside(build)
        executable = self._open(key)
        if executable is not None:
            return executable
        with self._turn(key, say):
            executable = self._open(key)  # Another process may have built it meanwhile.
            if executable is None:
                try:
                    executable = self._add(key, build)
                except OSError as error:
                    say(
                        f"the cache {self.directory} cannot be used ({error.strerror}); again aside"
                    )
                    return self._aside(build)
        self.tidy()
        return executable

    def recall(self, request: str, folder: Path) -> Recalled | None:
        """Return the answer to the same request before, if it is still there and sound.

        ``folder`` is where the files lie that the answer names beside those of the request. Nothing
        is written, and nothing made.
        """
        if not self.directory.is_dir():
            return None
        make_own(self.directory)
        answer = read_answer(self.directory / REQUESTS / request)
        if answer is None or not answer.holds(folder):
            return None
        try:
            kept = self._open(answer.key)
        except OSError:
            return None  # A directory that cannot be written has no lock.
        return None if kept is None else Recalled(kept, answer.notes)

    def remember(
        self, request: str, kept: Executable, files: Mapping[str, Path], notes: Sequence[str] = ()
    ) -> None:
        """Let ``recall`` give this entry of the cache for a request from now on.

        ``files`` are those that a request does not tell of, by their names relative to the folder
        that ``recall`` is given; ``notes`` are for the person who asks. What is no entry of this
        cache, or cannot be written down, is not remembered.
        """
        entry = kept.directory.parent
        if entry.parent != self.directory / "entries":
            return
        with suppress(OSError):
            answer = Answer.of(entry.name, files, notes)
            write_answer(self._folder(REQUESTS), request, answer)

    def usage(self) -> Usage:
        """Entries and bytes; of a cache that does not exist, none."""
        files = [inodes(entry) for entry in self._entries()]
        sizes = {inode: size for of_entry in files for inode, size in of_entry.items()}
        return Usage(len(files), sum(sizes.values()))

    def clear(self) -> None:
        """Remove every entry that is not in use."""
        if self.directory.is_dir():
            self._prepare()
            self.tidy(most_entries=0)

    def tidy(self, most_entries: int | None = None) -> None:
        """Remove the entries used longest ago until the bounds hold; those in use stay."""
        most = self.most_entries if most_entries is None else most_entries
        with self._locked():
            # A builder locks its folder; folders without a lock are left from interrupted builds.
            removed = [path for path in self._folder("work").iterdir() if not in_use(path)]
            files = {entry: inodes(entry) for entry in sorted(self._entries(), key=_last_use)}
            links = Counter(
                inode for inodes_of_entry in files.values() for inode in inodes_of_entry
            )
            sizes = {
                inode: size
                for inodes_of_entry in files.values()
                for inode, size in inodes_of_entry.items()
            }
            used, count = sum(sizes.values()), len(files)
            for entry, inodes_of_entry in files.items():
                if used <= self.most_bytes and count <= most:
                    break
                if in_use(entry):
                    continue
                removed.append(self._set_aside(entry))
                count -= 1
                links.subtract(inodes_of_entry.keys())
                used -= sum(size for inode, size in inodes_of_entry.items() if not links[inode])
        for path in removed:
            shutil.rmtree(path, ignore_errors=True)
        drop_unused(self._folder("blobs"))
        drop_dangling(self._folder(REQUESTS), self.directory / "entries")

    def _entries(self) -> list[Path]:
        folder = self.directory / "entries"
        return list(folder.iterdir()) if folder.is_dir() else []

    def _folder(self, name: str) -> Path:
        path = self.directory / name
        path.mkdir(mode=0o700, exist_ok=True)
        return path

    def _prepare(self) -> None:
        """Make the directory; refuses (``cache-unsafe``) one that others may write to."""
        make_own(self.directory)
        for name in ("entries", "blobs", "work", "locks"):
            _ = self._folder(name)

    def _open(self, key: str) -> Executable | None:
        """The entry of a key, held by a lock while the result lives; None if none is sound."""
        entry = self.directory / "entries" / key
        with self._locked():
            handle = share(entry)
        if handle is None:
            return None
        try:
            package = entry / PACKAGE
            executable = Executable(package)
            check_seal(entry, package, executable.manifest)
            os.utime(entry / SEALED)
        except (TilewrightError, OSError):
            os.close(handle)
            return None
        weakref.finalize(executable, os.close, handle)
        return executable

    def _add(self, key: str, build: Build) -> Executable:
        """Build an entry beside the others, then put it in its place; a damaged one goes."""
        with self._locked():
            work = Path(tempfile.mkdtemp(prefix=f"{key[:16]}-", dir=self._folder("work")))
            handle = share(work)
        assert handle is not None
        try:
            package = work / PACKAGE
            package.mkdir()
            build(package)
            seal(work, package)
            share_blobs(package, self._folder("blobs"))
            entry = self._folder("entries") / key
            with self._locked():
                if entry.exists():
                    shutil.rmtree(self._set_aside(entry), ignore_errors=True)
                work.rename(entry)
            executable = Executable(entry / PACKAGE, manifest=read_own(entry / PACKAGE))
        except BaseException:
            os.close(handle)
            shutil.rmtree(work, ignore_errors=True)
            raise
        weakref.finalize(executable, os.close, handle)
        return executable

    def _set_aside(self, entry: Path) -> Path:
        """Move an entry away from its name, for its removal."""
        place = Path(tempfile.mkdtemp(prefix="removed-", dir=self._folder("work")))
        return entry.rename(place / entry.name).parent

    def _aside(self, build: Build) -> Executable:
        place = make_folder()
        try:
            build(place)
            return Executable(place, temporary=True)
        except BaseException:
            remove_folder(place)
            raise

    @contextmanager
    def _locked(self) -> Generator[None]:
        """The lock under which entries get and lose their names; never held for long."""
        with exclusive(self.directory / "lock"):
            yield

    @contextmanager
    def _turn(self, key: str, say: Say) -> Generator[None]:
        """One process at a time builds the entry of a key."""
        path = self._folder("locks") / key[:2]
        with exclusive(path, lambda: say("waiting for another process that builds")):
            yield


def _last_use(entry: Path) -> float:
    try:
        return (entry / SEALED).stat().st_mtime
    except OSError:
        return 0.0
