"""Files that are there to be read, and files that are written whole or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tilewright.errors import Problem, TilewrightError, nearest, refuse

HELP: Mapping[int, str] = {
    errno.ENOSPC: "free some space, or name another place (TMPDIR for temporary files)",
    errno.EDQUOT: "free some of your quota, or name another place (TMPDIR for temporary files)",
    errno.EFBIG: "raise the limit of a file's size (ulimit -f)",
    errno.ENOENT: "make the folder first",
    errno.EACCES: "name a place that you may write to",
    errno.EROFS: "name a place that you may write to",
    errno.EEXIST: "name another place",
    errno.ENOTDIR: "name a place in a folder",
    errno.EISDIR: "name a file",
}
"""Advice for the user, by the system's number of an error."""


def problem_of(error: OSError, code: str, where: str = "") -> Problem:
    """Turn the system's error into a refusal: its words, the file, and what would help."""
    place = where or (str(error.filename) if error.filename is not None else "")
    help = HELP.get(error.errno or 0, "")
    return Problem(code, error.strerror or str(error) or type(error).__name__, place, help)


def need_file(path: Path, code: str, help: str = "", where: str = "") -> None:
    """Refuse a path to read where nothing is, with the names that are near, or where a folder is.

    ``help`` is told where no name is near.
    """
    place = where or str(path)
    try:
        if path.is_dir():
            raise refuse(code, "is a folder, not a file", place, help)
        if path.exists():
            return
    except (OSError, ValueError) as error:  # Too long a name, or a folder that nobody may enter.
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise refuse(code, reason or "cannot be looked at", place, help) from None
    near = nearest(path.name, names_beside(path), 1)
    raise refuse(code, "there is no such file", place, near or help)


def reason_of(error: Exception) -> str:
    """Why a file cannot be read as text, in a few words."""
    if isinstance(error, UnicodeDecodeError):
        return f"is no text: byte {error.start} is none of UTF-8"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def names_beside(path: Path) -> list[str]:
    """The names in a path's folder; none where the folder cannot be read."""
    try:
        return [other.name for other in path.parent.iterdir() if other.name != path.name]
    except (OSError, ValueError):
        return []


@contextmanager
def written(path: Path) -> Generator[Path]:
    """Write a file beside its place, which it takes when it is whole.

    ``with written(path) as fresh:`` yields the file to write. An older file at ``path`` stays as it
    was if anything fails; what is no regular file, such as /dev/stdout, is written at once. Raises
    TilewrightError (``output-failed``) for what the system refuses.
    """
    place = Path(os.path.realpath(path))
    try:
        if place.exists() and not place.is_file():
            yield place
            return
        fresh = place.with_name(f".{place.name[:100]}.{os.getpid()}.part")
        try:
            yield fresh
            fresh.replace(place)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise TilewrightError(problem_of(error, "output-failed", str(path))) from error
