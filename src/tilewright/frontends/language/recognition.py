"""The decoder that a network of a few tokens computes: its weights, by where they are multiplied.

Products with constants are what no exporter changes: four of attention, whose keys and values are
outputs of their own, and three of the second half, in the order of the layers. The rest follows
from them: a norm is what makes a product's operand, rotations are what keys depend on beside it.
Nothing else is taken on trust: the decoder is evaluated beside the network it was found in, so what
is not Llama's (another mask, scale, activation or rotation) shows in the logits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tilewright.errors import TilewrightError, refuse
from tilewright.frontends.imported import Imported
from tilewright.frontends.language.decoder import Decoder, Sizes, Tensor, in_halves, rows_of
from tilewright.frontends.language.network import LAST, LOGITS, POSITION, TOKENS, chunk_network
from tilewright.frontends.limits import shown
from tilewright.graph.dialect import OutputOp, WeightOp, network_of
from tilewright.graph.interpreter import interpret
from tilewright.graph.operation import Operation
from tilewright.graph.operations.decoding import KEYS
from tilewright.ir import SSAValue
from tilewright.ir.types import Array, dtype_of, shape_of
from tilewright.numerics.blocks import Blocks, unpacked

NEAR, NEAR_SHORT = 1e-3, 3e-2
"""Difference of logits, of the largest, that rounding explains: where the network computes in
float32, and in floats of 16 bits."""

_VIEWS = ("reshape", "transpose", "cast")
"""Operations that change no number, or round it."""

_NORM = (
    *(*_VIEWS, "gather", "slice", "layer_norm", "reduce_mean"),
    *("mul", "div", "sqrt", "rsqrt", "reciprocal", "pow", "add"),
)
"""Operations between a product and the mean squares of the norm before it."""


class _Product(NamedTuple):
    """A product with a constant matrix."""

    op: Operation
    x: SSAValue
    weight: Blocks | Array
    """The matrix [n, k]; in blocks it may have rows of 0 after the last."""
    bias: Array | None

    @property
    def columns(self) -> int:
        """Numbers of a row of the matrix."""
        return (self.weight.codes if isinstance(self.weight, Blocks) else self.weight).shape[1]


def recognised(
    imported: Imported, title: str, context: int, arrays: Mapping[str, Array], names: Sequence[str]
) -> Decoder:
    """The decoder that a network computes for ``arrays``: tokens from the first on, without a past.

    ``names`` are those of the outputs: logits, then keys and values of each layer. Refuses
    (``llm-decoder``) what is not of Llama's kind, with the node where there is one.
    """
    found = _Recognition(imported, title, names)
    decoder = found.decoder(context)
    tokens = arrays["input_ids"].reshape(-1)
    most = NEAR_SHORT if any(dtype_of(v).itemsize == 2 for v in found.outputs) else NEAR
    wanted = interpret(imported.module, imported.weights, arrays)[names[0]]
    rows = wanted.reshape(-1, decoder.sizes.vocabulary).astype(np.float32)
    # The last token sees all others under any mask; one in the middle does not.
    checked = {len(tokens) - 1: rows[-1]}
    if len(rows) == len(tokens):
        checked[len(tokens) // 2] = rows[len(tokens) // 2]
    halves = in_halves(decoder.tensors, decoder.sizes.size)
    for each in (decoder, replace(decoder, tensors=halves)):
        if (difference := _difference(each, tokens, checked)) <= most:
            return each
    raise decoder.refuse(
        "it does not compute what a decoder of Llama's kind does with its weights: logits differ "
        f"by {difference:.2g} of the largest",
        code="llm-decoder", help="other architectures are not compiled (docs/llm.md)",
    )  # fmt: skip


def _difference(decoder: Decoder, tokens: Array, wanted: Mapping[int, Array]) -> float:
    """Largest difference of some tokens' logits from those wanted, of the largest of these."""
    count, found = len(tokens), 0.0
    network = chunk_network(decoder, rows=count, context=max(KEYS, count), name="tried")
    for row, logits in wanted.items():
        given = {TOKENS: tokens, POSITION: np.zeros(1), LAST: np.array([row])}
        inputs = {name: array.astype(np.int32) for name, array in given.items()}
        made = interpret(network.module, network.weights, inputs)[LOGITS][0]
        found = max(found, float(np.abs(made - logits).max() / np.abs(logits).max()))
    return found


