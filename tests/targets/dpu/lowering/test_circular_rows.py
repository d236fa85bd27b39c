"""Chains that keep the rows of a halo in the banks: bit for bit, each row computed once, with the
traffic that was planned, and no token too many."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.slow import but_fast
from tests.targets.dpu.lowering.lowered_cases import Lowered, bias, image, lower_case
from tests.targets.dpu.lowering.lowered_cases import machine_of_averages as averages
from tests.targets.dpu.lowering.test_lowered_chains import crowded
from tests.targets.generic.kernel_cases import Case, KernelBuilder

from tilewright.graph.operation import Operation as GraphOperation
from tilewright.ir import SSAValue, UnitAttr
from tilewright.planning import Plan, Planner
from tilewright.planning.domain import Kernel
from tilewright.planning.schedule import Schedule
from tilewright.targets.dpu.core import CORES as ALL
from tilewright.targets.dpu.core import ZU2
from tilewright.targets.dpu.machine import machine_of
from tilewright.targets.dpu.operations import Operation
from tilewright.targets.dpu.registers import BIASES, REGISTERS
from tilewright.targets.dpu.timing import check_program, time_program

CORES = (ZU2, ALL["dpu-b512"])
CHAINS = {
    "conv-conv": ("conv", "conv"),
    "pool-conv": ("pool", "conv"),
    "conv-depthwise": ("conv", "depthwise"),
    "depthwise-mean": ("depthwise", "mean"),
    "conv-conv-pool": ("conv", "conv", "pool"),
}

COMPUTES = ("conv", "pool", "alu", "dwconv")
Half = tuple[int, str, int]


def layer(build: KernelBuilder, kind: str, value: SSAValue, channels: int, k: int, stride: int):
    """One layer with windows of k x k and uneven padding; its result and how many channels."""
    pads = tuple(int(n) for n in build.random.integers(0, (k - 1) // 2 + 1, 4))
    values: dict[str, Any] = {"strides": (stride, stride), "pads": pads}
    if kind == "pool":
        return build.op("max_pool", value, kernel=(k, k), **values), channels
    if kind == "mean":
        values = {"strides": (stride, stride), "factor": averages(k, k)}
        return build.op("average_pool", value, kernel=(k, k), **values), channels
    co = channels if kind == "depthwise" else int(build.random.integers(5, 30))
    shape = (co, 1, k, k) if kind == "depthwise" else (co, channels, k, k)
    weight = build.operand(shape, 9, 8, "HWIO" if kind == "depthwise" else "OHWI")
    spread(build, 127 if kind == "depthwise" else 30)
    group = co if kind == "depthwise" else 1
    return build.op("conv", value, weight, bias(build, co, 13), group=group, **values), co


def spread(build: KernelBuilder, limit: int) -> None:
    """Make the last operand one with which results are neither all saturated nor all nearly 0."""
    kind, data = build.arguments[-1]
    build.arguments[-1] = (kind, build.random.integers(-limit, limit, data.shape, data.dtype))


def chain(kinds: tuple[str, ...], seed: int, images: int, kernel: int = 0) -> Case:
    """Layers behind one another in one kernel; all but the first have windows that overlap."""
    build = KernelBuilder(seed)
    pick = build.random
    channels = int(pick.integers(5, 30))
    value = image(build, images, channels, int(pick.integers(23, 40)), int(pick.integers(9, 16)))
    spread(build, 127)
    for number, kind in enumerate(kinds):
        k = kernel or int(pick.choice([3, 5]) if number else pick.choice([1, 2, 3]))
        stride = int(pick.choice([1, 2])) if number == len(kinds) - 1 else 1
        value, channels = layer(build, kind, value, channels, k, stride)
        first = value.owner
        assert isinstance(first, GraphOperation)
        if number:
            first.begins = UnitAttr()
        if kind not in ("pool", "mean"):
            value = build.op("requantise", value, result=(8, 4))
    return build.finish(value)


def keeping(
    kernel: Kernel, schedule: Schedule, rows: int, slots: int, columns: int = 0, ahead: int = 0
) -> Schedule:
    """The schedule in tiles of so many rows of the result, and columns if not all, halos left in
    the banks, and so many rows computed ahead."""
    (level,) = schedule.levels
    sizes = kernel.anchor.extents | {"n": 1, "oh": rows}
    order = ("n", "oh")
    if columns:
        sizes, order = sizes | {"ow": columns}, ("n", "ow", "oh")
    levels = (replace(level, tile=tuple(sizes.items()), order=order),)
    return replace(_kept(kernel, schedule, slots, ahead), levels=levels)


def _kept(kernel: Kernel, schedule: Schedule, slots: int, ahead: int) -> Schedule:
    pairs = zip(kernel.producers, schedule.producers, strict=True)
    names = tuple(producer.output.name for producer in kernel.producers)
    return replace(
        schedule,
        producers=tuple(_kept(*pair, slots, ahead) for pair in pairs),
        kept=tuple((name, ahead) for name in names),
        buffers=tuple((dict(schedule.buffers) | dict.fromkeys(names, slots)).items()),
    )


def kept(schedule: Schedule) -> list[str]:
    return [name for own in (schedule, *schedule.inner) for name, _ in own.kept]


@pytest.mark.few(2)
@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("seed", but_fast(range(4), range(1)))
def test_rows_that_stay_are_those_that_are_computed_again(name: str, seed: int) -> None:
    """Any rows in a tile, one slot or several, rows ahead of the next tile or not; the same bits
    as without, and less computed."""
    core, rows, slots = CORES[seed % 2], 1 + seed * 3 % 7, 1 + seed % 3
    case = chain(CHAINS[name], seed, 1 + seed % 3)
    machine = machine_of(core)
    again = replace(Planner(machine).plan(case.kernel).schedule, kept=())
    schedule = keeping(case.kernel, again, rows, slots, ahead=(seed + 2) % 4)
    apart = replace(schedule, kept=())
    apart = replace(apart, producers=tuple(replace(p, kept=()) for p in apart.producers))
    lowered = [lower_case(case, core, machine, one) for one in (schedule, apart)]
    for one in lowered:
        assert not one.segments.problems()
        np.testing.assert_array_equal(one.run(), case.expected)
    assert len(np.unique(case.expected)) > 10
    computed = [points(one) for one in lowered]
    assert computed[0] < computed[1]


@pytest.mark.few(2)
@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("columns", but_fast((2, 3, 4), (3,)))
def test_rows_stay_whatever_the_widths_of_tiles(name: str, columns: int) -> None:
    """Tiles at the borders are narrower: a circular buffer's rows have room for the widest."""
    core, case = CORES[columns % 2], chain(CHAINS[name], columns, 2, kernel=3)
    machine = machine_of(core)
    whole = replace(Planner(machine).plan(case.kernel).schedule, kept=())
    lowered = lower_case(case, core, machine, keeping(case.kernel, whole, 4, 1, columns, 3))
    assert not lowered.segments.problems()
    np.testing.assert_array_equal(lowered.run(), case.expected)
    (program,) = lowered.segments.programs
    assert len({op.fields["length"] for op in program if op.mnemonic in COMPUTES}) > 1


