"""Read a model's file, of bounded size, or say why not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tilewright.errors import refuse
from tilewright.frontends.limits import shown
from tilewright.system.files import need_file

T = TypeVar("T")


def read_file(path: Path, family: str, most: int, read: Callable[[Path], T], help: str = "") -> T:
    """Read a file of at most ``most`` bytes with ``read``; raises TilewrightError.

    Codes begin with ``family``; ``help`` is for files that are too large.
    """
    title = shown(str(path))
    try:
        need_file(path, f"{family}-missing-file", where=title)
        if not path.is_file():
            raise refuse(f"{family}-missing-file", "it is not a file", title)
        if path.stat().st_size > most:
            raise refuse(f"{family}-too-large", f"the file has more than {most} bytes", title, help)
        return read(path)
    except (OSError, ValueError) as error:
        raise refuse(f"{family}-missing-file", f"it cannot be read: {error}", title) from error
