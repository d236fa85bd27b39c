"""Matrix products of every shape: blocks of weights, remainders, batches, epilogues."""

from dataclasses import replace

import numpy as np
import pytest
from tests.targets.cpu.kernel_harness import PLAIN, Maker, check

from tilewright.codegen.c.compiler import FLAGS
from tilewright.graph.operations import BY_NAME
from tilewright.graph.operations.binary import AddOp
from tilewright.graph.operations.matrix import MatMulOp
from tilewright.graph.operations.pointwise import ReluOp
from tilewright.ir import SSAValue
from tilewright.targets.cpu.machine import machine
from tilewright.targets.cpu.processors import Processor, this_processor


def product(m: Maker, shape: tuple[int, ...], channels: int, residual: bool = False) -> SSAValue:
    """x @ w.T + b through the primitive that takes wide blocks, and what follows it."""
    rows = "n" if len(shape) == 2 else "m"
    layout = m.machine.primitive(f"matmul_{rows}").operands["weight"].layout
    w, b = m.weight((channels, shape[-1]), layout), m.weight((channels,), "OLo")
    chain: list[tuple[object, list[SSAValue | int], dict[str, object]]] = [
        (MatMulOp, [m.input(shape), w, b], {"transpose_b": True})
    ]
    if residual:
        chain.append((AddOp, [0, m.input((*shape[:-1], channels))], {}))
        chain.append((ReluOp, [1], {}))
    else:
        chain.append((BY_NAME["gelu"], [0], {}))
    return m.kernel(chain)  # type: ignore[arg-type]


CASES = (
    ((37, 70), 100, True),
    ((2, 33), 48, False),
    ((2, 23, 65), 130, True),
    ((1, 10, 1024), 96, False),
    ((5, 2048), 50, True),
    ((1, 29, 7), 144, False),
    ((19, 300), 49, False),
)


def network(m: Maker) -> Maker:
    m.finish(*(product(m, *case) for case in CASES))
    return m


def test_products_on_this_processor() -> None:
    maker = network(Maker(seed=1))
    primitives = {kernel.schedule.primitive for kernel in maker.compilation().kernels}
    assert primitives == {"matmul_m", "matmul_n"}
    check(maker, flags=(*FLAGS, *this_processor().flags, "-Werror"))


def test_products_in_four_lanes() -> None:
    check(network(Maker(PLAIN, seed=2)), flags=(*FLAGS, "-Werror"))


@pytest.mark.parametrize("shape", [(9, 300), (2, 7, 160)])
def test_parts_of_a_sum_start_from_what_their_result_overwrites(shape: tuple[int, ...]) -> None:
    """The residual's place may be the result's: partial sums, lying there, are in its stead."""
    m = Maker(seed=3)
    y = product(m, shape, 100, residual=True)
    m.finish(y)
    planned = m.compilation().kernels[0].schedule
    (level,) = planned.levels
    tile = tuple((dim, 64 if dim == "ci" else size) for dim, size in level.tile)
    m.schedules["k0"] = replace(planned, levels=(replace(level, tile=tile),))
    place = m.place

    def shared() -> dict[str, int]:
        arenas = place()
        m.kernels[0].placement = m.network.placements.data[-1]  # type: ignore[union-attr]
        return arenas

    check(m)
    m.place = shared  # type: ignore[method-assign]
    check(m)


@pytest.mark.parametrize("shape", [(64, 3072), (64, 1024)])
def test_rows_a_page_apart_are_few(shape: tuple[int, int]) -> None:
    """Each is a line of one set of the first cache, beside those of the weights."""
    m = Maker(machine(Processor(lanes=16, registers=32)))
    m.finish(product(m, shape, 96))
    (kernel,) = m.compilation().kernels
    assert dict(kernel.schedule.levels[-1].tile)["n"] <= 9


def test_blocks_of_weights_are_one_stream() -> None:
    """A register tile reads its weights from end to end."""
    m = Maker(machine(Processor(lanes=16, registers=32)))
    m.finish(product(m, (64, 768), 96))
    (kernel,) = m.compilation().kernels
    tile = dict(kernel.schedule.levels[-1].tile)
    assert tile["co"] == 48
    assert np.prod([tile["n"], tile["co"] // 16]) + 3 <= 32
