"""Kernels of every kind, on planned and on random schedules: words equal the graph bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from tests.slow import but_fast
from tests.targets.cambricon.lowering.kernel_words import run_case
from tests.targets.generic.kernel_cases import CASES, Case, conv_case, random_case

from tilewright.errors import TilewrightError
from tilewright.machine import Machine
from tilewright.planning import Planner
from tilewright.planning.schedule import Level, Schedule
from tilewright.targets.cambricon.machine import CONFIGURATIONS, machine

UNCOMPUTED = {"lower-epilogue", "lower-window"}
"""Chains and windows that the machine does not compute, however they are cut."""

REFUSED = {
    "tile-capacity",
    "tile-too-many",
    "lower-registers",
    "lower-temporaries",
    "lower-epilogue",
    "lower-window",
}


def random_schedule(case: Case, described: Machine, seed: int) -> Schedule:
    """Any tile sizes, any order of the loops, any buffering; it may not fit."""
    pick = np.random.default_rng(seed)
    stage = case.kernel.anchor
    primitive = described.primitives_for(stage.operation)[0]
    tile: list[tuple[str, int]] = []
    for dim in stage.dims:
        limit = primitive.limits.get(dim.name, dim.extent)
        whole = dim.name in primitive.whole or pick.random() < 0.3
        part = dim.extent if whole else max(1, dim.extent // int(pick.choice([1, 2, 3, 5])))
        tile.append((dim.name, min(part, limit)))
    reduced = tuple(dim.name for dim in stage.dims if dim.kind == "reduction")
    parallel = [dim.name for dim in stage.dims if dim.kind == "parallel"]
    order = tuple(str(name) for name in pick.permutation(parallel)) + reduced
    buffers = tuple((o.name, int(pick.integers(1, 3))) for o in case.kernel.operands)
    return Schedule(primitive.name, (Level("vsm", tuple(tile), order),), buffers)


@pytest.mark.parametrize("seed", but_fast(range(3 * len(CASES)), range(len(CASES))))
def test_words_compute_what_the_graph_says(seed: int) -> None:
    case = random_case(seed)
    described = machine(CONFIGURATIONS[seed % 3])
    try:
        schedules = [Planner(described).plan(case.kernel).schedule]
    except TilewrightError as error:
        assert error.problems[0].code == "plan-primitive"
        pytest.skip("the machine has no such operation: the host computes it")
    schedules += [random_schedule(case, described, 2 * seed + i) for i in range(2)]
    done = 0
    for schedule in schedules:
        try:
            found, result, _ = run_case(case, schedule, described)
        except TilewrightError as error:
            # The planner's own schedule must fit: only what no schedule would change is refused.
            allowed = UNCOMPUTED if schedule is schedules[0] else REFUSED
            assert error.problems[0].code in allowed, error
            continue
        np.testing.assert_array_equal(found, case.expected, err_msg=str(schedule))
        assert result.cycles > 0
        done += 1
    if not done:
        pytest.skip("no schedule of this kernel fits, or its chain is none of the machine's")


@pytest.mark.parametrize("seed", but_fast(range(3 * len(CASES)), range(0, len(CASES), 5)))
def test_memory_may_answer_at_once(seed: int) -> None:
    """What divides by a latency, or waits for one, has none here."""
    case = random_case(seed)
    described = machine(CONFIGURATIONS[seed % 3])
    described = described.with_values({f"move.{move.name}.latency": 0 for move in described.moves})
    try:
        found, _, _ = run_case(case, Planner(described).plan(case.kernel).schedule, described)
    except TilewrightError as error:
        if error.problems[0].code not in {"plan-primitive", *UNCOMPUTED}:
            raise
        pytest.skip("the host computes it")
    np.testing.assert_array_equal(found, case.expected)


def _resident(case: Case, seed: int) -> Schedule:
    """Two levels: a tile of the image with all channels, or some, and steps through them."""
    pick, extents = np.random.default_rng(seed), case.kernel.anchor.extents
    around = {dim: -(-extents[dim] // int(pick.integers(1, 4))) for dim in ("oh", "ow")}
    outer = {**extents, **around, "n": 1}
    inner = {**outer, "co": -(-extents["co"] // int(pick.integers(1, 7)))}
    if "g" in extents:
        inner["g"] = 1
    else:
        outer["co"] = min(int(pick.integers(1, 4)) * inner["co"], extents["co"])
    order = tuple(str(dim) for dim in pick.permutation(["n", "oh", "ow", "co"]))
    levels = (
        Level("vsm", tuple(outer.items()), order),
        Level("msm", tuple(inner.items()), tuple(dim for dim in ("g", "co") if dim in extents)),
    )
    return Schedule("conv", levels, tuple((o.name, 1 + seed % 2) for o in case.kernel.operands))


@pytest.mark.parametrize("start", but_fast(range(0, 80, 20), [40]))
def test_channels_stay_while_weights_come_tile_by_tile(start: int) -> None:
    done = 0
    for seed in range(start, start + 20):
        case = conv_case(seed, True)
        try:
            found, _, _ = run_case(case, _resident(case, seed), machine(CONFIGURATIONS[seed % 3]))
        except TilewrightError as error:
            assert error.problems[0].code in REFUSED, error
            continue
        np.testing.assert_array_equal(found, case.expected)
        done += 1
    assert done


def test_a_kernel_holds_its_code_once_whatever_its_tiles() -> None:
    """Real loops: eight times the tiles take no more words."""
    case = random_case(2)  # a pooling operation
    described = machine()
    lengths: list[int] = []
    for rows in (1, 4):
        stage = case.kernel.anchor
        tile = tuple((d.name, rows if d.name == "oh" else d.extent) for d in stage.dims)
        tile = tuple((name, 1 if name == "n" else size) for name, size in tile)
        schedule = Schedule("pool", (Level("vsm", tile, ("n", "oh")),))
        found, _, lowering = run_case(case, schedule, described)
        np.testing.assert_array_equal(found, case.expected)
        lengths.append(lowering.words().size)
    assert max(lengths) < 400
    assert abs(lengths[0] - lengths[1]) < 40
