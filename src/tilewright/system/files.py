"""Files that are written whole or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tilewright.errors import Problem, TilewrightError

HELP: Mapping[int, str] = {
    errno.ENOSPC: "free some space, or name another place (TMPDIR for temporary files)",
    errno.EDQUOT: "free some of your quota, or name another place (TMPDIR for temporary files)",
    errno.EFBIG: "raise the limit of a file's size (ulimit -f)",
    errno.ENOENT: "make the folder first",
    errno.EACCES: "name a place that you may write to",
    errno.EROFS: "name a place that you may write to",
}
"""Advice for the user, by the system's number of an error."""


def problem_of(error: OSError, code: str, where: str = "") -> Problem:
    """Turn the system's error into a refusal: its words, the file, and what would help."""
    place = where or (str(error.filename) if error.filename is not None else "")
    help = HELP.get(error.errno or 0, "")
    return Problem(code, error.strerror or str(error) or type(error).__name__, place, help)


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
