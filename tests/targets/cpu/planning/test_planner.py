"""The planner for machines behind caches: its space, its traffic, its choices."""

from dataclasses import replace
from math import ceil, prod

import pytest
from tests.targets.cpu.planning.machines import costs_of, product, with_costs

from tilewright.errors import TilewrightError
from tilewright.machine import Engine, Machine, Memory, Primitive, Storage, Synchronisation
from tilewright.planning import Planner
from tilewright.planning.domain import Affine, Dim, Kernel, Operand, Stage
from tilewright.planning.schedule import Level, Schedule
from tilewright.targets.cpu.capabilities import CpuMachine
from tilewright.targets.cpu.machine import machine as cpu_machine
from tilewright.targets.cpu.planning.cost import Caches, Nest, box_bytes, cache_levels
from tilewright.targets.cpu.planning.planner import (
    choose_primitive,
    plan_cached,
    registers_of,
    schedules,
)
from tilewright.targets.cpu.processors import Processor

LANES = 8


def machine(level1: int = 32 << 10, level2: int = 1 << 20) -> Machine:
    def primitive(name: str, layouts: bool, **more: object) -> Primitive:
        image, weight = (f"NCHW{LANES}c", f"OIHW{LANES}i{LANES}o") if layouts else ("any", "any")
        roles = {"input": image, "residual": image, "output": image, "weight": weight}
        return Primitive(
            name=name,
            operations=("conv",),
            engine="core",
            operands={r: Storage(memory="dram", layout=text) for r, text in roles.items()},
            epilogue_any=True,
            cycles=f"n*g*oh*ow*ceil(co/{LANES})*ci*kh*kw/2" if layouts else "n*co*oh*ow*ci*kh*kw*4",
            peak=f"n*g*oh*ow*co*ci*kh*kw/{2 * LANES}",
            sizes="fixed",
            **more,  # type: ignore[arg-type]
        )

    def memory(name: str, size: int, rate: float) -> Memory:
        return Memory(name=name, bytes=size, bytes_per_cycle=rate)

    return Machine(
        name="cached",
        clock_hz=1e9,
        memories=(
            Memory(name="dram", bytes_per_cycle=6.0),
            memory("l2", level2, 28.0),
            memory("l1", level1, 56.0),
            Memory(name="registers", bytes=16 * 32, granule=32),
        ),
        engines=(Engine(name="core"),),
        primitives=(
            primitive("conv", True, multiples={"co": LANES, "ci": LANES}, whole=("kh", "kw")),
            primitive("general", False),
        ),
        synchronisation=Synchronisation(style="none"),
        own=CpuMachine(),
    )


def one(dim: str, factor: int = 1, offset: int = 0) -> Affine:
    return Affine(((dim, factor),), offset)


def conv(
    ci: int = 32, co: int = 64, size: int = 14, k: int = 3, layout: str = f"NCHW{LANES}c"
) -> Kernel:
    pad = k // 2
    dims = (
        *(Dim("n", 1), Dim("co", co), Dim("oh", size), Dim("ow", size)),
        *(Dim("ci", ci, "reduction"), Dim("kh", k, "reduction"), Dim("kw", k, "reduction")),
    )
    rows, columns = (Affine(((o, 1), (t, 1)), -pad) for o, t in (("oh", "kh"), ("ow", "kw")))
    x = Operand("x", (1, ci, size, size), (one("n"), one("ci"), rows, columns), layout=layout)
    weight = f"OIHW{LANES}i{LANES}o" if layout else ""
    access = (one("co"), one("ci"), one("kh"), one("kw"))
    w = Operand("w", (co, ci, k, k), access, role="weight", layout=weight)
    target = (one("n"), one("co"), one("oh"), one("ow"))
    y = Operand("y", (1, co, size, size), target, role="output", layout=layout)
    return Kernel("k", (Stage("conv", dims, (x, w), y),), ("node",))


def test_the_same_kernel_gets_the_same_schedule() -> None:
    first, second = (Planner(machine()).plan(conv()) for _ in range(2))
    assert first.schedule == second.schedule
    assert first.predicted_cycles == second.predicted_cycles
    assert first.schedule.primitive == "conv"
    assert first.complete


def test_every_schedule_fits_the_registers_and_covers_the_kernel() -> None:
    kernel, cpu = conv(), machine()
    primitive = choose_primitive(kernel, cpu)
    registers = registers_of(cpu, primitive)
    assert (registers.lanes, registers.count, registers.vectors_per_cycle) == (LANES, 16, 2.0)
    found = list(schedules(kernel, cpu, primitive))
    assert len(found) == len(set(found)) > 20
    for schedule in found:
        nest = Nest.of(kernel, schedule)
        total = 0
        for count, sizes in nest.tiles():
            points = sizes["oh"] * sizes["ow"]
            vectors = ceil(sizes["co"] / LANES)
            assert points * vectors + vectors + 1 <= registers.count
            assert (sizes["kh"], sizes["kw"]) == (3, 3)
            total += count * prod(sizes.values())
        assert total == kernel.anchor.iterations


