"""The instruction sets: words by hand, lengths, text and back, the manual, and README's program."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright.targets.dpu as dpu
from tilewright.codegen.words import Statement, decode, encode
from tilewright.errors import TilewrightError
from tilewright.targets.dpu import assemble, core_named, disassemble, manual
from tilewright.targets.dpu.formats import CATEGORIES
from tilewright.targets.dpu.isa import REVISION_0, REVISION_1, REVISIONS

NEW, OLD = core_named("dpu-b4096"), core_named("dpu-b4096-isa0")

LENGTHS = {
    "load": (0x0, "load", 4, 5), "save": (0x4, "save", 4, 5), "conv": (0x8, "conv", 5, 5),
    "convinit": (0x9, "conv", 4, 4), "dwconv": (0xA, "misc", 5, 5), "dwinit": (0xB, "misc", 3, 3),
    "poolinit": (0x6, "misc", 2, 2), "pool": (0xC, "misc", 5, 5), "elewinit": (0xD, "misc", 2, 3),
    "elew": (0xE, "misc", 3, 3), "end": (0x7, "save", 1, 1), "aluinit": (0x1, "misc", 0, 6),
    "alu": (0x2, "misc", 0, 5),
}  # fmt: skip
"""Opcode, class, and words in revisions 0 and 1."""


def test_opcodes_classes_and_lengths():
    for revision, instructions in enumerate(REVISIONS):
        assert {
            one.mnemonic: (one.opcode, one.category, one.units) for one in instructions.instructions
        } == {
            name: (opcode, category, (old, new)[revision])
            for name, (opcode, category, old, new) in LENGTHS.items()
            if (old, new)[revision]
        }


def test_words_by_hand():
    """Each from the positions of its fields."""
    text = "load bank_id=33, bank_addr=0x7ff, jump_read=256, channel=16, length=3, jump_write=2, "
    text += "ddr_addr=0x1234, reg_id=5, put=load+conv\n"
    assert (
        bytes.fromhex(assemble(OLD, text).hex()).hex()
        == b"".join(
            word.to_bytes(4, "little")
            for word in (
                0 << 28 | 1 << 24 | 5 << 20 | 33 << 12 | 0x7FF,
                255,
                1 << 24 | 2 << 14 | 15,
                5 << 29 | 0x1234,
            )
        ).hex()
    )
    assert assemble(NEW, text) == b"".join(
        word.to_bytes(4, "little")
        for word in (
            0 << 28 | 1 << 24 | 5 << 20 | 33 << 14 | 0x7FF,
            255 << 10 | 1,
            15 << 10 | 2,
            5,
            0x1234,
        )
    )
    text = "conv channel_group=128, bank_id_out=8, bank_addr_bias=3, bank_addr_weights=0x80, "
    text += "length=56, pad_left=1, take=load+conv\nend\n"
    words = [
        0x8 << 28 | 5 << 24 | 4 << 20 | 1 << 16,
        127 << 24,
        55 << 22 | 0x80,
        8 << 12 | 3,
        0,
        0x72200000,
    ]
    for core in (OLD, NEW):
        assert assemble(core, text) == b"".join(word.to_bytes(4, "little") for word in words)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([0, 1]), st.data())
def test_text_and_back(revision, data):
    instructions, core = REVISIONS[revision], (OLD, NEW)[revision]
    statements = []
    for instruction in data.draw(st.lists(st.sampled_from(instructions.instructions), max_size=4)):
        values = {
            field.name: data.draw(st.integers(*field.range)) for field in instruction.format.fields
        }
        statements.append(Statement(instruction.mnemonic, values))
    units = encode(instructions, statements)
    assert decode(instructions, units).statements() == statements
    code = units.astype("<u4").tobytes()
    assert assemble(core, disassemble(core, code)) == code


def test_tokens_default_to_the_own_class():
    for instructions in (REVISION_0, REVISION_1):
        for one in instructions.instructions:
            own = 1 << CATEGORIES.index(one.category)
            fields = one.format.by_name
            assert (fields["take"].initial, fields["put"].initial) == (own, own)


def test_words_of_the_other_revision_are_refused():
    code = assemble(NEW, "load jump_read=2048, channel=2048\nsave\nend\n")
    with pytest.raises(TilewrightError, match="isa-word"):
        disassemble(OLD, code)
    with pytest.raises(TilewrightError, match="isa-length"):
        disassemble(NEW, code[:-1])
    with pytest.raises(TilewrightError, match="asm-invalid"):
        assemble(OLD, "alu\n")


def test_manual():
    page = manual(NEW)
    for one in REVISION_1.instructions:
        assert f"## {one.mnemonic}\n\n{one.meaning}\n" in page
        for field in one.format.fields:
            assert field.meaning, field.name
    assert "| `length` | 2 | 31:22 | 1 to 1024 | 1 | runs, or pixels of a row of results;" in page
    assert "`weight` 16 to 31, `depthwise` 32, `bias` 33" in page
    assert "| `act_type` | 0 | 19:16 | none, relu, prelu, leaky, relu6 | none |" in page


def test_program_of_the_readme():
    text = (Path(dpu.__file__).parent / "README.md").read_text()
    (block,) = re.findall(r"\n((?:    .*\n)+)", text.split("## A program")[1])
    image, result = np.arange(24, dtype=np.int8), np.zeros(24, np.int8)
    exec("\n".join(line[4:] for line in block.splitlines()), {"image": image, "result": result})
    assert np.array_equal(image, result)


def test_cores_of_the_readme():
    text = (Path(dpu.__file__).parent / "README.md").read_text()
    rows = re.findall(r"^\| `(\S+)` \| (\d+) x (\d+) \| (\d+) \| 2 x (\d+), (\d+) \|", text, re.M)
    assert [row[0] for row in rows] == list(dpu.CORES)
    for name, *numbers in rows:
        core = core_named(name)
        group, weights = core.group_bytes, core.channels * core.channels * 2048
        expected = [core.rows, core.channels, core.macs, group // 1024, weights // 1024]
        assert [int(number) for number in numbers] == expected
