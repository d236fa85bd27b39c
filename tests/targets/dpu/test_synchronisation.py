"""Tokens: derived ones suffice, every order they allow gives one result, lacking ones are named."""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.targets.dpu.derived import Builder, synchronised
from tests.targets.dpu.layers import INPUT, OUTPUT, PARAMETERS, Layer, window_program
from tests.targets.dpu.test_layers import CONV, SMALL, numbers

from tilewright.codegen.words import Statement, decode, encode
from tilewright.errors import TilewrightError
from tilewright.targets.dpu.execute import State, execute, run
from tilewright.targets.dpu.footprint import footprint
from tilewright.targets.dpu.isa import REVISION_1
from tilewright.targets.dpu.operations import operations_of, read_program
from tilewright.targets.dpu.timing import check_program, commands_of, time_program
from tilewright.targets.dpu.tokens import execution_order, match, tokens_for


def operations_from(statements):
    return operations_of(decode(REVISION_1, encode(REVISION_1, statements)))


def small_program():
    """Statements with tokens of a convolution in several tiles, and its registers."""
    layer = Layer("conv", 9, 4, 6, 9, (3, 3), (1, 1), (1, 1, 1, 1), 9, 3)
    statements = decode(
        REVISION_1,
        encode(
            REVISION_1,
            synchronised(
                SMALL, [*window_program(SMALL, layer, 3).statements, Statement("end", {})]
            ),
        ),
    ).statements()
    rng = np.random.default_rng(3)
    size = layer.out_height * layer.out_width * layer.outputs
    registers = {
        INPUT: numbers(rng, 9 * 4 * 6),
        PARAMETERS: numbers(rng, layer.weight_bytes + 9),
        OUTPUT: np.zeros(size, np.int8),
    }
    return statements, registers


STATEMENTS, REGISTERS = small_program()


def tokens(statements, engines):
    """(put row, take row, source class, target class) of every token, in the order of its queue."""
    queues = {}
    for row, statement in enumerate(statements):
        own = engines[row]
        for other in range(4):
            if other != own and statement.values["put"] >> other & 1:
                queues.setdefault((own, other), ([], []))[0].append(row)
            if other != own and statement.values["take"] >> other & 1:
                queues.setdefault((other, own), ([], []))[1].append(row)
    return [
        (put, take, *pair) for pair, rows in queues.items() for put, take in zip(*rows, strict=True)
    ]


ENGINES = [operation.engine for operation in operations_from(STATEMENTS)]
TOKENS = tokens(STATEMENTS, ENGINES)


def without(statements, row, field, bit):
    values = dict(statements[row].values)
    values[field] &= ~(1 << bit)
    return [*statements[:row], Statement(statements[row].mnemonic, values), *statements[row + 1 :]]


def before(operations):
    """[i, j]: whether i always completes before j starts, by closure of engines and tokens."""
    size = len(operations)
    known = np.zeros((size, size), bool)
    waits = match(operations).waits
    by_engine = [[o.number for o in operations if o.engine == e] for e in range(4)]
    for operation in operations:
        number = operation.number
        direct = [by_engine[e][waits[number, e] - 1] for e in range(4) if waits[number, e]]
        place = by_engine[operation.engine].index(number)
        direct += by_engine[operation.engine][:place][-1:]
        for other in direct:
            known[:, number] |= known[:, other]
            known[other, number] = True
    return known


def racing(core, operations):
    """All pairs that touch one place, one writing, without an order."""
    known = before(operations)
    touched = [footprint(core, operation) for operation in operations]
    places = []
    for one in touched:
        reads, writes = set(one.reads.tolist()), set(one.writes.tolist())
        for span, kind in ((one.loads, reads), (one.stores, writes)):
            if span is not None:
                kind.update(
                    (span.register, span.address + i * span.stride + j)
                    for i in range(span.count)
                    for j in range(span.run)
                )
        places.append((reads, writes))
    return {
        (i, j)
        for j in range(len(operations))
        for i in range(j)
        if operations[i].engine != operations[j].engine
        and not known[i, j]
        and not known[j, i]
        and (places[i][1] & (places[j][0] | places[j][1]) or places[i][0] & places[j][1])
    }


def in_some_order(operations, choose):
    """An order that engines and tokens allow, picked by ``choose`` among what is ready."""
    waits = match(operations).waits
    queues = [[o.number for o in operations if o.engine == e] for e in range(4)]
    done = [0] * 4
    order = []
    while len(order) < len(operations):
        ready = [
            queue[done[e]]
            for e, queue in enumerate(queues)
            if done[e] < len(queue) and (waits[queue[done[e]]] <= done).all()
        ]
        order.append(choose(ready))
        done[operations[order[-1]].engine] += 1
    return order


def test_every_order_gives_one_result():
    operations = operations_from(STATEMENTS)
    assert check_program(SMALL, operations).race_free
    assert racing(SMALL, operations) == set()
    results = set()
    for choose in (min, max, *(random.Random(seed).choice for seed in range(4))):
        registers = {register: memory.copy() for register, memory in REGISTERS.items()}
        state = State(SMALL, registers)
        for number in in_some_order(operations, choose):
            execute(state, operations[number])
        results.add(registers[OUTPUT].tobytes())
    assert len(results) == 1