def test_rows_are_joined_only_where_windows_stay_inside() -> None:
    cpu = machine()
    heights = {
        k: {
            dict(schedule.levels[-1].tile).get("oh", 7)
            for schedule in schedules(conv(size=4, k=k), cpu, cpu.primitive("conv"))
        }
        for k in (1, 3)
    }
    assert heights[3] == {1}
    assert max(heights[1]) > 1


def test_row_major_tensors_take_the_general_primitive() -> None:
    found = Planner(machine()).plan(conv(layout=""))
    assert found.schedule.primitive == "general"
    only = machine().model_copy(update={"primitives": machine().primitives[:1]})
    with pytest.raises(TilewrightError, match="plan-primitive"):
        Planner(only).plan(conv(layout=""))


def test_a_reduction_under_a_residual_is_split_where_sums_can_start_from_it() -> None:
    kernel = conv(ci=512)
    target = kernel.output
    residual = Operand("r", target.shape, target.access, role="residual", layout=target.layout)
    total = Operand("z", target.shape, target.access, role="output", layout=target.layout)
    dims = kernel.anchor.dims[:4]
    added = Stage("add", dims, (target, residual), total)
    active = Stage("relu", dims, (target,), replace(target, name="t"))
    late = Stage("add", dims, (active.output, residual), total)
    cpu = machine()
    depths = {
        name: {
            dict(schedule.levels[-1].tile)["ci"]
            for schedule in schedules(which, cpu, cpu.primitive("conv"))
        }
        for name, which in (
            ("plain", kernel),
            ("first", Kernel("k", (kernel.anchor, added))),
            ("late", Kernel("k", (kernel.anchor, active, late))),
        )
    }
    every = {64, 128, 256, 512}
    assert depths == {"plain": every, "first": every, "late": {512}}


def nest_of(kernel: Kernel, order: tuple[str, ...], **tile: int) -> Nest:
    return Nest.of(kernel, Schedule("conv", (Level("l1", tuple(tile.items()), order),)))


def test_what_fits_is_moved_once_and_what_does_not_is_moved_again() -> None:
    kernel = conv(ci=16, co=32, size=8, k=1)
    extents = kernel.anchor.extents
    x, w, y = (box_bytes(operand, extents) for operand in kernel.operands)
    assert (x, w, y) == (16 * 64 * 4, 16 * 32 * 4, 32 * 64 * 4)
    nest = nest_of(kernel, ("co", "oh"), co=8, oh=1)
    roomy, _ = machine(level1=1 << 20, level2=1 << 21), None
    assert Caches(kernel, roomy).price(nest, 0.0)[1] == x + w + 2 * y
    # Nothing but a tile fits: weights come again for each row, inputs for each block of channels.
    tiny = machine(level1=64, level2=128)
    moved = Caches(kernel, tiny).price(nest, 0.0)[1]
    assert moved == 4 * x + 8 * w + 2 * y
    # A block of weights stays while the rows go by; the inputs still come four times.
    box = {**extents, "co": 8, "oh": 1}
    row = sum(box_bytes(operand, box) for operand in kernel.operands)
    # The next block is fetched while they do: beside the one in use, or these push each other out.
    beside = machine(level1=64, level2=ceil((row + w / 4) / 0.8))
    assert Caches(kernel, beside).price(nest, 0.0)[1] == 4 * x + w + 2 * y
    narrow = machine(level1=64, level2=ceil(row / 0.8))
    assert Caches(kernel, narrow).price(nest, 0.0)[1] > 4 * x + w + 2 * y


def test_parts_of_rows_that_come_from_afar_are_begun_one_by_one() -> None:
    x = Operand("x", (512, 1024), (one("n"), one("ci")))
    w = Operand("w", (48, 1024), (one("co"), one("ci")), role="weight", layout="OI48o")
    y = Operand("y", (512, 48), (one("n"), one("co")), role="output")
    dims = (Dim("n", 512), Dim("co", 48), Dim("ci", 1024, "reduction"))
    kernel = Kernel("k", (Stage("matmul", dims, (x, w), y),))
    cpu = machine(level1=1024, level2=4096)
    costs = costs_of(cpu).model_copy(update={"row_bytes": 1000.0})
    waiting = with_costs(cpu, costs)

    def extra(depth: int) -> float:
        nest = nest_of(kernel, ("ci", "n"), ci=depth, n=8)
        return Caches(kernel, waiting).price(nest, 0.0)[0] - Caches(kernel, cpu).price(nest, 0.0)[0]

    def begun(depth: int) -> float:
        """Of inputs in parts of ``depth`` elements, and of sums that go on in parts of a tile."""
        read, sums = (box_bytes(operand, kernel.anchor.extents) for operand in (x, y))
        return 1000.0 * (read / (4 * depth) + 2 * sums * (1024 / depth - 1) / (4 * 48))

    assert extra(1024) == 0.0, "one row follows the other"
    (_, _), (_, beyond) = cache_levels(cpu)
    assert extra(128) == pytest.approx(begun(128) / beyond, rel=1e-2)
    assert extra(256) == pytest.approx(begun(256) / beyond, rel=1e-2)


