"""The decoder that a network of a few tokens computes: its weights, by where they are multiplied.

Products with constants are what no exporter changes: four of attention, whose keys and values are
outputs of their own, and three of the second half, in the order of the layers. The rest follows
from them: a norm is what makes a product's operand, rotations are what keys depend on beside it.
Nothing else is taken on trust: the decoder is evaluated beside the network it was found in, so what
is not Llama's (another mask, scale, activation or rotation) shows in the logits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from tilewright.errors import TilewrightError, refuse
from tilewright.frontends.imported import Imported
from tilewright.frontends.language.decoder import (
    Decoder,
    Sizes,
    Tensor,
    in_halves,
    rows_of,
)
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

_MEAN = ("mul", "div", "sqrt", "rsqrt", "reciprocal", "pow", "cast", "add", "reshape")
"""Operations between a norm's result and the sum of mean squares and epsilon."""


@dataclass(frozen=True)
class _Product:
    """A product with a constant matrix."""

    op: Operation
    x: SSAValue
    weight: Blocks | Array
    """The matrix [n, k]; in blocks it may have rows of 0 after the last."""
    bias: Array | None
    last: SSAValue
    """The result, once the bias is added."""

    @property
    def columns(self) -> int:
        """Numbers of a row of the matrix."""
        return (self.weight.codes if isinstance(self.weight, Blocks) else self.weight).shape[1]

    @property
    def activates(self) -> bool:
        """True if a sigmoid reads the result."""
        waiting = [self.last]
        for value in waiting:
            for use in value.uses:
                op = use.operation
                if isinstance(op, Operation) and op.operation in ("sigmoid", "silu"):
                    return True
                if isinstance(op, Operation) and op.operation == "cast":
                    waiting.append(op.result)
        return False


