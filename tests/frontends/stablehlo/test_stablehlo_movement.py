"""Moves of elements, lookups, loops and branches match JAX."""

import numpy as np
import pytest

from tests.frontends.stablehlo.programs import REASON, check, integers, normal, operations

jax = pytest.importorskip("jax", reason=REASON)
jnp, lax = jax.numpy, jax.lax

Z = normal(2, 3, 4, 5)
TABLE, PLACES = normal(20, 7), integers(20, 3, 4)

MOVES = {
    "transpose": lambda z: (z.transpose(2, 0, 3, 1), z.transpose(3, 1, 0, 2) + z[0, 0, 0, 0]),
    "reshape": lambda z: (
        z.reshape(6, 20),
        z.reshape(2, 1, 12, 5, 1),
        z.transpose(3, 1, 0, 2).reshape(15, 8),
    ),
    "slice": lambda z: (z[:, 1:3, ::2, 1:4:2], z[0], z[:, -1], z[..., None, 2]),
    "reverse": lambda z: (z[:, ::-1], jnp.flip(z, (0, 3))),
    "concatenate": lambda z: (
        jnp.concatenate([z, z * 2, z[:, :1]], 1),
        jnp.stack([z, z], 2),
        jnp.concatenate([z, jnp.ones((2, 3, 4, 2), jnp.float32)], -1),
    ),
    "pad": lambda z: (
        jnp.pad(z, ((0, 0), (1, 2), (0, 3), (2, 0))),
        lax.pad(z, 1.5, ((0, 0, 0), (1, -1, 2), (-1, 2, 1), (0, 0, 0))),
        lax.pad(z > 0, True, ((0, 0, 0), (1, 0, 0), (0, 2, 0), (0, 0, 1))),
    ),
    "pad without end": lambda z: lax.pad(
        z, -jnp.inf, ((0, 0, 0), (1, -1, 2), (0, 2, 1), (0, 0, 0))
    ),
    "pad by what is there": lambda z: (
        jnp.pad(z, ((0, 0), (1, 1), (0, 0), (2, 2)), mode="reflect"),
        jnp.pad(z, 1, mode="edge"),
    ),
    "broadcast": lambda z: (
        jnp.broadcast_to(z[:, :1], (2, 3, 4, 5)),
        jnp.tile(z, (1, 2, 1, 3)),
        jnp.repeat(z, 2, axis=1),
        z + jnp.arange(4.0)[:, None],
    ),
    "iota": lambda z: z + jnp.eye(4, 5) + jnp.tri(4, 5) + jnp.linspace(0, 1, 5),
    "constants": lambda z: (z, z, jnp.float32(3) * jnp.ones((2, 2)), jnp.arange(3)),
}


@pytest.mark.parametrize("name", MOVES)
def test_moves(name):
    check(MOVES[name], Z)


LOOKUPS = {
    "embedding": lambda t, i: (t[i], jnp.take(t, i, axis=0), jnp.take(t.T, i, axis=1), t[i, 0]),
    "out of range": lambda t, i: (
        jnp.take(t, i * 5 - 50, axis=0),
        t[i * 5 - 50],
        jnp.take(t, i * 5 - 50, axis=0, mode="clip"),
    ),
    "two indices": lambda t, i: (t[i, i % 7], t[:, i % 7][i]),
    "constant": lambda t, i: (t[jnp.array([3, 1, 1])], t[:, jnp.array([0, 6])], t[3], t[-1, 2]),
    "slices": lambda t, i: (
        lax.dynamic_slice(t, (i[0, 0], 2), (4, 3)),
        lax.dynamic_slice(t, (25, -1), (4, 3)),
        lax.dynamic_index_in_dim(t, i[0, 1], 0),
    ),
    "update": lambda t, i: lax.dynamic_update_slice(t, jnp.ones((3, 4), jnp.float32), (5, 1)),
    "one hot": lambda t, i: jax.nn.one_hot(i, 20) @ t,
}


@pytest.mark.parametrize("name", LOOKUPS)
def test_lookups(name):
    check(LOOKUPS[name], TABLE, PLACES)


def test_lookup_along_an_axis():
    check(
        lambda z: (
            jnp.take_along_axis(z, jnp.argsort(z, 1), 1),
            jnp.take_along_axis(z, jnp.argmax(z, -1, keepdims=True), -1),
        ),
        Z,
    )


def test_orders():
    check(lambda z: (jnp.sort(z, 1), jnp.argsort(z, -1), -jnp.sort(-z, 0), *lax.top_k(z, 3)), Z)


def test_orders_of_equal_elements():
    check(lambda a: (jnp.sort(a, 1), jnp.argsort(a, -1), *lax.top_k(a, 2)), integers(3, 4, 6))


def test_loops_with_known_rounds():
    check(lambda t: lax.fori_loop(0, 5, lambda i, s: s * 1.1 + t[i], t[0]), TABLE)
    check(
        lambda t: lax.scan(lambda s, row: (s * 0.5 + row, jnp.tanh(s)), jnp.zeros(7), t[:6]),
        TABLE,
    )


def test_branches_that_are_known():
    branches = [jnp.sin, jnp.cos, jnp.tanh]
    check(lambda t: (lax.cond(True, *branches[:2], t), lax.switch(7, branches, t)), TABLE)


def test_constants_are_evaluated():
    """Index arithmetic leaves nothing to run."""
    assert operations(check(lambda t: t[jnp.arange(3) * 2 - 1][1], TABLE)) in (
        ["gather", "slice", "reshape"],
        ["slice", "reshape"],
    )


def test_constants_of_every_element_type():
    floats, whole = ["float32", "float16", "bfloat16"], ["int8", "int16", "int32"]
    kinds = [*floats, *whole, *(f"u{kind}" for kind in whole), "bool"]

    def constants(x):
        made = [jnp.array([[1, 0, 3], [4, 5, 100]]).astype(kind) for kind in kinds]
        return (x, *made, *(jnp.full((2, 2), 1, kind) for kind in kinds))

    check(constants, normal(2))


def test_large_constants_keep_their_bits():
    """What the text writes as a blob of digits, and brain floats, which have no buffer."""
    big = normal(40, 50)
    check(lambda x: (x + big, (x + jnp.array(big, jnp.bfloat16)).astype(jnp.float32)), normal(50))


def test_double_precision():
    with jax.enable_x64(True):
        x = np.random.default_rng(0).normal(size=(3, 4))
        check(lambda x: (x * 2 + np.pi, x @ x.T), x, tolerance=1e-12)
        check(lambda x: (x.mean(0), jax.nn.softmax(x), jax.nn.silu(x)), x, tolerance=1e-12)
        size = (2, 2)
        pool = lax.reduce_window
        check(lambda x: pool(x, 0.0, lax.add, size, (1, 1), "SAME") / 4, x, tolerance=1e-12)
