"""Mixtures of experts, MoE and QMoE: all experts are computed, and a row adds those it chose.

An expert is two layers with an activation between. Weights of QMoE are dequantised at import.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.frontends.moves import cut
from tilewright.frontends.onnx.lowering import Lowering, Value
from tilewright.frontends.onnx.microsoft.blocked import known, packed_bytes
from tilewright.frontends.onnx.narrow import unpacked
from tilewright.frontends.onnx.operators.elementwise import gelu_by_tanh
from tilewright.frontends.onnx.tensors import Constant
from tilewright.ir import SSAValue
from tilewright.ir.types import Array, shape_of


@dataclass(frozen=True)
class Layer:
    """The places of a layer's operands: weights [experts, outputs, inputs], and a bias for each."""

    weight: int
    bias: int
    scales: int = 0
    zeros: int = 0


def mixture(at: Lowering) -> SSAValue:
    """Operands: rows, [rows, experts], fc1 and its bias, fc2 and its bias, fc3 (refused)."""
    if at.has(6) or at.has(7):
        raise at.refuse("a third layer of experts is not computed")
    return _mixed(at, [_turned(at, at.operand(2)), _turned(at, at.operand(4))], (3, 5))


def quantised_mixture(at: Lowering) -> SSAValue:
    """Operands: rows, [rows, experts], weights, scales and bias of three layers, zero points.

    Numbers of 4 or 8 bits lie in bytes along the last axis; scales are one for each output, or one
    for each block of an output's inputs.
    """
    if any(at.has(index) for index in (8, 9, 10, 13, 14)):
        raise at.refuse("a third layer of experts, or weights beside the router's, is not computed")
    layers = (Layer(2, 4, 3, 11), Layer(5, 7, 6, 12))
    weights = [
        _turned(at, Constant(_dequantised(at, layer), f"{at.node.name}.weight{layer.weight}"))
        for layer in layers
    ]
    return _mixed(at, weights, (4, 7))


def _dequantised(at: Lowering, layer: Layer) -> Array:
    bits = at.integer("expert_weight_bits", 4)
    if bits not in (4, 8):
        raise at.refuse(f"weights of {bits} bits; 4 and 8 are possible")
    packed = packed_bytes(at, known(at, layer.weight), layer.weight)
    numbers = unpacked(packed, bits) if bits < 8 else packed
    scales = known(at, layer.scales).astype(np.float32)
    if numbers.ndim != 3 or scales.shape[:2] != numbers.shape[:2]:
        raise at.misfit("its scales do not fit its weights")
    scales = scales.reshape(*scales.shape[:2], -1)
    block = at.integer("block_size") or numbers.shape[2]
    zeros: Array = np.full(scales.shape, 2 ** (bits - 1), np.uint8)
    if at.has(layer.zeros):
        stored = packed_bytes(at, known(at, layer.zeros), layer.zeros)
        stored = stored.reshape(*scales.shape[:2], -1)
        zeros = (unpacked(stored, bits) if bits < 8 else stored)[..., : scales.shape[2]]
    if -(-numbers.shape[2] // block) != scales.shape[2] or zeros.shape != scales.shape:
        raise at.misfit("its scales or zero points are not those of its blocks")
    scale, zero = (
        np.repeat(a.astype(np.float32), block, 2)[..., : numbers.shape[2]] for a in (scales, zeros)
    )
    return (numbers.astype(np.float32) - zero) * scale


def _turned(at: Lowering, weight: Value) -> SSAValue:
    """Weights [experts, inputs, outputs] in float32."""
    if isinstance(weight, Constant):
        turned = np.ascontiguousarray(weight.array.astype(np.float32).swapaxes(-1, -2))
        return at.weight(turned, weight.name)
    return at.cast(at.transpose(weight, (0, 2, 1)), np.float32)


def _mixed(at: Lowering, weights: list[SSAValue], biases: tuple[int, int]) -> SSAValue:
    """The sum of the chosen experts' results for each row, weighted."""
    shape, dtype = at.shape(0), at.dtype(0)
    if len(at.shape(1)) != 2 or any(len(shape_of(weight)) != 3 for weight in weights):
        raise at.misfit("its router has no row of experts for each row, or a weight is no stack")
    rows, experts = at.shape(1)
    x = at.reshape(at.cast(at.tensor(0), np.float32), (1, rows, shape[-1]))
    value = at.emit("matmul", x, weights[0])
    value = _activated(at, _biased(at, value, biases[0]))
    value = _biased(at, at.emit("matmul", value, weights[1]), biases[1])
    shares = at.transpose(_shares(at, at.cast(at.tensor(1), np.float32)), (1, 0))
    value = at.emit("mul", value, at.reshape(shares, (experts, rows, 1)))
    total = at.emit("reduce_sum", value, axes=(0,), keep_dims=False)
    return at.cast(at.reshape(total, shape), dtype)


def _biased(at: Lowering, value: SSAValue, index: int) -> SSAValue:
    if not at.has(index):
        return value
    experts, count = at.shape(index)
    bias = at.cast(at.tensor(index), np.float32)
    return at.emit("add", value, at.reshape(bias, (experts, 1, count)))


def _shares(at: Lowering, scores: SSAValue) -> SSAValue:
    """The weight of each expert for each row: softmax, and 0 for all but the k largest."""
    if at.integer("use_sparse_mixer"):
        raise at.refuse("a sparse mixer is not computed")
    k, experts = at.integer("k", 1), shape_of(scores)[1]
    if not 1 <= k <= experts:
        raise at.refuse(f"{k} of {experts} experts")
    order = at.emit("arg_sort", scores, axis=1, descending=True)
    rank = at.emit("arg_sort", order, axis=1)
    shares = at.emit("softmax", scores, axis=1)
    shares = at.apply("mul", shares, at.cast(at.apply("less", rank, k), np.float32))
    if not at.integer("normalize_routing_weights"):
        return shares
    total = at.emit("reduce_sum", shares, axes=(1,), keep_dims=True)
    return at.emit("div", shares, total)


def _activated(at: Lowering, value: SSAValue) -> SSAValue:
    """The attribute ``activation_type``; SwiGLU has the gate and what it lets through by turns."""
    name = at.text("activation_type", "relu")
    match name:
        case "relu" | "silu":
            return at.emit(name, value)
        case "gelu":
            return gelu_by_tanh(at, value)
        case "identity":
            return value
        case "swiglu" if at.integer("swiglu_fusion") in (1, 2):
            return _gated(at, value)
        case _:
            raise at.refuse(f"the activation {name!r}, or its form, is not computed")


def _gated(at: Lowering, value: SSAValue) -> SSAValue:
    """gate * sigmoid(alpha * gate) * (linear + beta), both limited."""
    both = shape_of(value)[2]
    if both % 2:
        raise at.misfit("its gates do not pair")
    half = both // 2
    by_turns = at.integer("swiglu_fusion") == 1
    parts = [(n, both, 2) if by_turns else (n * half, (n + 1) * half, 1) for n in (0, 1)]
    gate, linear = (cut(at, value, {2: part}) for part in parts)
    limit = at.number("swiglu_limit") if "swiglu_limit" in at.attributes else None
    if limit is not None:
        gate = at.emit("clip", gate, maximum=limit)
        linear = at.emit("clip", linear, minimum=-limit, maximum=limit)
    scaled = at.apply("mul", gate, at.number("activation_alpha", 1.0))
    gate = at.emit("mul", gate, at.emit("sigmoid", scaled))
    return at.emit("mul", gate, at.apply("add", linear, at.number("activation_beta")))
