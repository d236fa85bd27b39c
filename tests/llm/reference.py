"""Llama's architecture in NumPy, in float64."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Reference:
    """A model, with keys and values of the tokens that it was given."""

    def __init__(self, fields: Mapping[str, Any], weights: Mapping[str, Floats]) -> None:
        self.weights = weights
        self.fields = {name.removeprefix("llama."): value for name, value in fields.items()}
        self.past: list[list[Floats]] = []
        self.length = 0

    @classmethod
    def of_file(cls, path: Path) -> Reference:
        """The model of a file, which the package ``gguf`` reads and dequantises."""
        from gguf import GGUFReader
        from gguf.quants import dequantize

        reader = GGUFReader(path)
        weights = {
            tensor.name: dequantize(tensor.data, tensor.tensor_type).astype(np.float64)
            for tensor in reader.tensors
        }
        wanted = ("llama.", "general.")
        fields = {
            name: field.contents()
            for name, field in reader.fields.items()
            if name.startswith(wanted)
        }
        return cls(fields, weights)

    def forward(self, tokens: list[int]) -> Floats:
        """Logits [tokens, vocabulary] of further tokens."""
        fields, weights = self.fields, self.weights
        heads, groups = fields["attention.head_count"], fields["attention.head_count_kv"]
        x = weights["token_embd.weight"][tokens]
        size = x.shape[1] // heads
        positions = self.length + np.arange(len(tokens))
        angles = positions[:, None] * fields["rope.freq_base"] ** (-np.arange(0, size, 2) / size)
        turn = np.exp(1j * angles)[:, None]

        def normed(x: Floats, name: str) -> Floats:
            mean = (x * x).mean(-1, keepdims=True)
            scale = weights[f"{name}.weight"]
            return x / np.sqrt(mean + fields["attention.layer_norm_rms_epsilon"]) * scale

        def turned(x: Floats) -> Floats:
            pairs = (x[..., 0::2] + 1j * x[..., 1::2]) * turn
            return np.stack([pairs.real, pairs.imag], -1).reshape(x.shape)

        for layer in range(fields["block_count"]):
            name = f"blk.{layer}"
            y = normed(x, f"{name}.attn_norm")
            q, k, v = (
                (y @ weights[f"{name}.attn_{part}.weight"].T).reshape(len(tokens), -1, size)
                for part in "qkv"
            )
            q, k = turned(q), turned(k)
            if layer == len(self.past):
                self.past.append([k[:0], v[:0]])
            k, v = self.past[layer] = [
                np.concatenate([old, new])
                for old, new in zip(self.past[layer], (k, v), strict=True)
            ]
            k, v = (np.repeat(each, heads // groups, axis=1) for each in (k, v))
            scores = np.einsum("mhd,thd->hmt", q, k) / np.sqrt(size)
            scores += np.where(np.arange(len(k)) > positions[:, None], -np.inf, 0.0)
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            scores /= scores.sum(-1, keepdims=True)
            y = np.einsum("hmt,thd->mhd", scores, v).reshape(len(tokens), -1)
            x = x + y @ weights[f"{name}.attn_output.weight"].T
            y = normed(x, f"{name}.ffn_norm")
            gate = y @ weights[f"{name}.ffn_gate.weight"].T
            y = gate / (1 + np.exp(-gate)) * (y @ weights[f"{name}.ffn_up.weight"].T)
            x = x + y @ weights[f"{name}.ffn_down.weight"].T
        self.length += len(tokens)
        output = weights.get("output.weight", weights["token_embd.weight"])
        return normed(x, "output_norm") @ output.T
