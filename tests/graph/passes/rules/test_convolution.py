"""crop-taps: the same numbers without taps that meet nothing but padding, over random shapes."""

import numpy as np
import pytest

from tests.graph.passes.pass_networks import (
    Builder,
    accelerator,
    assert_same,
    context,
    evaluate,
    inputs_of,
)
from tilewright.graph.dialect import network_of
from tilewright.graph.operations import Operation
from tilewright.graph.operations.windows import windowed
from tilewright.graph.passes.simplify import Simplify
from tilewright.ir import SSAValue
from tilewright.ir.types import shape_of


def simplified(net: Builder, value: SSAValue, tolerance: float = 1e-5) -> list[Operation]:
    """The operations that simplify leaves, after checking that the network means the same."""
    module = net.finish(value)
    given = inputs_of(module)
    expected = evaluate(module, net.store, given)
    Simplify().apply(context(accelerator(), net.store), module)
    module.verify()
    assert_same(expected, evaluate(module, net.store, given), tolerance)
    return [op for op in network_of(module).block.ops if isinstance(op, Operation)]


def dead_taps(
    image: int, taps: int, results: int, stride: int, pad: int, dilation: int
) -> set[int]:
    """By enumeration: the taps that read the image at no position."""
    rows = {
        tap: {element * stride - pad + tap * dilation for element in range(results)}
        for tap in range(taps)
    }
    return {tap for tap, read in rows.items() if not read & set(range(image))}


def drawn(pick: np.random.Generator) -> tuple[tuple[int, int], dict[str, tuple[int, ...]]] | None:
    """A kernel, and an image's extents with a convolution's attributes; None if it does not fit."""
    extents = tuple(int(e) for e in pick.integers(1, 8, 2))
    kernel = tuple(int(e) for e in pick.integers(1, 7, 2))
    strides = tuple(int(e) for e in pick.integers(1, 5, 2))
    dilations = tuple(int(e) for e in pick.choice([1, 1, 2, 3, 7], 2))
    pads = tuple(int(e) for e in pick.choice([0, 1, 2, 3, 5, 9, 14], 4))
    if min(windowed(extents, kernel, strides, pads, dilations)) < 1:
        return None
    values = {"image": extents, "strides": strides, "pads": pads, "dilations": dilations}
    return (kernel[0], kernel[1]), values


@pytest.mark.parametrize("seed", range(4))
def test_random_convolutions_mean_the_same(seed: int) -> None:
    pick = np.random.default_rng(seed)
    cropped = tried = 0
    while tried < 60:
        found = drawn(pick)
        if found is None:
            continue
        tried += 1
        kernel, values = found
        image = values.pop("image")
        group = int(pick.choice([1, 1, 2, 4]))
        net = Builder(int(pick.integers(1000)), x=(2, 4, *image))
        weight = net.drawn(4, 4 // group, *kernel, scale=0.2)
        operands = [weight, net.drawn(4)] if pick.integers(2) else [weight]
        value = net.op("conv", net.inputs["x"], *operands, group=group, **values)
        results = shape_of(value)[2:]
        dead = [
            dead_taps(
                image[i],
                kernel[i],
                results[i],
                values["strides"][i],
                values["pads"][i],
                values["dilations"][i],
            )
            for i in range(2)
        ]
        ops = simplified(net, value)
        if any(len(taps) == extent for taps, extent in zip(dead, kernel, strict=True)):
            assert not ops, "nothing but the bias is left"
            continue
        convolution = ops[-1]
        left = shape_of(convolution.inputs[1])[2:]
        for i in range(2):
            living = sorted(set(range(kernel[i])) - dead[i])
            assert left[i] <= 1 + living[-1] - living[0], "dead taps at the ends go"
            if left[i] == 1:
                assert convolution.integers("dilations")[i] == 1
        cropped += left != kernel
    assert cropped >= 10, "the cases must have dead taps"


def test_taps_at_a_distance_become_a_dilation() -> None:
    net = Builder(x=(1, 2, 1, 9))
    ops = simplified(
        net,
        net.op("conv", net.inputs["x"], net.drawn(3, 2, 5, 3), pads=(4, 1, 4, 1), strides=(4, 1)),
    )
    assert [shape_of(op.inputs[1]) for op in ops] == [(3, 2, 2, 3)]
    assert ops[0].integers("dilations") == (4, 1)


def test_rows_that_no_live_tap_reads_are_cut_off() -> None:
    net = Builder(x=(1, 2, 5, 5))
    value = net.op(
        "conv",
        net.inputs["x"],
        net.drawn(3, 2, 2, 2),
        pads=(1, 0, 0, 0),
        dilations=(4, 4),
        strides=(9, 1),
    )
    ops = simplified(net, value)
    assert [op.operation for op in ops] == ["slice", "conv"]
    assert ops[1].integers("pads") == (0, 0, 0, 0)
    assert shape_of(ops[1].inputs[1]) == (3, 2, 1, 2)


def test_the_dilation_of_a_single_tap_is_dropped_for_computed_weights_too() -> None:
    net = Builder(x=(1, 2, 5, 5), w=(3, 2, 1, 2))
    value = net.op("conv", net.inputs["x"], net.inputs["w"], dilations=(256, 2))
    (op,) = simplified(net, value)
    assert op.integers("dilations") == (1, 2)


def test_computed_weights_keep_their_taps() -> None:
    net = Builder(x=(1, 2, 1, 5), w=(3, 2, 3, 1))
    (op,) = simplified(net, net.op("conv", net.inputs["x"], net.inputs["w"], pads=(1, 0, 1, 0)))
    assert shape_of(op.inputs[1]) == (3, 2, 3, 1)
