"""The 43 instructions: their fields, words that always mean the same, and refusals."""

from __future__ import annotations

import random

import pytest

from tilewright.errors import TilewrightError
from tilewright.targets.cambricon.isa import (
    BY_MNEMONIC,
    BY_OPCODE,
    EXCLUSIVE,
    INSTRUCTIONS,
    Immediate,
    Instruction,
    Register,
    decode,
    encode,
)

PUBLISHED = [
    "J",
    "CB",
    "VLOAD",
    "VSTORE",
    "VMOVE",
    "MLOAD",
    "MSTORE",
    "MMOVE",
    "SLOAD",
    "SSTORE",
    "SMOVE",
    "MMV",
    "VMM",
    "MMS",
    "OP",
    "MAM",
    "MSM",
    "VAV",
    "VSV",
    "VMV",
    "VDV",
    "VAS",
    "VEXP",
    "VLOG",
    "VDOT",
    "RV",
    "VMAX",
    "VMIN",
    "VGT",
    "VE",
    "VAND",
    "VOR",
    "VNOT",
    "VGTM",
]


def test_there_are_43_instructions_with_all_published_names() -> None:
    assert len(INSTRUCTIONS) == len(BY_MNEMONIC) == len(BY_OPCODE) == 43
    assert set(PUBLISHED) <= set(BY_MNEMONIC)
    assert sum(one.mnemonic.startswith("S") for one in INSTRUCTIONS) == 9 + 3


@pytest.mark.parametrize(
    ("mnemonic", "operands", "modifiers", "word"),
    [
        ("J", (Immediate(-2),), {}, 0x0103FFFFFFF80001),
        ("VLOAD", [Register(1), Register(2), Register(3), Immediate(64)], {}, 0x100420C000001000),
        ("MMV", [Register(n) for n in (1, 2, 3, 4, 5)], {}, 0x200420C414000000),
        (
            "MMV",
            [Register(n) for n in (1, 2, 3, 4, 5)],
            {"acc": 1, "wide": 1, "shift": -1},
            0x200420C414003FC1,
        ),
        ("VGTM", [Register(n) for n in (1, 2, 3, 4)], {}, 0x450420C400000000),
        ("SADD", [Register(1), Register(2), Immediate(1)], {}, 0x5004200000000041),
    ],
)
def test_words_are_what_they_always_were(
    mnemonic: str,
    operands: list[Register | Immediate],
    modifiers: dict[str, int],
    word: int,
) -> None:
    assert hex(encode(mnemonic, operands, modifiers)) == hex(word)


def random_parts(
    one: Instruction, rng: random.Random
) -> tuple[list[Register | Immediate], dict[str, int]]:
    operands: list[Register | Immediate] = []
    for operand in one.operands:
        number = operand.kind == "immediate" or (operand.has_immediate and rng.random() < 0.5)
        value = (
            Immediate(rng.randint(-(2**31), 2**31 - 1)) if number else Register(rng.randrange(64))
        )
        operands.append(value)
    modifiers = {m.name: rng.randint(*m.range) for m in one.modifiers if rng.random() < 0.5}
    for first, second in EXCLUSIVE:
        if first in modifiers and second in modifiers:
            del modifiers[second]
    return operands, {name: value for name, value in modifiers.items() if value}


@pytest.mark.parametrize("one", INSTRUCTIONS, ids=lambda one: one.mnemonic)
def test_words_come_apart_into_what_they_were_made_of(one: Instruction) -> None:
    rng = random.Random(one.opcode)
    for _ in range(50):
        operands, modifiers = random_parts(one, rng)
        word = encode(one.mnemonic, operands, modifiers)
        found = decode(word)
        assert found.instruction is one
        assert list(found.operands) == operands
        assert found.modifiers == modifiers


def test_random_words_decode_to_themselves_or_are_refused() -> None:
    rng = random.Random(7)
    valid = 0
    for _ in range(3000):
        one = rng.choice(INSTRUCTIONS)
        word = rng.getrandbits(64)
        if rng.random() < 0.9:
            word = (word & int(one.format.masks[0])) | one.opcode << 56
        try:
            found = decode(word)
        except TilewrightError as error:
            assert error.problems[0].code == "isa-word"
        else:
            valid += 1
            assert encode(found.instruction.mnemonic, found.operands, found.modifiers) == word
    assert valid > 300


@pytest.mark.parametrize(
    ("mnemonic", "operands", "modifiers", "code"),
    [
        ("NOP", (), {}, "isa-unknown"),
        ("J", (), {}, "isa-operands"),
        ("VAV", (Register(0),) * 3 + (Immediate(1),), {}, "isa-operands"),
        ("VLOAD", (Register(0),) * 4, {}, "isa-operands"),
        ("SMOVE", (Register(64), Immediate(1)), {}, "isa-register"),
        ("SMOVE", (Register(0), Immediate(1 << 31)), {}, "isa-immediate"),
        ("SADD", (Register(0),) * 3, {"acc": 1}, "isa-modifier"),
        ("VAV", (Register(0),) * 4, {"shift": 64}, "isa-modifier"),
        ("VAV", (Register(0),) * 4, {"wide": 1, "long": 1}, "isa-modifier"),
    ],
)
def test_what_no_word_can_say_is_refused(
    mnemonic: str,
    operands: tuple[Register | Immediate, ...],
    modifiers: dict[str, int],
    code: str,
) -> None:
    with pytest.raises(TilewrightError) as caught:
        encode(mnemonic, operands, modifiers)
    assert caught.value.problems[0].code == code
