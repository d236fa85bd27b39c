"""The user's own directory for what is built: where it is, and that it is the user's alone."""

from __future__ import annotations

import os
from pathlib import Path

from tilewright.errors import refuse


def default_directory() -> Path:
    """TILEWRIGHT_CACHE, else ``tilewright`` in the user's cache directory (XDG specification).

    Not in the package: that stays as it was made, may be read-only or shared, and one bound holds
    for all packages. The environment decides where bytes are kept, never what they are.
    """
    if asked := os.environ.get("TILEWRIGHT_CACHE"):
        return Path(asked)
    named = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(named) if Path(named).is_absolute() else Path.home() / ".cache") / "tilewright"


def make_own(directory: Path) -> None:
    """Make a directory; refuses (``cache-unsafe``) one that others may write to; raises OSError."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = directory.stat()
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise refuse(
            "cache-unsafe", "other users may write there, and its libraries are executed",
            str(directory), "name a directory of your own",
        )  # fmt: skip


def key_file() -> Path:
    """TILEWRIGHT_KEY, else ``tilewright/key`` in the user's configuration (XDG specification)."""
    if asked := os.environ.get("TILEWRIGHT_KEY"):
        return Path(asked)
    named = os.environ.get("XDG_CONFIG_HOME", "")
    base = Path(named) if Path(named).is_absolute() else Path.home() / ".config"
    return base / "tilewright" / "key"
