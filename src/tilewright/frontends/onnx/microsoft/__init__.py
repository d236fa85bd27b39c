"""Operators of ONNX Runtime's own domain, com.microsoft, as its exporters and optimiser write them.

They have no schema in ONNX: each states here what its nodes may have.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.frontends.onnx.microsoft import attention, fused, normalised, quantised
from tilewright.frontends.onnx.microsoft.signature import (
    INTEGER,
    INTEGERS,
    NUMBER,
    NUMBERS,
    TEXT,
    TEXTS,
    Contributed,
)
from tilewright.frontends.onnx.nodes import Node
from tilewright.frontends.onnx.operators import elementwise, normalisation, quantisation

DOMAIN = "com.microsoft"

_EPSILON = {"epsilon": NUMBER}
_NORMALISED = {"axis": INTEGER, "epsilon": NUMBER, "stash_type": INTEGER}
_WINDOW = {
    "auto_pad": TEXT,
    "dilations": INTEGERS,
    "kernel_shape": INTEGERS,
    "pads": INTEGERS,
    "strides": INTEGERS,
}
_CONV = {**_WINDOW, "group": INTEGER}
_GEMM = {"alpha": NUMBER, "beta": NUMBER, "transA": INTEGER, "transB": INTEGER}
_HEADS = {
    "num_heads": INTEGER,
    "mask_filter_value": NUMBER,
    "scale": NUMBER,
    "unidirectional": INTEGER,
}

CONTRIBUTED: Mapping[str, Contributed] = {
    "Attention": Contributed(
        attention.attention,
        2,
        7,
        {
            **_HEADS,
            "qkv_hidden_sizes": INTEGERS,
            "do_rotary": INTEGER,
            "past_present_share_buffer": INTEGER,
            "rotary_embedding_dim": INTEGER,
        },
        outputs=2,
    ),
    "BiasGelu": Contributed(fused.bias_gelu, 2, 2),
    "BiasSoftmax": Contributed(
        fused.bias_softmax, 2, 2, {"axis": INTEGER, "is_inner_broadcast": INTEGER}
    ),
    "DequantizeLinear": Contributed(quantisation.dequantize, 2, 3, {"axis": INTEGER}),
    "DynamicQuantizeLSTM": Contributed(
        quantised.dynamic_quantize_lstm,
        12,
        12,
        {
            "activation_alpha": NUMBERS,
            "activation_beta": NUMBERS,
            "activations": TEXTS,
            "clip": NUMBER,
            "direction": TEXT,
            "hidden_size": INTEGER,
            "input_forget": INTEGER,
        },
        outputs=3,
        optional=(3, 4, 5, 6, 7),
    ),
    "DynamicQuantizeMatMul": Contributed(quantised.dynamic_quantize_matmul, 3, 5),
    "EmbedLayerNormalization": Contributed(
        normalised.embed_layer,
        7,
        9,
        {**_EPSILON, "mask_index_type": INTEGER},
        outputs=3,
        optional=(1, 4),
    ),
    "FastGelu": Contributed(fused.fast_gelu, 1, 2),
    "FusedConv": Contributed(
        fused.conv, 2, 4, {**_CONV, "activation": TEXT, "activation_params": NUMBERS}
    ),
    "FusedGemm": Contributed(
        fused.gemm,
        2,
        3,
        {
            **_GEMM,
            "activation": TEXT,
            "activation_alpha": NUMBER,
            "activation_beta": NUMBER,
            "activation_gamma": NUMBER,
        },
    ),
    "FusedMatMul": Contributed(
        fused.matmul,
        2,
        2,
        {
            "alpha": NUMBER,
            **{f"trans{part}{name}": INTEGER for part in ("", "Batch") for name in "AB"},
        },
    ),
    "Gelu": Contributed(elementwise.unary("gelu"), 1, 1),
    "LayerNormalization": Contributed(
        normalisation.layer_normalization, 2, 3, _NORMALISED, outputs=3, plain=True
    ),
    "MatMulIntegerToFloat": Contributed(quantised.matmul_integer_to_float, 4, 7),
    "MultiHeadAttention": Contributed(attention.multi_head_attention, 1, 10, _HEADS, outputs=3),
    "QAttention": Contributed(
        attention.quantised_attention,
        5,
        9,
        {**_HEADS, "do_rotary": INTEGER, "past_present_share_buffer": INTEGER},
        outputs=2,
    ),
    "QGemm": Contributed(
        quantised.gemm, 6, 9, {key: _GEMM[key] for key in ("alpha", "transA", "transB")}
    ),
    "QLinearAdd": Contributed(quantised.pair("add"), 7, 8),
    "QLinearAveragePool": Contributed(
        quantised.average_pool,
        4,
        5,
        {**_WINDOW, "ceil_mode": INTEGER, "count_include_pad": INTEGER, "channels_last": INTEGER},
    ),
    "QLinearConcat": Contributed(quantised.concat, 5, 1024, {"axis": INTEGER}),
    "QLinearConv": Contributed(quantised.convolution, 8, 9, {**_CONV, "channels_last": INTEGER}),
    "QLinearGlobalAveragePool": Contributed(
        quantised.global_average_pool, 4, 5, {"channels_last": INTEGER}
    ),
    "QLinearLeakyRelu": Contributed(quantised.leaky_relu, 4, 5, {"alpha": NUMBER}),
    "QLinearMul": Contributed(quantised.pair("mul"), 7, 8),
    "QLinearReduceMean": Contributed(
        quantised.reduce_mean, 4, 5, {"axes": INTEGERS, "keepdims": INTEGER}
    ),
    "QLinearSigmoid": Contributed(quantised.sigmoid, 4, 5),
    "QLinearSoftmax": Contributed(quantised.softmax, 5, 5, {"axis": INTEGER, "opset": INTEGER}),
    "QLinearWhere": Contributed(quantised.where, 9, 9),
    "QuantizeLinear": Contributed(quantisation.quantize, 2, 3, {"axis": INTEGER}),
    "QuickGelu": Contributed(fused.quick_gelu, 1, 1, {"alpha": NUMBER}),
    "RotaryEmbedding": Contributed(
        attention.rotary_embedding,
        4,
        4,
        {
            "interleaved": INTEGER,
            "is_packed_batching": INTEGER,
            "num_heads": INTEGER,
            "rotary_embedding_dim": INTEGER,
            "scale": NUMBER,
        },
    ),
    "SimplifiedLayerNormalization": Contributed(
        normalised.simplified, 2, 2, _NORMALISED, outputs=2, plain=True
    ),
    "SkipLayerNormalization": Contributed(normalised.skip_layer, 3, 5, _EPSILON, outputs=4),
    "SkipSimplifiedLayerNormalization": Contributed(
        normalised.skip_simplified, 3, 4, _EPSILON, outputs=4
    ),
}
"""The importer and signature of each operator, by its name."""


def contributed(node: Node, *, known: bool) -> Contributed | None:
    """The operator of a node of this domain, or of the default one where ONNX does not know it."""
    operator = CONTRIBUTED.get(node.operator)
    if operator is None or node.domain not in ("", DOMAIN):
        return None
    return operator if node.domain == DOMAIN or (operator.plain and not known) else None
