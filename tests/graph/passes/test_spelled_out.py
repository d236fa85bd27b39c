"""simplify recognises layer normalisation, attention and softmax that a model spells out."""

import numpy as np
import pytest

from tests.graph.passes.pass_networks import Builder
from tests.graph.passes.test_simplify_rules import CPU, SMALL, after, names
from tilewright.ir import SSAValue


def spelled_norm(net: Builder, x: SSAValue, *, centred: bool, keep: bool = True) -> SSAValue:
    def mean(value: SSAValue) -> SSAValue:
        return net.op("reduce_mean", value, axes=(-1,), keep_dims=keep)

    d = net.op("sub", x, mean(x)) if centred else x
    more = net.op("add", mean(net.op("mul", d, d)), net.constant(np.array(1e-3, np.float32)))
    return net.op("div", d, net.op("sqrt", more))


@pytest.mark.parametrize("centred", [True, False])
def test_layer_norms(centred: bool) -> None:
    net = Builder(x=(2, 5, 6))
    x = net.op("mul", spelled_norm(net, net.inputs["x"], centred=centred), net.drawn(6))
    (norm,) = after(net, net.op("add", net.drawn(1, 1, 6), x), machine=CPU)
    assert (norm.operation, len(norm.inputs)) == ("layer_norm", 3)
    assert bool(norm.get("centred")) == centred
    net = Builder(x=(2, 5, 6))
    x = net.op("add", spelled_norm(net, net.inputs["x"], centred=centred), net.drawn(1))
    (norm,) = after(net, x, machine=CPU)
    assert len(norm.inputs) == 3
    net = Builder(x=(2, 5, 6))
    assert "layer_norm" not in names(
        after(net, spelled_norm(net, net.inputs["x"], centred=centred), machine=SMALL)
    )


def test_other_scales_stay_behind_a_layer_norm() -> None:
    net = Builder(x=(2, 5, 6))
    x = net.op("mul", spelled_norm(net, net.inputs["x"], centred=True), net.drawn(5, 1))
    assert names(after(net, x, machine=CPU)) == ["layer_norm", "mul"]


def spelled_attention(
    net: Builder, *, mask: tuple[int, ...] = (), turned: bool = True, extra: bool = False
) -> list[SSAValue]:
    q, k, v = (net.op("transpose", net.inputs[n], permutation=(0, 2, 1, 3)) for n in "qkv")
    if turned:
        k = net.op("transpose", k, permutation=(0, 1, 3, 2))
    scores = net.op("matmul", q, k, transpose_b=not turned)
    scores = net.op("div", scores, net.constant(np.array(3.0, np.float32)))
    if mask:
        scores = net.op("add", net.inputs["mask"], scores)
    weights = net.op("softmax", scores, axis=3)
    found = net.op("transpose", net.op("matmul", weights, v), permutation=(0, 2, 1, 3))
    return [net.op("reshape", found, shape=(2, 4, 15)), *([scores] if extra else [])]


SHAPES = {"q": (2, 4, 3, 8), "k": (2, 7, 3, 8), "v": (2, 7, 3, 5)}


@pytest.mark.parametrize("turned", [True, False])
@pytest.mark.parametrize("mask", [(), (1, 1, 1, 7), (4, 7)])
def test_attention(turned: bool, mask: tuple[int, ...]) -> None:
    net = Builder(**SHAPES, **({"mask": mask} if mask else {}))
    ops = after(net, *spelled_attention(net, mask=mask, turned=turned), machine=CPU)
    assert names(ops)[-2:] == ["attention", "reshape"]
    assert "transpose" not in names(ops)


def test_attention_stays_where_it_must() -> None:
    net = Builder(**SHAPES)
    ops = after(net, *spelled_attention(net, extra=True), machine=CPU)
    assert "attention" not in names(ops), "the scores are read elsewhere"
    net = Builder(**SHAPES)
    assert "softmax" in names(after(net, *spelled_attention(net), machine=SMALL))


@pytest.mark.parametrize("turned", [True, False])
@pytest.mark.parametrize("mask", [(), (4, 7), (2, 1, 7), (2, 4, 7), (7,)])
def test_attention_of_three_axes(turned: bool, mask: tuple[int, ...]) -> None:
    """The first axis is a batch, of one head each, whose rows lie where they are."""
    shapes = {"q": (2, 4, 8), "k": (2, 7, 8), "v": (2, 7, 5)}
    net = Builder(**shapes, **({"mask": mask} if mask else {}))
    k = net.inputs["k"]
    if turned:
        k = net.op("transpose", k, permutation=(0, 2, 1))
    scores = net.op("matmul", net.inputs["q"], k, transpose_b=not turned)
    scores = net.op("mul", scores, net.constant(np.array(0.25, np.float32)))
    if mask:
        scores = net.op("add", scores, net.inputs["mask"])
    weights = net.op("softmax", scores, axis=-1)
    ops = after(net, net.op("matmul", weights, net.inputs["v"]), machine=CPU)
    assert names(ops)[-2:] == ["attention", "reshape"]
    assert "transpose" not in names(ops)


def spelled_softmax(net: Builder, axis: int, *, keep: bool, of: str = "x") -> list[SSAValue]:
    """A softmax along an axis, and what it divides."""
    x = net.inputs["x"]
    kept = tuple(1 if number == axis else extent for number, extent in enumerate((2, 5, 6)))

    def reduced(name: str, value: SSAValue) -> SSAValue:
        result = net.op(name, value, axes=(axis,), keep_dims=keep)
        return result if keep else net.op("reshape", result, shape=kept)

    e = net.op("exp", net.op("sub", net.inputs[of], reduced("reduce_max", x)))
    return [net.op("div", e, reduced("reduce_sum", e)), e]


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_softmax_in_parts(axis: int, keep: bool) -> None:
    net = Builder(x=(2, 5, 6))
    (softmax,) = after(net, spelled_softmax(net, axis, keep=keep)[0])
    assert (softmax.operation, softmax.integer("axis", -3, 2) % 3) == ("softmax", axis)


def test_parts_of_a_softmax_stay_where_they_mean_something_else() -> None:
    net = Builder(x=(2, 5, 6))
    ops = after(net, *spelled_softmax(net, 2, keep=True))
    assert "softmax" not in names(ops), "the exponentials are read elsewhere"
    net = Builder(x=(2, 5, 6), z=(2, 5, 6))
    ops = after(net, spelled_softmax(net, 2, keep=True, of="z")[0])
    assert "softmax" not in names(ops), "the maximum is another value's"
