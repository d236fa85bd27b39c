"""Transformers built from their tables, as exporters write them: BERT-base, vision transformers,
and a step of GPT-2.

Weights are left at zero with the right shapes; ``models.randomise`` fills them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from benchmarks.networks import CLASSES, Builder

HEADS = 12
WIDTH = 768
LAYERS = 12
INNER = 3072
"""Devlin et al., BERT, section 3, and Dosovitskiy et al., An Image is Worth 16x16 Words, table 1:
both base models have these sizes."""

TOKENS = 128
VOCABULARY = 30522


@dataclass
class Encoder:
    """Appends the parts that both networks share."""

    build: Builder
    tokens: int
    width: int = WIDTH
    heads_count: int = HEADS
    inner: int = INNER
    free: str = ""
    """Name of the dim of tokens where it stays free; ``tokens`` are the most then."""

    @property
    def copied(self) -> int:
        """Tokens as a Reshape has them: 0 copies an extent that is free."""
        return 0 if self.free else self.tokens

    def constant(self, name: str, array: np.ndarray) -> str:
        """Append a constant that stays as it is."""
        self.build.weights.append(numpy_helper.from_array(array, name))
        return name

    def number(self, name: str, value: float) -> str:
        """Append a scalar."""
        return self.constant(name, np.array(value, np.float32))

    def shape(self, name: str, *extents: int) -> str:
        """Append a shape for a Reshape."""
        return self.constant(name, np.array(extents, np.int64))

    def linear(self, x: str, name: str, inputs: int, outputs: int) -> str:
        """A product with weights [inputs, outputs], and a bias."""
        weight = self.build.weight(f"{name}.weight", inputs, outputs)
        bias = self.build.weight(f"{name}.bias", outputs)
        x = self.build.node("MatMul", [x, weight], name)
        return self.build.node("Add", [bias, x], f"{name}.add")

    def normalise(self, x: str, name: str, epsilon: float) -> str:
        """Layer normalisation over the last axis."""
        scale, shift = (
            self.build.weight(f"{name}.{part}", self.width) for part in ("scale", "shift")
        )
        return self.build.node("LayerNormalization", [x, scale, shift], name, epsilon=epsilon)

    def heads(self, x: str, name: str, order: list[int]) -> str:
        """[1, tokens, width] as heads, transposed."""
        shape = self.shape(
            f"{name}.shape", 1, self.copied, self.heads_count, self.width // self.heads_count
        )
        x = self.build.node("Reshape", [x, shape], f"{name}.reshape")
        return self.build.node("Transpose", [x], f"{name}.transpose", perm=order)

    def attention(self, x: str, name: str, mask: str = "") -> str:
        """Scaled dot-product attention of all heads, with its output's product."""
        q, k, v = (self.linear(x, f"{name}.{part}", self.width, self.width) for part in "qkv")
        q = self.heads(q, f"{name}.q", [0, 2, 1, 3])
        k = self.heads(k, f"{name}.k", [0, 2, 3, 1])
        v = self.heads(v, f"{name}.v", [0, 2, 1, 3])
        return self.mixed(q, k, v, name, mask)

    def step(self, x: str, name: str, key: str, value: str) -> tuple[str, str, str]:
        """The same of one token, behind others whose keys and values are there; and all of both."""
        q, k, v = (
            self.heads(
                self.linear(x, f"{name}.{part}", self.width, self.width),
                f"{name}.{part}",
                [0, 2, 1, 3],
            )
            for part in "qkv"
        )
        k = self.build.node("Concat", [key, k], f"{name}.keys", axis=2)
        v = self.build.node("Concat", [value, v], f"{name}.values", axis=2)
        turned = self.build.node("Transpose", [k], f"{name}.turned", perm=[0, 1, 3, 2])
        return self.mixed(q, turned, v, name), k, v

    def mixed(self, q: str, k: str, v: str, name: str, mask: str = "") -> str:
        """Attention of heads whose keys are transposed, and its output's product."""
        scores = self.build.node("MatMul", [q, k], f"{name}.scores")
        root = self.number(f"{name}.root", math.sqrt(self.width // self.heads_count))
        scores = self.build.node("Div", [scores, root], f"{name}.scaled")
        if mask:
            scores = self.build.node("Add", [scores, mask], f"{name}.masked")
        weights = self.build.node("Softmax", [scores], f"{name}.softmax", axis=-1)
        x = self.build.node("MatMul", [weights, v], f"{name}.mixed")
        x = self.build.node("Transpose", [x], f"{name}.back", perm=[0, 2, 1, 3])
        shape = self.shape(f"{name}.shape", 1, self.copied, self.width)
        x = self.build.node("Reshape", [x, shape], f"{name}.flat")
        return self.linear(x, f"{name}.out", self.width, self.width)

    def gelu(self, x: str, name: str) -> str:
        """x * (1 + erf(x / sqrt(2))) / 2, spelled out."""
        scaled = self.build.node("Div", [x, self.number(f"{name}.root", math.sqrt(2))], f"{name}.d")
        erf = self.build.node("Erf", [scaled], f"{name}.erf")
        more = self.build.node("Add", [erf, self.number(f"{name}.one", 1.0)], f"{name}.more")
        twice = self.build.node("Mul", [x, more], f"{name}.twice")
        return self.build.node("Mul", [twice, self.number(f"{name}.half", 0.5)], name)

    def short_gelu(self, x: str, name: str) -> str:
        """x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2, spelled out."""
        cube = self.build.node("Pow", [x, self.number(f"{name}.three", 3.0)], f"{name}.cube")
        cube = self.build.node("Mul", [cube, self.number(f"{name}.part", 0.044715)], f"{name}.c")
        inner = self.build.node("Add", [x, cube], f"{name}.inner")
        scale = self.number(f"{name}.scale", math.sqrt(2 / math.pi))
        inner = self.build.node("Mul", [inner, scale], f"{name}.scaled")
        more = self.build.node("Tanh", [inner], f"{name}.tanh")
        more = self.build.node("Add", [more, self.number(f"{name}.one", 1.0)], f"{name}.more")
        twice = self.build.node("Mul", [x, more], f"{name}.twice")
        return self.build.node("Mul", [twice, self.number(f"{name}.half", 0.5)], name)

    def perceptron(self, x: str, name: str) -> str:
        """Two products with a GELU between them."""
        x = self.gelu(self.linear(x, f"{name}.up", self.width, self.inner), f"{name}.gelu")
        return self.linear(x, f"{name}.down", self.inner, self.width)


def _value(name: str, kind: int, shape: list[int | str]) -> object:
    return helper.make_tensor_value_info(name, kind, shape)


def _close(build: Builder, inputs: list[object], outputs: list[object]) -> ModelProto:
    graph = helper.make_graph(build.nodes, build.name, inputs, outputs, build.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def bert_base(tokens: int = TOKENS) -> ModelProto:
    """BERT's encoder on so many tokens with a mask, and the pooled first token."""
    build = Builder("bert_base")
    return _bert(Encoder(build, tokens), LAYERS, VOCABULARY)


def bert_small(
    layers: int = 2, width: int = 128, tokens: int = 32, free: str = "", head: int = 64
) -> ModelProto:
    """The same of few layers, of heads as wide as BERT-base's; ``free`` names the dim of tokens
    where it stays free, up to ``tokens``."""
    build = Builder("bert_small")
    at = Encoder(build, tokens, width, width // head, 4 * width, free)
    return _bert(at, layers, 1000)


def _bert(at: Encoder, layers: int, vocabulary: int) -> ModelProto:
    build, width, tokens = at.build, at.width, at.tokens
    words = build.weight("embeddings.word", vocabulary, width)
    x = build.node("Gather", [words, "tokens"], "embeddings.gather", axis=0)
    places = build.weight("embeddings.position", 1, tokens, width)
    if at.free:
        sizes = build.node("Shape", ["tokens"], "embeddings.sizes")
        count = build.node("Gather", [sizes, at.shape("embeddings.axis", 1)], "embeddings.count")
        ends = [places, at.shape("embeddings.first", 0), count, at.shape("embeddings.along", 1)]
        places = build.node("Slice", ends, "embeddings.places")
    x = build.node("Add", [x, places], "embeddings.add")
    x = at.normalise(x, "embeddings.norm", 1e-12)
    mask = build.node("Unsqueeze", ["mask", at.shape("mask.axes", 1, 2)], "mask.wide")
    mask = build.node("Cast", [mask], "mask.float", to=TensorProto.FLOAT)
    mask = build.node("Sub", [at.number("mask.one", 1.0), mask], "mask.less")
    mask = build.node("Mul", [mask, at.number("mask.lowest", -10000.0)], "mask.added")
    for number in range(layers):
        name = f"layer{number}"
        y = at.attention(x, f"{name}.attention", mask)
        x = build.node("Add", [y, x], f"{name}.sum1")
        x = at.normalise(x, f"{name}.norm1", 1e-12)
        y = at.perceptron(x, f"{name}.mlp")
        x = build.node("Add", [y, x], f"{name}.sum2")
        x = at.normalise(x, f"{name}.norm2", 1e-12)
    first = build.node("Gather", [x, at.constant("first", np.array(0))], "pooler.first", axis=1)
    weight, bias = build.weight("pooler.weight", width, width), build.weight("pooler.bias", width)
    first = build.node("Gemm", [first, weight, bias], "pooler.dense", transB=1)
    pooled = build.node("Tanh", [first], "pooler.tanh")
    extent = at.free or tokens
    inputs = [_value(name, TensorProto.INT64, [1, extent]) for name in ("tokens", "mask")]
    outputs = [
        _value(x, TensorProto.FLOAT, [1, extent, width]),
        _value(pooled, TensorProto.FLOAT, [1, width]),
    ]
    return _close(build, inputs, outputs)


def vit_b16() -> ModelProto:
    """ViT-B/16."""
    return _vit("vit_b16", WIDTH)


def vit_small() -> ModelProto:
    """ViT-S/16: half as wide (Touvron et al., Training data-efficient image transformers, table 1,
    DeiT-S)."""
    return _vit("vit_small", WIDTH // 2)


def _vit(name: str, width: int) -> ModelProto:
    """A vision transformer on patches of 16 x 16 pixels of an image of 224 x 224."""
    patches, patch = 14 * 14, 16
    build = Builder(name)
    at = Encoder(build, patches + 1, width, width * HEADS // WIDTH, 4 * width)
    weight = build.weight("patches.weight", width, 3, patch, patch)
    bias = build.weight("patches.bias", width)
    sizes = {"kernel_shape": [patch, patch], "strides": [patch, patch]}
    x = build.node("Conv", ["image", weight, bias], "patches", **sizes)
    shape = at.shape("patches.shape", 1, width, patches)
    x = build.node("Reshape", [x, shape], "patches.flat")
    x = build.node("Transpose", [x], "patches.rows", perm=[0, 2, 1])
    own = build.weight("class", 1, 1, width)
    x = build.node("Concat", [own, x], "tokens", axis=1)
    places = build.weight("position", 1, patches + 1, width)
    x = build.node("Add", [x, places], "embedded")
    for number in range(LAYERS):
        name = f"layer{number}"
        y = at.normalise(x, f"{name}.norm1", 1e-6)
        y = at.attention(y, f"{name}.attention")
        x = build.node("Add", [y, x], f"{name}.sum1")
        y = at.normalise(x, f"{name}.norm2", 1e-6)
        y = at.perceptron(y, f"{name}.mlp")
        x = build.node("Add", [y, x], f"{name}.sum2")
    x = at.normalise(x, "norm", 1e-6)
    x = build.node("Gather", [x, at.constant("first", np.array(0))], "first", axis=1)
    weight, bias = build.weight("head.weight", CLASSES, width), build.weight("head.bias", CLASSES)
    logits = build.node("Gemm", [x, weight, bias], "head", transB=1)
    return _close(
        build,
        [_value("image", TensorProto.FLOAT, [1, 3, 224, 224])],
        [_value(logits, TensorProto.FLOAT, [1, CLASSES])],
    )


def gpt2_step(past: int = 127, layers: int = LAYERS) -> ModelProto:
    """GPT-2's smallest model on the token behind ``past`` others, whose keys and values are inputs
    (Radford et al., Language Models are Unsupervised Multitask Learners, table 2)."""
    build = Builder("gpt2_step")
    at = Encoder(build, 1)
    words = build.weight("embeddings.word", 50257, WIDTH)
    x = build.node("Gather", [words, "tokens"], "embeddings.gather", axis=0)
    x = build.node("Add", [x, build.weight("embeddings.position", 1, 1, WIDTH)], "embeddings.add")
    inputs = [_value("tokens", TensorProto.INT64, [1, 1])]
    outputs: list[object] = []
    heads = [1, HEADS, past, WIDTH // HEADS]
    for number in range(layers):
        name = f"layer{number}"
        given = [f"past{number}.{part}" for part in ("key", "value")]
        inputs += [_value(cache_name, TensorProto.FLOAT, list(heads)) for cache_name in given]
        y = at.normalise(x, f"{name}.norm1", 1e-5)
        y, *present = at.step(y, f"{name}.attention", *given)
        heads_now = [*heads[:2], past + 1, heads[3]]
        outputs += [
            _value(cache_name, TensorProto.FLOAT, list(heads_now)) for cache_name in present
        ]
        x = build.node("Add", [y, x], f"{name}.sum1")
        y = at.normalise(x, f"{name}.norm2", 1e-5)
        y = at.linear(y, f"{name}.mlp.up", WIDTH, INNER)
        y = at.linear(at.short_gelu(y, f"{name}.gelu"), f"{name}.mlp.down", INNER, WIDTH)
        x = build.node("Add", [y, x], f"{name}.sum2")
    x = at.normalise(x, "norm", 1e-5)
    logits = build.node("MatMul", [x, build.weight("head.weight", WIDTH, 50257)], "head")
    outputs.append(_value(logits, TensorProto.FLOAT, [1, 1, 50257]))
    return _close(build, inputs, outputs)


@dataclass(frozen=True)
class Llama:
    """The sizes of a decoder with shared keys and values, as Llama has them."""

    layers: int = 30
    width: int = 576
    heads: int = 9
    groups: int = 3
    inner: int = 1536
    vocabulary: int = 49152
    """By default those of SmolLM2-135M (its published configuration)."""

    @property
    def each(self) -> int:
        """Numbers of a head."""
        return self.width // self.heads


def llama_step(past: int = 255, sizes: Llama | None = None) -> ModelProto:
    """A decoder on the token after ``past`` others, whose keys and values are inputs; the token's
    own are outputs, beside the logits. Positions are constants: angles of ``past``."""
    of = sizes or Llama()
    build = Builder("llama_step")
    at = Encoder(build, 1, of.width)
    angles = past / 1e4 ** (np.arange(0, of.each, 2) / of.each)
    turns = [np.concatenate([turn(angles)] * 2) for turn in (np.cos, np.sin)]
    cosine, sine = (
        at.constant(name, turn.astype(np.float32))
        for name, turn in zip(("cosine", "sine"), turns, strict=True)
    )

    def normalise(x: str, name: str) -> str:
        squares = build.node("Mul", [x, x], f"{name}.squares")
        mean = build.node("ReduceMean", [squares], f"{name}.mean", axes=[-1], keepdims=1)
        mean = build.node("Add", [mean, at.number(f"{name}.epsilon", 1e-5)], f"{name}.more")
        root = build.node("Sqrt", [mean], f"{name}.root")
        x = build.node("Div", [x, root], f"{name}.divided")
        return build.node("Mul", [x, build.weight(f"{name}.scale", of.width)], name)

    def product(x: str, name: str, inputs: int, outputs: int) -> str:
        return build.node("MatMul", [x, build.weight(f"{name}.weight", inputs, outputs)], name)

    def rotated(x: str, name: str) -> str:
        halves = [f"{name}.low", f"{name}.high"]
        build.nodes.append(helper.make_node("Split", [x], halves, f"{name}.split", axis=-1))
        turned = build.node("Neg", [halves[1]], f"{name}.neg")
        turned = build.node("Concat", [turned, halves[0]], f"{name}.turned", axis=-1)
        straight = build.node("Mul", [x, cosine], f"{name}.cosine")
        across = build.node("Mul", [turned, sine], f"{name}.sine")
        return build.node("Add", [straight, across], f"{name}.rotated")

    x = build.node("Gather", [build.weight("words", of.vocabulary, of.width), "token"], "gather")
    inputs = [_value("token", TensorProto.INT64, [1])]
    outputs: list[object] = []
    rows = of.groups * of.each
    for number in range(of.layers):
        name = f"layer{number}"
        keys, values = (f"past{number}.{part}" for part in ("key", "value"))
        kept = [of.groups, past, of.each]
        inputs += [_value(each, TensorProto.FLOAT, list(kept)) for each in (keys, values)]
        y = normalise(x, f"{name}.norm1")
        q = product(y, f"{name}.q", of.width, of.width)
        new = [product(y, f"{name}.{part}", of.width, rows) for part in "kv"]
        shape = at.shape(f"{name}.q.shape", of.groups, of.heads // of.groups, of.each)
        q = rotated(build.node("Reshape", [q, shape], f"{name}.q.heads"), f"{name}.q")
        shape = at.shape(f"{name}.new.shape", of.groups, 1, of.each)
        k, v = (build.node("Reshape", [each, shape], f"{each}.heads") for each in new)
        k = rotated(k, f"{name}.k")
        outputs += [_value(each, TensorProto.FLOAT, [of.groups, 1, of.each]) for each in (k, v)]
        k = build.node("Concat", [keys, k], f"{name}.keys", axis=1)
        v = build.node("Concat", [values, v], f"{name}.values", axis=1)
        k = build.node("Transpose", [k], f"{name}.keys.turned", perm=[0, 2, 1])
        scores = build.node("MatMul", [q, k], f"{name}.scores")
        root = at.number(f"{name}.root", math.sqrt(of.each))
        scores = build.node("Div", [scores, root], f"{name}.scaled")
        scores = build.node("Softmax", [scores], f"{name}.softmax", axis=-1)
        y = build.node("MatMul", [scores, v], f"{name}.mixed")
        y = build.node("Reshape", [y, at.shape(f"{name}.flat", 1, of.width)], f"{name}.row")
        x = build.node("Add", [x, product(y, f"{name}.out", of.width, of.width)], f"{name}.sum1")
        y = normalise(x, f"{name}.norm2")
        gate, up = (product(y, f"{name}.{part}", of.width, of.inner) for part in ("gate", "up"))
        sigmoid = build.node("Sigmoid", [gate], f"{name}.sigmoid")
        y = build.node("Mul", [gate, sigmoid], f"{name}.silu")
        y = build.node("Mul", [y, up], f"{name}.product")
        y = product(y, f"{name}.down", of.inner, of.width)
        x = build.node("Add", [x, y], f"{name}.sum2")
    logits = product(normalise(x, "norm"), "head", of.width, of.vocabulary)
    outputs.append(_value(logits, TensorProto.FLOAT, [1, of.vocabulary]))
    return _close(build, inputs, outputs)
