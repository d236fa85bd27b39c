from itertools import pairwise
from math import ceil

import numpy as np
import pytest

from tests.simulate.timing_reference import random_machine, random_program, simulate_plainly
from tests.slow import but_fast
from tilewright.errors import TilewrightError
from tilewright.machine import Engine, Machine, Memory, Move
from tilewright.simulate import simulate, timed_table


def machine(in_flight=1, queue=4, issue=0, main=8.0, own=8.0):
    return Machine(
        name="m",
        clock_hz=1e9,
        memories=(Memory(name="dram", bytes_per_cycle=main), Memory(name="chip", bytes=4096)),
        moves=(
            Move(
                name="in",
                source="dram",
                target="chip",
                engine="load",
                bytes_per_cycle=own,
                in_flight=in_flight,
            ),
            Move(name="out", source="chip", target="dram", engine="store", bytes_per_cycle=own),
        ),
        engines=(
            Engine(name="load", queue=queue),
            Engine(name="store", queue=queue),
            Engine(name="compute", queue=queue),
        ),
        primitives=(),
        issue_cycles=issue,
    )


LOAD, STORE, COMPUTE = 0, 1, 2


def program(*rows):
    """Rows of (engine, bytes, latency, cycles, {engine: count})."""
    table = timed_table(len(rows))
    for row, (engine, size, latency, cycles, waits) in zip(table, rows, strict=True):
        row["engine"], row["bytes"], row["latency"], row["cycles"] = engine, size, latency, cycles
        row["move"] = {LOAD: 0, STORE: 1}.get(engine, -1)
        for other, count in waits.items():
            row["waits"][other] = count
    return table


def test_latencies_in_series():
    timeline = simulate(program(*[(LOAD, 80, 100, 0, {})] * 3), machine())
    assert timeline.start.tolist() == [0, 110, 220]
    assert timeline.data.tolist() == [100, 210, 320]
    assert timeline.end.tolist() == [110, 220, 330]
    assert timeline.cycles == 330
    assert timeline.busy.tolist() == [330, 0, 0]
    assert timeline.main_bytes == 240


def test_latencies_overlap_when_in_flight():
    timeline = simulate(program(*[(LOAD, 80, 100, 0, {})] * 4), machine(in_flight=2))
    # The third may start when the first has ended.
    assert timeline.start.tolist() == [0, 0, 110, 120]
    assert timeline.data.tolist() == [100, 110, 210, 220]
    assert timeline.end.tolist() == [110, 120, 220, 230]
    assert timeline.busy.tolist() == [230, 0, 0]


def test_bandwidth_is_shared_while_both_flow():
    rows = [(LOAD, 80, 0, 0, {}), (STORE, 40, 5, 0, {})]
    timeline = simulate(program(*rows), machine())
    # 40 bytes alone in 5 cycles, then 4 bytes a cycle each: both need 10 more.
    assert timeline.end.tolist() == [15, 15]
    assert timeline.main_bytes == 120


def test_a_slow_move_leaves_its_share_to_others():
    slow = machine(main=10.0)
    slow = slow.model_copy(
        update={"moves": (slow.moves[0].model_copy(update={"bytes_per_cycle": 2.0}), slow.moves[1])}
    )
    timeline = simulate(program((LOAD, 20, 0, 0, {}), (STORE, 80, 0, 0, {})), slow)
    assert timeline.end.tolist() == [10, 10]


def test_cycles_are_the_least_length_of_a_transfer():
    rows = [(LOAD, 80, 7, 25, {}), (LOAD, 80, 7, 3, {})]
    assert simulate(program(*rows), machine()).end.tolist() == [32, 49]


def test_waits_and_double_buffering():
    rows = []
    for tile in range(4):
        rows.append((LOAD, 80, 0, 0, {COMPUTE: max(0, tile - 1)}))
        rows.append((COMPUTE, 0, 0, 30, {LOAD: tile + 1}))
    timeline = simulate(program(*rows), machine())
    assert timeline.end[1::2].tolist() == [40, 70, 100, 130]
    assert timeline.start[0::2].tolist() == [0, 10, 40, 70]


def test_the_dispatcher_waits_for_a_full_queue():
    rows = [(COMPUTE, 0, 0, 50, {})] * 3 + [(LOAD, 8, 0, 0, {})]
    timeline = simulate(program(*rows), machine(queue=2, issue=3))
    assert timeline.start.tolist() == [3, 53, 103, 56]
    assert timeline.end.tolist() == [53, 103, 153, 57]


