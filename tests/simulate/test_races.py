from itertools import product

import numpy as np
import pytest

from tests.simulate.timing_reference import random_machine
from tilewright.errors import TilewrightError
from tilewright.machine import Engine, Machine, Memory
from tilewright.simulate import (
    Race,
    UnwrittenRead,
    access_table,
    find_races,
    simulate,
    timed_table,
)

CHIP = Machine(
    name="m",
    clock_hz=1e9,
    memories=(Memory(name="dram"), Memory(name="near", bytes=256), Memory(name="far", bytes=100)),
    engines=(Engine(name="load"), Engine(name="store"), Engine(name="compute")),
    primitives=(),
)
DRAM, NEAR, FAR = 0, 1, 2
LOAD, STORE, COMPUTE = 0, 1, 2


def program(*rows):
    """Rows of (engine, waits {engine: count}, accesses [(memory, write, address, run, axes)])."""
    commands, accesses = timed_table(len(rows)), []
    for c, (engine, waits, touches) in enumerate(rows):
        commands[c]["engine"] = engine
        for other, count in waits.items():
            commands[c]["waits"][other] = count
        for memory, write, address, run, *axes in touches:
            access = access_table(1)
            access["command"], access["memory"], access["write"] = c, memory, write
            access["address"], access["run"] = address, run
            for axis, (count, stride) in enumerate(axes):
                access["count"][0, axis], access["stride"][0, axis] = count, stride
            accesses.append(access)
    return commands, np.concatenate(accesses) if accesses else access_table(0)


def touched(access):
    """The bytes of one access, as a set."""
    starts = [
        int(access["address"]) + int(np.dot(steps, access["stride"]))
        for steps in product(*(range(n) for n in access["count"].tolist()))
    ]
    return {start + byte for start in starts for byte in range(int(access["run"]))}


def ordered_pairs(commands):
    """before[a, b]: whether command a comes before command b, by closure of the direct edges."""
    n = len(commands)
    engine = commands["engine"].tolist()
    mine = [[c for c in range(n) if engine[c] == e] for e in range(8)]
    before = np.zeros((n, n), np.bool_)
    for c in range(n):
        for d in mine[engine[c]]:
            before[d, c] |= d < c
        for e in range(8):
            before[mine[e][: commands[c]["waits"][e]], c] = True
    for k in range(n):
        before |= before[:, k : k + 1] & before[k : k + 1, :]
    return before


def races_plainly(commands, accesses, chip):
    """{(first, second, memory): lowest common byte}, by comparing every pair of accesses."""
    before = ordered_pairs(commands)
    bytes_of = [touched(access) for access in accesses]
    found = {}
    for a, b in product(range(len(accesses)), repeat=2):
        x, y = int(accesses["command"][a]), int(accesses["command"][b])
        if x >= y or commands["engine"][x] == commands["engine"][y]:
            continue
        if accesses["memory"][a] != accesses["memory"][b] or before[x, y] or before[y, x]:
            continue
        if not (accesses["write"][a] or accesses["write"][b]):
            continue
        if common := bytes_of[a] & bytes_of[b]:
            key = (x, y, chip.memories[accesses["memory"][a]].name)
            found[key] = min(found.get(key, 1 << 60), *common)
    return found


def random_accesses(rng, chip, count):
    accesses = []
    for _ in range(count):
        access = access_table(1)
        memory = int(rng.integers(len(chip.memories)))
        size = chip.memories[memory].bytes or 4096
        access["memory"], access["write"] = memory, rng.random() < 0.4
        access["run"] = int(rng.choice([1, 2, 5, 16, 40]))
        for axis in range(int(rng.integers(0, 4))):
            access["count"][0, axis] = rng.integers(1, 4)
            access["stride"][0, axis] = rng.choice([0, 2, 5, 16, 23, 64])
        reach = int(access["run"][0] + ((access["count"] - 1) * access["stride"]).sum())
        if reach <= size:
            access["address"] = int(rng.integers(0, min(size, 300) - min(reach, 299)))
            if access["address"][0] + reach <= size:
                accesses.append(access)
    return accesses


