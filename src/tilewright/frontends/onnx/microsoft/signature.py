"""Signatures of operators without an ONNX schema: counts of operands, and attributes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from onnx import AttributeProto

from tilewright.errors import refuse
from tilewright.frontends.limits import shown
from tilewright.frontends.onnx.lowering import Rule
from tilewright.frontends.onnx.nodes import AttributeValue, Node, decoded

NUMBERS = AttributeProto.FLOATS

_TYPES: Mapping[int, str] = {
    AttributeProto.INT: """
        axis ceil_mode channels_last count_include_pad do_rotary group hidden_size input_forget
        interleaved is_inner_broadcast is_packed_batching keepdims mask_index_type num_heads opset
        past_present_share_buffer rotary_embedding_dim stash_type transA transB transBatchA
        transBatchB unidirectional
    """,
    AttributeProto.INTS: "axes dilations kernel_shape pads qkv_hidden_sizes strides",
    AttributeProto.FLOAT: """
        activation_alpha activation_beta activation_gamma alpha beta clip epsilon mask_filter_value
        scale
    """,
    NUMBERS: "activation_params",
    AttributeProto.STRING: "activation auto_pad direction",
    AttributeProto.STRINGS: "activations",
}
_TYPE_OF = {name: kind for kind, names in _TYPES.items() for name in names.split()}


def typed(names: str, **others: int) -> dict[str, int]:
    """Attributes with AttributeProto's numbers of their types; ``others`` have an unusual one."""
    return {**{name: _TYPE_OF[name] for name in names.split()}, **others}


@dataclass(frozen=True)
class Contributed:
    """An operator of the domain com.microsoft: its rule, and what its nodes may have."""

    rule: Rule
    least: int
    """Inputs that a node must have."""
    most: int
    """Inputs that it can have."""
    attributes: Mapping[str, int] = field(default_factory=dict[str, int])
    """Name -> AttributeProto's number of the type."""
    outputs: int = 1
    """Outputs that it can have."""
    optional: tuple[int, ...] = ()
    """Inputs before ``least`` that may be left out."""
    plain: bool = False
    """True if ONNX Runtime also writes it into the default domain."""

    def values(self, node: Node) -> dict[str, AttributeValue]:
        """The node's attributes; raises TilewrightError for what the operator does not have."""
        values: dict[str, AttributeValue] = {}
        for attribute in node.proto.attribute:
            name = attribute.name
            kind = self.attributes.get(name)
            if kind is None:
                raise refuse(
                    "onnx-attribute", f"its attribute {shown(name)} is not known", node.where
                )
            if attribute.type != kind or name in values or attribute.ref_attr_name:
                raise refuse(
                    "onnx-attribute",
                    f"the attribute {shown(name)} is of the wrong type, or given twice",
                    node.where,
                )
            values[name] = decoded(node, attribute, kind)
        presence = [bool(name) for name in node.inputs]
        needed = [place for place in range(self.least) if place not in self.optional]
        if not self.least <= len(presence) <= self.most or not all(presence[i] for i in needed):
            raise refuse(
                "onnx-attribute",
                f"it has inputs {presence.count(True)} of {self.least} to {self.most}",
                node.where,
            )
        if not 1 <= len(node.outputs) <= self.outputs:
            reason = f"it cannot have {len(node.outputs)} outputs"
            raise refuse("onnx-attribute", reason, node.where)
        return values
