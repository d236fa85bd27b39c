"""The operations that a primitive can name, and the dims that each has in expressions.

The names are those of the graph's operations (graph/operations/), the dims those of their loop
nests (``stage``), of every rank; tests/machine/test_dims.py compares them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

RANK = 8
"""Axes of a tensor at most."""


def _numbered(letter: str) -> tuple[str, ...]:
    return tuple(f"{letter}{axis}" for axis in range(RANK))


_POINTS = _numbered("d")
_ROWS = (*_POINTS, "axis")
_REDUCED = (*_POINTS, *_numbered("r"))
_CONVOLUTION = ("n", "g", "co", "oh", "ow", "ci", "kh", "kw")
_PLAIN = ("n", "co", "oh", "ow", "ci", "kh", "kw")
_WINDOWS = ("n", "c", "oh", "ow", "kh", "kw")
_PRODUCT = (*_numbered("b"), "n", "m", "co", "ci")
_LRN = ("n", "c", "h", "w", "j")

DIMS: Mapping[str, tuple[str, ...]] = {
    "conv": _CONVOLUTION,
    "explicit_conv": _PLAIN,
    "piece_conv": _PLAIN,
    "separable_conv": ("n", "co", "oh", "ow", "c", "kh", "kw"),
    # The last two are the places of a pool's windows in a tile of results (planning/pooling.py).
    "winograd_conv": (
        *("n", "g", "co", "th", "tw", "r", "s", "ci", "u", "v", "kh", "kw"),
        *("pr", "ps"),
    ),
    "winograd_input": ("p", "c", "n", "th", "tw", "kh", "kw"),
    "winograd_output": ("n", "c", "th", "tw", "r", "s", "p"),
    "im2col": ("n", "c", "kh", "kw", "oh", "ow"),
    "sparse_product": (
        *("n", "cb", "cl", "oh", "ow", "cs", "cc", "kh", "kw", "e"),
        *("alone", "each", "lead"),
    ),
    **dict.fromkeys(("depthwise_conv", "max_pool", "average_pool"), _WINDOWS),
    **dict.fromkeys(("matmul", "piece_matmul"), _PRODUCT),
    **dict.fromkeys(("lrn", "lrn_gradient"), _LRN),
    "maximum_gradient": ("n", "j", "p", "k"),
    "attention": ("b0", "b1", "m", "e", "t", "d"),
    "channel_shuffle": ("n", "a", "b", "h", "w"),
    **dict.fromkeys(("softmax", "layer_norm", "arg_sort", "running_sum", "running_product"), _ROWS),
    **dict.fromkeys(
        (
            *("reduce_mean", "reduce_sum", "reduce_product", "reduce_max", "reduce_min"),
            *("arg_max", "arg_min"),
        ),
        _REDUCED,
    ),
    "concat": (*_ROWS, "parts"),
    "gather": (*_POINTS, "v"),
    "scatter": (*_POINTS, "u"),
    **dict.fromkeys(
        (
            *("relu", "clip", "leaky_relu", "sigmoid", "tanh", "hard_swish", "hard_sigmoid"),
            *("silu", "exp", "sqrt", "neg", "abs", "erf", "gelu", "log", "identity", "elu"),
            *("softplus", "batch_norm", "floor", "ceil", "round", "sign", "sin", "cos", "tan"),
            *("asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "bit_not"),
            *("cast", "bit_cast", "add", "sub", "mul", "div", "max", "min", "pow", "prelu"),
            *("mod", "select", "equal", "less", "less_equal", "bit_and", "bit_or", "bit_xor"),
            *("bit_shift", "add_linear", "mul_linear", "quantise", "dequantise", "requantise"),
            *("convert_layout", "copy", "quantise_linear", "dequantise_linear"),
            *("requantise_linear", "look_up", "transpose", "slice", "pad", "reshape"),
            "interleave",
        ),
        _POINTS,
    ),
}
"""Operation -> its dims, those that reduce last. An operation has those that its rank asks for."""


def dims_of(operations: Iterable[str]) -> frozenset[str]:
    """The dims that any of these operations has; unknown operations have none."""
    return frozenset(dim for operation in operations for dim in DIMS.get(operation, ()))
