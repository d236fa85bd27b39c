"""Text to tokens and back, by the library ``tokenizers``, from the vocabulary of a GGUF file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.errors import refuse
from tilewright.llm.manifest import TokenizerData

_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Expression of the words into which Llama 3 cuts text."""

SPLITS = ("default", "gpt-2", "smollm", "llama-bpe")
"""The ways to cut text into words that are known, by GGUF's names."""


class Tokenizer:
    """Byte pair encoding (Sennrich et al., "Neural machine translation of rare words with subword
    units", 2016) of bytes, as GPT-2 has it."""

    def __init__(self, data: TokenizerData | None) -> None:
        """Refuses (``llm-tokenizer``) a vocabulary that is not known, or a missing library."""
        if data is None or data.model != "gpt2" or data.split not in SPLITS:
            kind = "no vocabulary" if data is None else f"a vocabulary {data.model}, {data.split}"
            raise refuse("llm-tokenizer", f"the model has {kind[:120]}", help="give token numbers")
        try:
            import tokenizers as library
        except ImportError:
            raise refuse(
                "llm-tokenizer", "the package tokenizers is not installed",
                help="pip install 'tilewright[llm]', or give token numbers",
            ) from None  # fmt: skip
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
        self._library = made = library.Tokenizer(library.models.BPE(numbers, pairs))
        made.pre_tokenizer = cut.Sequence(steps)
        made.decoder = library.decoders.ByteLevel()
        special = [library.AddedToken(data.tokens[n], special=True) for n in data.special]
        made.add_special_tokens(special)
        self._start = data.start

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, after the one that begins all texts, where there is one."""
        first = [] if self._start is None else [self._start]
        return first + self._library.encode(text, add_special_tokens=False).ids

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens."""
        return self._library.decode(list(tokens), skip_special_tokens=False)

    def decoder(self) -> Callable[[int], str]:
        """A function that takes tokens one by one, and gives the text that each completes: bytes of
        a character wait for the last of them."""
        waiting: list[int] = []

        def take(token: int) -> str:
            waiting.append(token)
            text = self.decode(waiting)
            if text.endswith("\ufffd") and len(waiting) < 8:
                return ""
            waiting.clear()
            return text

        return take
