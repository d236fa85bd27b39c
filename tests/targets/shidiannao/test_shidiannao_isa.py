"""The encoding of shidiannao: what is fixed stays fixed; what each instruction is for."""

from __future__ import annotations

from tilewright.targets.shidiannao import LARGE, SMALL, TARGET
from tilewright.targets.shidiannao.isa import OPCODES
from tilewright.targets.shidiannao.machine import MACHINE

LINE = "fc wait.load=3, co=64, ci=32, last=0, then2=relu"
GOLDEN = {
    0: "0000000000000323",
    1: "0040040000040001",
    2: "4040020000040001",
    3: "0020101000040001",
    4: "0000000000080000",
    5: "0000000000000001",
}


def test_opcodes_are_those_documented() -> None:
    for target, size in ((SMALL, 128), (TARGET, 160), (LARGE, 160)):
        found = target.instruction_set(target.machine())
        assert {one.mnemonic: one.opcode for one in found.instructions} == OPCODES
        assert found.word_bytes == size


def test_an_instruction_has_the_bytes_it_always_had() -> None:
    """A golden: packages of an earlier version must not be read as something else."""
    words = TARGET.assemble(LINE, MACHINE)
    lanes = [words[i : i + 8][::-1].hex() for i in range(0, 160, 8)]
    assert {i: lane for i, lane in enumerate(lanes) if int(lane, 16)} == GOLDEN
    assert TARGET.disassemble(words, MACHINE) == LINE + "\n"


def test_layers_whose_maps_are_one_point_are_fully_connected() -> None:
    found = TARGET.instruction_set(MACHINE)
    assert found.for_compute("fc", "matmul").opcode == OPCODES["fc"]
    assert found.for_compute("fc", "conv").opcode == OPCODES["fc"]
    assert found.for_compute("conv", "conv").opcode == OPCODES["conv"]
    point, image = {"oh": 1, "ow": 1}, {"oh": 1, "ow": 2}
    serving = {
        size: [p.name for p in MACHINE.primitives if p.serves("conv", extents)]
        for size, extents in (("point", point), ("image", image))
    }
    assert serving == {"point": ["fc", "conv"], "image": ["conv"]}


def test_the_manual_states_cycles_and_opcodes() -> None:
    text = TARGET.manual(MACHINE)
    for name, opcode in OPCODES.items():
        assert f"| [{name}](#{name}) | {opcode:#04x} |" in text
    for primitive in MACHINE.primitives:
        assert primitive.cycles in text
