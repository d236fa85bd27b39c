"""Maps of single elements match JAX, for every element type that has them."""

import numpy as np
import pytest

from tests.frontends.stablehlo.programs import REASON, check, integers, normal, operations

jax = pytest.importorskip("jax", reason=REASON)
jnp, lax = jax.numpy, jax.lax

X, Y = normal(4, 5) * 3, normal(4, 5, seed=1)
A, B = integers(50, 4, 5, low=-50), integers(10, 4, 5, low=1)

FAMILIES = {
    "rounding": lambda x: (
        jnp.ceil(x),
        jnp.floor(x),
        jnp.round(x * 2) / 2,
        lax.round(jnp.round(x * 2) / 2, lax.RoundingMethod.AWAY_FROM_ZERO),
        jnp.sign(x),
        jnp.abs(x),
        -x,
    ),
    "trigonometry": lambda x: (jnp.sin(x), jnp.cos(x), jnp.tan(x), jnp.arctan(x)),
    "inverses": lambda x: (jnp.arcsin(x / 20), jnp.arccos(x / 20), jnp.arctanh(x / 20)),
    "hyperbolic": lambda x: (jnp.sinh(x), jnp.cosh(x), jnp.tanh(x), jnp.arcsinh(x)),
    "exponentials": lambda x: (jnp.exp(x), jnp.expm1(x), jnp.exp2(x), jnp.cbrt(x)),
    "roots": lambda x: (jnp.sqrt(jnp.abs(x)), lax.rsqrt(jnp.abs(x) + 0.1), jnp.square(x)),
    "logarithms": lambda x: (jnp.log(jnp.abs(x) + 0.1), jnp.log1p(jnp.abs(x))),
    "errors": lambda x: (lax.erf(x), lax.erfc(x / 2)),
    "activations": lambda x: (
        jax.nn.relu(x),
        jax.nn.relu6(x),
        jax.nn.gelu(x),
        jax.nn.silu(x),
        jax.nn.elu(x),
        jax.nn.leaky_relu(x),
        jax.nn.softplus(x),
        jax.nn.hard_swish(x),
    ),
    "bounds": lambda x: (jnp.clip(x, -0.5, 0.7), jnp.minimum(x, 1.0), jnp.maximum(-1.0, x)),
    "classes": lambda x: (jnp.isfinite(1 / jnp.round(x)), jnp.isnan(x / x)),
    "softmax": lambda x: (jax.nn.softmax(x), jax.nn.softmax(x, 0), jax.nn.log_softmax(x)),
    "logsumexp": lambda x: jax.nn.logsumexp(x, axis=1),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_functions(name):
    check(FAMILIES[name], X)


def test_small_numbers_keep_their_digits():
    """expm1 and log1p of tiny numbers are as good as the numbers."""
    check(lambda x: (jnp.expm1(x * 1e-6) * 1e6, jnp.log1p(x * 1e-6) * 1e6), X)


def test_two_operands():
    check(
        lambda x, y: (x + y, x - y, x * y, x / y, jnp.maximum(x, y), jnp.minimum(x, y)),
        X,
        Y,
    )
    check(lambda x, y: (lax.rem(x, y), jnp.mod(x, y), jnp.abs(x) ** y), X, Y)


def test_comparisons_and_choice():
    check(lambda x, y: (x < y, x <= y, x > y, x >= y, x == y, x != y), X.round(), Y.round())
    check(lambda x, y: (jnp.where(x > 0, x, y), lax.select(x[0, 0] > 9, x, y)), X, Y)
    check(lambda a, b: (a < b, a >= b, a == b, a != b), A, B)


def test_integers():
    check(
        lambda a, b: (a + b, a - b, a * b, lax.div(a, b), lax.rem(a, b), a // b, a % b, -a),
        A,
        B,
    )
    check(lambda a, b: (jnp.maximum(a, b), jnp.clip(a, -3, 7), jnp.abs(a), jnp.sign(a)), A, B)
    check(lambda a, b: (a & b, a | b, a ^ b, ~a, a << 3, a >> 2), A, B)
    check(lambda a: (a.astype(jnp.uint8) >> 3, a.astype(jnp.int8) * 3), A)


def test_booleans():
    check(
        lambda a: (
            (a > 0) & (a < 20),
            (a > 0) | (a < -20),
            (a > 0) ^ (a < 20),
            ~(a > 0),
            (a > 0) == (a < 5),
            (a > 0) + (a > 5),
            (a > 0) < (a > 5),
        ),
        A,
    )


def test_conversions():
    kinds = (jnp.int32, jnp.int8, jnp.float16, jnp.bfloat16, jnp.bool_)
    check(lambda x: tuple(x.astype(kind) for kind in kinds), X)
    check(lambda a: (a.astype(jnp.float32), a.astype(jnp.bool_), a.astype(jnp.uint16)), A)


def test_short_floats():
    def half(x):
        y = x.astype(jnp.bfloat16)
        return y * jnp.bfloat16(1.5) + jnp.array([1, 2, 3, 4, 5.5], jnp.bfloat16), y @ y.T

    check(half, X, tolerance=3e-2)
    check(lambda x: jax.nn.softmax(x.astype(jnp.float16)), X, tolerance=2e-3)


def test_known_forms_become_one_operation():
    """What JAX writes out in several operations is one again where the graph has it."""
    cases = [
        (jax.nn.relu, "relu"),
        (jax.nn.sigmoid, "sigmoid"),
        (jax.nn.softmax, "softmax"),
        (lambda x: jax.nn.softmax(x, 0), "softmax"),
        (jax.nn.silu, "silu"),
        (lambda x: x.mean(1), "reduce_mean"),
        (lambda x: x.reshape(1, 1, 4, 5).mean((2, 3)), "average_pool"),
        (lax.erf, "erf"),
        (lambda x: jnp.clip(x, -1, 1), "clip"),
    ]
    for function, operation in cases:
        assert operation in operations(check(function, X))[-2:]


def test_a_quotient_that_only_looks_like_a_softmax_is_not_one():
    def other(x):
        e = jnp.exp(x - x.max(0, keepdims=True))
        return e / e.sum(1, keepdims=True)

    def shifted(x):
        e = jnp.exp(x - x.max(1, keepdims=True))
        return e / e.sum(1)[None, :]

    assert "softmax" not in operations(check(other, X))
    assert "softmax" not in operations(check(shifted, normal(5, 5)))
    assert "sigmoid" not in operations(check(lambda x: 1 / (2 + jnp.exp(-x)), X))


def test_broadcasts_are_not_written_out():
    """A bias stays a row, a mean stays one number a row."""
    model = check(lambda x: (x - x.mean(1, keepdims=True)) * jnp.arange(5.0) + 2, X)
    assert "select" not in operations(model)
    assert max(array.size for array in map(model.weights.get, model.weights)) <= 5


def test_nothing_is_lost_at_the_edges():
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 0.5, -0.5, 1.5], np.float32)
    check(lambda x: (jax.nn.relu(x), jnp.sign(x), jnp.isfinite(x), jnp.maximum(x, 1.0)), x)
