"""Operations whose operands broadcast, as emitted C: bit for bit what NumPy gives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.slow import but_fast
from tests.targets.ascend.element_kernels import broadcast, described
from tests.targets.ascend.kernels.rows_of_floats import floats, packed, results, unpacked

from tilewright.codegen.program.interface import CompiledKernel
from tilewright.errors import TilewrightError
from tilewright.planning import Planner
from tilewright.targets.ascend.elements import as_elements, merged
from tilewright.targets.ascend.grids import ascending
from tilewright.targets.ascend.lower import lower_kernel
from tilewright.targets.ascend.lowering.launches import Device
from tilewright.targets.ascend.machine import ASCEND_910
from tilewright.targets.ascend.network import network_machine
from tilewright.tile.lower import tile_module

MACHINE = network_machine(ASCEND_910)

Shape = tuple[int, ...]

PAIRS: list[tuple[Shape, Shape]] = [
    ((33, 100), (100,)),
    ((33, 100), (33, 1)),
    ((5, 1), (1, 7)),
    ((17,), (1,)),
    ((1,), (1,)),
    ((10, 3), (10, 3)),
    ((3, 1, 5), (1, 4, 1)),
    ((2, 7, 1, 9), (1, 7, 11, 1)),
    ((2, 3, 17, 64), (3, 1, 64)),
    ((300, 8), (300, 1)),
    ((1,), (4097,)),
    ((4, 12, 128, 128), (1, 1, 1, 128)),
    ((2, 63, 4097), (63, 1)),
    ((333, 1), (1, 333)),
]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("pair", but_fast(PAIRS, PAIRS[:6]))
def test_shapes(pair: tuple[Shape, Shape], turned: bool) -> None:
    first, second = reversed(pair) if turned else pair
    x, y = floats(1, *first), floats(2, *second)
    wanted = x - y
    program = broadcast("sub", wanted.shape, {"x": first, "y": second}, ASCEND_910)
    for found, _ in results(program, {"x": x, "y": y}, wanted.shape):
        np.testing.assert_array_equal(found, wanted)


HALVES = [*PAIRS[:6], ((12, 32, 32), (1, 1, 32)), ((2, 20, 500), (500,))]


@pytest.mark.parametrize("pair", but_fast(HALVES, HALVES[1:3]))
def test_halves(pair: tuple[Shape, Shape]) -> None:
    x, y = (floats(n, *shape).astype(np.float16) for n, shape in enumerate(pair))
    wanted = x - y
    operands = {"x": pair[0], "y": pair[1]}
    program = broadcast("sub", wanted.shape, operands, ASCEND_910, element="half")
    for found, _ in results(program, {"x": x, "y": y}, wanted.shape, kind=np.float16):
        np.testing.assert_array_equal(found, wanted)


NZ = [
    ((2, 33, 100), (100,), "x"),
    ((2, 33, 100), (33, 1), "x"),
    ((2, 3, 17, 64), (3, 17, 64), "xy"),
    ((2, 3, 17, 64), (3, 17, 64), "x"),
    ((17, 40), (1, 40), "xy"),
    ((2, 20, 5000), (5000,), "x"),
]


@pytest.mark.parametrize("case", but_fast(NZ, NZ[:2]))
def test_matrices_in_nz(case: tuple[Shape, Shape, str]) -> None:
    first, second, blocks = case
    x, y = (floats(n, *shape).astype(np.float16) for n, shape in enumerate((first, second)))
    given = {"x": packed(x), "y": packed(y) if "y" in blocks else y}
    operands = {"x": first, "y": second}
    program = broadcast("sub", first, operands, ASCEND_910, element="half", blocks=[*blocks, "out"])
    for out, _ in results(program, given, given["x"].shape, kind=np.float16):
        np.testing.assert_array_equal(unpacked(out, first), x - y)


def test_a_column_of_a_matrix_in_nz_is_refused() -> None:
    operands = {"x": (20, 30), "y": (20, 1)}
    of = described("sub", (20, 30), operands, blocks=["y"])
    assert as_elements(of) == of
    plan = Planner(MACHINE).plan(of)
    compiled = CompiledKernel(of, plan.schedule, tile_module(of, plan.schedule, MACHINE))
    with pytest.raises(TilewrightError, match="lower-operation"):
        lower_kernel(Device(ASCEND_910), compiled, {})


def test_dims_that_broadcast_alike_are_one() -> None:
    assert merged((4, 12, 128, 128), [(4, 12, 128, 128), (128,)]) == (
        (6144, 128),
        [(6144, 128), (1, 128)],
    )
    assert merged((2, 1, 3), [(2, 1, 3), (2, 1, 3)]) == ((1, 6), [(1, 6), (1, 6)])


def test_a_function_of_several_operands_with_temporaries() -> None:
    x, slope = floats(1, 17, 40), floats(2, 17, 1)
    program = broadcast("prelu", (17, 40), {"x": (17, 40), "y": (17, 1)}, ASCEND_910)
    wanted = np.maximum(x, np.float32(0)) + np.minimum(x, np.float32(0)) * slope
    for found, _ in results(program, {"x": x, "y": slope}, (17, 40)):
        np.testing.assert_array_equal(found, wanted)


def test_rows_of_no_whole_blocks_go_one_after_the_other() -> None:
    """Each writes a few bytes after its end, which are those of the next."""
    of = as_elements(described("add", (3, 40, 17), {"x": (3, 40, 17), "y": (40, 1)}))
    plan = Planner(MACHINE).plan(of)
    (level,) = plan.schedule.levels
    turned = replace(level, tile=(("d0", 1), ("l", 8), ("w", 17)), order=("l", "d0"))
    wrong = replace(plan.schedule, levels=(turned,))
    assert ascending(of, wrong).levels[0].order == ("d0", "l")
    compiled = CompiledKernel(of, wrong, tile_module(of, wrong, MACHINE))
    with pytest.raises(TilewrightError, match="one after the other"):
        lower_kernel(Device(ASCEND_910), compiled, {})
