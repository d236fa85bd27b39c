"""A package of a language model in this process: its library, its memory, and what it says."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tilewright.codegen.c.compiler import FLAGS
from tilewright.codegen.host.library import arena, load_library, opened, read_weights
from tilewright.codegen.program.interface import ALIGNMENT, WEIGHTS_FILE
from tilewright.errors import refuse
from tilewright.llm.manifest import Manifest
from tilewright.memory.alignment import align_up
from tilewright.runtime.manifest import PROGRAM
from tilewright.targets.cpu.builds import build_of, refuse_foreign

if TYPE_CHECKING:
    from tilewright.llm.tokenizer import Tokenizer

_PROBLEMS = {
    1: ("llm-full", "the cache has no room for further tokens"),
    2: ("llm-token", "a token is not of the vocabulary"),
    3: ("llm-empty", "there are no tokens"),
}
"""Codes and reasons of refusals, by the numbers that the C gives."""


class Piece(NamedTuple):
    """A generated token, and the text that it completes ("" without a tokenizer)."""

    token: int
    text: str


class _Model(ctypes.Structure):
    """The C's record of a model."""

    _fields_ = (
        ("weights", ctypes.c_void_p),
        ("memory", ctypes.c_void_p),
        ("team", ctypes.c_void_p),
        ("length", ctypes.c_int64),
    )


class LanguageModel:
    """A model with the tokens that it has read. One thread at a time may use it."""

    def __init__(self, directory: str | Path, *, threads: int = 1) -> None:
        """Open a package of ``tilewright llm``; builds its C where that has not been done.

        Raises TilewrightError.
        """
        self.directory = directory = Path(directory)
        self.manifest = manifest = Manifest.read(directory)
        name, program = manifest.name, directory / PROGRAM
        made_for = build_of(manifest.processor)
        refuse_foreign(made_for, tiles=False)
        self.library = opened(
            load_library(program, name, (*FLAGS, *made_for.flags)), f"{name}_prefill"
        )
        self.weights = read_weights(program / WEIGHTS_FILE, manifest.weight_bytes)
        if getattr(self.library, f"{name}_check_weights")(_pointer(self.weights)):
            raise refuse("package-invalid", "weights.bin has changed", str(directory))
        size = align_up(manifest.memory_bytes, ALIGNMENT)
        self.memory = arena(size + manifest.scratch_bytes * (threads - 1))
        self._model = _Model(_pointer(self.weights), _pointer(self.memory), None, 0)
        if threads > 1:
            start = getattr(self.library, f"{name}_step_team_start")
            start.restype = ctypes.c_void_p
            team = start(ctypes.c_int(threads))
            if not team:
                raise refuse("cpu-threads", f"the system does not start {threads} threads")
            self._model.team = team
            stop = getattr(self.library, f"{name}_step_team_stop")
            weakref.finalize(self, stop, ctypes.c_void_p(team))
        self.logits: NDArray[np.float32] = np.zeros(manifest.vocabulary, np.float32)
        """Logits of the token after the last that was read."""
        self.tokens: list[int] = []
        """The tokens that were read, whose keys and values are in the cache."""
        self._tokenizer: Tokenizer | None = None

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the model's vocabulary; refuses (``llm-tokenizer``) where there is
        none."""
        if self._tokenizer is None:
            from tilewright.llm.tokenizer import Tokenizer

            self._tokenizer = Tokenizer(self.manifest.tokenizer, self.directory)
        return self._tokenizer

    def read(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Read further tokens; the logits of the next one, in an array that the next call reuses.

        Refuses (``llm-full``) more than the cache has room for, which changes nothing.
        """
        given = np.asarray(tokens, np.int64)
        if given.size and not 0 <= given.min() <= given.max() < self.manifest.vocabulary:
            raise refuse(*_PROBLEMS[2])
        given = given.astype(np.int32)
        problem = getattr(self.library, f"{self.manifest.name}_prefill")(
            ctypes.byref(self._model), _pointer(given), ctypes.c_int64(given.size),
            _pointer(self.logits),
        )  # fmt: skip
        if problem:
            raise refuse(*_PROBLEMS[problem])
        self.tokens += given.tolist()
        return self.logits

    def forget(self, length: int = 0) -> None:
        """Keep the first tokens alone."""
        self._model.length = min(length, len(self.tokens))
        del self.tokens[length:]

    def generate(
        self,
        prompt: str | Sequence[int],
        max_tokens: int = 64,
        *,
        temperature: float = 0.0,
        seed: int = 0,
    ) -> Iterator[Piece]:
        """Generate tokens after a prompt, each as soon as it is known.

        The likeliest token is taken, or, with a ``temperature``, one at random, the same ones for
        the same ``seed``. What the cache has of the prompt's beginning is not read again. Ends
        after ``max_tokens``, at the model's last token, or where the cache is full.
        """
        ids = self.tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)
        known = 0
        while known < min(len(self.tokens), len(ids) - 1) and self.tokens[known] == ids[known]:
            known += 1
        self.forget(known)
        self.read(ids[known:])
        data = self.manifest.tokenizer
        ends = data.end if data else []
        decoder = self.tokenizer.decoder(ids) if isinstance(prompt, str) else None
        random = np.random.default_rng(seed)
        for number in range(max_tokens):
            token = _chosen(self.logits, temperature, random)
            if token in ends:
                return
            yield Piece(token, decoder(token) if decoder else "")
            if number + 1 == max_tokens or len(self.tokens) == self.manifest.context:
                return
            self.read([token])


def _chosen(logits: NDArray[np.float32], temperature: float, random: np.random.Generator) -> int:
    """The likeliest token, or one at random by the probabilities at a temperature."""
    if temperature <= 0:
        return int(logits.argmax())
    weights = np.exp((logits.astype(np.float64) - logits.max()) / temperature).cumsum()
    return int(np.searchsorted(weights, random.random() * weights[-1], side="right"))


def _pointer(array: NDArray[np.uint8] | NDArray[np.int32] | NDArray[np.float32]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
