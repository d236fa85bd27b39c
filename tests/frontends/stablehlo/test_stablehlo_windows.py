"""Products, reductions, pools and convolutions match JAX, whatever the order of their axes."""

import pytest

from tests.frontends.stablehlo.programs import REASON, check, integers, normal, operations

jax = pytest.importorskip("jax", reason=REASON)
jnp, lax = jax.numpy, jax.lax

Z, IMAGE = normal(2, 3, 4, 5), normal(2, 9, 10, 4)

REDUCTIONS = {
    "sums": lambda z: (z.sum(), z.sum((1, 2)), z.mean(-1), z.std(1), z.var()),
    "extremes": lambda z: (z.max(0), z.min((0, 3)), z.prod(2)),
    "logic": lambda z: ((z > 0).any(1), (z > 0).all((0, 1))),
    "norms": lambda z: jnp.linalg.norm(z, axis=-1),
    "broadcast": lambda z: (
        jnp.broadcast_to(z[:, :1], (2, 3, 4, 5)).sum(1),
        jnp.broadcast_to(z[:, :1], (2, 3, 4, 5)).max((1, 2)),
    ),
    "starts": lambda z: lax.reduce(z, jnp.float32(2), lax.add, (1,)),
    "places": lambda z: (z.argmax(-1), z.argmin(1), z.argmax()),
    "places of integers": lambda z: (z * 3).astype(jnp.int32).argmax(2),
    "integers": lambda z: ((z * 9).astype(jnp.int32).sum(0), (z * 9).astype(jnp.int32).max((1, 2))),
    "running": lambda z: (z.cumsum(1), jnp.cumprod(z, -1), lax.cumsum(z, axis=2, reverse=True)),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name):
    check(REDUCTIONS[name], Z)


PRODUCTS = {
    "heads": lambda z: jnp.einsum("bhqd,bhkd->bhqk", z, z),
    "heads in the middle": lambda z: jnp.einsum("bqhd,bkhd->bhqk", z, z[:, ::-1]),
    "two contracted": lambda z: jnp.einsum("abcd,cdef->abef", z, normal(4, 5, 2, 3)),
    "all contracted": lambda z: jnp.einsum("abcd,abcd->", z, z),
    "none contracted": lambda z: jnp.einsum("ab,cb->bac", z[0, 0], z[0, 1]),
    "batch at the end": lambda z: jnp.einsum("abcd,abcd->d", z, z),
    "vectors": lambda z: (
        z[0, 0] @ z[0, 1].T,
        z[0, 0, 0] @ z[0, 0, 1],
        jnp.outer(z[0, 0, 0], z[0, 1, 0]),
    ),
    "a vector": lambda z: (z @ normal(5), normal(4) @ z[0, 0]),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name):
    check(PRODUCTS[name], Z, tolerance=1e-4)


def test_products_of_integers():
    def bytes_(a):
        short = a.astype(jnp.int8)
        return a @ a.T, lax.dot(short, short.T, preferred_element_type=jnp.int32)

    check(bytes_, integers(50, 4, 6, low=-50))


def window(fold, start, size, strides=(1, 1, 1, 1), pads="VALID", **more):
    return lambda x: lax.reduce_window(x, start, fold, size, strides, pads, **more)


MOST, LEAST = (lax.max, -jnp.inf), (lax.min, jnp.inf)
POOLS = {
    "max": window(*MOST, (1, 3, 2, 1), (1, 2, 1, 1)),
    "max with padding": window(*MOST, (1, 3, 2, 1), (1, 2, 1, 1), "SAME"),
    "min": window(*LEAST, (1, 3, 2, 1), (1, 2, 1, 1), "SAME"),
    "sum": window(lax.add, 0.0, (1, 3, 2, 1), (1, 2, 1, 1), "SAME"),
    "one axis": window(lax.add, 0.0, (1, 3, 1, 1), (1, 1, 1, 1), "SAME"),
    "channels too": window(*MOST, (1, 3, 2, 2), (1, 2, 1, 1)),
    "dilated max": window(*MOST, (1, 3, 2, 1), window_dilation=(1, 2, 3, 1)),
    "dilated sum": window(
        lax.add,
        0.0,
        (1, 3, 2, 1),
        (1, 1, 2, 1),
        ((0, 0), (1, 0), (0, 2), (0, 0)),
        window_dilation=(1, 2, 3, 1),
    ),
    "spread operand": window(*MOST, (1, 3, 2, 1), base_dilation=(1, 2, 1, 1)),
    "negative pads": window(lax.add, 0.0, (1, 3, 2, 1), pads=((0, 0), (-1, 1), (1, -1), (0, 0))),
    "whole image": window(lax.add, 0.0, (1, 9, 10, 1)),
}


