"""Requests that a cache has answered, with the key of the entry that was the answer.

A key is a digest of all that a package depends on, for which the model has to be read and its
machine described: a second of imports. A request is a digest of what was asked for, as it was
asked: bytes of files, options, the processor and the compilers. What a request does not tell, such
as the files of weights that a model names, is in the answer, with digests that are compared.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

from msgspec import Struct, field

from tilewright.runtime.manifest import FileEntry, digest_of_file
from tilewright.system.typed_json import JsonError, from_json, to_json

MOST_ANSWERS = 1024
"""Answers that are kept, the newest: one entry may answer several requests."""

_MOST_BYTES = 1 << 20


class Answer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The entry that a request was answered with, and what that rests on."""

    key: str
    files: dict[str, FileEntry] = field(default_factory=dict[str, FileEntry])
    """Files that the request does not tell of, by their names relative to the model's folder."""
    notes: tuple[str, ...] = ()
    """The notes that were shown when the model was read."""

    @staticmethod
    def of(key: str, files: Mapping[str, Path], notes: Sequence[str]) -> Answer:
        """An answer for now; raises OSError."""
        digests = {name: digest_of_file(path) for name, path in files.items()}
        return Answer(key=key, files=digests, notes=tuple(notes))

    def holds(self, folder: Path) -> bool:
        """Return True if the files hold what they held."""
        try:
            return all(
                (path := folder / name).stat().st_size == entry.bytes
                and digest_of_file(path) == entry
                for name, entry in self.files.items()
            )
        except OSError:
            return False


def read_answer(path: Path) -> Answer | None:
    """The answer in a file; None if the file is missing or invalid."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            return None
        answer = from_json(Answer, path.read_bytes())
    except (OSError, JsonError):
        return None
    inside = all(
        name and not (parts := PurePosixPath(name)).is_absolute() and ".." not in parts.parts
        for name in answer.files
    )
    return answer if inside and re.fullmatch(r"[0-9a-f]{64}", answer.key) else None


def write_answer(folder: Path, request: str, answer: Answer) -> None:
    """Keep an answer, whole or not at all; raises OSError."""
    handle, name = tempfile.mkstemp(dir=folder, prefix=".")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(to_json(answer))
        Path(name).replace(folder / request)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    files = sorted(folder.iterdir(), key=_age)
    for path in files[:-MOST_ANSWERS]:
        path.unlink(missing_ok=True)


def drop_dangling(folder: Path, entries: Path) -> None:
    """Remove the answers whose entries are gone, and what was left half-written."""
    for path in folder.iterdir():
        answer = read_answer(path)
        if path.name.startswith(".") or answer is None or not (entries / answer.key).is_dir():
            with suppress(OSError):
                path.unlink(missing_ok=True)


def _age(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