def test_rows_ahead_complete_blocks() -> None:
    """A pool of 3 x 3 with stride 2 asks for 9 rows and then 8: the core computes 12, then 8."""
    build = KernelBuilder(3)
    value = image(build, 1, 24, 56, 14)
    spread(build, 127)
    weight = build.operand((24, 24, 3, 3), 9, 8, "OHWI")
    spread(build, 30)
    value = build.op("conv", value, weight, bias(build, 24, 13), group=1, pads=(1, 1, 1, 1))
    value = build.op("requantise", value, result=(8, 4))
    value = build.op("max_pool", value, kernel=(3, 3), strides=(2, 2), pads=(0, 0, 1, 1))
    first = value.owner
    assert isinstance(first, GraphOperation)
    first.begins = UnitAttr()
    case = build.finish(value)
    machine = crowded(ZU2, 12)
    planned = Planner(machine).plan(case.kernel)
    ((_, ahead),) = planned.schedule.kept
    assert ahead == 3 and "(3 ahead)" in str(planned.schedule)
    assert Schedule.from_json(planned.schedule.to_json()) == planned.schedule
    lowered = lower_case(case, ZU2, machine)
    np.testing.assert_array_equal(lowered.run(), case.expected)
    (program,) = lowered.segments.programs
    rows = [op.fields["valid_pixel_parallel"] for op in program if op.mnemonic == "conv"]
    assert set(rows) == {ZU2.rows}


