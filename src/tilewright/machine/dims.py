"""The operations that a primitive can name, and the dims that each has in expressions.

The names are those of the graph's operations (graph/operations/), the dims those of their loop
nests (``stage``), of every rank; tests/machine/test_dims.py compares them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tilewright.numerics.operators import operators

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
    "piece_conv": _PLAIN,
    "separable_conv": ("n", "co", "oh", "ow", "c", "kh", "kw"),
    # The last two are the places of a pool's windows in a tile of results
    # (planning/space/pooling.py).
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
    **dict.fromkeys(("depthwise_conv", *operators("window")), _WINDOWS),
    **dict.fromkeys(("matmul", "piece_matmul"), _PRODUCT),
    **dict.fromkeys(("lrn", "lrn_gradient"), _LRN),
    "maximum_gradient": ("n", "j", "p", "k"),
    "attention": ("b0", "b1", "m", "e", "t", "d"),
    "attention_weights": ("b0", "b1", "m", "t"),
    "block_round": (*_numbered("b"), "m", "s", "w", "k"),
    "block_matmul": (*_numbered("b"), "m", "co", "s", "w", "j", "z"),
    "block_gather": ("m", "k", "v", "j", "z"),
    "rotate": ("m", "h", "d", "u"),
    "cached_attention": ("g", "m", "r", "e", "d", "u", "l", "p"),
    "channel_shuffle": ("n", "a", "b", "h", "w"),
    **dict.fromkeys(("softmax", "layer_norm", "arg_sort", "running_sum", "running_product"), _ROWS),
    **dict.fromkeys((*operators("fold"), "arg_max", "arg_min"), _REDUCED),
    "concat": (*_ROWS, "parts"),
    "gather": (*_POINTS, "v"),
    "scatter": (*_POINTS, "u"),
    "non_max_suppression": ("d0", "d1", "r", "m", "s"),
    **dict.fromkeys((*operators("view"), "pad", "interleave"), _POINTS),
    **dict.fromkeys(operators("map"), _POINTS),
}
"""Operation -> its dims, those that reduce last. An operation has those that its rank asks for."""


def dims_of(operations: Iterable[str]) -> frozenset[str]:
    """The dims that any of these operations has; unknown operations have none."""
    return frozenset(dim for operation in operations for dim in DIMS.get(operation, ()))