@pytest.mark.parametrize("name", POOLS)
def test_pools(name):
    check(POOLS[name], IMAGE)


def test_pools_of_integers_and_booleans():
    size, strides = (1, 3, 2, 1), (1, 1, 1, 1)
    check(
        lambda x: (
            lax.reduce_window((x * 9).astype(jnp.int32), -(2**31), lax.max, size, strides, "SAME"),
            lax.reduce_window(x > 0, False, lax.bitwise_or, size, strides, "SAME"),
        ),
        IMAGE,
    )


@pytest.mark.parametrize("pads", ["VALID", "SAME"])
@pytest.mark.parametrize("counted", [True, False])
def test_averages_are_averages_again(pads, counted):
    """A sum over a count, of constants or of ones in a window, is one average pool."""
    nn = pytest.importorskip("flax.linen", reason=REASON)
    model = check(lambda x: nn.avg_pool(x, (3, 3), (2, 2), pads, count_include_pad=counted), IMAGE)
    assert "div" not in operations(model)


def convolved(strides=(1, 1), pads="SAME", numbers=("NHWC", "HWIO", "NHWC"), **more):
    return lambda x, w: lax.conv_general_dilated(
        x, w, strides, pads, dimension_numbers=numbers, **more
    )


KERNEL = normal(3, 2, 4, 6)
CONVOLUTIONS = {
    "strides": (convolved((2, 1)), IMAGE, KERNEL),
    "dilation": (convolved((1, 2), ((1, 2), (0, 3)), rhs_dilation=(2, 3)), IMAGE, KERNEL),
    "transposed": (
        lambda x, w: lax.conv_transpose(
            x, w, (2, 3), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        ),
        IMAGE,
        KERNEL,
    ),
    "spread and cut": (convolved((1, 1), ((-1, 3), (2, -1)), lhs_dilation=(2, 3)), IMAGE, KERNEL),
    "nchw": (
        convolved((1, 1), "VALID", ("NCHW", "OIHW", "NCHW")),
        normal(2, 4, 9, 8),
        normal(6, 4, 3, 2),
    ),
    "any order": (
        convolved(numbers=("HWNC", "OHWI", "CNHW")),
        normal(9, 8, 2, 4),
        normal(6, 3, 3, 4),
    ),
    "groups": (convolved(feature_group_count=2), IMAGE, normal(3, 3, 2, 6)),
    "depthwise": (convolved(feature_group_count=4), IMAGE, normal(3, 3, 1, 8)),
    "one axis": (
        convolved((2,), "SAME", ("NWC", "WIO", "NWC"), rhs_dilation=(2,)),
        normal(2, 15, 4),
        normal(3, 4, 6),
    ),
    "three axes": (
        convolved((2, 1, 1), "SAME", ("NDHWC", "DHWIO", "NDHWC"), rhs_dilation=(1, 2, 1)),
        normal(2, 7, 8, 6, 4),
        normal(3, 3, 2, 4, 6),
    ),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name):
    function, x, w = CONVOLUTIONS[name]
    check(function, x, w, tolerance=1e-4)


def test_convolution_of_integers():
    convolve = convolved(preferred_element_type=jnp.int32)
    check(lambda x, w: convolve(x.astype(jnp.int8), w.astype(jnp.int8)), IMAGE * 9, KERNEL * 9)


def test_convolution_of_short_floats():
    convolve = convolved()
    check(
        lambda x, w: convolve(x.astype(jnp.bfloat16), w.astype(jnp.bfloat16)),
        IMAGE,
        KERNEL,
        tolerance=3e-2,
    )