def test_every_token_that_lacks_is_named():
    assert len(TOKENS) == 10
    raced = 0
    for put, take, source, target in TOKENS:
        lonely_take = without(STATEMENTS, put, "put", target)
        lonely_put = without(STATEMENTS, take, "take", source)
        neither = without(lonely_take, take, "take", source)
        report = check_program(SMALL, operations_from(lonely_take))
        assert {problem.code for problem in report.problems} >= {"program-deadlock"}
        report = check_program(SMALL, operations_from(lonely_put))
        assert {problem.code for problem in report.problems} >= {"program-token"}
        operations = operations_from(neither)
        report = check_program(SMALL, operations)
        # A chain through a third class may imply a token: the closure knows.
        assert report.race_free == (not racing(SMALL, operations))
        raced += not report.race_free
    assert raced > len(TOKENS) // 2


@settings(max_examples=40, deadline=None)
@given(st.sets(st.integers(0, len(TOKENS) - 1), min_size=1, max_size=6))
def test_races_are_those_of_the_closure(gone):
    statements = STATEMENTS
    for number in gone:
        put, take, source, target = TOKENS[number]
        statements = without(without(statements, put, "put", target), take, "take", source)
    operations = operations_from(statements)
    report = check_program(SMALL, operations)
    exact = racing(SMALL, operations)
    assert report.race_free == (not exact)
    assert not report.deadlocks
    for problem in report.races:
        assert problem.code == "program-race"
        first = int(problem.where.split()[1])
        second = int(problem.reason.split("and instruction ")[1].split()[0])
        assert (min(first, second), max(first, second)) in exact


def test_a_race_names_both_instructions_and_the_place():
    build = Builder(SMALL)
    build.add("load", bank_id=2, bank_addr=5, channel=4, reg_id=0)
    build.add("save", bank_id=2, bank_addr=5, channel=4, reg_id=1)
    statements = [*build.statements, Statement("end", {})]
    (problem,) = check_program(SMALL, operations_from(statements)).races
    assert problem.where == "instruction 0 (load bank_addr=0x5, bank_id=2, channel=4)"
    assert problem.reason == (
        "and instruction 1 (save bank_addr=0x5, bank_id=2, channel=4, reg_id=1) both touch bank 2 "
        "(vb0), row 0x5, and nothing orders them"
    )
    assert check_program(SMALL, build.finish()).race_free
    memory = {0: np.arange(4, dtype=np.int8), 1: np.zeros(4, np.int8)}
    run(SMALL, build.finish(), memory)
    assert memory[1].tolist() == [0, 1, 2, 3]


def test_the_last_row_of_a_group_and_the_first_of_the_next_are_apart():
    """Their numbers follow each other, their memories do not."""
    build = Builder(SMALL)
    build.add("load", bank_id=3, bank_addr=2047, channel=4, reg_id=0)
    build.add("load", bank_id=4, bank_addr=0, channel=4, reg_id=0)
    build.add("elewinit", bank_id_in=3, bank_addr_in=2047)
    build.add("elewinit", bank_id_in=4, bank_addr_in=0)
    build.add("elew", num=2, bank_id_out=5)
    operations = build.finish()
    report = check_program(SMALL, operations)
    assert report.race_free
    assert not report.unwritten
    bare = operations_from([*build.statements, Statement("end", {})])
    places = {problem.reason.split(" touch ")[1] for problem in check_program(SMALL, bare).races}
    assert {place.split(",")[0] for place in places} == {"bank 3 (vb0)", "bank 4 (vb1)"}


def test_main_memory_is_ordered_too():
    """What is saved and loaded again, and what is saved over what a LOAD has yet to read."""
    build = Builder(SMALL)
    build.add("load", bank_id=0, channel=8, reg_id=0)
    build.add("save", bank_id=0, channel=8, jump_write=8, reg_id=1, ddr_addr=8)
    build.add("load", bank_id=1, channel=8, reg_id=1, ddr_addr=12)
    build.add("save", bank_id=0, channel=8, reg_id=1, ddr_addr=16)
    operations = build.finish()
    assert check_program(SMALL, operations).race_free
    assert racing(SMALL, operations) == set()
    bare = operations_from([*build.statements, Statement("end", {})])
    found = {problem.reason.split(" both ")[1] for problem in check_program(SMALL, bare).races}
    assert any("after register 1" in reason for reason in found)
    assert racing(SMALL, bare) == {(0, 1), (0, 3), (1, 2), (2, 3)}


def test_reads_of_what_nothing_wrote():
    build = Builder(SMALL)
    build.add("save", bank_id=3, bank_addr=7, channel=4, reg_id=1)
    (read,) = check_program(SMALL, build.finish()).unwritten[:1]
    assert (read.command, read.memory, read.address) == (0, "vb0", (3 * 2048 + 7) * 4)


