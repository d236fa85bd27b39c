"""Decoders of Llama's kind, from whatever file or module: sizes, and weights by GGUF's names.

Every front-end of language models gives this record; networks, packages and texts are made of it
alone. Rows of queries and keys lie so that those of i and i + size / 2 are turned together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import NamedTuple

import msgspec
import numpy as np

from tilewright.errors import TilewrightError, refuse
from tilewright.ir.types import Array
from tilewright.numerics.blocks import Blocks, quantised

KINDS = ("none", "q8_0", "q4_0")
"""Names of what floats may become at import."""

TABLES = ("token_embd.weight", "output.weight")
"""The matrices of tokens, which keep 8 bits where others have 4."""

LARGEST = 1 << 24
"""Any size of a model at most."""

LAYERS = 1 << 12
"""Layers of a model at most."""


class TokenizerData(msgspec.Struct, forbid_unknown_fields=True):
    """A vocabulary: as GGUF files have it (``tokenizer.ggml``), or a ``tokenizer.json``."""

    model: str
    """GGUF's name of its kind, or ``FILE``, where only ``start`` and ``end`` mean anything."""
    split: str = ""
    """Name of the way to cut text into words (``pre``)."""
    tokens: list[str] = []
    merges: list[str] = []
    special: list[int] = []
    """Tokens that stand for no text of their own."""
    start: int | None = None
    """The token before all text; None where the model takes none."""
    end: list[int] = []
    """Tokens after which nothing is generated."""


FILE = "tokenizer.json"
"""Name of a vocabulary's file, in a model's folder and in a package."""


class Tensor(NamedTuple):
    """A tensor of a model, which is read when it is needed."""

    shape: tuple[int, ...]
    read: Callable[[], Blocks | Array]
    name: str = ""
    """Name in messages, where it is not GGUF's."""

    @classmethod
    def of(cls, weight: Blocks | Array) -> Tensor:
        """A tensor that has been read."""
        return cls((weight.codes if isinstance(weight, Blocks) else weight).shape, lambda: weight)


@dataclass(frozen=True)
class Sizes:
    """The numbers that describe a model."""

    layers: int
    width: int
    inner: int
    """Width between the products of a layer's second half."""
    heads: int
    groups: int
    """Heads of keys and values."""
    size: int
    """Numbers of a head."""
    vocabulary: int
    context: int
    """Tokens that the model was trained for."""
    epsilon: float
    """Added to mean squares before their root is taken."""
    window: int | None = None
    """Tokens that attention sees at most; None where it sees all."""


@dataclass(frozen=True)
class Decoder:
    """A language model: its sizes, its weights and its vocabulary."""

    title: str
    """The model in messages."""
    sizes: Sizes
    frequencies: Array
    """Radians by which each token turns the pairs of a head [size / 2], in float64."""
    tensors: Mapping[str, Tensor]
    """Weights by GGUF's names; without ``output.weight`` the tokens' own are taken."""
    tokenizer: TokenizerData | None = None
    vocabulary_file: str = field(default="", repr=False)
    """Text of a ``tokenizer.json``; empty where there is none."""

    def refuse(self, reason: str, *, code: str = "llm-model", help: str = "") -> TilewrightError:
        """The refusal of the model; ``raise decoder.refuse(...)``."""
        return refuse(code, reason, self.title, help)

    def checked(self) -> Decoder:
        """The model itself; refuses (``llm-model``) sizes that do not fit each other."""
        s = self.sizes
        for name in ("layers", "width", "inner", "heads", "groups", "size", "vocabulary"):
            if not 0 < getattr(s, name) <= (LAYERS if name == "layers" else LARGEST):
                raise self.refuse(f"its {name} are {getattr(s, name)}")
        if s.heads % s.groups or s.size % 2 or s.heads * s.size > LARGEST:
            raise self.refuse(f"{s.heads} heads of {s.size}, {s.groups} of keys")
        if not 0 < s.epsilon < 1 or s.context < 1 or (s.window is not None and s.window < 1):
            raise self.refuse(f"epsilon {s.epsilon}, context {s.context}, window {s.window}")
        if self.frequencies.shape != (s.size // 2,) or not np.isfinite(self.frequencies).all():
            raise self.refuse(f"its frequencies of rotations are not {s.size // 2} numbers")
        return self

    def weight(self, name: str, shape: tuple[int, ...]) -> Blocks | Array:
        """A weight of a shape that it must have: a matrix in blocks or floats, other floats."""
        if name not in self.tensors:
            raise self.refuse(f"it has no tensor {name}")
        found = self.tensors[name]
        if found.shape != shape:
            name = found.name or name
            raise self.refuse(f"{name} has shape {list(found.shape)}, not {list(shape)}")
        array = found.read()
        if isinstance(array, np.ndarray) and (len(shape) == 1 or array.dtype != np.float16):
            array = array.astype(np.float32, copy=False)
        return array

    def quantised(self, kind: str) -> Decoder:
        """The model with matrices of floats in blocks: of 8 bits, or of 4 but for ``TABLES``.

        Refuses (``llm-quantise``) other kinds, and rows that are not in whole blocks of 32.
        """
        if kind not in KINDS:
            raise refuse("llm-quantise", f"{kind[:80]!r} is none of {', '.join(KINDS)}", "quantise")
        if kind == "none":
            return self

        def made(name: str, tensor: Tensor) -> Tensor:
            bits = 8 if kind == "q8_0" or name in TABLES else 4

            @cache
            def read() -> Blocks | Array:
                array = tensor.read()
                if isinstance(array, Blocks):
                    return array
                if tensor.shape[1] % 32:
                    reason = f"{name} has rows of {tensor.shape[1]}, not whole blocks of 32"
                    raise self.refuse(reason, code="llm-quantise", help="quantise none")
                return quantised(np.asarray(array, np.float32), bits)

            return tensor._replace(read=read)

        tensors = {n: made(n, t) if len(t.shape) == 2 else t for n, t in self.tensors.items()}
        return replace(self, tensors=tensors)


def frequencies(base: float, size: int) -> Array:
    """Radians of each pair of a head (Su et al., "RoFormer", 2021)."""
    half = max(size // 2, 1)
    if not (math.isfinite(base) and base > 0):
        return np.full(half, np.nan)
    return base ** (-np.arange(half) / half)


def in_halves(tensors: Mapping[str, Tensor], size: int) -> dict[str, Tensor]:
    """Weights of which queries and keys turn the pairs (2i, 2i + 1), with these as the rows i and
    i + size / 2 of each head."""

    def made(tensor: Tensor) -> Tensor:
        if tensor.shape[0] % size:
            return tensor
        order = np.arange(tensor.shape[0]).reshape(-1, size // 2, 2).swapaxes(1, 2).reshape(-1)
        return tensor._replace(read=lambda: rows_of(tensor.read(), order))

    turned = (".attn_q.", ".attn_k.")
    return {n: made(t) if any(part in n for part in turned) else t for n, t in tensors.items()}


def rows_of(weight: Blocks | Array, rows: Array | slice) -> Blocks | Array:
    """Some rows of a weight."""
    if not isinstance(weight, Blocks):
        return weight[rows]
    minima = None if weight.minima is None else weight.minima[rows]
    return replace(weight, codes=weight.codes[rows], scales=weight.scales[rows], minima=minima)
