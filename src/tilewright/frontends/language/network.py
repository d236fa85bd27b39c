"""A decoder of Llama's kind as a network that reads a chunk of tokens after those of a cache.

Touvron et al., "LLaMA: open and efficient foundation language models", 2023: layers of root mean
square normalisation, attention with rotated queries and keys, and a product of two products
(Shazeer, "GLU variants improve transformer", 2020). Projections may add biases, and heads of
queries and keys may be normalised before they are rotated, as Qwen's are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from tilewright.frontends.emitter import Emitter, NewNetwork
from tilewright.frontends.imported import Imported
from tilewright.frontends.language.decoder import Decoder
from tilewright.frontends.moves import block_product, named_parts
from tilewright.graph.dialect import ScratchOp
from tilewright.graph.operations.decoding import KEYS
from tilewright.ir import SSAValue, i32
from tilewright.ir.types import Array, shape_of, tensor
from tilewright.numerics.blocks import Blocks

TOKENS, POSITION, LAST, LOGITS = "tokens", "position", "last", "logits"
"""Names of the inputs and the output."""


class _Emitter(Emitter):
    FAMILY: ClassVar[str] = "llm"
    SETTING: ClassVar[str] = "model"
    TYPED: ClassVar[bool] = False


def chunk_network(decoder: Decoder, *, rows: int, context: int, name: str) -> Imported:
    """The network of a chunk of ``rows`` tokens, with a cache of ``context`` in lasting memory.

    Inputs are tokens [rows], the number of tokens that the cache has (position [1]), and the row of
    which logits are wanted (last [1]), all int32; the output is logits [1, vocabulary].
    """
    inputs = {TOKENS: rows, POSITION: 1, LAST: 1}
    network = NewNetwork(name, [(n, tensor((e,), i32)) for n, e in inputs.items()], [LOGITS])
    logits = _Writer(decoder, network, rows, context).logits()
    return Imported(network.finish([logits]), network.weights, name, 0, "")


class _Writer:
    def __init__(self, decoder: Decoder, network: NewNetwork, rows: int, context: int) -> None:
        self.decoder, self.sizes, self.network = decoder, decoder.sizes, network
        self.rows, self.context = rows, context
        self.tokens, self.position, self.last = network.operator.block.args
        self.rounded: dict[tuple[SSAValue, int], SSAValue] = {}
        self.read: set[str] = set()
        self.at = self.node("tables")
        self.table = self.at.weight(self.rotations(), "rotations")

    def node(self, name: str) -> _Emitter:
        return _Emitter(self.network, name, name, f"{self.decoder.title}: {name}")

    def logits(self) -> SSAValue:
        shape = self.sizes.vocabulary, self.sizes.width
        table = self.weight("token_embd.weight", shape)
        self.at = self.node("token_embd")
        x = self.looked_up(table)
        for layer in range(self.sizes.layers):
            x = self.layer(x, f"blk.{layer}")
        self.at = self.node("output")
        x = self.normed(self.at.emit("gather", x, self.last, axis=0), "output_norm")
        if "output.weight" in self.decoder.tensors:
            table = self.weight("output.weight", shape)
        logits = self.product(x, table)
        if more := sorted(set(self.decoder.tensors) - self.read):
            raise self.decoder.refuse(f"it has tensors that are not Llama's: {more[0][:80]}")
        return logits

    def layer(self, x: SSAValue, name: str) -> SSAValue:
        sizes, rows = self.sizes, self.rows
        wide, narrow = sizes.heads * sizes.size, sizes.groups * sizes.size
        self.at = self.node(f"{name}.attention")
        y = self.normed(x, f"{name}.attn_norm")
        q, k, v = (
            self.at.reshape(
                self.projected(y, f"{name}.attn_{part}", (count, sizes.width)),
                (rows, count // sizes.size, sizes.size),
            )
            for part, count in (("q", wide), ("k", narrow), ("v", narrow))
        )
        if f"{name}.attn_q_norm.weight" in self.decoder.tensors:
            q, k = (self.normed(x, f"{name}.attn_{p}_norm") for x, p in ((q, "q"), (k, "k")))
        q, k = (self.at.emit("rotate", each, self.table, self.position) for each in (q, k))
        keys = self.kept((sizes.groups, self.context // KEYS, sizes.size, KEYS))
        values = self.kept((sizes.groups, self.context, sizes.size))
        scale = 1 / math.sqrt(sizes.size)
        y = self.at.emit("cached_attention", q, k, v, self.position, keys, values, scale=scale)
        y = self.at.reshape(y, (rows, wide))
        y = self.projected(y, f"{name}.attn_output", (sizes.width, wide))
        x = self.at.emit("add", y, x)
        self.at = self.node(f"{name}.feed_forward")
        y = self.normed(x, f"{name}.ffn_norm")
        gate, up = (
            self.projected(y, f"{name}.ffn_{part}", (sizes.inner, sizes.width))
            for part in ("gate", "up")
        )
        y = self.at.emit("mul", up, self.at.emit("silu", gate))
        y = self.projected(y, f"{name}.ffn_down", (sizes.width, sizes.inner))
        return self.at.emit("add", y, x)

    def kept(self, shape: Sequence[int]) -> SSAValue:
        """Lasting memory."""
        op = ScratchOp.kept(shape)
        self.network.block.add_op(op)
        return op.result

    def rotations(self) -> Array:
        """Cosines and sines of each position [context, size]."""
        angles = np.arange(self.context)[:, None] * self.decoder.frequencies
        return np.concatenate([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)

    def weight(self, name: str, shape: tuple[int, ...]) -> Blocks | Array:
        self.read.add(name)
        return self.decoder.weight(name, shape)

    def vector(self, name: str, size: int) -> SSAValue:
        """A weight along the rows, in float32."""
        array = self.weight(name, (size,))
        assert isinstance(array, np.ndarray)
        return self.at.weight(array, name)

    def normed(self, x: SSAValue, name: str) -> SSAValue:
        scale = self.vector(f"{name}.weight", shape_of(x)[-1])
        epsilon = self.sizes.epsilon
        return self.at.emit("layer_norm", x, scale, epsilon=epsilon, centred=False)

    def projected(self, x: SSAValue, name: str, shape: tuple[int, int]) -> SSAValue:
        """A product with a matrix, and a bias if the model has one."""
        y = self.product(x, self.weight(f"{name}.weight", shape))
        if f"{name}.bias" in self.decoder.tensors:
            y = self.at.emit("add", y, self.vector(f"{name}.bias", shape[0]))
        return y

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
