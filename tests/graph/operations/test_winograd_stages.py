"""Winograd's transforms as operations: with products between they mean the convolution, and what a
tile program computes of them is what they say."""

import dataclasses

import numpy as np
import pytest

from tests.graph.operations.catalogue import conv
from tests.tile.interpreter import run
from tilewright.graph.operations.winograd import WinogradInputOp, WinogradOutputOp
from tilewright.ir import Block, PythonValue, VerifyException
from tilewright.ir.types import Array, shape_of, tensor
from tilewright.numerics.winograd import TRANSFORMS
from tilewright.planning import Planner
from tilewright.planning.domain import Kernel
from tilewright.targets.sunway.machine import MACHINE
from tilewright.targets.sunway.passes.staged_methods import point_weights
from tilewright.tile.build import build
from tilewright.tile.dialect import programs_of

SHAPES = [
    ((1, 5, 7, 9), (1, 1, 1, 1)),
    ((2, 3, 13, 4), (0, 2, 1, 0)),
    ((3, 2, 3, 3), (0, 0, 0, 0)),
    ((1, 2, 1, 1), (3, 1, 2, 4)),
]


def operations(
    image: tuple[int, ...], channels: int, pads: tuple[int, ...], sizes: tuple[int, int]
) -> tuple[WinogradInputOp, WinogradOutputOp]:
    tile, taps = sizes
    named = {"tile": tile, "taps": taps}
    first = WinogradInputOp.build_from(
        Block(arg_types=[tensor(image)]).args, {**named, "pads": pads}, node="a node"
    )
    points, _, n, th, tw = shape_of(first.result)
    kinds = [tensor((points, channels, n, th, tw)), tensor((channels,))]
    extents = tuple(image[2 + i] + pads[i] + pads[2 + i] - taps + 1 for i in range(2))
    last = WinogradOutputOp.build_from(
        Block(arg_types=kinds).args, {**named, "extents": extents}, node="a node"
    )
    assert isinstance(first, WinogradInputOp) and isinstance(last, WinogradOutputOp)
    first.verify()
    last.verify()
    return first, last


def in_tiles(op: WinogradInputOp | WinogradOutputOp, *arrays: Array) -> Array:
    """What a program of tiles computes, on a core group of little memory."""
    names = ["a", "b"][: len(arrays)]
    stage = op.stage(names, "y")
    assert stage is not None
    inputs = tuple(dataclasses.replace(one, layout="") for one in stage.inputs)
    kernel = Kernel("k", (dataclasses.replace(stage, inputs=inputs),))
    machine = MACHINE.with_values({"memory.ldm.bytes": 9216, "cores": 4})
    schedule = Planner(machine).plan(kernel).schedule
    program = programs_of(build(kernel, schedule, machine))[0]
    return run(program, dict(zip(names, arrays, strict=True)))["y"]


@pytest.mark.parametrize("sizes", sorted(TRANSFORMS))
def test_the_three_steps_mean_the_convolution(sizes: tuple[int, int]) -> None:
    for number, (image, pads) in enumerate(SHAPES):
        wide = tuple(pad + sizes[1] - 3 for pad in pads)
        weights = (4, image[1], sizes[1], sizes[1])
        example = conv(image, weights, True, pads=wide)
        x, w, b = example.operands(number)
        first, last = operations(image, 4, wide, sizes)
        v = first.evaluate(x)
        u = point_weights(w, sizes[0]).reshape(len(v), 4, image[1])
        m = np.einsum("pkc,pcnij->pknij", u, v)
        expected = example.make().evaluate(x, w, b)
        assert np.allclose(last.evaluate(m, b), expected, atol=2e-4 * np.abs(expected).max())
        if number == sorted(TRANSFORMS).index(sizes):  # Each shape once: programs take long.
            assert np.array_equal(in_tiles(first, x), v)
            assert np.array_equal(in_tiles(last, m, b), last.evaluate(m, b))
        assert f"{sizes[0]}x{sizes[0]}" in last.how


def test_what_is_wrong_is_refused() -> None:
    image = tensor((1, 2, 8, 8))
    cases: list[tuple[dict[str, PythonValue], str]] = [
        ({"tile": 3}, "no tiles"),
        ({"tile": 4, "taps": 5}, "no tiles"),
        ({"pads": (0, 0, 0)}, "4 entries"),
    ]
    for attributes, word in cases:
        with pytest.raises(VerifyException, match=word):
            WinogradInputOp.build_from(Block(arg_types=[image]).args, attributes, node="a node")
    products = tensor((36, 3, 1, 2, 2))
    for kinds, extents, word in (
        ((products,), (9, 8), "tiles must have shape"),
        ((products, tensor((4,))), (8, 8), "bias must have shape"),
    ):
        with pytest.raises(VerifyException, match=word):
            WinogradOutputOp.build_from(
                Block(arg_types=list(kinds)).args, {"extents": extents}, node="a node"
            )
