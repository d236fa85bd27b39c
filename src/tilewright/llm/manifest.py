"""The manifest of a package of a language model (``manifest.json``)."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tilewright.errors import refuse
from tilewright.frontends.language.decoder import TokenizerData
from tilewright.runtime.manifest import MANIFEST

KIND = "language model"


class Manifest(msgspec.Struct, forbid_unknown_fields=True):
    """A package: its C's name, its sizes, and the memory that it takes."""

    name: str
    context: int
    chunk: int
    vocabulary: int
    processor: str = ""
    weight_bytes: int = 0
    cache_bytes: int = 0
    memory_bytes: int = 0
    scratch_bytes: int = 0
    """Bytes of memory that each thread but the first takes beside."""
    tokenizer: TokenizerData | None = None
    kind: str = KIND
    format: int = 1

    @classmethod
    def read(cls, directory: Path) -> Manifest:
        """The manifest of a package; refuses (``package-invalid``) another directory."""
        try:
            manifest = msgspec.json.decode((directory / MANIFEST).read_bytes(), type=cls)
        except (OSError, msgspec.DecodeError) as error:
            reason = f"is no package of a language model: {error}"
            raise refuse("package-invalid", reason, str(directory)) from error
        if manifest.kind != KIND or manifest.format != 1 or not manifest.name.isidentifier():
            raise refuse("package-invalid", "is no package of a language model", str(directory))
        return manifest
