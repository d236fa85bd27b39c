"""Operators of ONNX Runtime's own domain, com.microsoft, as its exporters and optimiser write them.

They have no schema in ONNX: each states here what its nodes may have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onnx import AttributeProto

from tilewright.frontends.onnx.lowering import Rule
from tilewright.frontends.onnx.microsoft import (
    attention,
    blocked,
    experts,
    fused,
    group_query,
    quantised,
)
from tilewright.frontends.onnx.nodes import AttributeValue, Node, given_attributes
from tilewright.frontends.onnx.operators import elementwise, normalisation, quantisation

DOMAIN = "com.microsoft"

_TYPES: Mapping[int, str] = {
    AttributeProto.INT: """
        K N accuracy_level axis bits block_size ceil_mode channels_last count_include_pad
        do_rotary expert_weight_bits gather_axis group hidden_size input_forget interleaved
        is_inner_broadcast is_packed_batching k keepdims kv_num_heads local_window_size
        mask_index_type normalize_routing_weights num_heads opset past_present_share_buffer
        qk_output quantize_axis rotary_embedding_dim rotary_interleaved smooth_softmax
        stash_type swiglu_fusion transA transB transBatchA transBatchB unidirectional
        use_sparse_mixer
    """,
    AttributeProto.INTS: "axes dilations kernel_shape pads qkv_hidden_sizes strides",
    AttributeProto.FLOAT: """
        activation_alpha activation_beta activation_gamma alpha beta clip epsilon mask_filter_value
        scale softcap swiglu_limit
    """,
    AttributeProto.FLOATS: "activation_params",
    AttributeProto.STRING: "activation activation_type auto_pad direction",
    AttributeProto.STRINGS: "activations",
}
_TYPE_OF = {name: kind for kind, names in _TYPES.items() for name in names.split()}


@dataclass(frozen=True)
class Contributed:
    """An operator of the domain com.microsoft: its rule, and what its nodes may have."""

    rule: Rule
    least: int
    """Inputs that a node must have."""
    most: int
    """Inputs that it can have."""
    attributes: str = ""
    """Names of attributes, with a type after a colon if it is not the one of _TYPES."""
    outputs: int = 1
    """Outputs that it can have."""
    optional: tuple[int, ...] = ()
    """Inputs before ``least`` that may be left out."""
    plain: bool = False
    """True if ONNX Runtime also writes it into the default domain."""

    def values(self, node: Node) -> dict[str, AttributeValue]:
        """The node's attributes; raises TilewrightError for what the operator does not have."""
        kinds: dict[str, int] = {}
        for word in self.attributes.split():
            name, _, kind = word.partition(":")
            kinds[name] = AttributeProto.AttributeType.Value(kind) if kind else _TYPE_OF[name]
        values = given_attributes(node, kinds)
        presence = [bool(name) for name in node.inputs]
        needed = [place for place in range(self.least) if place not in self.optional]
        if not self.least <= len(presence) <= self.most or not all(presence[i] for i in needed):
            raise node.refuse(
                f"it has inputs {presence.count(True)} of {self.least} to {self.most}"
            )
        if not 1 <= len(node.outputs) <= self.outputs:
            raise node.refuse(f"it cannot have {len(node.outputs)} outputs")
        return values


_NORMALISED = "axis epsilon stash_type"
_WINDOW = "auto_pad dilations kernel_shape pads strides"
_CONV = f"{_WINDOW} group"
_HEADS = "num_heads mask_filter_value scale unidirectional"
_EXPERTS = """
    k activation_type normalize_routing_weights use_sparse_mixer swiglu_fusion
    activation_alpha activation_beta swiglu_limit
"""
_SHARED = "do_rotary past_present_share_buffer"

