"""Attention against its meaning: remainders of queries, keys and values, masks, blocks of keys."""

import numpy as np
import pytest
from tests.targets.cpu.kernel_harness import PLAIN, Maker, check

from tilewright.codegen.c.compiler import FLAGS
from tilewright.graph.operations.attention import AttentionOp
from tilewright.graph.operations.pointwise import ReluOp
from tilewright.ir import SSAValue
from tilewright.machine import Machine
from tilewright.targets.cpu.machine import machine
from tilewright.targets.cpu.processors import this_processor


def attention(
    m: Maker,
    heads: tuple[int, int],
    sizes: tuple[int, int, int, int],
    mask: tuple[int, ...] | None = None,
    hidden: float = 0.0,
    relu: bool = False,
    scale: float = 0.125,
) -> SSAValue:
    """``sizes`` are queries, keys, their depth and the values'; a part of the mask hides."""
    rows, keys, depth, values = sizes
    inputs: list[SSAValue | int] = [
        m.input((heads[0], rows, heads[1], depth), scale=2.0),
        m.input((heads[0], keys, heads[1], depth), scale=2.0),
        m.input((heads[0], keys, heads[1], values)),
    ]
    if mask is not None:
        inputs.append(m.input(mask))
        name = f"in{len(m.inputs) - 1}"
        hides = m.random.random(mask) < hidden
        m.inputs[name][hides] = -np.inf
        m.inputs[name][..., -1] = 0
    chain = [(AttentionOp, inputs, {"scale": scale})]
    return m.kernel([*chain, (ReluOp, [0], {})] if relu else chain)  # type: ignore[list-item]


CASES = {
    "whole": lambda m: attention(m, (1, 3), (96, 128, 64, 64)),
    "remainders": lambda m: attention(m, (2, 2), (53, 37, 20, 23), relu=True),
    "one_query": lambda m: attention(m, (1, 2), (1, 45, 16, 16)),
    "one_key": lambda m: attention(m, (1, 1), (5, 1, 3, 1)),
    "wide_values": lambda m: attention(m, (1, 1), (17, 30, 40, 100)),
    "mask_of_keys": lambda m: attention(m, (1, 2), (50, 40, 16, 16), (1, 1, 1, 40), 0.3),
    "mask": lambda m: attention(m, (2, 2), (19, 33, 8, 8), (2, 1, 19, 33), 0.5),
    "blocks": lambda m: attention(m, (1, 1), (35, 600, 16, 24), scale=0.5),
    "hidden_blocks": lambda m: attention(m, (1, 1), (20, 530, 8, 16), (1, 1, 20, 530), 0.97),
}


@pytest.mark.parametrize(
    "made",
    [machine(), pytest.param(PLAIN, marks=pytest.mark.slow)],
    ids=["native", "four lanes"],
)
def test_attention(made: Machine) -> None:
    m = Maker(made, seed=4)
    m.finish(*(case(m) for case in CASES.values()))
    flags = () if made is PLAIN else this_processor().flags
    check(m, flags=(*FLAGS, *flags, "-Werror"))
