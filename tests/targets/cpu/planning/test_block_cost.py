"""What blocks cost: more than their products, the more the farther scratch and weights lie."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.targets.cpu.planning.machines import costs_of, with_costs
from tests.targets.cpu.planning.test_blocks import MACHINE, kernel

from tilewright.machine import Machine
from tilewright.planning.domain import Affine, Dim, Kernel
from tilewright.planning.schedule import Level, Schedule
from tilewright.targets.cpu.planning.block_cost import BlockCost
from tilewright.targets.cpu.planning.planner import schedules

PRIMITIVE = MACHINE.primitive("winograd_4")
PLAIN = MACHINE.primitive("winograd_4_plain")


def block(height: int, width: int, vectors: int = 2) -> Schedule:
    tile = (("co", 16 * vectors), ("n", 1), ("th", height), ("tw", width))
    options = (("points", {1: 31, 2: 15, 3: 9, 4: 7, 6: 4}[vectors]),)
    return Schedule(
        "winograd_4", (Level("registers", tile, ("n", "th", "tw", "co")),), options=options
    )


def price(made: Kernel, schedule: Schedule, machine: Machine = MACHINE) -> float:
    return BlockCost(made, machine, PRIMITIVE).price(schedule)[0]


def test_a_block_costs_more_than_its_products() -> None:
    made = kernel(64, 64, 56)
    products = 36 * 14 * 14 * 64 * 64 / 16
    for schedule in schedules(made, MACHINE, PRIMITIVE):
        cycles, moved = BlockCost(made, MACHINE, PRIMITIVE).price(schedule)
        assert cycles > products
        assert moved >= 4 * (36 * 64 * 64 + 2 * 64 * 56 * 56)


def test_equal_blocks_cost_the_same_wherever_the_edge_is() -> None:
    """13 rows in blocks of 4 are three blocks and one of a row."""
    made = kernel(64, 64, 52)
    cost = BlockCost(made, MACHINE, PRIMITIVE)
    fours, one = price(kernel(64, 64, 48), block(4, 12)), price(made, block(4, 13))
    assert fours < one
    whole = cost.price(block(13, 13))[0]
    assert whole > 0 and cost.price(block(13, 13))[0] == whole, "what is kept changes nothing"


@pytest.mark.parametrize("level", ["l1", "l2"])
def test_smaller_caches_cost_more(level: str) -> None:
    made = kernel(256, 64, 32)
    small = MACHINE.with_values({f"memory.{level}.bytes": 8192})
    assert price(made, block(4, 8), small) > price(made, block(4, 8))


def test_scratch_beyond_the_second_cache_costs_and_so_do_few_points() -> None:
    made = kernel(512, 64, 64)
    near, far = block(1, 8), block(8, 16)
    assert price(made, near) < price(made, far)
    assert price(made, block(1, 8)) < price(made, block(1, 4)), "weights come for each block"
    assert price(made, block(1, 1)) > 2 * price(made, block(1, 8))


def test_weights_beyond_the_last_cache_come_from_memory_for_each_block() -> None:
    made = kernel(512, 512, 32)
    tiny = MACHINE.with_values({"memory.l3.bytes": 2 << 20})
    once, often = block(8, 8), block(1, 8)
    bytes_of = [BlockCost(made, tiny, PRIMITIVE).price(one)[1] for one in (once, often)]
    weights = 4 * 36 * 512 * 512
    assert bytes_of[0] < 1.5 * weights
    assert bytes_of[1] > 6 * weights
    assert price(made, often, tiny) > price(made, once, tiny)


def test_images_that_pass_by_do_not_take_the_weights_out_of_the_last_cache() -> None:
    """Between two uses of the weights lie one block's images, not all."""
    made, weights = kernel(64, 64, 224), 4 * 36 * 64 * 64
    images = 4 * 2 * 64 * 224**2
    small = MACHINE.with_values({"memory.l3.bytes": images // 4})
    cost = BlockCost(made, small, PRIMITIVE)
    assert cost.price(block(1, 56))[1] == weights + images
    tiny = MACHINE.with_values({"memory.l3.bytes": weights})
    assert BlockCost(made, tiny, PRIMITIVE).price(block(1, 56))[1] > 5 * weights + images


@pytest.mark.parametrize("cost", ["refetched", "returned", "written"])
def test_what_the_second_cache_loses_costs_what_the_machine_says(cost: str) -> None:
    made, costs = kernel(64, 64, 64), costs_of(MACHINE)
    dear = costs.model_copy(update={cost: 1.5 * getattr(costs, cost)})
    dearer = with_costs(MACHINE, dear)
    large = MACHINE.with_values({"memory.l2.bytes": 1 << 26})
    dearer_large = with_costs(large, dear)
    assert price(made, block(8, 16), dearer) > price(made, block(8, 16))
    assert price(made, block(8, 16), dearer_large) == price(made, block(8, 16), large)


def test_weights_that_the_last_cache_keeps_do_not_come_from_memory() -> None:
    made = kernel(256, 256, 16)
    weights = 4 * 36 * 256 * 256
    kept = [
        MACHINE.with_values({"own.cpu.weights_kept": n})
        for n in (0, weights // 2, weights, 1 << 30)
    ]
    prices = [price(made, block(4, 4), machine) for machine in kept]
    assert prices[0] > prices[1] > prices[2] == prices[3]
    slow = {"memory.dram.bytes_per_cycle": 0.5}
    assert price(made, block(4, 4), kept[2].with_values(slow)) == prices[2]


def test_windows_of_images_beyond_the_second_cache_are_paid_in_full() -> None:
    """Twice the bandwidth there saves at least half of what one pass over the image takes."""
    made = kernel(64, 16, 128)
    two, one = (
        price(made, block(4, 8, 1), MACHINE.with_values({"memory.l3.bytes_per_cycle": rate}))
        for rate in (16.0, 8.0)
    )
    far = 1.0 - costs_of(MACHINE).block_usable * (1 << 20) / (4 * (64 + 16) * 128**2)
    assert one - two > 4 * 64 * 128**2 / 16 * far
    small = kernel(64, 16, 16)
    second = MACHINE.with_values({"memory.l3.bytes_per_cycle": 1e-3})
    assert price(small, block(1, 4, 1), second) == price(small, block(1, 4, 1))


def test_a_thin_stream_of_weights_hides_and_a_dense_one_does_not() -> None:
    made, costs = kernel(256, 256, 64), costs_of(MACHINE)
    none = with_costs(MACHINE, costs.model_copy(update={"refetched": 0.0, "read_again": 0.0}))
    fast, slow = (none.with_values({"memory.l3.bytes_per_cycle": rate}) for rate in (64.0, 4.0))
    wide, narrow = block(2, 16), block(1, 4)
    hidden, shown = (price(made, each, slow) / price(made, each, fast) for each in (wide, narrow))
    assert shown > 1.5 * hidden


def plain(ci: int, co: int, size: int) -> Kernel:
    """With weights that are transformed as the kernel runs."""
    made = kernel(ci, co, size)
    stage = made.stages[0]
    x, w, s = stage.inputs
    taps = Affine((("kh", 1),)), Affine((("kw", 1),))
    w = replace(w, shape=(co, ci, 3, 3), access=(*w.access[:2], *taps), layout="OIHW16o")
    dims = (*stage.dims, Dim("kh", 3, "reduction"), Dim("kw", 3, "reduction"))
    return replace(made, stages=(replace(stage, dims=dims, inputs=(x, w, s)),))


def test_transforming_weights_costs_less_the_more_products_it_stands_beside() -> None:
    machine = MACHINE.with_values({"memory.l3.bytes": 1 << 30, "memory.dram.bytes_per_cycle": 1e6})
    more = [
        BlockCost(plain(256, 64, size), machine, PLAIN).price(block(size // 4, size // 4))[0]
        / price(kernel(256, 64, size), block(size // 4, size // 4), machine)
        for size in (8, 16, 32)
    ]
    assert more[0] > more[1] > more[2] > 1


_DEARER = {
    "beside": (0.0, 0.5, 1.0),
    "rewritten": (2.0, 3.0, 4.0),
    "summed": (1.0, 3.0, 5.0),
    "panels": (0.9, 0.5, 0.1),
}


def test_transforming_weights_costs_what_the_machine_says() -> None:
    made, costs = plain(256, 64, 16), costs_of(MACHINE)
    for name, values in _DEARER.items():
        dear = [costs.model_copy(update={name: value}) for value in values]
        machines = [with_costs(MACHINE, one) for one in dear]
        prices = [BlockCost(made, one, PLAIN).price(block(4, 4))[0] for one in machines]
        assert prices[0] < prices[1] < prices[2], name


def test_weights_that_come_from_a_slow_memory_are_worth_a_transform() -> None:
    """On a small map: four times the bytes take longer to arrive than products to compute."""
    slow = MACHINE.with_values({"memory.dram.bytes_per_cycle": 2.0})
    for size, worth in ((8, True), (64, False)):
        shape = block(min(size // 4, 8), 2 if size == 8 else 8, 3)
        transformed = price(kernel(512, 512, size), shape, slow)
        found = BlockCost(plain(512, 512, size), slow, PLAIN).price(shape)[0]
        assert (found < transformed) == worth, size


def test_names_do_not_matter() -> None:
    made = kernel(64, 64, 28)
    assert price(made, block(1, 7)) == price(replace(made, symbol="other"), block(1, 7))
