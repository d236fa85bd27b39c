"""The planner swatop: its strategies mean the kernel, its model, and the black box."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.tile.interpreter import run
from tilewright.machine import Machine
from tilewright.machine.records import MachineRecord
from tilewright.planning import Planner
from tilewright.planning.domain import Affine, Dim, Kernel, Operand, Stage
from tilewright.planning.own import start_cycles
from tilewright.planning.planners.linear_fit import fit
from tilewright.planning.planners.stated import stated_plan
from tilewright.planning.planners.swatop import Strategies, Swatop, strategies
from tilewright.planning.space.mesh import Mesh
from tilewright.targets.sunway.machine import MACHINE
from tilewright.targets.sunway.mesh import MESH
from tilewright.tile.build import build
from tilewright.tile.dialect import programs_of


def axes(text: str) -> tuple[Affine, ...]:
    return tuple(Affine.parse(part) for part in text.split(","))


def convolution(batch: int, inputs: int, outputs: int, side: int) -> Kernel:
    dims = (
        *(Dim("n", batch), Dim("co", outputs), Dim("oh", side), Dim("ow", side)),
        *(Dim("ci", inputs, "reduction"), Dim("kh", 3, "reduction"), Dim("kw", 3, "reduction")),
    )
    own = side + 2
    where = axes("n, ci, oh + kh, ow + kw")
    x = Operand("x", (batch, inputs, own, own), where, "float32", layout="NCHW")
    w = Operand(
        *("w", (outputs, inputs, 3, 3), axes("co, ci, kh, kw"), "float32", "weight"),
        layout="IHWO",
    )
    y = Operand(
        *("y", (batch, outputs, side, side), axes("n, co, oh, ow"), "float32", "output"),
        layout="NCHW",
    )
    return Kernel("conv", (Stage("conv", dims, (x, w), y),))


def groups(kernel: Kernel, mesh: Mesh | None = MESH) -> list[Strategies]:
    return list(strategies(kernel, MACHINE, MACHINE.primitive("conv"), mesh))


@pytest.mark.slow
def test_every_strategy_means_the_kernel() -> None:
    kernel = convolution(1, 3, 16, 8)
    random = np.random.default_rng(1)
    x = random.integers(-4, 5, size=(1, 3, 10, 10)).astype(np.float32)
    w = random.integers(-4, 5, size=(16, 3, 3, 3)).astype(np.float32)
    wanted = np.zeros((1, 16, 8, 8), np.float32)
    for i in range(3):
        for j in range(3):
            part = np.einsum("nchw,oc->nohw", x[:, :, i : i + 8, j : j + 8], w[:, :, i, j])
            wanted += part
    found = groups(kernel)
    assert sum(group.division is not None for group in found) > 2
    planner = Swatop(mesh=MESH)
    shared = [group for group in found if group.division is not None]
    for group in (found[0], *shared[:3]):
        for row in random.integers(0, group.space.rows, size=2).tolist():
            if not group.keeps_step(kernel, row):
                continue
            schedule = planner.strategy(MACHINE, group, row)
            program = programs_of(build(kernel, schedule, MACHINE))[0]
            result = run(program, {"x": x, "w": w})["y"]
            assert np.array_equal(result, wanted), str(schedule)


def test_the_black_box_finds_the_best_and_the_model_comes_near() -> None:
    kernel = convolution(1, 128, 128, 32)
    best = Planner(MACHINE, search=Swatop(measure=True, mesh=MESH)).plan(kernel)
    first = Planner(MACHINE, search=Swatop(mesh=MESH)).plan(kernel)
    few = Planner(MACHINE, search=Swatop(top=16, mesh=MESH)).plan(kernel)
    assert best.candidates == first.candidates == sum(g.space.rows for g in groups(kernel))
    assert best.predicted_cycles <= few.predicted_cycles <= first.predicted_cycles
    assert few.predicted_cycles < 1.08 * best.predicted_cycles
    assert (best.planner, first.planner) == ("blackbox", "swatop")


def test_what_is_simulated_is_the_price_of_the_schedule() -> None:
    kernel = convolution(2, 32, 64, 16)
    planner = Swatop(mesh=MESH)
    random = np.random.default_rng(2)
    for group in groups(kernel):
        row = int(random.integers(group.space.rows))
        if not group.keeps_step(kernel, row):
            continue
        alone = stated_plan(kernel, MACHINE, planner.strategy(MACHINE, group, row), "", MESH)
        own = float(group.simulated(MESH, [row])[0]) + start_cycles(MACHINE)
        assert own == pytest.approx(alone.predicted_cycles)


def test_cores_that_share_operands_beat_those_that_do_not() -> None:
    kernel = convolution(1, 128, 128, 32)
    shared = Planner(MACHINE, search=Swatop(top=16, mesh=MESH)).plan(kernel)
    alone = Planner(MACHINE, search=Swatop(top=16)).plan(kernel)
    assert shared.schedule.exchanged and not alone.schedule.exchanged
    assert shared.predicted_cycles < alone.predicted_cycles
    assert shared.moved_bytes < alone.moved_bytes


def with_cycles(cycles: str) -> Machine:
    own = MACHINE.primitive("conv").model_copy(update={"cycles": cycles})
    return MACHINE.model_copy(update={"primitives": (own,)})


def test_eq_2_is_found_again() -> None:
    random = np.random.default_rng(3)
    tile = {
        "co": 4.0 * random.integers(1, 9, 200),
        "oh": random.integers(1, 20, 200).astype(float),
        "ci": random.integers(1, 33, 200).astype(float),
    }
    exact = with_cycles("7*oh + 5*oh*co/4 + 3*oh*co/4*ci + 100").primitives[0]
    mended = fit(exact, tile)
    np.testing.assert_allclose(mended.coefficients, (7, 5, 3, 100), rtol=1e-6)
    assert mended.worst_error < 1e-9
    # The printed form has no term for what a block takes beside its steps.
    assert fit(exact, tile, "printed").mean_error > 0.01
    np.testing.assert_allclose(mended.cycles(tile)[:3], _direct(tile)[:3])
    assert min(fit(MACHINE.primitive("conv"), tile).coefficients) >= 0


def _direct(tile: dict[str, np.ndarray]) -> np.ndarray:
    vectors = tile["co"] / 4
    return 7 * tile["oh"] + 5 * tile["oh"] * vectors + 3 * tile["oh"] * vectors * tile["ci"] + 100


def test_a_machine_of_one_core_has_no_parts() -> None:
    alone = MACHINE.model_copy(update={"cores": 1, "own": MachineRecord()})
    found = Planner(alone, search=Swatop(top=4)).plan(convolution(1, 16, 16, 8))
    assert found.schedule.shared == ""
    assert replace(found, seconds=0.0).candidates > 10