def points(one: Lowered) -> int:
    """Pixels of all channels that a program's instructions compute."""
    (program,) = one.segments.programs
    computed = [op.fields for op in program if op.mnemonic in COMPUTES]
    return sum(fields["valid_pixel_parallel"] * fields["length"] for fields in computed)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["conv-depthwise", "conv-conv-pool", "pool-conv"])
def test_what_planning_keeps_moves_as_many_bytes_as_it_says(name: str) -> None:
    case = chain(CHAINS[name], 1, 2, kernel=3)
    machine = crowded(ZU2, 16)  # Whole images fit the others' banks, and have no halos.
    planned: Plan = Planner(machine).plan(case.kernel)
    assert kept(planned.schedule) and "keeps rows of" in str(planned.schedule)
    made = lower_case(case, ZU2, machine)
    np.testing.assert_array_equal(made.run(), case.expected)
    (program,) = made.segments.programs
    loads = [op.fields for op in program if op.mnemonic == "load"]
    biases = sum(f["channel"] for f in loads if f["reg_id"] == REGISTERS[BIASES])
    # A bias is four bytes to planning, and one to the banks.
    moved = time_program(ZU2, program).main_bytes + 3 * biases
    assert moved == planned.moved_bytes


def test_a_token_that_lacks_is_a_race() -> None:
    """Of rows that are ready, and of places that are free again for new ones: all of them.

    With queues of 16 the dispatcher itself would order some of them.
    """
    case = chain(("conv", "depthwise"), 1, 1, kernel=3)
    machine = machine_of(ZU2)
    schedule = keeping(case.kernel, Planner(machine).plan(case.kernel).schedule, 3, 1)
    made = lower_case(case, ZU2, machine, schedule)
    (program,) = made.segments.programs
    endless = replace(ZU2, queue=len(program))
    assert check_program(endless, program).race_free
    removed: Counter[tuple[str, str]] = Counter()
    for put, take in tokens(program):
        pair = program[put[0]].mnemonic, program[take[0]].mnemonic
        if {*pair} != {"conv", "dwconv"}:
            continue
        changed = list(program)
        for number, field, other in (put, take):
            fields = dict(changed[number].fields)
            fields[field] &= ~(1 << other)
            changed[number] = replace(changed[number], fields=fields)
        assert not check_program(endless, changed).race_free, pair
        removed[pair] += 1
    assert min(removed["conv", "dwconv"], removed["dwconv", "conv"]) > 3


def tokens(program: Sequence[Operation]) -> Iterator[tuple[Half, Half]]:
    """Every token, as the instruction, field and bit of its put and of its take."""
    queues: dict[tuple[int, int], tuple[list[Half], list[Half]]] = {}
    for op in program:
        for other in range(4):
            if other != op.engine and op.fields["put"] >> other & 1:
                queue = queues.setdefault((op.engine, other), ([], []))
                queue[0].append((op.number, "put", other))
            if other != op.engine and op.fields["take"] >> other & 1:
                queue = queues.setdefault((other, op.engine), ([], []))
                queue[1].append((op.number, "take", other))
    for puts, takes in queues.values():
        yield from zip(puts, takes, strict=True)