@pytest.mark.parametrize("start", [0.0, 300.0])
def test_sums_that_go_on_are_read_part_of_a_row_by_part(start: float) -> None:
    """They have been read before their tile: a tenth of it counts, and the start of every part."""
    x = Operand("x", (512, 1024), (one("n"), one("ci")))
    w = Operand("w", (512, 1024), (one("co"), one("ci")), role="weight", layout="OI48o")
    y = Operand("y", (512, 512), (one("n"), one("co")), role="output")
    dims = (Dim("n", 512), Dim("co", 512), Dim("ci", 1024, "reduction"))
    kernel = Kernel("k", (Stage("matmul", dims, (x, w), y),))
    cpu = machine(level1=1024, level2=4096)
    costs = costs_of(cpu).model_copy(update={"row_bytes": start})
    cpu = with_costs(cpu, costs)
    caches = Caches(kernel, cpu)
    size, read = (box_bytes(operand, kernel.anchor.extents) for operand in (y, x))

    def cycles(depth: int) -> float:
        return caches.price(nest_of(kernel, ("ci", "n"), ci=depth, n=8), 1e9)[0]

    (_, behind), (_, beyond) = cache_levels(cpu)
    # A row of results lies in one piece of 2 KB, one of inputs in pieces of depth * 4 bytes.
    once = 2 * size / behind + (0.1 + start / 2048) * 2 * size / beyond
    shorter = read * start * (1 / 512 - 1 / 1024) / beyond
    # Of two megabytes, four kilobytes stay.
    assert cycles(128) - cycles(256) == pytest.approx(4 * once + shorter, rel=1e-3)
    assert cycles(256) - cycles(512) == pytest.approx(2 * once + shorter / 2, rel=1e-3)


def test_weights_that_stream_leave_the_result_in_its_cache() -> None:
    """Sums that fit a cache are found there again, however many weights came in between."""
    x = Operand("x", (64, 1024), (one("n"), one("ci")))
    w = Operand("w", (512, 1024), (one("co"), one("ci")), role="weight", layout="OI48o")
    y = Operand("y", (64, 512), (one("n"), one("co")), role="output")
    dims = (Dim("n", 64), Dim("co", 512), Dim("ci", 1024, "reduction"))
    kernel = Kernel("k", (Stage("matmul", dims, (x, w), y),))
    nest = nest_of(kernel, ("ci", "co", "n"), ci=256, co=48, n=8)

    def far(level2: int) -> float:
        return Caches(kernel, machine(level1=1024, level2=level2)).price(nest, 1e9)[1]

    # Results of 128 KB and inputs of 64 KB; a quarter of the weights are 512 KB.
    roomy, small = far(384 << 10), far(64 << 10)
    assert roomy <= sum(box_bytes(o, kernel.anchor.extents) for o in (x, w, y, y))
    assert small > roomy + 6 * box_bytes(y, kernel.anchor.extents) - 1


def test_weights_read_again_from_the_second_cache_hide_in_part() -> None:
    kernel, nest = conv(), nest_of(conv(), ("oh", "co"), co=8, oh=1)
    small, roomy = machine(level1=64), machine(level1=1 << 28, level2=1 << 29)

    def extra(cpu: Machine) -> float:
        costs = costs_of(cpu).model_copy(update={"near": 1.0})
        dear = with_costs(cpu, costs)
        return Caches(kernel, dear).price(nest, 1e6)[0] - Caches(kernel, cpu).price(nest, 1e6)[0]

    # In a first cache that keeps them they come but once.
    assert extra(small) > 2 * extra(roomy) > 0.0


def test_weights_from_main_memory_hide_as_the_machine_says() -> None:
    kernel, nest = conv(), nest_of(conv(), ("co",), co=8)
    weights = box_bytes(kernel.anchor.inputs[1], kernel.anchor.extents)

    def price(part: float, kept: int = 0) -> float:
        cpu = machine().with_values({"own.cpu.weights_kept": kept})
        costs = costs_of(cpu).model_copy(update={"cold": part})
        return Caches(kernel, with_costs(cpu, costs)).price(nest, 1e9)[0]

    bandwidth = machine().memory("dram").bytes_per_cycle
    assert bandwidth is not None
    assert price(0.75) - price(0.25) == pytest.approx(0.5 * weights / bandwidth, rel=1e-3)
    assert price(0.75, weights) == price(0.25, weights), "the last cache keeps them between runs"


