"""Element types around the rules: half-precision arithmetic goes by way of float32.

Operators that move elements take any type. All others get operands of float16 and bfloat16 as
float32, and their float32 results become the operands' type again, as ONNX's reference has it.
Codes of formats of at most 8 bits are decoded for them.
"""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np

from tilewright.frontends.onnx.lowering import Lowering, Rule, Value, dtype_of_value
from tilewright.frontends.onnx.tensors import Constant
from tilewright.ir import SSAValue
from tilewright.ir.types import Array

SHORT = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))
"""Floats that are kept, but not computed on."""

_MOVERS = """
    Attention BitCast Cast CastLike Compress Concat DepthToSpace DequantizeLinear Expand EyeLike
    Flatten Gather GatherBlockQuantized GatherElements GatherND Identity QLinearMatMul
    QuantizeLinear Reshape ReverseSequence Shape Size Slice Softmax SpaceToDepth Split Squeeze
    TensorScatter Tile Transpose Trilu Unsqueeze Upsample Where
"""

MOVERS = frozenset(_MOVERS.split())
"""Operators whose rules take float16 and bfloat16 as they are."""


def apply(rule: Rule, at: Lowering) -> Sequence[Value]:
    """The results of a rule."""
    if at.node.operator not in MOVERS:
        at.operands = [None if value is None else at.decoded(value) for value in at.operands]
    short = next((d for d in map(_dtype, at.operands) if d in SHORT), None)
    if short is not None and at.node.operator not in MOVERS:
        at.operands = [_widened(at, value) for value in at.operands]
    result = rule(at)
    results = [result] if isinstance(result, SSAValue | Constant) else list(result)
    if short is None or at.node.operator in MOVERS:
        return results
    return [_narrowed(at, value, short) for value in results]


def _dtype(value: Value | None) -> np.dtype[np.generic] | None:
    return None if value is None else dtype_of_value(value)


def _widened(at: Lowering, value: Value | None) -> Value | None:
    if _dtype(value) not in SHORT:
        return value
    if isinstance(value, Constant):
        return Constant(value.array.astype(np.float32), value.name)
    assert value is not None
    return at.cast(value, np.float32)


def _narrowed(at: Lowering, value: Value, short: np.dtype[np.generic]) -> Value:
    if _dtype(value) != np.float32:
        return value
    if isinstance(value, Constant):
        array: Array = value.array.astype(short)
        return Constant(array, value.name)
    return at.cast(value, short)