class _Recognition:
    def __init__(self, imported: Imported, title: str, names: Sequence[str]) -> None:
        self.weights, self.title = imported.weights, title
        network = network_of(imported.module)
        results = next(op for op in network.block.ops if isinstance(op, OutputOp)).values
        outputs = {name: v for (name, _), v in zip(network.outputs, results, strict=True)}
        self.outputs = [outputs[name] for name in names if name in outputs]
        if len(self.outputs) != len(names) or len(names) < 3 or len(names) % 2 == 0:
            raise self.refuse("its outputs are not logits, and keys and values of each layer")
        self.tokens = next(value for name, value in network.inputs if name == "input_ids")
        live = set(self.before(self.outputs[0]))
        self.products = [p for op in network.block.ops if op in live if (p := self.product(op))]
        self.stop = {p.op for p in self.products}

    def refuse(self, reason: str, op: Operation | None = None) -> TilewrightError:
        where = self.title if op is None else f"{self.title}: node {shown(op.node_name)}"
        return refuse("llm-decoder", reason, where)

    def before(
        self, value: SSAValue, kinds: Collection[str] = (), stop: Collection[object] = ()
    ) -> list[Operation]:
        """Operations that a value depends on, the nearest first; those of ``stop`` end their
        branches. With ``kinds`` those alone, and sums end branches, too."""
        found: dict[Operation, None] = {}
        waiting = [value]
        for each in waiting:
            op = each.owner
            if (
                not isinstance(op, Operation)
                or op in found
                or op.operation not in (kinds or (op.operation,))
            ):
                continue
            found[op] = None
            if op not in stop and not (kinds and op.operation == "add"):
                waiting += op.inputs
        return list(found)

    def after(self, value: SSAValue, through: Collection[str]) -> Iterator[Operation]:
        """Operations that read a value, or a result of those that are gone ``through``."""
        waiting = [value]
        for each in waiting:
            for op in (use.operation for use in each.uses):
                if isinstance(op, Operation):
                    yield op
                    waiting += [op.result] if op.operation in through else []

    def constant(self, value: SSAValue) -> Array | None:
        """The array of a constant, perhaps under another shape or type; None for others."""
        op = value.owner
        if isinstance(op, WeightOp):
            return self.weights.get(op.symbol.data)
        if isinstance(op, Operation) and op.operation in _VIEWS:
            inner = self.constant(op.inputs[0])
            return None if inner is None else op.evaluate(inner)
        return None

    def product(self, op: object) -> _Product | None:
        """A product with a constant matrix, as an operation of the network."""
        if not isinstance(op, Operation) or op.operation not in ("matmul", "block_matmul"):
            return None
        x, bias = op.inputs[0], None
        if op.operation == "matmul":
            matrix = self.constant(op.inputs[1])
            if matrix is None or matrix.ndim != 2 or op.get("transpose_a", False):
                return None
            weight: Blocks | Array = matrix if op.get("transpose_b", False) else matrix.T
            bias = self.constant(op.inputs[2]) if len(op.inputs) == 3 else None
        else:
            codes, scales = (self.constant(value) for value in op.inputs[1:])
            if codes is None or scales is None or not isinstance(x.owner, Operation):
                return None
            zero = int(op.get("zero", -1))
            form = int(op.get("bits")), int(op.get("block")), None if zero < 0 else zero
            weight, x = unpacked(codes, scales, *form), x.owner.inputs[0]
        for user in self.after(op.result, ("cast", "slice")):
            for added in map(self.constant, user.inputs if user.operation == "add" else ()):
                bias = added if added is not None and added.ndim and bias is None else bias
        while isinstance(x.owner, Operation) and x.owner.operation == "cast":
            x = x.owner.inputs[0]
        return _Product(op, x, weight, None if bias is None else bias.reshape(-1))

    def decoder(self, context: int) -> Decoder:
        """The model, with rows of queries and keys as they are."""
        layers = len(self.outputs) // 2
        table = self.table()
        shape = shape_of(self.outputs[1])
        if shape_of(self.outputs[0])[-1:] != table.shape[:1]:
            raise self.refuse(f"it has a table of {len(table)} tokens, and other logits")
        if len(shape) != 4 or len(self.products) < 5 * layers + 1:
            raise self.refuse(f"{len(self.products)} products with weights in {layers} layers")
        groups, size, width = shape[1], shape[3], table.shape[1]
        narrow = groups * size
        tensors, rest, inner, heads = dict[str, Tensor](), self.products, 0, 0
        epsilons = set[float]()

        def add(name: str, product: _Product, rows: slice) -> None:
            tensors[f"{name}.weight"] = Tensor.of(rows_of(product.weight, rows))
            if product.bias is not None:
                tensors[f"{name}.bias"] = Tensor.of(product.bias[rows])

        def add_norm(name: str, product: _Product) -> None:
            scale, epsilon = self.norm(product, width)
            epsilons.add(epsilon)
            tensors[f"{name}.weight"] = Tensor.of(scale)

        for layer in range(layers):
            name = f"blk.{layer}"
            near = [
                [p for p in self.products if p.op in self.before(value, stop=self.stop)]
                for value in self.outputs[1 + 2 * layer : 3 + 2 * layer]
            ]
            if any(len(each) != 1 for each in near):
                raise self.refuse(
                    f"keys and values of layer {layer} are not those of a product each"
                )
            (k,), (v,) = near
            q = next((p for p in rest if p.x is k.x and p is not k and p is not v), k)
            rest = [p for p in rest if p not in (q, k, v)]
            output, gate, up, down = self.four(rest)
            rest = rest[4:]
            wide, inner = output.columns, down.columns
            first = 0  # All three may be parts of one product, in this order.
            for part, product, count in (("q", q, wide), ("k", k, narrow), ("v", v, narrow)):
                add(f"{name}.attn_{part}", product, slice(first, first + count))
                first += count if q is k is v else 0
            add(f"{name}.attn_output", output, slice(0, width))
            for part, product in (("gate", gate), ("up", up)):
                add(f"{name}.ffn_{part}", product, slice(0, inner))
            add(f"{name}.ffn_down", down, slice(0, width))
            add_norm(f"{name}.attn_norm", k)
            add_norm(f"{name}.ffn_norm", gate)
            heads = wide // size
        if len(rest) != 1:
            op = rest[0].op if rest else None
            raise self.refuse("it has products that Llama's layers have not", op)
        add("output", rest[0], slice(0, len(table)))
        add_norm("output_norm", rest[0])
        self.tie(tensors, table)
        if len(epsilons) != 1:
            raise self.refuse(f"its norms have different epsilons: {sorted(epsilons)[:3]}")
        counts = layers, width, inner, heads, groups, size, len(table)
        sizes = Sizes(*counts, context, epsilons.pop())
        return Decoder(self.title, sizes, self.turns(size), tensors).checked()

    def four(self, rest: Sequence[_Product]) -> tuple[_Product, _Product, _Product, _Product]:
        """The products of a layer after those of queries, keys and values."""
        if len(rest) < 4 or rest[1].x is not rest[2].x:
            op = rest[min(1, len(rest) - 1)].op if rest else None
            raise self.refuse("after attention a product, two of one operand and one are read", op)
        output, gate, up, down = rest[:4]
        readers = self.after(gate.op.result, ("cast", "slice", "add"))
        if not any(op.operation in ("sigmoid", "silu") for op in readers):
            gate, up = up, gate
        return output, gate, up, down

    def table(self) -> Array:
        """The rows of tokens."""
        for op in self.after(self.tokens, _VIEWS):
            table = self.constant(op.inputs[0]) if op.operation == "gather" else None
            if table is not None and table.ndim == 2:
                return table
        raise self.refuse("no table is read by input_ids")

    def tie(self, tensors: dict[str, Tensor], table: Array) -> None:
        """The table of tokens, which may be the output's: in blocks where that is."""
        output = tensors["output.weight"].read()
        rows = output.rows() if isinstance(output, Blocks) else output
        tensors["token_embd.weight"] = Tensor.of(table)
        if rows.shape == table.shape and np.array_equal(rows, table):
            tensors["token_embd.weight"] = tensors.pop("output.weight")

    def norm(self, product: _Product, width: int) -> tuple[Array, float]:
        """Scale and epsilon of the norm whose result a product reads."""
        scale, epsilon = None, None
        for op in self.before(product.x, _NORM):
            for array in map(self.constant, op.inputs):
                if array is not None and op.operation == "add" and array.size == 1:
                    epsilon = float(array.reshape(())) if epsilon is None else epsilon
                elif array is not None and array.size == width:
                    scale = array.reshape(-1) if scale is None else scale
            if op.operation == "layer_norm" and epsilon is None:
                epsilon = float(op.get("epsilon"))
        if scale is None or epsilon is None:
            raise self.refuse("its operand is not that of a norm with a scale", product.op)
        return scale, epsilon

    def turns(self, size: int) -> Array:
        """Frequencies of rotations: constants that the first layer's keys depend on, as they are or
        as tables of cosines and sines."""
        near = [op for op in self.before(self.outputs[1], stop=self.stop) if op not in self.stop]
        values = [v for op in near for v in op.inputs if isinstance(v.owner, WeightOp)]
        stored = [a for v in values if (a := self.constant(v)) is not None]
        arrays = [a.astype(np.float64) for a in stored if a.dtype.kind not in "iub"]
        tables = [
            a.reshape(-1, a.shape[-1])[:, : size // 2]
            for a in arrays
            if a.ndim > 1 and a.shape[-1] in (size // 2, size) and a.size > size
        ]
        cosines = next((t for t in tables if (t[0] == 1).all()), None)
        sines = next((t for t in tables if (t[0] == 0).all()), None)
        if cosines is not None and sines is not None and cosines.shape == sines.shape:
            return _of_tables(cosines, sines)
        for array in arrays:
            if array.size == size // 2 and (array > 0).all():
                return array.reshape(-1)
        raise self.refuse("no frequencies of rotations are found that keys depend on")


def _of_tables(cosines: Array, sines: Array) -> Array:
    """Frequencies by tables: those of the first step, made exact by ever later rows."""
    turns = np.arctan2(sines[1], cosines[1]) % (2 * np.pi)
    row = 1
    while (row := 2 * row) < len(cosines):
        angle = np.arctan2(sines[row], cosines[row]) - turns * row
        turns = turns + ((angle + np.pi) % (2 * np.pi) - np.pi) / row
    return turns
