"""Blocks of tiles: register tiles that cover, scratch that suffices, and what the planner takes."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tilewright.machine import Machine
from tilewright.planning.domain import Affine, Dim, Kernel, Operand, Stage
from tilewright.targets.cpu.machine import machine as cpu
from tilewright.targets.cpu.planning.blocks import register_tiles, scratch_elements
from tilewright.targets.cpu.planning.planner import plan_cached, schedules
from tilewright.targets.cpu.planning.registers import registers_of
from tilewright.targets.cpu.processors import Processor

MACHINE = cpu(Processor(lanes=16, registers=32))


def kernel(ci: int, co: int, size: int, tile: int = 4, room: int = 1 << 22) -> Kernel:
    grid, inner = -(-size // tile), tile + 2

    def at(**terms: int) -> Affine:
        return Affine(tuple(terms.items()))

    image = (at(n=1), at(ci=1), Affine((("th", tile), ("u", 1)), -1))
    image += (Affine((("tw", tile), ("v", 1)), -1),)
    result = (at(n=1), at(co=1), at(th=tile, r=1), at(tw=tile, s=1))
    weight = (at(co=1), at(ci=1), at(u=1), at(v=1))
    dims = [Dim("n", 1), Dim("co", co), Dim("th", grid), Dim("tw", grid), Dim("r", tile)]
    dims += [Dim("s", tile), Dim("ci", ci, "reduction"), Dim("u", inner, "reduction")]
    dims += [Dim("v", inner, "reduction")]
    inputs = (
        Operand("x", (1, ci, size, size), image, layout="NCHW16c"),
        Operand("w", (co, ci, inner, inner), weight, role="weight", layout="OHWI16o"),
        Operand("s", (room,), (Affine(),), role="scratch"),
    )
    output = Operand("y", (1, co, size, size), result, role="output", layout="NCHW16c")
    return Kernel("k", (Stage("winograd_conv", tuple(dims), inputs, output),))


@given(some.integers(1, 5000), some.integers(1, 31))
def test_register_tiles_cover_and_are_even(points: int, most: int) -> None:
    found = register_tiles(points, most)
    assert sum(found) == points
    assert max(found) <= most and max(found) - min(found) <= 1
    assert len(found) == -(-points // most)
    assert found == sorted(found, reverse=True)


@pytest.mark.parametrize("tile", [2, 4])
def test_less_scratch_gives_smaller_blocks(tile: int) -> None:
    primitive = MACHINE.primitive(f"winograd_{tile}")
    needed: list[int] = []
    for room in (1 << 22, 1 << 18, 1 << 16):
        made = kernel(64, 64, 56, tile, room)
        found = list(schedules(made, MACHINE, primitive))
        assert found
        assert all(scratch_elements(primitive, s, made) <= room for s in found)
        assert {s.levels[0].order[-1] for s in found} == {"co"}, "transformed once in a block"
        needed.append(max(scratch_elements(primitive, s, made) for s in found))
    assert needed[0] > needed[1] > needed[2]


def test_the_plan_keeps_scratch_near_and_weights_few() -> None:
    """Wide images are cut so that scratch stays in the second cache; deep ones are not cut."""
    near = MACHINE.memory("l2").bytes
    assert near is not None
    for made, whole in ((kernel(64, 64, 224), False), (kernel(512, 512, 28), True)):
        found = plan_cached(made, MACHINE)
        tile = dict(found.schedule.levels[0].tile)
        assert ((tile["th"], tile["tw"]) == (7, 7)) == whole
        if not whole:
            elements = scratch_elements(MACHINE.primitive("winograd_4"), found.schedule, made)
            assert 4 * elements < near


def test_bounds_count_the_methods_own_products() -> None:
    found = plan_cached(kernel(256, 256, 56), MACHINE)
    assert found.physical_bound <= found.granule_bound <= found.predicted_cycles
    assert found.physical_bound > 0.9 * 36 * 14 * 14 * 256 * 256 / 16
    assert found.physical_bound < 0.3 * 9 * 56 * 56 * 256 * 256 / 16


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_register_tiles_fit_the_registers(lanes: int) -> None:
    machine: Machine = cpu(Processor(lanes, {4: 15, 8: 16, 16: 32}[lanes], 2.0))
    made, primitive = kernel(64, 64, 28), machine.primitive("winograd_4")
    registers = registers_of(machine, primitive)
    assert registers.vectors_per_cycle == 2.0
    for schedule in schedules(made, machine, primitive):
        vectors = -(-dict(schedule.levels[0].tile)["co"] // lanes)
        points = int(dict(schedule.options)["points"])
        assert registers.fits(points, vectors) and not registers.fits(points + 1, vectors)


def test_names_do_not_matter() -> None:
    made = kernel(64, 64, 28)
    other = replace(made, symbol="other")
    assert plan_cached(made, MACHINE).schedule == plan_cached(other, MACHINE).schedule
