"""The architecture of Llama as a network that reads a chunk of tokens after those of a cache.

Touvron et al., "LLaMA: open and efficient foundation language models", 2023: layers of root mean
square normalisation, attention with rotated queries and keys, and a product of two products
(Shazeer, "GLU variants improve transformer", 2020). Tensors and metadata have GGUF's names.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from tilewright.frontends.emitter import Emitter, NewNetwork
from tilewright.frontends.gguf.reader import GgufFile
from tilewright.frontends.imported import Imported
from tilewright.frontends.moves import block_product, named_parts
from tilewright.graph.dialect import ScratchOp
from tilewright.graph.operations.decoding import KEYS
from tilewright.ir import SSAValue, i32
from tilewright.ir.types import Array, tensor
from tilewright.numerics.blocks import Blocks

ARCHITECTURE = "llama"

TOKENS, POSITION, LAST, LOGITS = "tokens", "position", "last", "logits"
"""Names of the inputs and the output."""


@dataclass(frozen=True)
class Llama:
    """The sizes of a model."""

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
    base: float
    """Base of the frequencies of rotations."""

    @classmethod
    def of(cls, file: GgufFile) -> Llama:
        """The sizes that a file states; refuses (``gguf-architecture``) other models."""
        name = file.field("general.architecture", str)
        if name != ARCHITECTURE:
            raise file.refuse(
                f"its architecture is {name[:80]!r}", code="gguf-architecture",
                help=f"{ARCHITECTURE} alone is compiled",
            )  # fmt: skip

        def count(key: str, default: int | None = None) -> int:
            value = file.field(f"{name}.{key}", int, default)
            if not 0 < value <= 1 << 24:
                raise file.refuse(f"{name}.{key} is {value}")
            return value

        heads, width = count("attention.head_count"), count("embedding_length")
        size = count("attention.key_length", max(width // heads, 1))
        vocabulary = file.shape("token_embd.weight")[0]
        model = cls(
            count("block_count"), width, count("feed_forward_length"),
            heads, count("attention.head_count_kv", heads), size,
            vocabulary, count("context_length"),
            float(file.field(f"{name}.attention.layer_norm_rms_epsilon", float)),
            float(file.field(f"{name}.rope.freq_base", float, 10000.0)),
        )  # fmt: skip
        kind = file.field(f"{name}.rope.scaling.type", str, "none")
        if kind != "none" or file.fields.get(f"{name}.expert_count"):
            raise file.refuse("scaled rotations and experts are not compiled")
        turned = count("rope.dimension_count", size)
        fits = heads % model.groups == 0 and turned == size and size % 2 == 0
        if not fits or count("attention.value_length", size) != size:
            raise file.refuse(f"{heads} heads of {size}, {model.groups} of keys, {turned} turned")
        return model


class _Emitter(Emitter):
    FAMILY: ClassVar[str] = "gguf"
    SETTING: ClassVar[str] = "model"
    TYPED: ClassVar[bool] = False


def chunk_network(file: GgufFile, model: Llama, *, rows: int, context: int, name: str) -> Imported:
    """The network of a chunk of ``rows`` tokens, with a cache of ``context`` in lasting memory.

    Inputs are tokens [rows], the number of tokens that the cache has (position [1]), and the row of
    which logits are wanted (last [1]), all int32; the output is logits [1, vocabulary].
    """
    inputs = {TOKENS: rows, POSITION: 1, LAST: 1}
    network = NewNetwork(name, [(n, tensor((e,), i32)) for n, e in inputs.items()], [LOGITS])
    logits = _Writer(file, model, network, rows, context).logits()
    return Imported(network.finish([logits]), network.weights, name, 0, "")


class _Writer:
    def __init__(
        self, file: GgufFile, model: Llama, network: NewNetwork, rows: int, context: int
    ) -> None:
        self.file, self.model, self.network = file, model, network
        self.rows, self.context = rows, context
        self.tokens, self.position, self.last = network.operator.block.args
        self.rounded: dict[tuple[SSAValue, int], SSAValue] = {}
        self.at = self.node("tables")
        self.table = self.at.weight(self.rotations(), "rotations")
        self.read: set[str] = {"rope_freqs.weight"}

    def node(self, name: str) -> _Emitter:
        return _Emitter(self.network, name, name, f"{str(self.file.path)!r}: {name}")

    def logits(self) -> SSAValue:
        model = self.model
        shape = model.vocabulary, model.width
        table = self.matrix("token_embd.weight", shape)
        self.at = self.node("token_embd")
        x = self.looked_up(table)
        for layer in range(model.layers):
            x = self.layer(x, f"blk.{layer}")
        self.at = self.node("output")
        x = self.normed(self.at.emit("gather", x, self.last, axis=0), "output_norm")
        if "output.weight" in self.file.tensors:
            table = self.matrix("output.weight", shape)
        logits = self.product(x, table)
        if more := sorted(set(self.file.tensors) - self.read):
            raise self.file.refuse(f"it has tensors that {ARCHITECTURE} has not: {more[0][:80]}")
        return logits

    def layer(self, x: SSAValue, name: str) -> SSAValue:
        model, rows = self.model, self.rows
        wide, narrow = model.heads * model.size, model.groups * model.size
        self.at = self.node(f"{name}.attention")
        y = self.normed(x, f"{name}.attn_norm")
        wanted = [
            self.turned(self.matrix(f"{name}.attn_q.weight", (wide, model.width))),
            self.turned(self.matrix(f"{name}.attn_k.weight", (narrow, model.width))),
            self.matrix(f"{name}.attn_v.weight", (narrow, model.width)),
        ]
        counts = model.heads, model.groups, model.groups
        q, k, v = (
            self.at.reshape(self.product(y, weight), (rows, count, model.size))
            for weight, count in zip(wanted, counts, strict=True)
        )
        q, k = (self.at.emit("rotate", each, self.table, self.position) for each in (q, k))
        keys = self.kept((model.groups, self.context // KEYS, model.size, KEYS))
        values = self.kept((model.groups, self.context, model.size))
        scale = 1 / math.sqrt(model.size)
        y = self.at.emit("cached_attention", q, k, v, self.position, keys, values, scale=scale)
        y = self.at.reshape(y, (rows, wide))
        y = self.product(y, self.matrix(f"{name}.attn_output.weight", (model.width, wide)))
        x = self.at.emit("add", y, x)
        self.at = self.node(f"{name}.feed_forward")
        y = self.normed(x, f"{name}.ffn_norm")
        gate, up = (
            self.product(y, self.matrix(f"{name}.ffn_{part}.weight", (model.inner, model.width)))
            for part in ("gate", "up")
        )
        y = self.at.emit("mul", up, self.at.emit("silu", gate))
        y = self.product(y, self.matrix(f"{name}.ffn_down.weight", (model.width, model.inner)))
        return self.at.emit("add", y, x)

    def kept(self, shape: Sequence[int]) -> SSAValue:
        """Lasting memory."""
        op = ScratchOp.kept(shape)
        self.network.block.add_op(op)
        return op.result

    def rotations(self) -> Array:
        """Cosines and sines of each position [context, size]."""
        half = self.model.size // 2
        frequency = self.model.base ** (-np.arange(half) / half)
        if "rope_freqs.weight" in self.file.tensors:
            frequency = frequency / self.file.floats("rope_freqs.weight", (half,))
        angles = np.arange(self.context)[:, None] * frequency
        return np.concatenate([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)

    def turned(self, weight: Blocks | Array) -> Blocks | Array:
        """A matrix of queries or keys whose heads have the pairs (2i, 2i + 1) that are turned
        together as the rows i and i + size / 2."""
        size = self.model.size
        order = np.arange(len(weight.codes if isinstance(weight, Blocks) else weight))
        order = order.reshape(-1, size // 2, 2).swapaxes(1, 2).reshape(-1)
        if not isinstance(weight, Blocks):
            return weight[order]
        minima = None if weight.minima is None else weight.minima[order]
        return replace(
            weight, codes=weight.codes[order], scales=weight.scales[order], minima=minima
        )

    def matrix(self, name: str, shape: tuple[int, int]) -> Blocks | Array:
        self.read.add(name)
        return self.file.matrix(name, shape)

    def normed(self, x: SSAValue, name: str) -> SSAValue:
        self.read.add(f"{name}.weight")
        scale = self.file.floats(f"{name}.weight", (self.model.width,))
        scale_value = self.at.weight(scale, name)
        return self.at.emit("layer_norm", x, scale_value, epsilon=self.model.epsilon, centred=False)

    def looked_up(self, table: Blocks | Array) -> SSAValue:
        """The rows of a table that the tokens name."""
        if not isinstance(table, Blocks):
            value = self.at.weight(table, "table")
            return self.at.cast(self.at.emit("gather", value, self.tokens, axis=0), np.float32)
        parts = (self.at.weight(a, f"table.{name}") for a, name in named_parts(table))
        return self.at.emit("block_gather", *parts, self.tokens, **table.form)

    def product(self, x: SSAValue, weight: Blocks | Array) -> SSAValue:
        """x @ weight.T, for a matrix in blocks with x rounded in such blocks, once."""
        if not isinstance(weight, Blocks):
            columns = self.at.weight(np.ascontiguousarray(weight.T), f"{self.at.title}.weight")
            return self.at.emit("matmul", x, columns)
        key = x, weight.block
        if key not in self.rounded:
            self.rounded[key] = self.at.emit("block_round", x, block=weight.block)
        return block_product(self.at, self.rounded[key], weight)
