"""The operations of a network that compute on integers, and the values that are quantised.

The rules are those of onnxruntime.quantization for networks of quantise and dequantise nodes
(symmetric, products and what lies between them): every activation that an integer operation reads
is quantised. Three things differ, each for less error: an activation function after a product
belongs to it, so the value between them is not quantised; sums, pools and views compute on integers
only where a product reads them, so that what a network computes in floats alone (the residual sums
of Transformers, say) keeps them; and a product that floats read gives them its sums unrounded.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from tilewright.graph.dialect import NetworkOp, WeightOp
from tilewright.graph.operations import Operation
from tilewright.graph.passes.editing import only_user
from tilewright.ir import SSAValue, f32
from tilewright.ir.types import shape_of, tensor_type
from tilewright.numerics.operators import operators

PRODUCTS = operators("product")

ACTIVATIONS = operators("saturates")
"""Maps that belong to the product or sum whose only reader they are."""

SHARING = ("max_pool", *operators("view"))
"""Operations whose result has its operand's scale, since they only choose among elements."""

JOINING = ("add", "average_pool", "reduce_mean", *operators("join"), *ACTIVATIONS)
"""Further operations that compute on integers where a product reads their result."""

DEEPEST = 1 << 16
"""Terms of a product whose sum of 8-bit products always fits 31 bits."""


@dataclass
class Sites:
    """The operations that compute on integers, and the values that are quantised."""

    integer: set[Operation] = field(default_factory=set[Operation])
    roots: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    """Quantised value -> the value whose scale it has, in program order."""

    inside: set[SSAValue] = field(default_factory=set[SSAValue])
    """Results that only the activation function after them reads."""

    @property
    def layers(self) -> list[Operation]:
        """Operations that add an error of their own, in no order."""
        layers = [op for op in self.integer if op.operation not in SHARING]
        return [op for op in layers if op.inputs[0] not in self.inside]

    def result_of(self, op: Operation) -> SSAValue:
        """The result of an operation, or of the activation function that belongs to it."""
        follower = only_user(op.result) if op.result in self.inside else None
        return follower.result if isinstance(follower, Operation) else op.result


def names_of(op: Operation) -> set[str]:
    """The nodes of the model that an operation computes."""
    return {op.node_name, *op.merged_nodes} - {""}


def computed(op: Operation) -> list[SSAValue]:
    """Operands that are activations: neither constants nor biases."""
    operands = op.inputs[:2] if op.operation in PRODUCTS else op.inputs
    return [value for value in operands if not isinstance(value.owner, WeightOp)]


def sites_of(
    network: NetworkOp,
    keep_float: Collection[str] = (),
    only: Collection[str] | None = None,
    left: Collection[Operation] = (),
) -> Sites:
    """Choose the operations of a network that compute on integers.

    Operations of the nodes ``keep_float`` stay as they are, and those that are ``left``; with
    ``only``, so do all but theirs.
    """
    kept, chosen = set(keep_float), None if only is None else set(only)
    steps = network.operations
    sites, wanted = Sites(), set[SSAValue]()
    for op in reversed(steps):
        if op in left or not _eligible(op, op.result in wanted) or names_of(op) & kept:
            continue
        if chosen is not None and not names_of(op) & chosen:
            continue
        sites.integer.add(op)
        wanted.update(computed(op))
    for op in steps:
        if op.operation not in ACTIVATIONS or names_of(op) & kept:
            continue
        producer = op.inputs[0].owner
        if (
            isinstance(producer, Operation)
            and producer in sites.integer
            and producer.operation in (*PRODUCTS, "add")
            and only_user(producer.result) is op
        ):
            sites.integer.add(op)
            sites.inside.add(producer.result)
    _place(network, steps, sites)
    return sites


def _eligible(op: Operation, wanted: bool) -> bool:
    """Return True if an operation could compute on integers."""
    if any(tensor_type(value).element_type != f32 for value in (*op.inputs, op.result)):
        return False
    if op.operation in PRODUCTS:
        return bool(computed(op)) and _depth(op) <= DEEPEST
    if op.operation not in (*SHARING, *JOINING) or not wanted:
        return False
    return len(computed(op)) == len(op.inputs)


def _depth(op: Operation) -> int:
    """Terms of each of a product's sums."""
    shape = shape_of(op.inputs[1])
    if op.operation == "conv":
        return shape[1] * shape[2] * shape[3]
    return shape[-1] if op.get("transpose_b", False) else shape[-2]


def _place(network: NetworkOp, steps: list[Operation], sites: Sites) -> None:
    """Fill ``roots``: operands of integer operations, in program order."""
    touched = {value for op in sites.integer for value in computed(op)} - sites.inside
    for value in (*(v for _, v in network.inputs), *(op.result for op in steps)):
        if value not in touched:
            continue
        owner = value.owner
        shares = isinstance(owner, Operation) and owner in sites.integer
        if shares and isinstance(owner, Operation) and owner.operation in SHARING:
            sites.roots[value] = sites.roots[owner.inputs[0]]
        else:
            sites.roots[value] = value
