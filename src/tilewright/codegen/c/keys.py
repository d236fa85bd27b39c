"""The user's own key: what a library was sealed with it is what one who has the key has built."""

from __future__ import annotations

import hmac
import os
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from tilewright.system.places import key_file

_FEWEST_BYTES, _MOST_BYTES = 32, 4096


def sealed(text: str) -> str:
    """The seal of a text under the user's key, which the first seal makes; "" without a key."""
    path = key_file()
    with suppress(OSError):
        if not path.exists():
            _make(path)
    key = _key(path)
    return hmac.new(key, text.encode(), sha256).hexdigest() if key else ""


def is_sealed(text: str, seal: str) -> bool:
    """Return True if a text's seal was computed with the user's key."""
    key = _key(key_file())
    if not key or not seal.isascii():
        return False
    return hmac.compare_digest(hmac.new(key, text.encode(), sha256).hexdigest(), seal)


def _key(path: Path) -> bytes:
    """The key in a file that nobody else can read or write; b"" without one."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_uid not in (0, os.getuid()) or status.st_mode & 0o077:
                return b""
            key = file.read(_MOST_BYTES + 1)
    except OSError:
        return b""
    return key if _FEWEST_BYTES <= len(key) <= _MOST_BYTES else b""


def _make(path: Path) -> None:
    """Write a new key, whole or not at all; of several processes the first one's stays."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}-{os.urandom(8).hex()}")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(os.urandom(32).hex() + "\n")
        with suppress(FileExistsError):
            os.link(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)
