"""Products along the reduction: when weights lie so, and what reading rows in parts costs."""

import pytest

from tilewright.planning.domain import Affine, Dim, Kernel, Operand, Stage
from tilewright.targets.cpu.machine import machine
from tilewright.targets.cpu.planning.dots import along_reduction, group_of, most_points
from tilewright.targets.cpu.planning.planner import plan_cached, schedules
from tilewright.targets.cpu.planning.registers import registers_of
from tilewright.targets.cpu.processors import Processor

CPU = machine(Processor(lanes=8))


def product(rows: int, depth: int, channels: int, weights: str, layout: str = "") -> Kernel:
    extents = {"n": rows, "co": channels, "ci": depth}

    def operand(name: str, dims: str, role: str, layout: str = "") -> Operand:
        named = dims.split()
        access = tuple(Affine(((dim, 1),)) for dim in named)
        shape = tuple(extents[dim] for dim in named)
        return Operand(name, shape, access, role=role, layout=layout)  # type: ignore[arg-type]

    dims = tuple(
        Dim(name, extent, "reduction" if name == "ci" else "parallel")
        for name, extent in extents.items()
    )
    inputs = (operand("x", "n ci", "input"), operand("w", weights, "weight", layout))
    return Kernel("k", (Stage("matmul", dims, inputs, operand("y", "n co", "output")),))


@pytest.mark.parametrize(
    ("weights", "layout", "along"),
    [
        ("co ci", "", True),
        ("ci co", "", False),
        ("ci co", "NM", True),
        ("co ci", "NM", False),
        ("co ci", "OI8o", False),
    ],
)
def test_weights_lie_along_the_reduction(weights: str, layout: str, along: bool) -> None:
    assert along_reduction(product(2, 24, 16, weights, layout).anchor) == along


@pytest.mark.parametrize("rows", [1, 2, 7, 40])
def test_tiles_of_dots_fit_registers(rows: int) -> None:
    kernel, primitive = product(rows, 100, 50, "co ci"), CPU.primitive("matmul_dots")
    registers = registers_of(CPU, primitive)
    found = list(schedules(kernel, CPU, primitive))
    assert found and plan_cached(kernel, CPU).schedule.primitive == "matmul_dots"
    for schedule in found:
        tile = dict(schedule.levels[-1].tile)
        assert tile["co"] == registers.lanes and tile["ci"] == 100
        assert tile["n"] <= most_points(registers)
        assert tile["n"] * (group_of(tile["n"], registers.lanes) + 1) < registers.count


def test_rows_a_power_of_two_apart_crowd_caches() -> None:
    """A few more channels take less time: their rows spread over all sets of the caches."""
    crowded, spread = (
        plan_cached(product(8, 1024, channels, "ci co"), CPU).predicted_cycles
        for channels in (1024, 1032)
    )
    assert crowded > 1.1 * spread
    # Blocks are read from end to end, whatever the number of channels.
    crowded, spread = (
        plan_cached(product(8, 1024, channels, "co ci", "OI8o"), CPU).predicted_cycles
        for channels in (1024, 1032)
    )
    assert crowded < spread
