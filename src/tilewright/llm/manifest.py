"""The manifest of a package of a language model (``manifest.json``)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from tilewright.errors import refuse
from tilewright.runtime.manifest import MANIFEST

KIND = "language model"


class TokenizerData(msgspec.Struct, forbid_unknown_fields=True):
    """A vocabulary as GGUF files have it (``tokenizer.ggml``)."""

    model: str
    split: str
    """Name of the way to cut text into words (``pre``)."""
    tokens: list[str]
    merges: list[str]
    special: list[int]
    """Tokens that stand for no text of their own."""
    start: int | None
    """The token before all text; None where the model takes none."""
    end: list[int]
    """Tokens after which nothing is generated."""

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> TokenizerData | None:
        """The vocabulary of a file's metadata; None where it has none."""

        def get(key: str, default: Any = None) -> Any:
            return fields.get(f"tokenizer.ggml.{key}", default)

        tokens, kinds = get("tokens"), get("token_type", [])
        if not isinstance(tokens, list):
            return None
        ends = (get(f"{name}_token_id") for name in ("eos", "eot"))
        data = cls(
            str(get("model", "")), str(get("pre", "default")),
            tokens, get("merges", []),
            [number for number, kind in enumerate(kinds) if kind in (3, 4)],
            get("bos_token_id") if get("add_bos_token", False) else None,
            [end for end in ends if isinstance(end, int)],
        )  # fmt: skip
        try:
            return msgspec.convert(msgspec.to_builtins(data), cls)
        except (msgspec.ValidationError, TypeError) as error:
            raise refuse("gguf-model", f"its vocabulary is none: {error}") from error


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