def recognised(
    imported: Imported, title: str, context: int, arrays: Mapping[str, Array], names: Sequence[str]
) -> Decoder:
    """The decoder that a network computes for ``arrays``: tokens from the first on, without a past.

    ``names`` are those of the outputs: logits, then keys and values of each layer. Refuses
    (``onnx-decoder``) what is not of Llama's kind, with the node where there is one.
    """
    found = _Recognition(imported, title, names)
    decoder = found.decoder(context)
    tokens = next(array for name, array in arrays.items() if name == "input_ids").reshape(-1)
    short = dtype_of(found.outputs[0]).itemsize == 2 or dtype_of(found.outputs[1]).itemsize == 2
    wanted = interpret(imported.module, imported.weights, arrays)[names[0]]
    rows = wanted.reshape(-1, decoder.sizes.vocabulary).astype(np.float32)
    # The last token sees all others under any mask; one in the middle does not.
    checked = {len(tokens) - 1: rows[-1]}
    if len(rows) == len(tokens):
        checked[len(tokens) // 2] = rows[len(tokens) // 2]
    difference = _difference(decoder, tokens, checked)
    if not difference <= (NEAR_SHORT if short else NEAR):
        other = found.interleaved(decoder)
        if (again := _difference(other, tokens, checked)) < difference:
            decoder, difference = other, again
    if not difference <= (NEAR_SHORT if short else NEAR):
        raise decoder.refuse(
            f"it does not compute what a decoder of Llama's kind does with its weights: logits "
            f"differ by {difference:.2g} of the largest",
            code="onnx-decoder", help="other architectures are not compiled (docs/llm.md)",
        )  # fmt: skip
    return decoder


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
        self.tokens = next((v for name, v in network.inputs if name == "input_ids"), None)
        live = set(self.before(self.outputs[0], stop=()))
        self.products = [p for op in network.block.ops if op in live if (p := self.product(op))]

    def refuse(self, reason: str, op: Operation | None = None) -> TilewrightError:
        where = self.title if op is None else f"{self.title}: node {shown(op.node_name)}"
        return refuse("onnx-decoder", reason, where)

    def before(self, value: SSAValue, stop: Sequence[Operation]) -> list[Operation]:
        """Operations that a value depends on; those of ``stop`` are the last of their branches."""
        found: dict[Operation, None] = {}
        waiting = [value]
        while waiting:
            op = waiting.pop().owner
            if isinstance(op, Operation) and op not in found:
                found[op] = None
                waiting += [] if op in stop else op.inputs
        return list(found)

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
            sizes = int(op.get("bits")), int(op.get("block"))
            weight, x = (
                unpacked(codes, scales, *sizes, None if zero < 0 else zero),
                x.owner.inputs[0],
            )
        last = op.result
        for user in self.users(last, ("cast", "slice", "add")):
            if user.operation == "add" and user.inputs[0] is not user.inputs[1]:
                added = self.constant(next(v for v in user.inputs if v is not last))
                if added is None or added.size != shape_of(user.result)[-1]:
                    break
                bias = added
            last = user.result
        while isinstance(x.owner, Operation) and x.owner.operation == "cast":
            x = x.owner.inputs[0]
        return _Product(op, x, weight, None if bias is None else bias.reshape(-1), last)

    def users(self, value: SSAValue, kinds: Sequence[str]) -> Iterator[Operation]:
        """The chain of operations of some kinds each of which alone reads the one before."""
        while True:
            readers = [use.operation for use in value.uses]
            if len(readers) != 1 or not isinstance(readers[0], Operation):
                return
            if readers[0].operation not in kinds:
                return
            yield readers[0]
            value = readers[0].result

    def source(self, value: SSAValue) -> _Product:
        """The one product that a layer's keys or values come from."""
        stop = [p.op for p in self.products]
        before = self.before(value, stop)
        near = [p for p in self.products if p.op in before]
        if len(near) != 1:
            raise self.refuse("keys and values of a layer are not those of one product each")
        return near[0]

    def decoder(self, context: int) -> Decoder:
        """The model, with rows of queries and keys as they are."""
        layers = len(self.outputs) // 2
        table = self.table()
        shape = shape_of(self.outputs[1])
        if len(shape) != 4 or len(self.products) < 5 * layers + 1:
            raise self.refuse(f"{len(self.products)} products with weights in {layers} layers")
        groups, size, width = shape[1], shape[3], table.shape[1]
        narrow = groups * size
        tensors, rest, inner, heads = dict[str, Tensor](), self.products, 0, 0
        epsilons = set[float]()

        def add(name: str, product: _Product, rows: slice) -> None:
            weight = rows_of(product.weight, rows)
            shape = (weight.codes if isinstance(weight, Blocks) else weight).shape
            tensors[f"{name}.weight"] = Tensor(shape, partial(_given, weight), product.op.node_name)
            if product.bias is not None:
                bias = product.bias[rows]
                tensors[f"{name}.bias"] = Tensor(bias.shape, partial(_given, bias))

        def add_norm(name: str, product: _Product) -> None:
            scale, epsilon = self.norm(product, width)
            epsilons.add(epsilon)
            tensors[f"{name}.weight"] = Tensor(scale.shape, partial(_given, scale))

        for layer in range(layers):
            name = f"blk.{layer}"
            k, v = (self.source(value) for value in self.outputs[1 + 2 * layer : 3 + 2 * layer])
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
        sizes = Sizes(
            layers, width, inner, heads, groups, size, len(table), context, epsilons.pop()
        )
        return Decoder(self.title, sizes, self.turns(size), tensors).checked()

    def four(self, rest: Sequence[_Product]) -> tuple[_Product, _Product, _Product, _Product]:
        """The products of a layer after those of queries, keys and values."""
        if len(rest) < 4 or rest[1].x is not rest[2].x:
            op = rest[min(1, len(rest) - 1)].op if rest else None
            raise self.refuse("after attention a product, two of one operand and one are read", op)
        output, gate, up, down = rest[:4]
        return (output, gate, up, down) if gate.activates else (output, up, gate, down)

    def table(self) -> Array:
        """The rows of tokens."""
        waiting = [] if self.tokens is None else [self.tokens]
        for value in waiting:
            for use in value.uses:
                op = use.operation
                if not isinstance(op, Operation):
                    continue
                if op.operation == "gather" and op.inputs[1] is value:
                    table = self.constant(op.inputs[0])
                    if table is not None and table.ndim == 2:
                        return table
                if op.operation in _VIEWS:
                    waiting.append(op.result)
        raise self.refuse("no table is read by input_ids")

    def tie(self, tensors: dict[str, Tensor], table: Array) -> None:
        """The table of tokens, which may be the output's: in blocks where that is."""
        output = tensors["output.weight"].read()
        rows = output.rows() if isinstance(output, Blocks) else output
        tensors["token_embd.weight"] = Tensor(table.shape, partial(_given, table))
        if rows.shape == table.shape and np.array_equal(rows, table):
            tensors["token_embd.weight"] = tensors.pop("output.weight")

    def norm(self, product: _Product, width: int) -> tuple[Array, float]:
        """Scale and epsilon of the norm whose result a product reads."""
        value = product.x
        while isinstance(value.owner, Operation):
            op = value.owner
            if op.operation == "layer_norm" and not op.get("centred", True):
                scale = self.constant(op.inputs[1])
                if scale is not None and scale.size == width:
                    return scale.reshape(-1), float(op.get("epsilon"))
            if op.operation == "mul":
                known = [self.constant(v) for v in op.inputs]
                for scale, other in zip(known, reversed(op.inputs), strict=True):
                    if scale is not None and scale.size == width:
                        return scale.reshape(-1), self.epsilon(other, product)
            if op.operation not in (*_VIEWS, "gather", "slice"):
                break
            value = op.inputs[0]
        raise self.refuse("its operand is not that of a norm with a scale", product.op)

    def epsilon(self, value: SSAValue, product: _Product) -> float:
        """The number that is added to mean squares before a value."""
        waiting = [value]
        for each in waiting:
            op = each.owner
            if not isinstance(op, Operation) or op.operation not in _MEAN or len(waiting) > 24:
                continue
            numbers = [self.constant(v) for v in op.inputs] if op.operation == "add" else []
            for number in numbers:
                if number is not None and number.size == 1:
                    return float(number.reshape(()))
            waiting += [] if op.operation == "add" else op.inputs
        raise self.refuse("no epsilon is found in the norm before it", product.op)

    def turns(self, size: int) -> Array:
        """Frequencies of rotations: constants that the first layer's keys depend on, as they are or
        as tables of cosines and sines."""
        stop = [p.op for p in self.products]
        values = [
            v for op in self.before(self.outputs[1], stop) if op not in stop for v in op.inputs
        ]
        arrays = [a for v in values if isinstance(v.owner, WeightOp)
                  if (a := self.constant(v)) is not None and a.dtype.kind not in "iub"]  # fmt: skip
        tables = [a.reshape(-1, a.shape[-1])[:, : size // 2].astype(np.float64) for a in arrays
                  if a.ndim > 1 and a.shape[-1] in (size // 2, size) and a.size > size]  # fmt: skip
        cosines = next((t for t in tables if (t[0] == 1).all()), None)
        sines = next((t for t in tables if (t[0] == 0).all()), None)
        if cosines is not None and sines is not None and cosines.shape == sines.shape:
            return _of_tables(cosines, sines)
        for array in arrays:
            if array.size == size // 2 and (array > 0).all():
                return array.reshape(-1).astype(np.float64)
        raise self.refuse("no frequencies of rotations are found that keys depend on")

    def interleaved(self, decoder: Decoder) -> Decoder:
        """The same for rotations that turn the pairs (2i, 2i + 1)."""

        def turned(tensor: Tensor) -> Tensor:
            return tensor._replace(read=lambda: in_halves(tensor.read(), decoder.sizes.size))

        pairs = (".attn_q.", ".attn_k.")
        tensors = {
            name: turned(tensor) if any(p in name for p in pairs) else tensor
            for name, tensor in decoder.tensors.items()
        }
        return replace(decoder, tensors=tensors)


def _given(weight: Blocks | Array) -> Blocks | Array:
    return weight


def _of_tables(cosines: Array, sines: Array) -> Array:
    """Frequencies by tables: those of the first step, made exact by ever later rows."""
    turns = np.arctan2(sines[1], cosines[1]) % (2 * np.pi)
    row = 1
    while (row := 2 * row) < len(cosines):
        angle = np.arctan2(sines[row], cosines[row]) - turns * row
        turns = turns + ((angle + np.pi) % (2 * np.pi) - np.pi) / row
    return turns