def test_weights_from_main_memory_in_more_than_four_streams_take_longer() -> None:
    kernel = conv(co=128)
    weights = box_bytes(kernel.anchor.inputs[1], kernel.anchor.extents)

    def price(channels: int, crowded: float) -> float:
        costs = costs_of(machine()).model_copy(update={"crowded": crowded, "cold": 0.0})
        cpu = with_costs(machine(), costs)
        return Caches(kernel, cpu).price(nest_of(kernel, ("co",), co=channels), 0.0)[0]

    bandwidth = machine().memory("dram").bytes_per_cycle
    assert bandwidth is not None
    assert price(4 * LANES, 0.5) == price(4 * LANES, 0.0)
    longer = price(8 * LANES, 0.5) - price(8 * LANES, 0.0)
    hidden = 1.0 - costs_of(machine()).exposed
    assert longer == pytest.approx(hidden * 4 * 0.5 * weights / bandwidth, rel=1e-3)


def test_compute_hides_traffic_or_is_hidden_by_it() -> None:
    kernel, nest = conv(), nest_of(conv(), ("co",), co=8)
    caches = Caches(kernel, machine())
    idle, moved = caches.price(nest, 0.0)
    busy, _ = caches.price(nest, 1e9)
    weights = box_bytes(kernel.anchor.inputs[1], kernel.anchor.extents)
    # Weights come from main memory, whatever was computed just before from the nearest cache.
    assert max(weights / 6.0, moved / 28.0) <= idle <= weights / 6.0 + moved / 28.0
    # What is read hides all but a tenth; what is written does not hide.
    result = 2 * box_bytes(kernel.output, kernel.anchor.extents) / 28.0
    assert 1e9 + result <= busy <= 1e9 + result + 0.1 * (weights / 6.0 + 2 * moved / 28.0)


def test_results_in_short_pieces_cost_more_where_they_lie_far() -> None:
    """Of a row-major product, blocks of columns outside leave pieces of rows."""
    rows, columns, depth = 4096, 4096, 16
    dims = (Dim("n", rows), Dim("co", columns), Dim("ci", depth, "reduction"))
    x = Operand("x", (rows, depth), (one("n"), one("ci")))
    w = Operand("w", (columns, depth), (one("co"), one("ci")), role="weight")
    y = Operand("y", (rows, columns), (one("n"), one("co")), role="output")
    kernel = Kernel("k", (Stage("matmul", dims, (x, w), y),))
    pieces, whole = (nest_of(kernel, order, n=8, co=48) for order in (("co", "n"), ("n", "co")))
    caches = Caches(kernel, machine())
    apart, _ = caches.price(pieces, 1e6)
    together, _ = caches.price(whole, 1e6)
    starts = costs_of(machine()).start_bytes / (48 * 4)
    assert apart > together + starts * 2 * rows * columns * 4 / 6.0 * 0.9
    tall = machine(level1=1 << 28, level2=1 << 29)
    near = [Caches(kernel, tall).price(nest, 1e6)[0] for nest in (pieces, whole)]
    assert near[0] == pytest.approx(near[1]), "in the nearest cache it does not matter"


def test_bounds_leave_out_padding_and_what_caches_hold() -> None:
    kernel, cpu = conv(ci=64, co=64, size=7), machine()
    found = Planner(cpu).plan(kernel)
    taps = sum(0 <= out + tap - 1 < 7 for out in range(7) for tap in range(3)) ** 2
    assert found.physical_bound == pytest.approx(64 * 64 * taps / (2 * LANES))
    assert found.granule_bound == pytest.approx(found.physical_bound)
    assert found.physical_bound < found.predicted_cycles < 2 * found.physical_bound
    # A product that reads far more weights than the caches hold is bound by memory.
    wide = conv(ci=1024, co=4096, size=1, k=1)
    weights = 1024 * 4096 * 4
    found = Planner(cpu).plan(wide)
    assert weights / 6.0 * 0.9 < found.physical_bound < weights / 6.0
    assert found.predicted_cycles >= weights / 6.0


def test_rows_a_power_of_two_apart_crowd_caches() -> None:
    """A few more channels take less time: their rows spread over all sets of the caches."""
    cpu = cpu_machine(Processor(lanes=8))

    def cycles(channels: int, dims: str, layout: str = "") -> float:
        return plan_cached(product(8, 1024, channels, dims, layout), cpu).predicted_cycles

    assert cycles(1024, "ci co") > 1.1 * cycles(1032, "ci co")
    # Blocks are read from end to end, whatever the number of channels.
    assert cycles(1024, "co ci", "OI8o") < cycles(1032, "co ci", "OI8o")
