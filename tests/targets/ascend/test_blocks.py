"""Kernels on several cores: parts of a grid as blocks of a launch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.papers.ascend.reader.kernels import read_kernels, verified
from tests.slow import but_fast
from tests.targets.ascend.ascend_arrays import built
from tests.targets.ascend.cube_kernels import Convolution, Halves, Product, levels, planned

from tilewright.codegen.nest.value import equal, least, select, variable
from tilewright.errors import TilewrightError
from tilewright.planning.planners.cores import core_beside, grids, parts_of, whole_schedule
from tilewright.targets.ascend.blocks import alike, conflicts, traces
from tilewright.targets.ascend.emit import kernel_text
from tilewright.targets.ascend.flags import cases, synchronised
from tilewright.targets.ascend.host import build
from tilewright.targets.ascend.lowering.cube import cube_kernel
from tilewright.targets.ascend.machine import ASCEND_310, ASCEND_910, DaVinci
from tilewright.targets.ascend.network import chip_machine
from tilewright.targets.ascend.package import core_of
from tilewright.targets.ascend.program import BLOCK_INDEX, Flag, Loop, Program
from tilewright.targets.ascend.proof import prove
from tilewright.targets.ascend.sharing import (
    loading_rates,
    makespan,
    simulate_blocks,
)
from tilewright.targets.ascend.target import AscendTarget
from tilewright.tile.lower import tile

CASES: dict[str, Product | Convolution] = {
    "ragged": Product(50, 40, 70, residual=True, relu=True),
    "batch": Product(17, 33, 65, batch=3, bias=True),
    "one block": Product(16, 64, 16),
    "images": Convolution(5, 7, 7, 17, strides=(2, 2), pads=(1, 1, 1, 1), bias=True, images=2),
    "rows": Convolution(3, 29, 17, 40, kernel=(5, 5), pads=(2, 2, 2, 2), residual=True),
}


def kernel_on(of: Product | Convolution, cores: int, core: DaVinci = ASCEND_910) -> Program:
    """The kernel as it is planned for so many cores."""
    machine = chip_machine(core).with_values({"cores": cores})
    kernel = of.kernel() if isinstance(of, Product) else of.of_kernel()
    return cube_kernel(
        tile(kernel, planned(kernel, machine), machine, honours=AscendTarget.honours),
        core,
        "kernel",
    )


def four_blocks(rows: int = 64, columns: int = 64, *, residual: bool = False) -> Program:
    """Blocks of 32 x 32, two by two."""
    machine = chip_machine(ASCEND_910)
    part = {"m": 32, "co": 32, "ci": 32}
    schedule = whole_schedule(levels(part, part, (), ()), {"m": 32, "co": 32}, machine)
    kernel = Product(rows, 32, columns, residual=residual).kernel()
    return cube_kernel(
        tile(kernel, schedule, machine, honours=AscendTarget.honours), ASCEND_910, "kernel"
    )


def result_of(program: Program, of: Product | Convolution, order: int = 0) -> Halves:
    """What it computes, of numbers with fractions."""
    given, _ = of.arguments(1)
    for name in ("a", "b"):
        given[name] = (given[name] * np.float16(0.37)).astype(np.float16)
    outcome = built(program).run(given, order=order, blocks=program.blocks)
    assert outcome.problems == ()
    return given["c"]


@pytest.mark.parametrize("name", but_fast(list(CASES), ["ragged"]))
def test_every_number_of_cores_gives_the_same_bits(name: str) -> None:
    of = CASES[name]
    first = kernel_on(of, 1)
    assert first.blocks == 1
    wanted = result_of(first, of)
    for cores, order in ((2, 1), (32, 0)):
        program = kernel_on(of, cores)
        assert program.blocks > 1 or name == "one block"
        found = result_of(program, of, order)
        np.testing.assert_array_equal(found.view(np.uint16), wanted.view(np.uint16))


def test_blocks_of_several_kinds_are_proven() -> None:
    """Edges are blocks of their own kind, and no two blocks meet."""
    program = four_blocks(40, 70)
    steps = traces(program)
    assert alike(steps) == [0, 0, 2, 3, 3, 5]
    assert cases(program) == [(0, 0), (0, 2), (0, 3), (0, 5)]
    # What is right for the first block is wrong for one at an edge.
    whole = synchronised(program)
    (row, _), _ = whole.constants
    wait = next(one for one in whole.body if isinstance(one, Flag) and one.kind == "wait")
    at = whole.body.index(wait)
    within = Loop("within", select(equal(variable(row), 0), 1, 0), [wait])
    wrong = replace(whole, body=[*whole.body[:at], within, *whole.body[at + 1 :]])
    assert prove(wrong, block=0) == []
    assert prove(wrong, block=3) != []


def test_blocks_that_meet_are_reported() -> None:
    """By the compiler, by the reader, and on the host core, with lines."""
    of = Product(64, 32, 64)
    plain = four_blocks()
    right = synchronised(plain)
    assert right.blocks == 4
    (row, place), (column, other) = right.constants
    for wrong in (
        ((row, place), (column, least(other, 0))),  # Blocks of a row write the same part.
        ((row, least(place, 0)), (column, other)),
        ((row, 0), (column, BLOCK_INDEX % 2)),
    ):
        program = replace(right, constants=wrong)
        assert conflicts(traces(program))[0].kind == "blocks"
        with pytest.raises(TilewrightError, match=r"lower-blocks.*what block 0 writes"):
            synchronised(replace(plain, constants=wrong))
        given, _ = of.arguments(1)
        problems = build(kernel_text(program), "kernel").run(given, blocks=4).problems
        assert "which MTE3 of another block, line" in problems[0]
        text = kernel_text(program)
        (again,) = read_kernels(text, ASCEND_910)
        assert kernel_text(again) == text
        with pytest.raises(TilewrightError, match=r"cce-order.*what block 0 writes"):
            verified(again, ASCEND_910)
    text = kernel_text(right)
    (again,) = read_kernels(text, ASCEND_910)
    assert kernel_text(again) == text
    verified(again, ASCEND_910)
    with pytest.raises(TilewrightError, match="cce-value"):
        read_kernels(text.replace("    /* block_idx: 0 to 3 */\n", ""), ASCEND_910)


def test_blocks_that_read_what_others_write_are_reported() -> None:
    """The second summand is where the result goes: elsewhere in another block."""
    of = Product(64, 32, 64, residual=True)
    given, _ = of.arguments(1)
    kernel = built(four_blocks(residual=True))
    assert kernel.run(dict(given), blocks=4).problems == ()
    turned = {**given, "c": given["d"]}
    assert kernel.run(turned, blocks=4).problems == ()  # In place, block by block.
    apart = np.concatenate([given["d"].ravel(), given["d"].ravel()])
    size = given["d"].size
    half = {**given, "d": apart[size // 2 : size // 2 + size], "c": apart[:size]}
    assert any("another block" in text for text in kernel.run(half, blocks=4).problems)


def test_what_cores_get_of_main_memory() -> None:
    """By hand: 4 blocks of a product load A twice and B twice, of 12 bytes a cycle for all."""
    program = synchronised(four_blocks())
    steps = traces(program)
    a, b = (sum(t.bytes for t in program.tensors if t.name == name) for name in "ab")
    assert (a, b) == (4096, 4096)
    core = replace(ASCEND_910, cores=4, memory=12.0, l2=1 << 20, hit=5.0)
    rates = loading_rates(program, steps, core)
    assert rates["gm a", "cbuf"] == 5.0  # The cache's; memory's would be 12 / 4 * 2.
    assert rates["ub", "gm c"] == ASCEND_910.paths["ub", "gm"]
    wide = loading_rates(program, steps, replace(core, hit=50.0))
    assert wide["gm a", "cbuf"] == 6.0
    none = loading_rates(program, steps, replace(core, l2=16383))
    assert (none["gm a", "cbuf"], none["ub", "gm c"]) == (3.0, 3.0)
    # With more blocks than cores, each gets the share of one of the cores.
    few = loading_rates(program, steps, replace(core, cores=2, l2=0))
    assert few["gm a", "cbuf"] == 6.0
    assert makespan([3, 1, 1, 1, 4], 2) == 7
    slow = simulate_blocks(program, replace(core, l2=0))
    assert slow.cycles > simulate_blocks(program, core).cycles
    assert slow.main_bytes == 2 * a + 2 * b + 8192


@pytest.mark.parametrize("core", [ASCEND_910, ASCEND_310])
def test_planning_sees_the_same_memory(core: DaVinci) -> None:
    """The planner's machine of one core has the rates that the simulation takes."""
    machine = chip_machine(core)
    varied = core_of(machine)
    assert varied == core
    assert varied.hit == 128
    alone = core_beside(machine, core.cores - 1, 2.0, 0.0)
    share = min(core.paths["gm", "cbuf"], core.memory / core.cores)
    assert alone.move("gm", "cbuf").bytes_per_cycle == min(128, 2 * share)
    assert core_beside(machine, 0, 2.0, core.l2 + 1).move("ub", "gm").bytes_per_cycle == 64
    # Rows of a block's windows all meet the image, however few there are.
    of = Convolution(3, 29, 17, 40, kernel=(5, 5), pads=(2, 2, 2, 2)).of_kernel()
    sizes = grids(of, machine.primitive("conv"), core.cores)
    rows = sizes["oh"]
    assert int(parts_of(of, sizes).max()) > 1
    assert (rows >= 3).all()
    assert (np.where(rows < 29, 29 % rows, 0)[29 % rows > 0] != 1).all()
