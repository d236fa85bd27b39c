"""The one place where torch is imported: an extra, so its absence is a message.

It is handed on untyped, so that types are checked alike with torch and without it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tilewright.errors import TilewrightError, refuse


def torch_library() -> Any:
    """The module ``torch``; raises TilewrightError (``torch-missing``)."""
    return _extra("torch")


def check_exporter() -> None:
    """See that torch can write ONNX; raises TilewrightError (``torch-missing``)."""
    _extra("onnxscript")


def missing(name: str, reason: str) -> TilewrightError:
    """The refusal of one who needs an extra's package and has none."""
    return refuse(
        "torch-missing",
        f"PyTorch modules need the package {name}, which cannot be imported: {reason}",
        help="install the extra: pip install 'tilewright[torch]'",
    )


def _extra(name: str) -> Any:
    try:
        return import_module(name)
    except (ImportError, OSError) as error:  # OSError: a build for another machine.
        raise missing(name, " ".join(str(error).split())[:200]) from error
