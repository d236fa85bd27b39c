"""Words of random instruction sets, against a packer that works on one Python integer a field."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.codegen.words import (
    Field,
    Format,
    Instruction,
    InstructionSet,
    Statement,
    assemble,
    decode,
    disassemble,
    encode,
    from_bytes,
    to_bytes,
)
from tilewright.errors import TilewrightError

OPCODE = Field("opcode", 4)
ENGINES = ("load", "save", "conv")
TOY = InstructionSet(
    "toy",
    OPCODE,
    28,
    (
        Instruction(
            "move",
            1,
            Format(
                (
                    Field("take", 3, flags=ENGINES, default=1),
                    Field("length", 10, bias=1),
                    Field("address", 8, scale=16, hexadecimal=True),
                    Field("offset", 6, signed=True),
                ),
                {"take": (0, 0), "length": (1, 0), "address": (1, 10), "offset": (2, 4)},
                3,
            ),
            "Copies.",
        ),
        Instruction(
            "act",
            2,
            Format((Field("kind", 2, choices=("none", "relu")),), {"kind": (0, 4)}, 1),
            ".",
        ),
    ),
)


def refusal(call, *arguments):
    with pytest.raises(TilewrightError) as caught:
        call(*arguments)
    return caught.value.problems


def test_text_to_units_and_back():
    text = "move take=load+conv, length=1024, address=0xff0, offset=-32\nact kind=relu\nmove\nact\n"
    units = assemble(TOY, text)
    assert [f"{unit:08x}" for unit in units.tolist()] == [
        "10000005",
        "0003ffff",
        "00000200",
        "20000010",
        "10000001",
        "00000000",
        "00000000",
        "20000000",
    ]
    assert disassemble(TOY, units) == text
    assert np.array_equal(from_bytes(TOY, to_bytes(TOY, units)), units)
    assert to_bytes(TOY, units)[:4] == b"\x05\0\0\x10"
    assert to_bytes(replace(TOY, order="big"), units)[:4] == b"\x10\0\0\x05"


def test_remarks_stand_before_their_instructions():
    units = assemble(TOY, "act kind=relu\nmove length=2\n")
    text = disassemble(TOY, units, [(1, "a  remark")])
    assert text == "act kind=relu\n; a remark\nmove length=2\n"
    assert np.array_equal(assemble(TOY, text), units)


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("jump", "asm-invalid", "is no instruction"),
        ("act sort=relu", "asm-invalid", "is no field of act"),
        ("act kind=relu, kind=none", "asm-invalid", "twice"),
        ("act kind=gelu", "asm-invalid", "is no value of kind"),
        ("act kind=1", "asm-invalid", "is no value of kind"),
        ("move take=load+load", "asm-invalid", "is no value of take"),
        ("move take=none+load", "asm-invalid", "is no value of take"),
        ("move length=0", "asm-invalid", "is no value of length"),
        ("move length=1025", "asm-invalid", "is no value of length"),
        ("move address=8", "asm-invalid", "is no value of address"),
        ("move length=relu", "asm-invalid", "is no value of length"),
        ("move length=" + "9" * 5000, "asm-invalid", "is no value of length"),
        ("move length 3", "asm-syntax", "not expected"),
        ("move length=", "asm-syntax", "not expected"),
    ],
)
def test_text_that_is_refused(text, code, words):
    (problem,) = refusal(assemble, TOY, "act\n" + text, "file.asm")
    assert problem.code == code
    assert words in problem.reason
    assert problem.where.startswith("file.asm:2:") or "length=" in text


@pytest.mark.parametrize(
    ("units", "words"),
    [
        ([0x30000000], "opcode 3 is unknown"),
        ([0x20000000, 0x10000000, 0], "ends 1 units before"),
        ([0x20000001], "no valid act"),
        ([0x20000020], "no valid act"),
    ],
)
def test_units_that_are_refused(units, words):
    (problem,) = refusal(decode, TOY, np.array(units, np.uint64))
    assert problem.code == "isa-word"
    assert words in problem.reason
    assert refusal(from_bytes, TOY, b"12345")[0].code == "isa-length"


def test_definitions_that_cannot_be():
    for fields, places in (
        ([Field("a", 4)], {"a": (0, 30)}),
        ([Field("a", 4)], {"a": (1, 0)}),
        ([Field("a", 4), Field("b", 2)], {"a": (0, 0), "b": (0, 3)}),
        ([Field("a", 4), Field("a", 2)], {"a": (0, 0)}),
        ([Field("a", 4, default=16)], {"a": (0, 0)}),
    ):
        with pytest.raises(ValueError):
            Format(tuple(fields), places, 1)
    for bad in ({"choices": ("a",), "bias": 1}, {"flags": ("a",) * 5}, {"scale": 0}):
        with pytest.raises(ValueError):
            Field("a", 4, **bad)
    with pytest.raises(ValueError):
        twice = (TOY.instructions[1], replace(TOY.instructions[0], opcode=2))
        InstructionSet("x", OPCODE, 28, twice)
    with pytest.raises(ValueError):
        InstructionSet("x", OPCODE, 4, TOY.instructions)
    with pytest.raises(ValueError):
        InstructionSet("x", OPCODE, 30, TOY.instructions)


@st.composite
def sets(draw):
    """An instruction set: fields cut at random from random numbers of units."""
    unit_bits = draw(st.sampled_from((8, 16, 32, 64)))
    opcode_bits = draw(st.integers(2, 4))
    opcode, opcode_low = Field("opcode", opcode_bits), draw(st.integers(0, unit_bits - opcode_bits))
    instructions = []
    for number in range(draw(st.integers(1, 3))):
        units = draw(st.integers(1, 3))
        fields, places = [], {}
        for unit in range(units):
            low = 0
            while low < unit_bits:
                bits = draw(st.integers(1, min(unit_bits - low, 20)))
                place = ((1 << bits) - 1) << low
                if not (unit == 0 and place & opcode.mask << opcode_low) and draw(st.booleans()):
                    places[f"f{len(fields)}"] = unit, low
                    fields.append(
                        Field(
                            f"f{len(fields)}",
                            bits,
                            signed=draw(st.booleans()),
                            bias=draw(st.integers(-3, 3)),
                            scale=draw(st.sampled_from((1, 2, 16))),
                        )
                    )
                low += bits
        form = Format(tuple(fields), places, units, unit_bits)
        instructions.append(Instruction(f"i{number}", number, form, "."))
    return InstructionSet("random", opcode, opcode_low, tuple(instructions))


def packed(instructions, statement):
    """The units of one statement, a bit at a time from Python integers."""
    instruction = instructions.by_mnemonic[statement.mnemonic]
    units = [0] * instruction.units
    units[0] |= instruction.opcode << instructions.opcode_low
    for field in instruction.format.fields:
        stored, rest = divmod(statement.values[field.name] - field.bias, field.scale)
        assert rest == 0
        unit, low = instruction.format.places[field.name]
        for bit in range(field.bits):
            units[unit] |= (stored >> bit & 1) << (low + bit)
    return units


@settings(max_examples=60, deadline=None)
@given(sets(), st.data())
def test_random_sets(instructions, data):
    statements = []
    for instruction in data.draw(st.lists(st.sampled_from(instructions.instructions), max_size=5)):
        values = {}
        for field in instruction.format.fields:
            low, high = field.stored_range
            values[field.name] = data.draw(st.integers(low, high)) * field.scale + field.bias
        statements.append(Statement(instruction.mnemonic, values))
    units = encode(instructions, statements)
    assert units.tolist() == [unit for s in statements for unit in packed(instructions, s)]
    assert decode(instructions, units).statements() == statements
    assert np.array_equal(assemble(instructions, disassemble(instructions, units)), units)
    for statement in statements[:1]:
        for field in instructions.by_mnemonic[statement.mnemonic].format.fields:
            outside = Statement(
                statement.mnemonic, {**statement.values, field.name: field.range[1] + field.scale}
            )
            assert refusal(encode, instructions, [outside])[0].code == "isa-field"


@settings(max_examples=60, deadline=None)
@given(sets(), st.binary(max_size=64))
def test_any_bytes_are_a_program_or_refused(instructions, data):
    data = data[: len(data) // 8 * 8]
    units = from_bytes(instructions, data)
    try:
        program = decode(instructions, units)
    except TilewrightError as error:
        assert error.problems[0].code == "isa-word"
    else:
        assert to_bytes(instructions, encode(instructions, program.statements())) == data
