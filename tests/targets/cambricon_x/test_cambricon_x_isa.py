"""The encoding of cambricon-x: what is fixed stays fixed, and variants widen their fields."""

from __future__ import annotations

from tilewright.targets.cambricon_x import TARGET
from tilewright.targets.cambricon_x.isa import OPCODES
from tilewright.targets.cambricon_x.machine import MACHINE

LINE = "conv wait.load=3, co=16, oh=4, ow=14, ci=32, row=-1, last=0, then2=relu"
GOLDEN = {
    0: "0000000000000320",
    1: "0004001000010001",
    2: "000100010020000e",
    3: "0001ffff01010101",
    4: "8000000200000001",
    5: "0400000000000000",
}


def test_opcodes_are_those_documented() -> None:
    found = {one.mnemonic: one.opcode for one in TARGET.instruction_set(MACHINE).instructions}
    assert found == OPCODES


def test_words_have_128_bytes() -> None:
    assert TARGET.instruction_set(MACHINE).word_bytes == MACHINE.instruction_bytes == 128


def test_an_instruction_has_the_bytes_it_always_had() -> None:
    """A golden: packages of an earlier version must not be read as something else."""
    words = TARGET.assemble(LINE, MACHINE)
    assert len(words) == 128
    lanes = [words[i : i + 8][::-1].hex() for i in range(0, 128, 8)]
    assert lanes[0] == "0000000000000320"
    assert {i: lane for i, lane in enumerate(lanes) if int(lane, 16)} == GOLDEN
    assert TARGET.disassemble(words, MACHINE) == LINE + "\n"


def test_larger_buffers_widen_the_fields() -> None:
    wide = MACHINE.with_values({"memory.nbin.bytes": 1 << 20})
    for machine in (MACHINE, wide):
        field = TARGET.instruction_set(machine).by_mnemonic["conv"].format.by_name["input.address"]
        assert 1 << field.bits == machine.memory("nbin").bytes
    text = "load_nbin target.address=0x90000, size0=70000"
    words = TARGET.assemble(text, wide)
    assert TARGET.disassemble(words, wide).startswith("load_nbin size0=70000")


def test_the_manual_states_engines_cycles_and_opcodes() -> None:
    text = TARGET.manual(MACHINE)
    for name, opcode in OPCODES.items():
        assert f"| [{name}](#{name}) | {opcode:#04x} |" in text
    for primitive in MACHINE.primitives:
        assert primitive.cycles in text
