"""Text to tokens and back, by the library ``tokenizers``, from a vocabulary of GGUF or a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tilewright.errors import refuse
from tilewright.frontends.language.decoder import FILE, TokenizerData

_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Expression of the words into which Llama 3 cuts text."""

SPLITS = ("default", "gpt-2", "smollm", "llama-bpe")
"""The ways to cut text into words that are known, by GGUF's names."""


KEPT = 4
"""Tokens before those that are waiting, which say whether a space comes first."""


class Tokenizer:
    """The text of tokens: as a package's ``tokenizer.json`` describes it, or by byte pair encoding
    (Sennrich et al., "Neural machine translation of rare words with subword units", 2016) of bytes,
    as GPT-2 has it."""

    def __init__(self, data: TokenizerData | None, directory: Path) -> None:
        """Refuses (``llm-tokenizer``) a vocabulary that is not known, or a missing library."""
        kind = data.model if data is not None else ""
        if (
            data is None
            or kind not in ("gpt2", FILE)
            or (kind != FILE and data.split not in SPLITS)
        ):
            named = (
                "no vocabulary"
                if data is None or not kind
                else f"a vocabulary {kind}, {data.split}"
            )
            raise refuse("llm-tokenizer", f"the model has {named[:120]}", help="give token numbers")
        try:
            import tokenizers as library
        except ImportError:
            raise refuse(
                "llm-tokenizer", "the package tokenizers is not installed",
                help="pip install 'tilewright[llm]', or give token numbers",
            ) from None  # fmt: skip
        self._start, self._whole = data.start, kind == FILE
        self._library = _of_file(library, directory / FILE) if self._whole else _made(library, data)

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, after the one that begins all texts, where there is one."""
        first = [] if self._start is None else [self._start]
        return first + self._library.encode(text, add_special_tokens=self._whole).ids

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens."""
        return self._library.decode(list(tokens), skip_special_tokens=False)

    def decoder(self, before: Sequence[int] = ()) -> Callable[[int], str]:
        """A function that takes tokens one by one, and gives the text that each completes after
        those ``before``: bytes of a character wait for the last of them."""
        known, waiting = list(before)[-KEPT:], list[int]()

        def take(token: int) -> str:
            waiting.append(token)
            head, text = self.decode(known), self.decode(known + waiting)
            if text.endswith("\ufffd") and len(waiting) < 8:
                return ""
            known[:] = waiting[-KEPT:]
            waiting.clear()
            return text[len(head) :]

        return take


def _of_file(library: Any, path: Path) -> Any:
    """The tokenizer that a file describes."""
    try:
        return library.Tokenizer.from_file(str(path))
    except Exception as error:  # The library raises no other class.
        reason = f"its {FILE} is not read: {' '.join(str(error).split())[:200]}"
        raise refuse("llm-tokenizer", reason, str(path), "give token numbers") from error


def _made(library: Any, data: TokenizerData) -> Any:
    """The tokenizer of a vocabulary of byte pairs."""
    pairs = [tuple(merge.split(" ", 1)) for merge in data.merges]
    numbers = {token: number for number, token in enumerate(data.tokens)}
    cut = library.pre_tokenizers
    plain = data.split != "llama-bpe"
    steps: list[Any] = []
    if data.split == "smollm":
        steps.append(cut.Digits(individual_digits=True))
    if not plain:
        steps.append(cut.Split(library.Regex(_WORDS), "isolated"))
    steps.append(cut.ByteLevel(add_prefix_space=False, use_regex=plain))
    made = library.Tokenizer(library.models.BPE(numbers, pairs))
    made.pre_tokenizer = cut.Sequence(steps)
    made.decoder = library.decoders.ByteLevel()
    special = [library.AddedToken(data.tokens[n], special=True) for n in data.special]
    made.add_special_tokens(special)
    return made
