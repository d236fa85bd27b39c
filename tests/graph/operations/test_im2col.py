"""Windows side by side: multiplied as a matrix they mean the convolution, and what a tile program
writes of them is what they say."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from tests.graph.operations.catalogue import conv
from tests.tile.interpreter import run
from tilewright.graph.operations.windows import Im2colOp
from tilewright.ir import Block, VerifyException
from tilewright.ir.types import Array, shape_of, tensor
from tilewright.planning import Planner
from tilewright.planning.domain import Kernel
from tilewright.targets.sunway.machine import MACHINE
from tilewright.tile.build import build
from tilewright.tile.dialect import programs_of

CASES: list[tuple[tuple[int, ...], tuple[int, int], dict[str, Any]]] = [
    ((1, 3, 9, 8), (3, 3), {"pads": (1, 1, 1, 1)}),
    ((2, 2, 12, 11), (3, 2), {"pads": (0, 3, 1, 2), "strides": (1, 2), "dilations": (2, 3)}),
    ((3, 1, 4, 5), (4, 5), {}),
    ((1, 2, 1, 1), (3, 3), {"pads": (2, 4, 3, 1)}),
    ((1, 4, 16, 16), (4, 4), {"strides": (4, 4)}),
]


def operation(image: tuple[int, ...], kernel: tuple[int, int], attributes: Any) -> Im2colOp:
    op = Im2colOp.build_from(
        Block(arg_types=[tensor(image)]).args, {**attributes, "kernel": kernel}, node="a node"
    )
    assert isinstance(op, Im2colOp)
    op.verify()
    return op


def in_tiles(op: Im2colOp, x: Array) -> Array:
    """What a program of tiles writes, on a core group of little memory."""
    stage = op.stage(["x"], "y")
    assert stage is not None
    inputs = tuple(dataclasses.replace(each, layout="") for each in stage.inputs)
    kernel = Kernel("k", (dataclasses.replace(stage, inputs=inputs),))
    machine = MACHINE.with_values({"memory.ldm.bytes": 8704, "cores": 4})
    program = programs_of(build(kernel, Planner(machine).plan(kernel).schedule, machine))[0]
    return run(program, {"x": x})["y"]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_windows_times_weights_are_the_convolution(case: Any) -> None:
    image, taps, attributes = case
    example = conv(image, (5, image[1], *taps), False, **attributes)
    for seed in range(2):
        x, w = example.operands(seed)
        op = operation(image, taps, attributes)
        windows = op.evaluate(x)
        assert windows.shape == shape_of(op.result)
        product = np.einsum("kcij,ncijyx->nkyx", w, windows, dtype=np.float64)
        expected = example.make().evaluate(x, w)
        assert np.allclose(product, expected, atol=1e-5 * np.abs(expected).max())
        if not seed:  # Programs take long.
            assert np.array_equal(in_tiles(op, x), windows)


def test_what_is_wrong_is_refused() -> None:
    for image, kernel, word in (
        ((1, 2, 8, 8), (9, 3), "exceeds"),
        ((1, 2, 8), (3, 3), "rank 4"),
    ):
        with pytest.raises(VerifyException, match=word):
            operation(image, kernel, {})
