"""Matrices in blocks: what is packed is unpacked, and products are those of floats, but rounded."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.frontends.emitter import NewNetwork
from tilewright.graph.interpreter import interpret
from tilewright.ir import VerifyException, f32, i32
from tilewright.ir.types import tensor
from tilewright.numerics import blocks


def made(
    bits: int, block: int, *, minima: bool, rows: int = 32, columns: int = 256
) -> blocks.Blocks:
    random = np.random.default_rng(bits * block)
    codes = random.integers(0, 2**bits, (rows, columns)).astype(np.uint8)
    shape = rows, columns // block
    scales = random.uniform(0.01, 0.1, shape).astype(np.float16)
    least = random.normal(0, 1, shape).astype(np.float16) if minima else None
    return blocks.Blocks(codes, scales, least, bits, 0 if minima else 2 ** (bits - 1))


FORMS = [
    (bits, block, minima)
    for bits in (2, 4, 8)
    for block in (16, 32, 128)
    for minima in (False, True)
]


@pytest.mark.parametrize(("bits", "block", "minima"), FORMS)
def test_operations_on_blocks(bits: int, block: int, minima: bool) -> None:
    weight = made(bits, block, minima=minima)
    codes, scales = weight.packed()
    assert codes.nbytes == weight.codes.size * bits // 8
    network = NewNetwork(
        "blocks", [("x", tensor((3, 256), f32)), ("places", tensor((4,), i32))], ["y", "rows"]
    )
    x, places = network.operator.block.args
    form = {"bits": bits, "block": block, "zero": -1 if minima else weight.zero}
    operands = network.weight(codes, "codes"), network.weight(scales, "scales")
    words = network.emit("block_round", [x], {"block": block}, "n")
    y = network.emit("block_matmul", [words, *operands], form, "n")
    rows = network.emit("block_gather", [*operands, places], form, "n")
    module = network.finish([y, rows])
    random = np.random.default_rng(0)
    inputs = {
        "x": random.normal(0, 1, (3, 256)).astype(np.float32),
        "places": np.array([0, -1, 17, 99], np.int32),
    }
    inputs["x"][1] = 0
    results = interpret(module, network.weights, inputs)
    whole = weight.rows()
    np.testing.assert_array_equal(results["rows"], whole[[0, 31, 17, 31]])
    wanted = inputs["x"].astype(np.float64) @ whole.T.astype(np.float64)
    # Each number is off by half a unit of its block, of which the largest has 32,767.
    unit = np.abs(inputs["x"].reshape(3, -1, block)).max(-1).repeat(block, 1) / 32767
    bound = 0.51 * unit @ np.abs(whole).T + 1e-5
    assert (np.abs(results["y"] - wanted) <= bound).all()
    assert not results["y"][1].any()


def test_forms_that_there_are_not() -> None:
    network = NewNetwork("blocks", [("x", tensor((3, 250), f32))], ["y"])
    (x,) = network.operator.block.args
    with pytest.raises(VerifyException, match="no rows in blocks of 32"):
        network.emit("block_round", [x], {"block": 32}, "n")
    codes = network.weight(np.zeros((8, 64), np.uint8), "codes")
    scales = network.weight(np.zeros((8, 4), np.float32), "scales")
    places = network.weight(np.zeros(2, np.int64), "places")
    with pytest.raises(VerifyException, match="no groups of rows"):
        network.emit("block_gather", [codes, scales, places], {"bits": 4, "block": 32}, "n")
