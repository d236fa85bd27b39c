"""Operator sets before 9: what their operators mean in the terms of the ninth.

Most changed only the element types that they allow. Of the others some are adapted here; the rest
are refused, for a rule of today would give them a wrong meaning.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from tilewright.frontends.emitter import NetworkBuilder
from tilewright.frontends.onnx.lowering import Lowering, Value
from tilewright.frontends.onnx.nodes import AttributeValue, Node

FIRST = 9
"""The oldest operator set that the rules are written for."""

BROADCASTING = frozenset(
    ["Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor"]
)
"""Before operator set 7 the second operand lay along given axes of the first."""

_IGNORED: Mapping[str, frozenset[str]] = {
    # The operand is broadcast where its shape asks for it, in any version.
    "Gemm": frozenset(("broadcast",)),
    # A hint whether the first result is wanted, which the outputs say too.
    **dict.fromkeys(("GRU", "LSTM", "RNN"), frozenset(("output_sequence",))),
    **dict.fromkeys(("BatchNormalization", "Dropout"), frozenset(("is_test", "spatial"))),
}
"""Attributes that are read here, or that change nothing."""


def check(node: Node, schema: onnx.defs.OpSchema) -> None:
    """Raise TilewrightError for a node whose operator meant something else than in set 9."""
    if node.domain or node.version >= FIRST or node.operator == "Scan":
        return  # Scan's rule knows both forms.
    try:
        today = onnx.defs.get_schema(node.operator, FIRST, "")
    except onnx.defs.SchemaError:
        today = None
    if today is not None:
        gone = set(schema.attributes) - set(today.attributes) - _IGNORED.get(node.operator, set())
        if node.operator in BROADCASTING:
            gone -= {"axis", "broadcast"}
        same = schema.min_input == today.min_input and schema.max_input <= today.max_input
        if same and not gone:
            return
    raise node.refuse(
        f"in operator set {node.version} this operator has another form",
        code="onnx-opset",
        help="convert the model with onnx.version_converter.convert_version(model, 13)",
    )


def adapted(
    node: Node,
    attributes: dict[str, AttributeValue],
    operands: list[Value | None],
    network: NetworkBuilder,
) -> list[Value | None]:
    """The operands as the rules of today take them; old attributes leave ``attributes``.

    Raises TilewrightError for training, which old models mark in the node.
    """
    if node.domain or node.version >= FIRST:
        return operands
    at = Lowering(node, attributes, operands, network)
    old = node.version < 7
    if node.operator in BROADCASTING and old:
        operands = [operands[0], _along(at)]
    elif node.operator == "PRelu" and old and len(at.shape(1)) == 1:
        # One slope for each channel, or one for all.
        single = at.shape(1) == (1,)
        wide = () if single else (*at.shape(1), *(1 for _ in at.shape(0)[2:]))
        operands = [operands[0], at.reshaped(at.operand(1), wide)]
    elif node.operator in ("BatchNormalization", "Dropout"):
        if old and not at.integer("is_test"):
            raise at.refuse("it is in training mode", help="export the model for inference")
        if not at.integer("spatial", 1):
            raise at.refuse("statistics for each element are not computed")
    for name in ("axis", "broadcast") if node.operator in BROADCASTING else ():
        attributes.pop(name, None)
    return operands


def _along(at: Lowering) -> Value:
    """The second operand, which lies along axes of the first from ``axis`` on, or the last ones."""
    shape, other = at.shape(0), at.shape(1)
    if not at.integer("broadcast"):
        if shape != other:
            raise at.misfit(f"{list(other)} is not {list(shape)}")
        return at.operand(1)
    last = len(shape) - len(other)
    axis = at.axis(at.integer("axis"), len(shape)) if "axis" in at.attributes else max(last, 0)
    if axis > last:
        raise at.misfit(f"{list(other)} does not lie in {list(shape)}")
    return at.reshaped(at.operand(1), (*other, *(1 for _ in range(last - axis))))
