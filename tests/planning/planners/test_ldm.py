"""swTVM's planner: the paper's worked example, further ones, and plans that run."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, prod

import pytest

from tests.planning.planners.test_cores import in_floats
from tests.planning.planning_kernels import conv, dense, pool
from tilewright.errors import TilewrightError
from tilewright.machine import Machine
from tilewright.planning import Planner
from tilewright.planning.domain import Affine, Kernel
from tilewright.planning.planners.ldm.buffers import Buffering
from tilewright.planning.planners.ldm.order import Tensor, loop_order, transfers
from tilewright.planning.planners.ldm.planner import Ldm
from tilewright.planning.planners.registry import planner_of
from tilewright.targets.cambricon_x.machine import MACHINE as CAMBRICON_X
from tilewright.targets.sunway.machine import MACHINE

LDM_BYTES = 64 << 10


def tensor(name: str, *lowest_first: str) -> Tensor:
    return Tensor(name, tuple(Affine.parse(text) for text in lowest_first))


PRODUCT = (tensor("C", "y", "x"), tensor("A", "k", "x"), tensor("B", "y", "k"))
"""C[x, y] += A[x, k] * B[k, y]."""


class Tried:
    """Every set of sizes that algorithm 1 looks at, with the bytes that it takes."""

    def __init__(self, tensors: tuple[Tensor, ...]) -> None:
        self.tensors = tensors
        self.bytes: list[int] = []
        self.sizes: list[dict[str, int]] = []

    def fits(self, sizes: Mapping[str, int]) -> bool:
        self.sizes.append(dict(sizes))
        self.bytes.append(4 * sum(t.elements(sizes) for t in self.tensors))
        return self.bytes[-1] <= LDM_BYTES


def buffered(x: int, y: int, k: int) -> tuple[dict[str, int], Tried]:
    tried = Tried(PRODUCT)
    found = Buffering({"x": x, "y": y, "k": k}, PRODUCT, tried.fits).run()
    assert found is not None
    return found, tried


def test_the_papers_example_of_algorithm_1() -> None:
    found, tried = buffered(1, 1024, 1024)
    assert found == {"x": 1, "y": 128, "k": 64}
    # 16.5, 32.75 and 65 KB, the last of which is undone.
    assert [size / 1024 for size in tried.bytes[-3:]] == [16.5, 32.75, 65.0]


def test_classes_of_the_papers_example() -> None:
    state = Buffering({"x": 1, "y": 1024, "k": 1024}, PRODUCT, lambda _: True)
    assert {v: state.kind(v) for v in "xyk"} == {"x": "number", "y": "size", "k": "computing"}
    assert state.ordered() == ["y", "k"]


@pytest.mark.parametrize(
    ("ranges", "wanted"),
    [((1, 4096, 9216), (64, 128)), ((1, 1000, 4096), (64, 128)), ((1, 16, 1024), (16, 512))],
)
def test_further_examples(ranges: tuple[int, int, int], wanted: tuple[int, int]) -> None:
    found, tried = buffered(*ranges)
    assert (found["y"], found["k"]) == wanted
    assert 4 * sum(t.elements(found) for t in PRODUCT) <= LDM_BYTES < tried.bytes[-1]


@pytest.mark.parametrize(("block", "wanted"), [(16, 256), (64, 128), (128, 128)])
def test_the_block_is_where_buffers_begin(block: int, wanted: int) -> None:
    tried = Tried(PRODUCT)
    ranges = {"x": 1, "y": 1024, "k": 1024}
    found = Buffering(ranges, PRODUCT, tried.fits, block).run()
    assert found is not None and found["y"] * found["k"] <= wanted * 128
    assert 2 * found["y"] * found["k"] * 4 > LDM_BYTES // 2


def test_the_papers_example_of_algorithm_2() -> None:
    trips = {"x": 1, "y": 16, "k": 16}
    assert [transfers(v, PRODUCT, trips, trips) for v in "yk"] == [528, 528]
    trips = {"x": 1, "y": 8, "k": 16}
    counts = {v: transfers(v, PRODUCT, trips, trips) for v in "xyk"}
    assert counts == {"x": 256 + 128, "y": 256 + 16, "k": 256 + 8}
    assert loop_order(trips, PRODUCT) == ["x", "y", "k"]


def test_an_order_that_would_write_partial_sums_keeps_them_on_the_chip_instead() -> None:
    # As published, x innermost has the fewest transfers: A and C move in every iteration, B stays.
    trips = {"x": 64, "y": 2, "k": 2}
    assert loop_order(trips, PRODUCT)[-1] == "x"
    assert loop_order(trips, PRODUCT, ["k"])[-1] == "k"


def test_sizes_count_first_and_last_index() -> None:
    assert tensor("x", "yy*2 + ry").elements({"yy": 8, "ry": 3}) == 17


def test_where_one_element_does_not_fit_there_is_no_tile() -> None:
    assert Buffering({"x": 4, "y": 4, "k": 4}, PRODUCT, lambda _: False).run() is None


def test_granules_and_whole_dims_are_kept() -> None:
    ranges = {"x": 100, "y": 1000, "k": 48}
    tried = Tried(PRODUCT)
    found = Buffering(
        ranges,
        PRODUCT,
        tried.fits,
        40,
        {"y": 16, "x": 8},
        frozenset({"k"}),
    ).run()
    assert found is not None
    for sizes in tried.sizes:
        assert sizes["k"] == 48 and sizes["y"] % 16 == 0 and sizes["x"] % 8 in (0, 100 % 8)


KERNELS = [in_floats(k) for k in (conv(64, 96, 28), dense(4096, 1000), pool(64, 28, 2, 2))]


@pytest.mark.parametrize("machine", [MACHINE, MACHINE.with_values({"cores": 1})])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.symbol)
def test_plans_lose_to_the_best_alone_and_cover_the_result(
    kernel: Kernel, machine: Machine
) -> None:
    found = Planner(machine, search=Ldm()).plan(kernel)
    best = Planner(machine).plan(kernel)
    assert found.planner == "ldm"
    # Beyond the 2 % within which the search for grids stops, nothing beats it.
    assert best.predicted_cycles <= found.predicted_cycles * 1.02
    extents = kernel.anchor.extents
    if machine.cores > 1:
        outer = found.schedule.levels[0]
        parts = prod(ceil(extents[d] / outer.size(d, extents[d])) for d in outer.order)
        assert 1 < parts <= machine.cores
        assert outer.order[0] in ("co", "c")


def test_one_slot_is_as_published_and_two_are_no_slower() -> None:
    single, double, either = (
        Planner(MACHINE, search=Ldm(buffers=count)).plan(KERNELS[0]) for count in (1, 2, 0)
    )
    assert all(slots == 1 for _, slots in single.schedule.buffers)
    assert any(slots == 2 for _, slots in double.schedule.buffers)
    assert either.predicted_cycles == min(single.predicted_cycles, double.predicted_cycles)


def test_few_channels_are_fused_with_rows() -> None:
    found = Planner(MACHINE, search=Ldm()).plan(in_floats(conv(3, 6, 28)))
    assert found.schedule.shared == "co oh"
    assert dict(found.schedule.levels[0].tile) == {"co": 1, "oh": 3}


def test_other_machines_take_it() -> None:
    kernel = conv(64, 96, 28)
    found, best = Planner(CAMBRICON_X, search=Ldm()).plan(kernel), Planner(CAMBRICON_X).plan(kernel)
    assert best.predicted_cycles <= found.predicted_cycles < 2 * best.predicted_cycles


def test_what_fits_no_tile_is_refused_with_the_node() -> None:
    small = CAMBRICON_X.with_values({"memory.sb.bytes": 64})
    with pytest.raises(TilewrightError) as raised:
        Planner(small, search=Ldm()).plan(conv(64, 96, 28))
    (problem,) = raised.value.problems
    assert problem.code == "plan-capacity" and "sb 64 bytes" in problem.reason


def test_options_reach_the_planner() -> None:
    with planner_of("ldm{block=128 buffers=1}", MACHINE) as asked:
        assert asked is not None
        found = asked(KERNELS[0])
    wanted = Planner(MACHINE, search=Ldm(128, 1)).plan(KERNELS[0])
    assert found is not None and found.schedule == wanted.schedule
