"""Packages that come with an extra: imported late, with one refusal where they are missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tilewright.errors import refuse


def library(name: str, extra: str, code: str, use: str) -> Any:
    """Return the module ``name``; refuses (``code``) where it cannot be imported, for a ``use``.

    It is handed on untyped, so that types are checked alike with the package and without it.
    """
    try:
        return import_module(name)
    except (ImportError, OSError) as error:  # OSError: a build for another machine.
        reason = " ".join(str(error).split())[:200]
        raise refuse(
            code,
            f"{use} need the package {name.partition('.')[0]}, which cannot be imported: {reason}",
            help=f"install the extra: pip install 'tilewright[{extra}]'",
        ) from error