CONTRIBUTED: Mapping[str, Contributed] = {
    "Attention": Contributed(
        attention.attention,
        2,
        7,
        f"{_HEADS} {_SHARED} qkv_hidden_sizes rotary_embedding_dim",
        outputs=2,
    ),
    "BiasGelu": Contributed(fused.bias_gelu, 2, 2),
    "BiasSoftmax": Contributed(fused.bias_softmax, 2, 2, "axis is_inner_broadcast"),
    "DequantizeLinear": Contributed(quantisation.dequantize, 2, 3, "axis"),
    "DynamicQuantizeLSTM": Contributed(
        quantised.dynamic_quantize_lstm,
        12,
        12,
        "activations activation_alpha:FLOATS activation_beta:FLOATS clip direction hidden_size "
        "input_forget",
        outputs=3,
        optional=(3, 4, 5, 6, 7),
    ),
    "DynamicQuantizeMatMul": Contributed(quantised.dynamic_quantize_matmul, 3, 5),
    "EmbedLayerNormalization": Contributed(
        fused.embed_layer, 7, 9, "epsilon mask_index_type", outputs=3, optional=(1, 4)
    ),
    "FastGelu": Contributed(fused.fast_gelu, 1, 2),
    "FusedConv": Contributed(fused.conv, 2, 4, f"{_CONV} activation activation_params"),
    "FusedGemm": Contributed(
        fused.gemm,
        2,
        3,
        "alpha beta transA transB activation activation_alpha activation_beta activation_gamma",
    ),
    "FusedMatMul": Contributed(fused.matmul, 2, 2, "alpha transA transB transBatchA transBatchB"),
    "GatherBlockQuantized": Contributed(
        blocked.gather_block_quantized, 3, 4, "bits block_size gather_axis quantize_axis"
    ),
    "Gelu": Contributed(elementwise.unary("gelu"), 1, 1),
    "GroupQueryAttention": Contributed(
        group_query.group_query_attention,
        7,
        14,
        "num_heads kv_num_heads scale softcap do_rotary rotary_interleaved local_window_size "
        "smooth_softmax qk_output",
        outputs=4,
        optional=(1, 2, 3, 4),
    ),
    "LayerNormalization": Contributed(
        normalisation.layer_normalization, 2, 3, _NORMALISED, outputs=3, plain=True
    ),
    "MatMulIntegerToFloat": Contributed(quantised.matmul_integer_to_float, 4, 7),
    "MatMulNBits": Contributed(blocked.matmul_n_bits, 3, 6, "K N accuracy_level bits block_size"),
    "MoE": Contributed(experts.mixture, 3, 8, _EXPERTS),
    "MultiHeadAttention": Contributed(attention.multi_head_attention, 1, 10, _HEADS, outputs=3),
    "NhwcMaxPool": Contributed(quantised.channels_last_max_pool, 1, 1, f"{_WINDOW} ceil_mode"),
    "QAttention": Contributed(
        attention.quantised_attention, 5, 9, f"{_HEADS} {_SHARED}", outputs=2
    ),
    "QGemm": Contributed(quantised.gemm, 6, 9, "alpha transA transB"),
    "QLinearAdd": Contributed(quantised.pair("add"), 7, 8),
    "QLinearAveragePool": Contributed(
        quantised.average_pool,
        4,
        5,
        f"{_WINDOW} ceil_mode count_include_pad channels_last",
    ),
    "QLinearConcat": Contributed(quantised.concat, 5, 1024, "axis"),
    "QLinearConv": Contributed(quantised.convolution, 8, 9, f"{_CONV} channels_last"),
    "QLinearGlobalAveragePool": Contributed(quantised.global_average_pool, 4, 5, "channels_last"),
    "QLinearLeakyRelu": Contributed(quantised.leaky_relu, 4, 5, "alpha"),
    "QLinearMul": Contributed(quantised.pair("mul"), 7, 8),
    "QLinearReduceMean": Contributed(quantised.reduce_mean, 4, 5, "axes keepdims"),
    "QLinearSigmoid": Contributed(quantised.sigmoid, 4, 5),
    "QLinearSoftmax": Contributed(quantised.softmax, 5, 5, "axis opset"),
    "QLinearWhere": Contributed(quantised.where, 9, 9),
    "QMoE": Contributed(
        experts.quantised_mixture, 7, 15, f"{_EXPERTS} block_size expert_weight_bits", optional=(4,)
    ),
    "QuantizeLinear": Contributed(quantisation.quantize, 2, 3, "axis"),
    "QuickGelu": Contributed(fused.quick_gelu, 1, 1, "alpha"),
    "RotaryEmbedding": Contributed(
        attention.rotary_embedding,
        4,
        4,
        "interleaved is_packed_batching num_heads rotary_embedding_dim scale",
    ),
    "SimplifiedLayerNormalization": Contributed(
        fused.simplified, 2, 2, _NORMALISED, outputs=2, plain=True
    ),
    "SkipLayerNormalization": Contributed(fused.skip_layer, 3, 5, "epsilon", outputs=4),
    "SkipSimplifiedLayerNormalization": Contributed(
        fused.skip_simplified, 3, 4, "epsilon", outputs=4
    ),
}
"""The importer and signature of each operator, by its name."""


def contributed(node: Node, *, known: bool) -> Contributed | None:
    """The operator of a node of this domain, or of the default one where ONNX does not know it."""
    operator = CONTRIBUTED.get(node.operator)
    if operator is None or node.domain not in ("", DOMAIN):
        return None
    return operator if node.domain == DOMAIN or (operator.plain and not known) else None