def random_correct_program(rng, chip, size):
    """Random accesses, and the waits that order every conflict, some of them more than once."""
    commands = timed_table(size)
    commands["engine"] = rng.integers(0, len(chip.engines), size)
    commands["cycles"] = rng.integers(0, 30, size)
    commands["latency"] = rng.integers(0, 10, size)
    accesses = []
    for c in range(size):
        for access in random_accesses(rng, chip, int(rng.integers(0, 4))):
            access["command"] = c
            accesses.append(access)
    table = np.concatenate(accesses) if accesses else access_table(0)
    for x, y, _ in races_plainly(commands, table, chip):
        engine = commands["engine"][x]
        number = int((commands["engine"][:x] == engine).sum()) + 1
        commands["waits"][y, engine] = max(commands["waits"][y, engine], number)
    return commands, table


def found(report):
    return {(race.first, race.second, race.memory): race.address for race in report.races}


def test_a_missing_wait_by_hand():
    rows = [
        (LOAD, {}, [(NEAR, True, 0, 64)]),
        (COMPUTE, {LOAD: 1}, [(NEAR, False, 0, 64), (FAR, True, 0, 32)]),
        (STORE, {COMPUTE: 1}, [(FAR, False, 0, 32), (DRAM, True, 0, 32)]),
        (LOAD, {}, [(NEAR, True, 48, 16)]),
    ]
    report = find_races(*program(*rows), CHIP)
    assert report.races == (Race(1, 3, "near", 48),)
    assert report.unwritten == () and report.complete and not report.clean
    rows[3] = (LOAD, {COMPUTE: 1}, rows[3][2])
    assert find_races(*program(*rows), CHIP).clean


def test_order_through_a_third_engine():
    rows = [
        (LOAD, {}, [(NEAR, True, 0, 8)]),
        (COMPUTE, {LOAD: 1}, []),
        (STORE, {COMPUTE: 1}, []),
        (STORE, {}, [(NEAR, False, 0, 8)]),
    ]
    assert find_races(*program(*rows), CHIP).clean
    rows[1] = (COMPUTE, {}, [])
    assert find_races(*program(*rows), CHIP).races == (Race(0, 3, "near", 0),)


def test_reads_do_not_race_and_neighbours_in_a_cell_do_not_either():
    rows = [
        (LOAD, {}, [(DRAM, False, 0, 64), (NEAR, True, 0, 3)]),
        (STORE, {}, [(DRAM, False, 0, 64), (NEAR, True, 3, 3)]),
        (COMPUTE, {LOAD: 1, STORE: 1}, [(NEAR, False, 0, 6)]),
    ]
    assert find_races(*program(*rows), CHIP).clean


def test_strides_that_interleave():
    even = (NEAR, True, 0, 2, (8, 4))
    rows = [(LOAD, {}, [even]), (STORE, {}, [(NEAR, True, 2, 2, (8, 4))])]
    assert find_races(*program(*rows), CHIP).clean
    rows[1] = (STORE, {}, [(NEAR, True, 2, 2, (2, 4), (4, 7))])
    assert find_races(*program(*rows), CHIP).races == (Race(0, 1, "near", 9),)


def test_waits_that_look_ahead():
    rows = [
        (LOAD, {COMPUTE: 1}, [(NEAR, True, 0, 8)]),
        (COMPUTE, {}, [(NEAR, True, 0, 8)]),
    ]
    assert find_races(*program(*rows), CHIP).clean


def test_reads_of_what_was_never_written():
    rows = [
        (LOAD, {}, [(NEAR, True, 0, 40), (NEAR, True, 44, 100)]),
        (COMPUTE, {LOAD: 1}, [(NEAR, False, 8, 100), (DRAM, False, 0, 64)]),
        (COMPUTE, {}, [(FAR, False, 96, 4), (FAR, True, 96, 2)]),
        (COMPUTE, {}, [(FAR, False, 96, 4)]),
    ]
    report = find_races(*program(*rows), CHIP)
    assert report.unwritten == (
        UnwrittenRead(1, "near", 40),
        UnwrittenRead(2, "far", 96),
        UnwrittenRead(3, "far", 98),
    )
    assert report.races == ()


def test_no_commands():
    assert find_races(*program(), CHIP).clean


