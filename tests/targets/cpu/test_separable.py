"""Separable convolutions in C: every block, and the bits of the two kernels that they replace."""

from collections.abc import Sequence

import numpy as np
import pytest
from tests.targets.cpu.kernel_harness import PLAIN, Maker, compare

from tilewright.codegen.c.compiler import FLAGS
from tilewright.graph.operations import BY_NAME
from tilewright.graph.operations.binary import AddOp
from tilewright.graph.operations.convolution import ConvOp
from tilewright.graph.operations.pointwise import ClipOp, ReluOp
from tilewright.graph.operations.separable import SeparableConvOp
from tilewright.ir import PythonValue, SSAValue
from tilewright.ir.types import shape_of
from tilewright.machine import parse_expression
from tilewright.planning.schedule import Level, Schedule
from tilewright.targets.cpu.machine import machine
from tilewright.targets.cpu.planning.capabilities import own_of
from tilewright.targets.cpu.processors import Processor, this_processor

B = "NCHWLc"
MAPS = {"relu": ReluOp, "clip": ClipOp, **{n: BY_NAME[n] for n in ("silu", "hard_swish", "gelu")}}

Attributes = dict[str, PythonValue]


def pair(
    m: Maker,
    image: tuple[int, int, int, int],
    channels: int,
    window: tuple[int, int],
    block: tuple[int, int, int],
    between: str = "",
    residual: bool = False,
    **attributes: PythonValue,
) -> tuple[SSAValue, SSAValue]:
    """One kernel in blocks of rows, columns and vectors of channels; the same as two kernels."""
    x, c = m.input(image, B), image[1]
    state = m.random.bit_generator.state
    v, a = m.weight((c, 1, *window), "OIHWLo"), m.weight((c,), "OLo")
    w, b = m.weight((channels, c, 1, 1), "OIHWLo"), m.weight((channels,), "OLo")
    bounds: Attributes = {"minimum": -0.2, "maximum": 0.3} if between == "clip" else {}
    rows, columns, vectors = block
    sizes = {"n": 1, "oh": rows, "ow": columns, "co": min(vectors * m.lanes, channels)}
    needed = parse_expression(own_of(m.machine.primitive("separable_conv")).scratch).evaluate(
        {**sizes, "c": c}
    )
    made: Attributes = {**attributes, "between": between, **bounds}
    inputs = [x, v, w, m.scratch(int(needed)), a, b]
    shape = shape_of(SeparableConvOp.build_from(inputs, made).result)
    tail: list[tuple[object, list[SSAValue | int], Attributes]] = []
    if residual:
        tail = [(AddOp, [0, m.input(shape, B)], {}), (ReluOp, [1], {})]
    one = m.kernel([(SeparableConvOp, inputs, made), *tail], B)  # type: ignore[list-item]
    level = Level("registers", tuple(sorted(sizes.items())), ("n", "oh", "ow", "co"))
    options = (("columns", 5), ("points", (28 if m.lanes == 16 else 10) // vectors))
    symbol = m.kernels[-1].symbol.data
    m.schedules[symbol] = Schedule("separable_conv", (level,), options=options)

    # The same weights in the other layout.
    after, m.random.bit_generator.state = m.random.bit_generator.state, state
    v, a = m.weight((c, 1, *window), "OIHWLo"), m.weight((c,), "OLo")
    w, b = m.weight((channels, c, 1, 1), "OIHWLiLo"), m.weight((channels,), "OLo")
    m.random.bit_generator.state = after
    chain: list[tuple[object, list[SSAValue | int], Attributes]] = [
        (ConvOp, [x, v, a], {**attributes, "group": c})
    ]
    if between:
        chain.append((MAPS[between], [0], bounds))
    middle = m.kernel(chain, B)  # type: ignore[arg-type]
    two = m.kernel([(ConvOp, [middle, w, b], {}), *tail], B)  # type: ignore[list-item]
    return one, two


ONES = (1, 1, 1, 1)


def pairs(m: Maker) -> Sequence[tuple[SSAValue, SSAValue]]:
    """Whole rows and parts of rows, odd channels, borders of all kinds, chains on both sides."""
    return [
        pair(m, (1, 40, 13, 17), 35, (3, 3), (4, 17, 2), "clip", True, pads=ONES),
        pair(m, (2, 32, 11, 14), 24, (3, 3), (6, 7, 1), "relu", strides=(2, 2), pads=(0, 0, 1, 1)),
        pair(m, (1, 9, 7, 7), 50, (5, 5), (7, 7, 1), "silu", pads=(2, 2, 2, 2)),
        pair(m, (1, 20, 12, 9), 16, (3, 2), (1, 3, 1), "gelu", residual=True, dilations=(2, 3)),
        pair(m, (1, 3, 6, 30), 17, (1, 1), (2, 30, 2), "hard_swish"),
    ]


@pytest.mark.parametrize("seed", [1])
def test_on_this_processor(seed: int) -> None:
    m = Maker(seed=seed)
    _check(m, (*FLAGS, *this_processor().flags, "-Werror"))


@pytest.mark.slow
def test_in_eight_lanes() -> None:
    if this_processor().lanes < 8:
        pytest.skip("this processor has no vectors of eight floats")
    _check(Maker(machine(Processor(8, 16, 2.0)), 2), (*FLAGS, "-mavx2", "-mfma", "-Werror"))


@pytest.mark.slow
def test_in_four_lanes() -> None:
    _check(Maker(PLAIN, seed=3), (*FLAGS, "-Werror"))


def _check(m: Maker, flags: tuple[str, ...]) -> None:
    made = pairs(m)
    m.finish(*(value for both in made for value in both))
    found = m.run(flags)
    compare(found, m.expected())
    for number in range(len(made)):
        one, two = found[f"out{2 * number}"], found[f"out{2 * number + 1}"]
        np.testing.assert_array_equal(one, two, err_msg=str(number))
