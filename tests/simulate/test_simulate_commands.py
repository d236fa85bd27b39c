import numpy as np
import pytest

from tilewright.machine import Move
from tilewright.simulate import ACCESS, TIMED, access_table, timed_table, transfer_bytes


def move(transaction=1, efficiency=()):
    return Move(
        name="in",
        source="dram",
        target="chip",
        engine="load",
        bytes_per_cycle=8,
        transaction=transaction,
        efficiency=efficiency,
    )


def test_empty_records_do_nothing():
    timed, access = timed_table(3), access_table(2)
    assert timed.dtype == TIMED and access.dtype == ACCESS
    assert timed["move"].tolist() == [-1] * 3
    assert not timed["waits"].any() and not timed["bytes"].any()
    assert access["count"].tolist() == [[1, 1, 1]] * 2
    assert not access["run"].any()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"run": 100}, 128),
        ({"run": 64}, 64),
        ({"run": 64, "address": 8}, 128),
        ({"run": 2, "address": 63}, 128),
        ({"run": 2, "count": 5}, 320),
        ({"run": 0, "count": 5}, 0),
    ],
)
def test_transactions_by_hand(arguments, expected):
    assert transfer_bytes(move(64), **arguments) == expected


@pytest.mark.parametrize("seed", range(40))
def test_transactions_match_touched_lines(seed):
    rng = np.random.default_rng(seed)
    step = int(rng.choice([1, 8, 12, 64]))
    stride = step * int(rng.integers(1, 200))
    run, count, address = rng.integers(0, 150, (3, 6))
    expected = [
        sum(
            len({b // step for b in range(a + i * stride, a + i * stride + r)}) * step
            for i in range(c)
        )
        for r, c, a in zip(run.tolist(), count.tolist(), address.tolist(), strict=True)
    ]
    found = transfer_bytes(move(step), run, count, address=address)
    assert found.dtype == np.int64
    assert found.tolist() == expected


def test_efficiency_is_interpolated_between_block_lengths():
    table = ((64, 0.25), (128, 0.5), (512, 1.0))
    assert transfer_bytes(move(efficiency=table), [32, 64, 96, 128, 320, 512, 4096]).tolist() == [
        128,
        256,
        256,
        256,
        427,
        512,
        4096,
    ]
    assert transfer_bytes(move(64, table), 100, 2) == 656
