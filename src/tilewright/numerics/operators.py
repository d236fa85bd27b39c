"""Traits of the operations, and the functions of one number with their C.

Passes, machines and code generators ask for traits (``operators``, ``has``), so that an operation
is listed here alone. A function of one number is one definition in ``FUNCTIONS``, C included; one
that fixed point reads off a table has an entry in numerics/tables.py besides, any other in
numerics/pointwise.py. The graph's operation and every target's C come from the definition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal, get_args

Trait = Literal[
    "map",  # gives each element from the elements of its operands at that place
    "function",  # a map of one real number
    "arithmetic",  # a map of two real numbers, as machines with vector instructions have it
    "commutative",  # a map of two numbers whose order does not matter
    "table",  # a function that fixed point interpolates in a table
    "activation",  # a function that networks have after products
    "finite",  # a map that gives finite numbers for finite ones
    "homogeneous",  # f(c x) = c f(x) for each channel's positive factor c
    "saturates",  # limits numbers to constant bounds, which a saturating conversion can do
    "keeping",  # has the type of its first operand in fixed point
    "selecting",  # gives numbers of its operands, as they are
    "coded",  # takes codes of formats of at most 8 bits (codes.py), too
    "view",  # elements of one operand at other places, which may turn out to be addresses
    "join",  # elements of several operands beside one another, as may their places
    "window",  # reads windows of an image
    "product",  # a sum of products with weights
    "fold",  # puts elements along axes together, two by two
    "affine",  # goes between floats and quantised integers, or stays on these
    "internal",  # added by passes; no model has it
]


@dataclass(frozen=True)
class Function:
    """A function of one number ``a``."""

    c: str
    """C of the function on one element, as a line of the macro SCALARS (targets/cpu/scalars.h): of
    type T, with F(name) for a function of the C library and name_##S(a) for another one of these.
    Vectors take element by element what vectors.h has no form of."""
    traits: tuple[Trait, ...] = ()
    """Traits of the operation beside "map" and "function"."""
    parameters: Mapping[str, float] = field(default_factory=dict[str, float])
    """Attributes with their defaults, in the order in which they follow ``a``."""


_TABLE: tuple[Trait, ...] = ("table", "finite")
_ACTIVATION: tuple[Trait, ...] = (*_TABLE, "activation")
_BOUNDING: tuple[Trait, ...] = (*_ACTIVATION[1:], "map", "function", "keeping", "saturates")

FUNCTIONS: dict[str, Function] = {
    "sigmoid": Function("1 / (1 + F(exp)(-a))", _ACTIVATION),
    "tanh": Function("F(tanh)(a)", _ACTIVATION),
    "hard_sigmoid": Function(
        "clip_##S(a * alpha + beta, 0, 1)", _ACTIVATION, {"alpha": 0.2, "beta": 0.5}
    ),
    "hard_swish": Function("a * hard_sigmoid_##S(a, (T)1 / 6, (T)0.5)", _ACTIVATION),
    "silu": Function("a * sigmoid_##S(a)", _ACTIVATION),
    "exp": Function("F(exp)(a)", _TABLE),
    "log": Function("F(log)(a)", ("table",)),
    "sqrt": Function("F(sqrt)(a)", _TABLE),
    "erf": Function("F(erf)(a)", _TABLE),
    "elu": Function("a < 0 ? alpha * F(expm1)(a) : a", _ACTIVATION, {"alpha": 1.0}),
    "softplus": Function("F(fmax)(a, 0) + F(log1p)(F(exp)(-F(fabs)(a)))", _ACTIVATION),
    "gelu": Function("(T)0.5 * a * (1 + F(erf)(a * (T)0.70710678118654752))", _ACTIVATION),
    "floor": Function("F(floor)(a)"),
    "ceil": Function("F(ceil)(a)"),
    "round": Function("F(rint)(a)"),
    **{
        name: Function(f"F({name})(a)")
        for name in (
            *("sin", "cos", "tan", "asin", "acos", "atan"),
            *("sinh", "cosh", "asinh", "acosh", "atanh"),
        )
    },
}
"""Functions of one float, by the names of their operations; ``round`` takes the even one of two."""

PARAMETERS: dict[str, Mapping[str, float]] = {
    "clip": {"minimum": float("-inf"), "maximum": float("inf")},
    "leaky_relu": {"alpha": 0.01},
    **{name: function.parameters for name, function in FUNCTIONS.items()},
}
"""Attributes of functions of one number, with what stands for one that is absent."""


def _are(names: str, *traits: Trait) -> dict[str, frozenset[Trait]]:
    return dict.fromkeys(names.split(), frozenset(traits))


OPERATORS: dict[str, frozenset[Trait]] = {
    **_are("relu", *_BOUNDING, "homogeneous"),
    **_are("leaky_relu", *_ACTIVATION[1:], "map", "function", "homogeneous", "keeping"),
    **_are("clip", *_BOUNDING),
    **_are("neg abs", "map", "function", "finite", "keeping"),
    **_are("sign", "map", "function"),
    **{
        name: frozenset[Trait](("map", "function", *function.traits))
        for name, function in FUNCTIONS.items()
    },
    **_are("add mul", "map", "arithmetic", "finite", "commutative"),
    **_are("sub", "map", "arithmetic", "finite"),
    **_are("max min", "map", "arithmetic", "finite", "commutative", "keeping", "selecting"),
    **_are("div pow", "map", "arithmetic"),
    **_are("prelu", "map", "arithmetic", "finite", "keeping"),
    **_are("mod equal less less_equal bit_and bit_or bit_xor bit_shift bit_not", "map"),
    **_are("identity copy batch_norm", "map"),
    **_are("bit_cast select", "map", "coded"),
    **_are("cast", "map", "finite", "selecting", "coded"),
    **_are("quantise dequantise requantise", "map", "finite", "internal"),
    **_are("convert_layout", "map", "finite", "internal", "coded"),
    **_are("quantise_linear dequantise_linear", "map", "finite", "affine"),
    **_are(
        "requantise_linear add_linear mul_linear look_up", "map", "finite", "affine", "internal"
    ),
    **_are("reshape transpose slice", "view", "selecting", "coded"),
    **_are("concat", "join", "selecting", "coded"),
    **_are("interleave", "join", "selecting", "internal", "coded"),
    **_are("gather", "selecting", "coded"),
    **_are("pad", "keeping", "selecting"),
    **_are("max_pool", "window", "homogeneous", "keeping", "selecting"),
    **_are("average_pool", "window", "homogeneous", "keeping"),
    **_are("conv depthwise_conv matmul", "product"),
    **_are("reduce_mean", "fold", "keeping"),
    **_are("reduce_sum reduce_product", "fold"),
    **_are("reduce_max reduce_min", "fold", "selecting"),
    **_are("arg_max arg_min arg_sort running_sum running_product scatter lrn softmax"),
    **_are("non_max_suppression"),
    **_are("piece_conv piece_matmul separable_conv sparse_product", "internal"),
    **_are("channel_shuffle", "internal", "coded"),
    **_are("winograd_conv winograd_input winograd_output im2col", "internal"),
    **_are("block_round block_matmul block_gather rotate cached_attention", "internal"),
    **_are("layer_norm attention attention_weights maximum_gradient lrn_gradient", "internal"),
}
"""Every operation of the graph, and every stage of a kernel by its name, with its traits."""


def operators(*traits: Trait) -> tuple[str, ...]:
    """The operations that have any of the traits."""
    return tuple(name for name, kinds in OPERATORS.items() if not kinds.isdisjoint(traits))


def has(operation: str, *traits: Trait) -> bool:
    """Return True if an operation has any of the traits."""
    return not OPERATORS.get(operation, frozenset()).isdisjoint(traits)


def named(names: Iterable[str]) -> tuple[str, ...]:
    """The names, with the operations that have it for each that is a trait's."""
    traits: dict[str, Trait] = {trait: trait for trait in get_args(Trait)}
    known = (operators(traits[name]) if name in traits else (name,) for name in names)
    return tuple(dict.fromkeys(chain.from_iterable(known)))