def test_a_compute_runs_alone_even_between_transfers_in_flight():
    table = program((LOAD, 80, 100, 0, {}), (LOAD, 0, 0, 20, {}), (LOAD, 80, 100, 0, {}))
    table["move"][1] = -1
    assert simulate(table, machine(in_flight=4)).start.tolist() == [0, 110, 130]


def test_no_commands():
    timeline = simulate(timed_table(0), machine())
    assert (timeline.cycles, timeline.main_bytes, timeline.kernel_cycles.size) == (0, 0, 0)


def test_kernels():
    table = program((LOAD, 80, 0, 0, {}), (LOAD, 40, 0, 0, {}), (COMPUTE, 0, 0, 9, {LOAD: 1}))
    table["kernel"] = [0, 2, 0]
    timeline = simulate(table, machine())
    assert timeline.kernel_start.tolist() == [0, 0, 10]
    assert timeline.kernel_end.tolist() == [19, 0, 15]
    assert timeline.kernel_bytes.tolist() == [80, 0, 40]
    assert timeline.kernel_cycles.tolist() == [19, 0, 0]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [(LOAD, 8, 0, 0, {COMPUTE: 1}), (COMPUTE, 0, 0, 1, {LOAD: 1})],
            r"command 0 \(c0\) waits for command 1 \(c1\), which waits in compute",
        ),
        ([(LOAD, 8, 0, 0, {LOAD: 1})], r"command 0 \(c0\) waits for command 0 \(c0\), .* itself"),
        (
            [*[(LOAD, 8, 0, 0, {COMPUTE: 1})] * 5, (COMPUTE, 0, 0, 1, {})],
            r"command 0 \(c0\) waits for command 5 \(c5\), which is never issued",
        ),
        (
            [(LOAD, 8, 0, 0, {COMPUTE: 2}), (COMPUTE, 0, 0, 1, {})],
            r"command 0 \(c0\) waits for 2 commands of compute, which has 1",
        ),
        ([(LOAD, 8, 0, 0, {7: 1})], r"waits for 1 commands of engine 7, which has 0"),
    ],
)
def test_deadlocks_are_named(rows, message):
    with pytest.raises(TilewrightError, match=message) as caught:
        simulate(program(*rows), machine(), label=lambda command: f"c{command}")
    assert caught.value.problems[0].code == "program-deadlock"


def test_negative_waits_are_refused():
    table = program((LOAD, 8, 0, 0, {}), (LOAD, 8, 0, 0, {COMPUTE: -1}))
    with pytest.raises(TilewrightError, match="command 1: a wait is negative"):
        simulate(table, machine())


@pytest.mark.parametrize(
    ("field", "value"), [("engine", 3), ("engine", -1), ("move", 2), ("bytes", -1), ("kernel", -1)]
)
def test_records_out_of_range_are_refused(field, value):
    table = program((LOAD, 8, 0, 0, {}), (LOAD, 8, 0, 0, {}))
    table[field][1] = value
    with pytest.raises(TilewrightError, match=rf"command 1: {field} is {value}"):
        simulate(table, machine())


@pytest.mark.parametrize("seed", but_fast(range(300), range(100)))
def test_random_programs_match_the_plain_simulation(seed):
    rng = np.random.default_rng(seed)
    chip = random_machine(rng)
    table = random_program(rng, chip, int(rng.integers(1, 30)))
    expected = simulate_plainly(table, chip)
    if expected is None:
        with pytest.raises(TilewrightError, match="waits for"):
            simulate(table, chip)
        return
    timeline = simulate(table, chip)
    for found, exact in zip((timeline.start, timeline.data, timeline.end), expected, strict=True):
        np.testing.assert_allclose(found, [float(x) for x in exact], rtol=1e-9, atol=1e-9)
    assert timeline.cycles == ceil(round(float(max(expected[2])), 6))
    for e, busy in enumerate(timeline.busy):
        spans = [
            (s, t)
            for s, t, c in zip(expected[0], expected[2], table, strict=True)
            if c["engine"] == e
        ]
        points = sorted({p for span in spans for p in span})
        union = sum(b - a for a, b in pairwise(points) if any(s <= a and b <= t for s, t in spans))
        assert busy == pytest.approx(float(union))


def test_random_programs_are_of_both_kinds():
    stuck = [
        simulate_plainly(random_program(rng, chip, 20), chip) is None
        for rng in map(np.random.default_rng, range(300, 360))
        for chip in [random_machine(rng)]
    ]
    assert 3 <= sum(stuck) <= 50


def test_two_runs_are_identical():
    rng = np.random.default_rng(5)
    chip = random_machine(rng)
    table = random_program(rng, chip, 12)
    table["waits"] = 0
    first, second = simulate(table, chip), simulate(table, chip)
    assert first.end.tobytes() == second.end.tobytes()
