"""Grids of vector kernels: planned, in the tile program, and followed by the launches."""

from __future__ import annotations

from math import ceil, prod

import numpy as np
import pytest
from tests.slow import but_fast

from tilewright.codegen.program.interface import CompiledKernel
from tilewright.planning import Planner
from tilewright.planning.domain import Affine, Dim, Kernel, Operand, Role, Stage, Value
from tilewright.targets.ascend.elements import as_elements, as_folds, as_rows
from tilewright.targets.ascend.formats import image, nz
from tilewright.targets.ascend.grids import GridPlans, Step, steps_of
from tilewright.targets.ascend.lower import lower_kernel
from tilewright.targets.ascend.lowering.launches import Device
from tilewright.targets.ascend.lowering.walk import shared_loops
from tilewright.targets.ascend.machine import ASCEND_910
from tilewright.targets.ascend.moves import as_moves
from tilewright.targets.ascend.network import chip_machine
from tilewright.targets.ascend.package import core_of
from tilewright.targets.ascend.target import AscendTarget
from tilewright.tile.dialect import programs_of
from tilewright.tile.lower import tile_module

MACHINE = chip_machine(ASCEND_910).with_values({"cores": 8})


def kernel(
    operation: str,
    extents: tuple[int, ...],
    layouts: tuple[str, str] = ("", ""),
    order: tuple[int, ...] = (),
    reduced: tuple[int, ...] = (),
    attributes: tuple[tuple[str, Value], ...] = (),
) -> Kernel:
    """One operand to a result of these extents; ``order`` are the operand's axes by the result's,
    ``reduced`` axes are 1 in the result of a reduction, and whole in that of a softmax."""
    kept = operation.startswith("reduce")
    names = [f"d{n}" for n in range(len(extents))]
    if operation == "softmax":
        names[reduced[0]] = "axis"
    dims = tuple(
        Dim(names[n], extent, "reduction" if n in reduced else "parallel")
        for n, extent in enumerate(extents)
    )

    def operand(name: str, role: Role, axes: tuple[int, ...], layout: str) -> Operand:
        lost = [role == "output" and kept and n in reduced for n in axes]
        pairs = list(zip(axes, lost, strict=True))
        access = tuple(Affine() if gone else Affine(((names[n], 1),)) for n, gone in pairs)
        shape = tuple(1 if gone else extents[n] for n, gone in pairs)
        return Operand(name, shape, access, "float16", role, layout=layout)

    axes = tuple(range(len(extents)))
    given = operand("x", "input", order or axes, layouts[0])
    out = operand("out", "output", axes, layouts[1])
    return Kernel("kernel", (Stage(operation, dims, (given,), out, attributes),))


CASES: dict[str, tuple[Kernel, tuple[Step, ...]]] = {
    "flat": (as_elements(kernel("gelu", (60, 40))), (Step("e", 128),)),
    "blocks": (
        as_elements(kernel("gelu", (48, 64), (nz(), nz()))),
        (Step("o", 1), Step("e", 128)),
    ),
    "rows": (as_rows(kernel("softmax", (4, 20, 32), reduced=(2,))), (Step("r", 1),)),
    "ragged rows": (as_rows(kernel("softmax", (4, 20, 33), reduced=(2,))), ()),
    "sums": (as_folds(kernel("reduce_sum", (64, 24), reduced=(1,))), (Step("r", 16, last=True),)),
    "all": (as_folds(kernel("reduce_sum", (64, 24), reduced=(0, 1))), ()),
    "turn": (
        as_moves(kernel("transpose", (40, 32), order=(1, 0))),
        (Step("p", 1), Step("c", 16, last=True)),
    ),
    "odd turn": (as_moves(kernel("transpose", (32, 40), order=(1, 0))), ()),
    "to Nz": (
        as_moves(kernel("convert_layout", (64, 96), ("", nz()))),
        (Step("c", 16), Step("r", 16)),
    ),
    "from Nz": (
        as_moves(kernel("convert_layout", (64, 96), (nz(), ""))),
        (Step("r", 1), Step("c", 16, last=True)),
    ),
    "from odd Nz": (as_moves(kernel("convert_layout", (64, 100), (nz(), ""))), ()),
    "image": (
        as_moves(kernel("convert_layout", (2, 3, 8, 16), ("", image()))),
        (Step("d0", 1), Step("c", 16), Step("p", 1)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_grid_stands_in_schedule_and_tile_program_and_launches_follow_it(name: str) -> None:
    """As many blocks as parts; where nothing may be cut the plan is another planner's, but for
    the order in which rows are stored."""
    of, steps = CASES[name]
    assert steps_of(of) == steps
    plan = GridPlans(MACHINE, None)(of)
    if not steps:
        assert plan is None or not plan.schedule.shared
        return
    assert plan is not None
    honours = AscendTarget().honours
    module = tile_module(of, plan.schedule, MACHINE, honours=honours)
    (program,) = programs_of(module)
    grid = {loop.dim.data: loop.step_size for loop in shared_loops(program)}
    assert list(grid) == plan.schedule.shared.split()
    parts = prod(ceil(of.anchor.extents[dim] / part) for dim, part in grid.items())
    assert parts > 1
    device = Device(core_of(MACHINE))
    lower_kernel(device, CompiledKernel(of, plan.schedule, module), {})
    assert device.launches[-1].blocks == parts
    # A layer that a network repeats is the same functions again.
    launches = device.launches[:]
    lower_kernel(device, CompiledKernel(of, plan.schedule, module), {})
    assert device.launches == 2 * launches


def sliced(random: np.random.Generator) -> Kernel:
    """A slice of up to four axes, with steps."""
    rank = int(random.integers(1, 5))
    extents = [int(random.choice((1, 2, 3, 5, 16, 17, 32))) for _ in range(rank)]
    steps = [int(random.choice((1, 1, 2, -1, 3))) for _ in range(rank)]
    starts = [int(random.integers(0, 3)) for _ in range(rank)]
    shape = tuple(
        start + abs(step) * extent
        for start, step, extent in zip(starts, steps, extents, strict=True)
    )
    access = tuple(
        Affine(((f"d{n}", steps[n]),), starts[n] if steps[n] > 0 else shape[n] - 1)
        for n in range(rank)
    )
    dims = tuple(Dim(f"d{n}", extent) for n, extent in enumerate(extents))
    given = Operand("x", shape, access, "float16", "input")
    rows = tuple(Affine(((f"d{n}", 1),)) for n in range(rank))
    out = Operand("out", tuple(extents), rows, "float16", "output")
    return Kernel("kernel", (Stage("slice", dims, (given,), out),))


@pytest.mark.few(3)
@pytest.mark.parametrize("seed", but_fast(range(16), range(8)))
def test_no_two_blocks_of_a_slice_write_the_same(seed: int) -> None:
    """Elements that lie apart are written by a copy each, with what lies behind them."""
    of = as_moves(sliced(np.random.default_rng(seed)))
    planned = GridPlans(MACHINE, None)(of) or Planner(MACHINE).plan(of)
    module = tile_module(of, planned.schedule, MACHINE)
    device = Device(core_of(MACHINE))
    lower_kernel(device, CompiledKernel(of, planned.schedule, module), {})
    assert device.launches
