"""Chains on a machine whose scratchpad holds inputs and results: words, races, traffic, prices."""

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.targets.generic.kernel_cases import Case, KernelBuilder, lower_case

from tilewright.errors import TilewrightError
from tilewright.graph.operation import Operation
from tilewright.ir import SSAValue, UnitAttr
from tilewright.machine import Machine
from tilewright.machine.load import load_machine
from tilewright.planning import Plan, Planner
from tilewright.targets.generic.isa import derive
from tilewright.targets.generic.timer import timer
from tilewright.targets.generic.timing import check_races, time_program
from tilewright.tile.lower import tile

FILE = Path(__file__).parents[3] / "examples" / "machines" / "fused.toml"
MACHINE = load_machine(FILE)
INSTRUCTIONS = derive(MACHINE)

Layers = tuple[tuple[str, int, int, int], ...]
"""Kind, channels of the result, side of the window, stride; of each layer."""

CHAINS: dict[str, tuple[tuple[int, int], Layers]] = {
    "two convolutions": ((16, 40), (("conv", 24, 3, 1), ("conv", 40, 3, 1))),
    "strided": ((20, 41), (("conv", 32, 3, 2), ("conv", 16, 3, 2))),
    "pool": ((3, 62), (("conv", 32, 7, 2), ("max_pool", 0, 3, 2))),
    "three": ((16, 36), (("conv", 32, 3, 1), ("conv", 32, 3, 1), ("max_pool", 0, 3, 2))),
    "separable": ((48, 28), (("depthwise", 0, 3, 1), ("conv", 64, 1, 1))),
    "inverted": ((24, 28), (("conv", 144, 1, 1), ("depthwise", 0, 3, 1), ("conv", 24, 1, 1))),
    "pointwise": ((64, 30), (("conv", 128, 1, 1), ("conv", 32, 1, 1))),
}


