"""Assembler and disassembler: round trips, messages with places, and garbage."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.slow import but_fast

from tilewright.codegen.words import assemble, disassemble, encode_columns, from_bytes, to_bytes
from tilewright.errors import TilewrightError
from tilewright.targets.generic.isa import Instruction, InstructionSet
from tilewright.targets.generic.manual import manual
from tilewright.targets.generic.program import decode
from tilewright.targets.generic.simulate import Simulator
from tilewright.targets.generic.timing import accesses_of, timed_program

FUZZ = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def random_words(instructions: InstructionSet, seed: int, count: int = 40) -> np.ndarray:
    """Valid instructions of all kinds with fields anywhere in their range, in random order."""
    pick = np.random.default_rng(seed)
    parts = []
    for instruction in instructions.instructions:
        columns = {
            field.name: pick.integers(*field.range, count, endpoint=True)
            for field in instruction.format.fields
            if pick.random() < 0.8
        }
        parts.append(encode_columns(instructions, instruction, columns, count))
    return pick.permutation(np.concatenate(parts))


@pytest.mark.parametrize("seed", but_fast(range(6), range(2)))
def test_every_instruction_survives_both_ways(seed: int, instructions: InstructionSet) -> None:
    words = random_words(instructions, seed)
    text = disassemble(instructions, words)
    again = assemble(instructions, text)
    assert to_bytes(instructions, again) == to_bytes(instructions, words)
    assert disassemble(instructions, again) == text


def test_columns_survive_encoding(instructions: InstructionSet) -> None:
    pick = np.random.default_rng(5)
    for instruction in instructions.instructions:
        columns = {
            field.name: pick.integers(*field.range, 30, endpoint=True)
            for field in instruction.format.fields
        }
        (group,) = decode(
            instructions, encode_columns(instructions, instruction, columns, 30)
        ).groups
        assert group.instruction is instruction
        for name, column in columns.items():
            np.testing.assert_array_equal(group.columns[name], column)


def test_fields_lie_apart(instructions: InstructionSet) -> None:
    for instruction in instructions.instructions:
        taken: set[tuple[int, int]] = set()
        for field in instruction.format.fields:
            lane, low = instruction.format.places[field.name]
            assert lane < instruction.format.units and low + field.bits <= 64
            bits = {(lane, bit) for bit in range(low, low + field.bits)}
            assert not bits & taken
            taken |= bits
        assert not {(0, bit) for bit in range(8)} & taken


def test_a_value_too_large_is_refused(instructions: InstructionSet) -> None:
    instruction = instructions.by_mnemonic["conv"]
    top = instruction.format.by_name["co"].range[1]
    encode_columns(instructions, instruction, {"co": top}, 1)
    for value in (top + 1, -1):
        with pytest.raises(TilewrightError, match=r"isa-field.*conv.*co="):
            encode_columns(instructions, instruction, {"co": value}, 1)


@pytest.mark.parametrize(
    ("text", "place", "shown"),
    [
        ("conv n=1\n\nfoo n=2", ":3:1:", "'foo'"),
        ("conv n=1, foo=2", ":1:11:", "'foo'"),
        ("; a remark\nconv n=1, n=2", ":2:11:", "'n'"),
        ("conv co=70000", ":1:9:", "'70000'"),
        ("conv then2=swish", ":1:12:", "'swish'"),
        ("conv row=-99999999", ":1:10:", "'-99999999'"),
        ("conv n 1", ":1:8:", "'1'"),
        ("conv n=1,", ":1:10:", "the end"),
        ("conv n=1, ?", ":1:11:", "'?'"),
        ("pool opcode=3", ":1:6:", "'opcode'"),
    ],
)
def test_problems_are_placed(
    text: str, place: str, shown: str, instructions: InstructionSet
) -> None:
    with pytest.raises(TilewrightError) as caught:
        assemble(instructions, text, "a.asm")
    assert place in f"{caught.value}" and shown in f"{caught.value}"


def test_all_problems_come_in_one_report(instructions: InstructionSet) -> None:
    with pytest.raises(TilewrightError) as caught:
        assemble(instructions, "foo\nconv bar=1\nconv n=-1\npool function=mean\n")
    assert len(caught.value.problems) == 4


def test_remarks_stand_before_their_instruction(instructions: InstructionSet) -> None:
    words = random_words(instructions, 1, 2)
    text = disassemble(instructions, words, [(0, "kernel a"), (3, "kernel b\nwith a break")])
    lines = text.splitlines()
    assert lines[0] == "; kernel a" and lines[4] == "; kernel b with a break"
    np.testing.assert_array_equal(assemble(instructions, text), words.ravel())


def _mutated(text: str, at: int, insert: str, cut: int) -> str:
    at %= len(text) + 1
    return text[:at] + insert + text[at + cut :]


@FUZZ
@given(st.text(max_size=200))
def test_garbage_is_refused_or_assembled(instructions: InstructionSet, text: str) -> None:
    try:
        words = assemble(instructions, text)
    except TilewrightError:
        return
    np.testing.assert_array_equal(assemble(instructions, disassemble(instructions, words)), words)


@pytest.mark.slow
@FUZZ
@given(st.integers(0, 1 << 20), st.text(max_size=4), st.integers(0, 6))
def test_damaged_assembly_is_refused_or_assembled(
    instructions: InstructionSet, at: int, insert: str, cut: int
) -> None:
    text = _mutated(disassemble(instructions, random_words(instructions, 3, 1)), at, insert, cut)
    try:
        words = assemble(instructions, text)
    except TilewrightError:
        return
    np.testing.assert_array_equal(assemble(instructions, disassemble(instructions, words)), words)


@FUZZ
@given(st.binary(max_size=600))
def test_random_bytes_are_refused_or_disassembled(
    instructions: InstructionSet, data: bytes
) -> None:
    try:
        words = from_bytes(instructions, data)
        text = disassemble(instructions, words)
    except TilewrightError:
        return
    assert to_bytes(instructions, assemble(instructions, text)) == data


@pytest.mark.slow
@FUZZ
@given(st.integers(0, 1 << 20), st.integers(0, 1023), st.booleans())
def test_words_of_any_kind_run_or_are_refused(
    instructions: InstructionSet, seed: int, bit: int, small: bool
) -> None:
    """Random fields: the simulator refuses with a message, it never fails otherwise."""
    words = random_words(instructions, seed, 1)
    pick = np.random.default_rng(seed)
    if small:
        parts = []
        for instruction in instructions.instructions:
            columns = {
                f.name: pick.integers(0, 3)
                for f in instruction.format.fields
                if _small(instruction, f.name)
            }
            parts.append(encode_columns(instructions, instruction, columns, 1))
        words = np.concatenate(parts)
    words[seed % len(words), bit // 64] ^= np.uint64(1 << (bit % 64))
    for word in words:
        try:
            program = decode(instructions, word[None])
            simulator = Simulator(program, [(0, np.zeros(4096, np.uint8))])
            timed_program(program, np.zeros(1, np.int64))
            simulator.run()
            accesses_of(program)
        except TilewrightError:
            continue


def _small(instruction: Instruction, name: str) -> bool:
    low, high = instruction.format.by_name[name].range
    return low <= 0 and high >= 2


def test_the_manual_names_every_field(instructions: InstructionSet) -> None:
    text = manual(instructions)
    for instruction in instructions.instructions:
        page = text[text.index(f"## {instruction.mnemonic}\n") :].split("\n## ")[0]
        for field in instruction.format.fields:
            assert f"| `{field.name}` |" in page
        assert all(choice in page for f in instruction.format.fields for choice in f.choices)