def test_the_number_of_findings_is_bounded():
    rows = [(LOAD, {}, [(NEAR, True, 0, 8)])] * 9 + [(STORE, {}, [(NEAR, True, 0, 8)])] * 9
    report = find_races(*program(*rows), CHIP, limit=10)
    assert len(report.races) == 10 and not report.complete
    assert len(find_races(*program(*rows), CHIP).races) == 81


@pytest.mark.parametrize(
    ("touch", "code"),
    [
        ((NEAR, True, 250, 7), "program-bounds"),
        ((NEAR, False, 0, 2, (3, 128)), "program-bounds"),
        ((NEAR, False, -1, 2), "program-invalid"),
        ((3, False, 0, 2), "program-invalid"),
        ((NEAR, False, 0, 1, (0, 1)), "program-invalid"),
        ((DRAM, False, 0, 1, (9000, 2), (9000, 2)), "program-invalid"),
    ],
)
def test_impossible_accesses_are_refused(touch, code):
    with pytest.raises(TilewrightError) as caught:
        find_races(*program((LOAD, {}, []), (LOAD, {}, [touch])), CHIP, label=str)
    assert caught.value.problems[0].code == code


def test_a_ring_of_waits_is_refused():
    with pytest.raises(TilewrightError, match="command 0 waits for ever"):
        find_races(*program((LOAD, {STORE: 1}, []), (STORE, {LOAD: 1}, [])), CHIP)


@pytest.mark.parametrize("seed", range(60))
def test_deleted_waits_are_found_exactly(seed):
    rng = np.random.default_rng(seed)
    chip = CHIP if seed % 2 else random_machine(rng)
    commands, accesses = random_correct_program(rng, chip, int(rng.integers(2, 25)))
    accesses = accesses[rng.permutation(len(accesses))]
    assert find_races(commands, accesses, chip).races == ()
    for share in (0.1, 0.5, 1.0):
        broken = commands.copy()
        broken["waits"][rng.random(broken["waits"].shape) < share] = 0
        expected = races_plainly(broken, accesses, chip)
        granule = int(rng.choice([1, 3, 32, 4096]))
        report = find_races(broken, accesses, chip, granule=granule, limit=5000)
        assert found(report) == expected
        assert report.complete


@pytest.mark.parametrize("seed", range(40))
def test_unwritten_reads_match_a_plain_replay(seed):
    rng = np.random.default_rng(1000 + seed)
    commands, accesses = random_correct_program(rng, CHIP, 12)
    written, expected = set(), set()
    for c in range(len(commands)):
        mine = accesses[accesses["command"] == c]
        for write in (False, True):
            for access in mine[mine["write"] == write]:
                memory = CHIP.memories[access["memory"]]
                places = {(memory.name, byte) for byte in touched(access)}
                if write:
                    written |= places
                elif memory.bytes is not None and places - written:
                    expected.add(UnwrittenRead(c, *min(places - written)))
    report = find_races(commands, accesses, CHIP, granule=int(rng.choice([1, 7, 32])), limit=999)
    assert set(report.unwritten) == expected


@pytest.mark.parametrize("seed", range(40))
def test_conflicts_of_a_clean_program_never_overlap_in_time(seed):
    rng = np.random.default_rng(2000 + seed)
    chip = random_machine(rng)
    commands, accesses = random_correct_program(rng, chip, 20)
    assert find_races(commands, accesses, chip).races == ()
    timeline = simulate(commands, chip)
    commands["waits"] = 0
    for x, y, _ in races_plainly(commands, accesses, chip):
        assert timeline.end[x] <= timeline.start[y]


def test_deleting_waits_makes_races():
    counts = []
    for seed in range(20):
        commands, accesses = random_correct_program(np.random.default_rng(seed), CHIP, 20)
        commands["waits"] = 0
        counts.append(len(find_races(commands, accesses, CHIP).races))
    assert sum(count > 0 for count in counts) >= 18 and sum(counts) > 100


def test_many_unwritten_reads_hide_no_race():
    reads = [(COMPUTE, {}, [(NEAR, False, byte, 1)]) for byte in range(8)]
    racing = [(LOAD, {}, [(FAR, True, 0, 4)]), (COMPUTE, {}, [(FAR, False, 3, 1)])]
    report = find_races(*program(*reads, *racing), CHIP, limit=4)
    assert [(race.first, race.second) for race in report.races] == [(8, 9)]
    assert len(report.unwritten) == 4 and not report.complete
