"""Grouped convolution on groups that fill no whole vectors, and channel shuffle."""

import pytest
from tests.targets.cpu.kernel_harness import PLAIN, Maker, check

from tilewright.codegen.c.compiler import FLAGS
from tilewright.graph.operations import BY_NAME
from tilewright.graph.operations.binary import AddOp
from tilewright.graph.operations.convolution import ConvOp
from tilewright.graph.operations.pointwise import ReluOp
from tilewright.graph.operations.views import ChannelShuffleOp
from tilewright.ir import SSAValue
from tilewright.targets.cpu.processors import this_processor

B = "NCHWLc"


def grouped(
    m: Maker,
    image: tuple[int, int, int, int],
    channels: int,
    group: int,
    kernel: tuple[int, int] = (1, 1),
    **attributes: object,
) -> SSAValue:
    x = m.input(image, B)
    w = m.weight((channels, image[1] // group, *kernel), "OIHWLo")
    conv = {"group": group, **attributes}
    inputs = [x, w, m.weight((channels,), "OLo")]
    kind = ConvOp.build_from(inputs, conv).result.type  # type: ignore[arg-type]
    residual = m.input(kind.get_shape(), B)  # type: ignore[attr-defined]
    return m.kernel(
        [(ConvOp, inputs, conv), (AddOp, [0, residual], {}), (ReluOp, [1], {})],  # type: ignore[list-item]
        B,
    )


def shuffled(m: Maker, image: tuple[int, int, int, int], groups: int) -> SSAValue:
    x = m.input(image, B)
    return m.kernel(
        [(ChannelShuffleOp, [x], {"groups": groups}), (BY_NAME["max"], [0, m.input(image, B)], {})],
        B,
    )


CASES = {
    "four_odd_groups": lambda m: grouped(m, (1, 136, 9, 9), 136, 4),
    "rows_of_points": lambda m: grouped(m, (2, 68, 7, 7), 34, 2),
    "more_out_than_in": lambda m: grouped(m, (1, 24, 6, 31), 112, 4),
    "small_groups": lambda m: grouped(m, (1, 40, 9, 11), 40, 10, (3, 3), pads=(1, 1, 1, 1)),
    "multiplied": lambda m: grouped(m, (1, 9, 13, 5), 27, 9, (3, 2), strides=(2, 1)),
    "strided": lambda m: grouped(m, (1, 36, 9, 9), 60, 3, strides=(2, 2), pads=(0, 1, 0, 1)),
    "one_block": lambda m: grouped(m, (1, 6, 5, 5), 10, 2, (3, 3), dilations=(2, 2)),
    "shuffle": lambda m: shuffled(m, (2, 136, 5, 7), 4),
    "shuffle_few": lambda m: shuffled(m, (1, 6, 5, 3), 3),
    "shuffle_whole": lambda m: shuffled(m, (1, 64, 3, 9), 8),
}


@pytest.mark.parametrize("seed", [1])
def test_on_this_processor(seed: int) -> None:
    m = Maker(seed=seed)
    m.finish(*(case(m) for case in CASES.values()))
    check(m, flags=(*FLAGS, *this_processor().flags, "-Werror"))


@pytest.mark.slow
def test_in_four_lanes() -> None:
    m = Maker(PLAIN, seed=2)
    m.finish(*(case(m) for case in CASES.values()))
    check(m, flags=(*FLAGS, "-Werror"))