def test_rings_of_waits_are_deadlocks():
    own = {"load": 1, "save": 2}
    ring = [
        Statement("load", {"take": own["load"] | 2, "put": own["load"] | 2}),
        Statement("save", {"take": own["save"] | 1, "put": own["save"] | 1}),
        Statement("end", {}),
    ]
    operations = operations_from(ring)
    report = check_program(SMALL, operations)
    assert not report.race_free
    assert report.deadlocks[0].code == "program-deadlock"
    for call in (execution_order, lambda o: time_program(SMALL, o)):
        with pytest.raises(TilewrightError, match="program-deadlock"):
            call(operations)
    alone = operations_from([Statement("load", {"take": 3}), Statement("end", {})])
    with pytest.raises(TilewrightError, match="waits for token 1 from save to load"):
        commands_of(SMALL, alone)


def test_tokens_may_be_put_later_in_the_program():
    """The order of execution is that of the tokens, where program order is none."""
    build = [
        Statement("save", {"take": 3, "bank_id": 1, "channel": 4, "reg_id": 1}),
        Statement("load", {"put": 3, "bank_id": 1, "channel": 4, "reg_id": 0}),
        Statement("end", {}),
    ]
    operations = operations_from(build)
    assert execution_order(operations) == [1, 0, 2]
    memory = {0: np.arange(1, 5, dtype=np.int8), 1: np.zeros(4, np.int8)}
    run(SMALL, operations, memory)
    assert memory[1].tolist() == [1, 2, 3, 4]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 3), max_size=30), st.data())
def test_tokens_say_every_need(engines, data):
    """By counting: the n-th take of a pair waits for the n-th put."""
    pairs = [(i, j) for j in range(len(engines)) for i in range(j) if engines[i] != engines[j]]
    needs = data.draw(st.lists(st.sampled_from(pairs), max_size=20)) if pairs else []
    take, put = tokens_for(engines, needs)
    for source in range(4):
        for target in range(4):
            if source == target:
                continue
            puts = [i for i, e in enumerate(engines) if e == source and put[i] >> target & 1]
            takes = [i for i, e in enumerate(engines) if e == target and take[i] >> source & 1]
            assert len(puts) == len(takes)
            assert all(p < t for p, t in zip(puts, takes, strict=True))
            for producer, consumer in needs:
                if (engines[producer], engines[consumer]) == (source, target):
                    assert any(
                        p >= producer and t <= consumer for p, t in zip(puts, takes, strict=True)
                    )
    if len(engines) > 1:
        with pytest.raises(ValueError):
            tokens_for(engines, [(1, 0)])


def test_time_of_a_program():
    """Two LOADs, a convolution, a SAVE, one after the other: times by hand."""
    build = Builder(SMALL)
    build.add("convinit", kernel_h=1, jump_read=8)
    build.add("load", bank_id=0, channel=256, jump_read=256, reg_id=0)
    build.add("conv", length=8, channel_group=8, bank_id_out=4)
    build.add("save", bank_id=4, length=8, channel=4, jump_write=4, reg_id=1)
    operations = build.finish()
    # Those of transfers follow from their bytes.
    assert commands_of(SMALL, operations)["cycles"][[0, 2, 4]].tolist() == [1, 64, 1]
    timeline = time_program(SMALL, operations)
    # Dispatch 2, latency 40, 256 bytes at 32 a cycle; 64 cycles; latency 40, 32 bytes; END.
    assert timeline.end[1] == timeline.start[1] + 40 + 8
    assert timeline.start[2] == timeline.end[1]
    assert timeline.end[2] == timeline.start[2] + 64
    assert timeline.end[3] == timeline.end[2] + 40 + 1
    assert timeline.cycles == timeline.end[3] + 1
    assert timeline.main_bytes == 256 + 32


def test_engines_overlap():
    """With tokens for one tile at a time, LOADs and SAVEs hide behind the multipliers."""
    operations = operations_from(STATEMENTS)
    timeline = time_program(SMALL, operations)
    assert timeline.cycles < timeline.busy.sum()
    assert timeline.cycles >= timeline.busy.max()


WORDS = window_program(SMALL, replace(CONV, height=8, channels=5, outputs=7), 5).words()


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_executed_or_refused(data):
    fuzz(data[: len(data) // 4 * 4])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(WORDS) - 1), st.integers(0, 7)), min_size=1,
                max_size=4))  # fmt: skip
def test_damaged_programs_are_executed_or_refused(flips):
    data = bytearray(WORDS)
    for byte, bit in flips:
        data[byte] ^= 1 << bit
    fuzz(bytes(data))


def fuzz(data):
    """Nothing but a result or a coded refusal; the words come back from their text."""
    memory = {register: np.zeros(1 << 14, np.int8) for register in range(8)}
    try:
        operations = read_program(SMALL, data)
        check_program(SMALL, operations)
        run(SMALL, operations, memory)
        time_program(SMALL, operations)
    except TilewrightError as error:
        kinds = {problem.code.split("-")[0] for problem in error.problems}
        assert kinds <= {"isa", "program"}, error
