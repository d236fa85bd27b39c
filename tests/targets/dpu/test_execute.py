"""Single instructions with random fields on random banks, against the core one byte at a time."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.targets.dpu.scalar import Scalar

from tilewright.codegen.words import Statement, decode, encode
from tilewright.errors import TilewrightError
from tilewright.targets.dpu.core import DEPTH, Core
from tilewright.targets.dpu.execute import State, execute
from tilewright.targets.dpu.footprint import footprint
from tilewright.targets.dpu.formats import ACTIVATIONS, ALU_MODES, POOLS
from tilewright.targets.dpu.isa import REVISIONS
from tilewright.targets.dpu.operations import operations_of

CORE = Core("small", 4, 4, misc_rows=3, elementwise_rows=3)
OLD = replace(CORE, isa=0)
BYTES = 1 << 12

SMALL = {
    "channel_group": (1, 3), "length": (1, 3), "kernel_h": (1, 3), "kernel_w": (1, 3),
    "stride_h": (1, 3), "stride_w": (1, 3), "valid_pixel_parallel": (1, 3), "num": (2, 4),
    "stride_out": (1, 3), "shift_bias": (0, 20), "pad_top": (0, 3), "pad_left": (0, 3),
    "pad_bottom": (0, 3), "pad_right": (0, 3), "channel_offset": (0, 3), "channel": (1, 10),
    "jump_read": (1, 12), "reg_id": (0, 0), "ddr_addr": (0, 100), "mode_avg": (0, 0),
    "argmax": (0, 0), "share_pp": (0, 0), "kernel_d": (1, 1), "id": (0, 3), "const_en": (0, 1),
    "jump_read_weights": (0, 5),
}  # fmt: skip
"""Ranges that keep an instruction small and legal."""

MAPS = ("bank_id_in", "bank_id_out")


@st.composite
def statements(draw, core, mnemonic, **given_fields):
    """One instruction with random fields."""
    instruction = REVISIONS[core.isa].by_mnemonic[mnemonic]
    values = {}
    for field in instruction.format.fields:
        low, high = SMALL.get(field.name, field.range)
        if field.name in ("take", "put"):
            continue
        if field.name in MAPS:
            low, high = 0, core.groups * core.rows - 1
        elif field.name == "bank_id":
            low, high = 0, core.banks - 1
        elif field.name == "broadcast":
            low, high = draw(st.sampled_from([(0, 0), (7, 7)]))
        elif field.name.startswith("pad_") and mnemonic == "load":
            low, high = (1, 1) if field.name == "pad_idx" else (0, 0)
        elif mnemonic in ("load", "save") and field.name in ("jump_read", "jump_write"):
            high = 12
        elif field.name.startswith("stride_offset"):
            low, high = 0, 2
        elif "jump" in field.name and field.name not in SMALL:
            # Places of a block may meet: the order in which they are written is then seen.
            high = draw(st.sampled_from([low + 4, high]))
        values[field.name] = draw(st.integers(low, high))
    return Statement(mnemonic, {**values, **given_fields})


def check(core, program, seed):
    """Execute a program by both, and compare banks and memory."""
    rng = np.random.default_rng(seed)
    instructions = REVISIONS[core.isa]
    units = encode(instructions, [*program, Statement("end", {})])
    operations = operations_of(decode(instructions, units))
    memory = rng.integers(-128, 128, BYTES, np.int8)
    state = State(core, {0: memory.copy()})
    state.banks[:] = rng.integers(-128, 128, state.banks.shape, np.int8)
    banks = state.banks.reshape(core.banks, -1).copy()
    scalar = Scalar(core, banks, {0: memory.tolist()})
    for operation in operations:
        before = state.banks.copy()
        execute(state, operation)
        if operation.mnemonic in ("load", "save", "conv", "pool", "dwconv", "alu", "elew"):
            scalar.step(operation.mnemonic, operation.fields, operation.operands)
        assert np.array_equal(state.banks.reshape(core.banks, -1), banks)
        changed = np.flatnonzero((state.banks != before).any(1))
        assert np.isin(changed, footprint(core, operation).writes).all()
    assert state.registers[0].tolist() == scalar.registers[0]
    return operations, state


def shown_not_to_matter(core, operation, state, seed):
    """What a footprint does not name as read has no influence."""
    rng = np.random.default_rng(seed)
    touched = footprint(core, operation)
    other = State(core, state.registers)
    other.banks[:] = rng.integers(-128, 128, other.banks.shape, np.int8)
    other.banks[touched.reads] = state.banks[touched.reads]
    first = State(core, state.registers)
    first.banks[:] = state.banks
    execute(first, operation)
    execute(other, operation)
    assert np.array_equal(first.banks[touched.writes], other.banks[touched.writes])


SEEDS = st.integers(0, 1 << 30)
REPEATS = settings(max_examples=25, deadline=None)


def init_of(mnemonic, **fields):
    return st.tuples(
        st.sampled_from([CORE, OLD]).flatmap(
            lambda core: st.tuples(
                st.just(core),
                statements(core, mnemonic + "init", **fields)
                if mnemonic != "dwconv"
                else statements(core, "dwinit", **fields),
                statements(core, mnemonic),
            )
        ),
        SEEDS,
    )


def legal(statement, **changes):
    return Statement(statement.mnemonic, {**statement.values, **changes})


def windowed(init):
    """An offset within the stride."""
    return legal(init, stride_offset_in=init.values["stride_offset_in"] % init.values["stride_h"])


@REPEATS
@given(init_of("conv"), st.sampled_from([0, 1, 3, 4]))
def test_conv(case, activation):
    (core, init, conv), seed = case
    operations, state = check(core, [legal(windowed(init), act_type=activation), conv], seed)
    shown_not_to_matter(core, operations[1], state, seed)


@REPEATS
@given(init_of("dwconv"), st.sampled_from([0, 1, 3, 4]))
def test_depthwise(case, activation):
    (core, init, conv), seed = case
    operations, state = check(core, [windowed(init), legal(conv, act_type=activation)], seed)
    shown_not_to_matter(core, operations[1], state, seed)


@REPEATS
@given(init_of("pool"), st.integers(0, 1), st.integers(1, 8))
def test_pool(case, pool_type, kernel_w):
    (core, init, pool), seed = case
    init = legal(windowed(init), pool_type=pool_type, kernel_w=kernel_w)
    operations, state = check(core, [init, pool], seed)
    shown_not_to_matter(core, operations[1], state, seed)


@settings(max_examples=50, deadline=None)
@given(statements(CORE, "aluinit"), statements(CORE, "alu"), SEEDS, st.integers(0, 7))
def test_alu(init, alu, seed, mode):
    if ALU_MODES[mode] == "max_reduce":
        mode = 6
    changes = {"exec_mode": mode, "act_type": (0, 1, 3, 4)[seed % 4]}
    if ALU_MODES[mode] in ("prelu", "leaky", "hard_sigmoid"):
        changes |= dict.fromkeys(("kernel_h", "kernel_w", "stride_h", "stride_w"), 1)
    init = windowed(legal(init, **changes))
    operations, state = check(CORE, [init, alu], seed)
    shown_not_to_matter(CORE, operations[1], state, seed)


@REPEATS
@given(st.data(), st.sampled_from([CORE, OLD]), SEEDS)
def test_elementwise(data, core, seed):
    multiply = data.draw(st.booleans())
    elew = data.draw(statements(core, "elew", elew_type=int(multiply)))
    if multiply:
        elew = legal(elew, num=2)
    inits = [data.draw(statements(core, "elewinit")) for _ in range(elew.values["num"])]
    operations, state = check(core, [*inits, elew], seed)
    shown_not_to_matter(core, operations[len(inits)], state, seed)


@REPEATS
@given(st.data(), st.sampled_from([CORE, OLD]), SEEDS)
def test_transfers(data, core, seed):
    check(core, [data.draw(statements(core, "load")), data.draw(statements(core, "save"))], seed)


@REPEATS
@given(st.data(), st.sampled_from([CORE, OLD]), SEEDS)
def test_channel_augmentation(data, core, seed):
    channel = data.draw(st.integers(2, 2 * core.channels))
    jump = data.draw(st.integers(1, channel))
    length = data.draw(st.integers(1, 6))
    index = data.draw(st.integers(1, min(3, length)))
    most = -(-channel // core.channels) * core.channels - 1 - jump * (index - 1)
    end = data.draw(st.integers(0, max(0, most)))
    load = data.draw(
        statements(
            core, "load", channel=channel, jump_read=jump, length=length, pad_idx=index,
            pad_end=end, pad_start=data.draw(st.integers(0, channel - 1)),
        )
    )  # fmt: skip
    check(core, [load], seed)


def test_the_banks_are_rings():
    """Rows behind the last go on at the first, for all that reads and writes."""
    load = Statement("load", {"bank_id": 1, "bank_addr": DEPTH - 1, "length": 3, "channel": 9,
                              "jump_read": 9, "jump_write": 3})  # fmt: skip
    save = Statement("save", {"bank_id": 1, "bank_addr": DEPTH - 1, "length": 3, "channel": 9,
                              "jump_read": 3, "jump_write": 9, "ddr_addr": 2000})  # fmt: skip
    _, state = check(CORE, [load, save], 1)
    assert np.array_equal(state.registers[0][:27], state.registers[0][2000:2027])


CONVINIT = {"kernel_h": 3, "stride_h": 1, "valid_pixel_parallel": 4, "shift_bias": 3}
ALUINIT = {"exec_mode": 3}
REFUSED = {
    "a bank for weights as input": (
        "conv",
        CONVINIT,
        {"bank_id_in": 8},
        "does not hold feature maps",
    ),
    "no bank": ("conv", CONVINIT, {"bank_id_out": 60}, "does not hold feature maps"),
    "offset beyond the stride": ("conv", {**CONVINIT, "stride_offset_in": 1}, {}, "stride_offset"),
    "too many rows": ("conv", {**CONVINIT, "valid_pixel_parallel": 5}, {}, "computes 4 rows"),
    "too many turns": ("conv", {**CONVINIT, "kernel_h": 16}, {"bank_id_in": 3}, "over the banks"),
    "PReLU": ("conv", {**CONVINIT, "act_type": 2}, {}, "activation"),
    "shift of the bias": ("conv", {**CONVINIT, "shift_bias": 21}, {}, "shift_bias"),
    "weights": ("conv", {**CONVINIT, "kernel_w": 16}, {"channel_group": 200}, "rows of a bank"),
    "channel offset": ("conv", CONVINIT, {"channel_offset": 4}, "channel_offset"),
    "stride": ("conv", {**CONVINIT, "stride_w": 9}, {}, "1 to 8"),
    "max reduce": ("pool", {"pool_type": 2}, {}, "not published"),
    "ALU max reduce": ("alu", {"exec_mode": 5}, {}, "not executed"),
    "ALU of 16 bits": ("alu", {"exec_mode": 8}, {}, "not executed"),
    "depth of a kernel": ("alu", ALUINIT, {"kernel_d": 2}, "not executed"),
    "kernel of a map": ("alu", {"exec_mode": 1, "kernel_h": 2}, {}, "strides of 1"),
}


def refusal(core, program):
    instructions = REVISIONS[core.isa]
    units = encode(instructions, [*program, Statement("end", {})])
    with pytest.raises(TilewrightError) as caught:
        for operation in operations_of(decode(instructions, units)):
            footprint(core, operation)
    return caught.value.problems[0]


@pytest.mark.parametrize("name", REFUSED)
def test_fields_that_are_refused(name):
    mnemonic, init, fields, words = REFUSED[name]
    problem = refusal(CORE, [Statement(mnemonic + "init", init), Statement(mnemonic, fields)])
    assert problem.code == "program-field"
    assert words in problem.reason
    assert problem.where.startswith("instruction 1 (")


@pytest.mark.parametrize(
    ("mnemonic", "fields", "words"),
    [
        ("load", {"mode_avg": 1}, "mean"),
        ("load", {"broadcast": 3}, "not published"),
        ("load", {"bank_id": 40}, "no bank 40"),
        ("load", {"channel": 4, "pad_start": 4}, "covers"),
        ("load", {"channel": 4, "pad_idx": 2}, "more runs"),
        ("save", {"argmax": 1}, "not published"),
        ("save", {"bank_id": 14}, "no bank 14"),
    ],
)
def test_transfers_that_are_refused(mnemonic, fields, words):
    problem = refusal(CORE, [Statement(mnemonic, fields)])
    assert problem.code == "program-field"
    assert words in problem.reason


@pytest.mark.parametrize(
    ("program", "code"),
    [
        ([Statement("conv", {})], "program-state"),
        ([Statement("elewinit", {}), Statement("elew", {"num": 2})], "program-state"),
        ([Statement("elewinit", {})] * 65, "program-state"),
        ([Statement("load", {"take": 0})], "program-token"),
        ([Statement("save", {"put": 1})], "program-token"),
        ([Statement("end", {})], "program-end"),
        ([Statement("elewinit", {})] * 3
         + [Statement("elew", {"num": 3, "elew_type": 1})], "program-field"),
        ([Statement("elewinit", {"share_pp": 1})] * 2
         + [Statement("elew", {"num": 2})], "program-field"),
    ],
)  # fmt: skip
def test_programs_that_are_refused(program, code):
    assert refusal(CORE, program).code == code


def test_memory_that_is_not_there():
    state = State(CORE, {0: np.zeros(10, np.int8)})
    instructions = REVISIONS[1]
    for fields in (
        {"channel": 11},
        {"reg_id": 1},
        {"ddr_addr": 10},
        {"length": 2, "jump_read": 10},
    ):
        for mnemonic in ("load", "save"):
            values = {("jump_write" if k == "jump_read" and mnemonic == "save" else k): v
                      for k, v in fields.items()}  # fmt: skip
            units = encode(instructions, [Statement(mnemonic, values), Statement("end", {})])
            (operation, _) = operations_of(decode(instructions, units))
            with pytest.raises(TilewrightError, match="program-bounds"):
                execute(state, operation)


def test_names_stand_for_the_numbers_of_instructions():
    assert ACTIVATIONS == ("none", "relu", "prelu", "leaky", "relu6")
    assert POOLS[:2] == ("max", "average")
    assert ALU_MODES[2:4] == ("average", "max")