def chain(seed: int, shape: tuple[int, int], layers: Layers, *, apart: bool = False) -> list[Case]:
    """One kernel of all layers; with ``apart`` one of each."""
    cases: list[Case] = []
    build = KernelBuilder(seed)
    channels, size = shape
    value: SSAValue = build.image(1, channels, size, size)
    for number, (kind, co, k, stride) in enumerate(layers):
        if apart and number:
            cases.append(build.finish(value))
            build = KernelBuilder(seed + number)
            value = build.image(1, channels, size, size)
        values: dict[str, Any] = {"strides": (stride, stride), "pads": (k // 2,) * 4}
        if kind == "max_pool":
            value = build.op("max_pool", value, kernel=(k, k), **values)
        else:
            ci, co = (1, channels) if kind == "depthwise" else (channels, co)
            weight = build.operand((co, ci, k, k), 10, layout="OHWI")
            bias = build.operand((co,), 18, bits=32)
            group = channels if kind == "depthwise" else 1
            value = build.op("conv", value, weight, bias, group=group, **values)
            channels = co
        begins = value.owner
        assert isinstance(begins, Operation)
        if kind != "max_pool":
            value = build.op("requantise", build.op("relu", value), result=(16, 8))
        if number and not apart:
            begins.begins = UnitAttr()
        size = -(-size // stride)
    return [*cases, build.finish(value)]


def attention(seed: int, heads: int, rows: int, width: int) -> Case:
    """Two products with the softmax of the first between them."""
    build = KernelBuilder(seed)
    query, key = (build.operand((heads, rows, width), 12) for _ in range(2))
    value = build.operand((heads, rows, width), 12)
    scores = build.op("matmul", query, key, transpose_b=True)
    scores = build.op("requantise", scores, result=(16, 8))
    weights = build.op("softmax", scores, axis=-1, result=(16, 14))
    result = build.op("matmul", weights, value)
    for begins in (weights.owner, result.owner):
        assert isinstance(begins, Operation)
        begins.begins = UnitAttr()
    return build.finish(build.op("requantise", result, result=(16, 10)))


@lru_cache
def planned(name: str) -> tuple[Case, Plan]:
    (case,) = chain(len(name), *CHAINS[name])
    return case, Planner(MACHINE).plan(case.kernel)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", CHAINS)
def test_words_compute_what_the_graph_means(name: str) -> None:
    case, found = planned(name)
    lowered = lower_case(case, found.schedule, MACHINE, INSTRUCTIONS)
    np.testing.assert_array_equal(lowered.run(), case.expected)
    kernels = np.zeros(lowered.program.size, np.int64)
    report = check_races(lowered.program, kernels)
    assert report.complete
    assert not report.races
    assert not report.unwritten
    timeline = time_program(lowered.program, kernels)
    fetched = lowered.program.size * INSTRUCTIONS.machine.instruction_bytes
    assert timeline.main_bytes == found.moved_bytes + fetched
    assert timeline.cycles >= found.granule_bound


@pytest.mark.parametrize("shape", [(1, 40, 32), (3, 64, 16), (2, 200, 64)])
def test_attention_keeps_its_scores_on_the_chip(shape: tuple[int, int, int]) -> None:
    case = attention(7, *shape)
    found = Planner(MACHINE).plan(case.kernel)
    lowered = lower_case(case, found.schedule, MACHINE, INSTRUCTIONS)
    np.testing.assert_array_equal(lowered.run(), case.expected)
    kernels = np.zeros(lowered.program.size, np.int64)
    assert not check_races(lowered.program, kernels).races
    fetched = lowered.program.size * INSTRUCTIONS.machine.instruction_bytes
    assert time_program(lowered.program, kernels).main_bytes == found.moved_bytes + fetched


def test_predictions_are_close() -> None:
    """Within 2 % in the mean and 12 % at worst."""
    time = timer(MACHINE, INSTRUCTIONS)
    errors: list[float] = []
    for name in CHAINS:
        case, found = planned(name)
        errors.append(abs(found.predicted_cycles / time(case.kernel, found.schedule) - 1))
        print(f"{name}: predicted {found.predicted_cycles:.0f}, {errors[-1]:.2%} off")
    assert np.mean(errors) < 0.02
    assert max(errors) < 0.12


@pytest.mark.parametrize("name", ["strided", "pool"])
def test_rows_are_kept_where_that_costs_less(name: str) -> None:
    """Without circular buffers, rows that two tiles read are computed twice, or tiles are larger;
    the timing core agrees with the planner on which is faster."""
    case, keeping = planned(name)
    assert any(schedule.kept for schedule in (keeping.schedule, *keeping.schedule.inner))
    machine = _plain(MACHINE)
    apart = Planner(machine).plan(case.kernel)
    assert not any(schedule.kept for schedule in (apart.schedule, *apart.schedule.inner))
    assert keeping.predicted_cycles < apart.predicted_cycles
    assert timer(MACHINE)(case.kernel, keeping.schedule) < timer(machine)(
        case.kernel, apart.schedule
    )


def _plain(machine: Machine) -> Machine:
    """The machine without circular buffers."""
    primitives = [
        primitive.model_copy(
            update={
                "operands": {
                    role: storage.model_copy(update={"circular": False})
                    for role, storage in primitive.operands.items()
                }
            }
        )
        for primitive in machine.primitives
    ]
    return machine.model_copy(update={"primitives": tuple(primitives)})


def test_circular_buffers_of_what_has_no_rows_are_refused(tmp_path: Path) -> None:
    line = 'operands.residual = "maps"'
    circular = 'operands.residual = { memory = "maps", circular = true }'
    with pytest.raises(TilewrightError, match=r"machine-invalid.*residual.circular"):
        machine_of(tmp_path, (line, circular))


@pytest.mark.parametrize("name", CHAINS)
def test_less_passes_main_memory_than_apart(name: str) -> None:
    """A chain that fits moves less than its kernels by what is written and read again between."""
    cases = chain(len(name), *CHAINS[name], apart=True)
    apart = [Planner(MACHINE).plan(one.kernel) for one in cases]
    between = sum(one.expected.nbytes for one in cases[:-1])
    together = planned(name)[1].moved_bytes
    assert together + between < sum(one.moved_bytes for one in apart)


@pytest.mark.slow
def test_a_machine_without_room_for_a_tile_of_all_refuses() -> None:
    (case,) = chain(1, *CHAINS["three"])
    machine = MACHINE.with_values({"memory.maps.bytes": 512})
    with pytest.raises(TilewrightError, match="plan-capacity"):
        Planner(machine).plan(case.kernel)


def test_results_that_are_not_read_where_they_are_made_are_refused() -> None:
    (case,) = chain(1, *CHAINS["two convolutions"])
    machine = load_machine(FILE.with_name("small-npu.toml"))
    with pytest.raises(TilewrightError, match="kernel-chain"):
        Planner(machine).plan(case.kernel)


def machine_of(tmp_path: Path, *changes: tuple[str, str]) -> Machine:
    """The machine with lines of its file changed, where they come first."""
    text = FILE.read_text()
    for line, other in changes:
        assert line in text
        text = text.replace(line, other, 1)
    (tmp_path / "machine.toml").write_text(text)
    return load_machine(tmp_path / "machine.toml")


GRANULE = (
    'operands.output = { memory = "maps", circular = true }',
    'operands.output = { memory = "maps", multiples = { co = 64 }, circular = true }',
)


@pytest.mark.parametrize("size", [12_000, 20_000, 40_000, 90_000])
def test_what_is_planned_fits_with_the_granules_of_both_ends(size: int, tmp_path: Path) -> None:
    machine = machine_of(tmp_path, GRANULE).with_values({"memory.maps.bytes": size})
    (case,) = chain(1, *CHAINS["two convolutions"])
    tile(case.kernel, Planner(machine).plan(case.kernel).schedule, machine)


@pytest.mark.parametrize("limit", [24, 16])
def test_reductions_are_cut_where_producers_cannot_make_all_at_once(
    limit: int, tmp_path: Path
) -> None:
    """The second convolution reads 24 channels: at once, or as many as the first one may make."""
    line = "multiples = { co = 16, ci = 16 }"
    machine = machine_of(tmp_path, (line, f"{line}\nlimits = {{ co = {limit} }}"))
    instructions = derive(machine)
    (case,) = chain(1, *CHAINS["two convolutions"])
    found = Planner(machine).plan(case.kernel)
    assert ("ci" in found.schedule.levels[0].order) == (limit < 24)
    lowered = lower_case(case, found.schedule, machine, instructions)
    np.testing.assert_array_equal(lowered.run(), case.expected)
    kernels = np.zeros(lowered.program.size, np.int64)
    assert not check_races(lowered.program, kernels).races
    fetched = lowered.program.size * instructions.machine.instruction_bytes
    assert time_program(lowered.program, kernels).main_bytes == found.moved_bytes + fetched
    took = timer(machine, instructions)(case.kernel, found.schedule)
    assert 0.98 < found.predicted_cycles / took < 1.02


def test_a_plan_says_what_cut_its_space() -> None:
    assert planned("two convolutions")[1].cuts
    (case,) = chain(3, (4, 4), (("conv", 4, 1, 1), ("conv", 4, 1, 1)))
    found = Planner(MACHINE).plan(case.kernel)
    assert found.complete
    assert not found.cuts
