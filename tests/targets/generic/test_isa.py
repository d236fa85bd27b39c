"""Instruction sets derived from descriptions: what becomes an instruction, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tilewright.errors import TilewrightError
from tilewright.machine import Machine, Move, Storage
from tilewright.machine.load import load_machine
from tilewright.targets.cambricon_x.machine import MACHINE
from tilewright.targets.generic.isa import derive
from tilewright.targets.generic.manual import manual

SMALL_NPU = load_machine(Path(__file__).parents[3] / "examples" / "machines" / "small-npu.toml")


def without(machine: Machine, memory: str) -> Machine:
    return machine.model_copy(
        update={
            "memories": tuple(m for m in machine.memories if m.name != memory),
            "moves": tuple(m for m in machine.moves if memory not in (m.source, m.target)),
        }
    )


def primitives(**changes: Any) -> Machine:
    changed = MACHINE.primitives[0].model_copy(update=changes)
    return MACHINE.model_copy(update={"primitives": (changed, *MACHINE.primitives[1:])})


def test_moves_and_primitives_become_instructions() -> None:
    names = [one.mnemonic for one in derive(SMALL_NPU).instructions]
    assert names == [
        *(move.name for move in SMALL_NPU.moves),
        *(primitive.name for primitive in SMALL_NPU.primitives),
    ]
    opcodes = [one.opcode for one in derive(SMALL_NPU).instructions]
    assert opcodes == list(range(1, len(names) + 1))


def test_a_primitive_of_two_families_becomes_two() -> None:
    conv = MACHINE.primitives[0]
    machine = primitives(operations=(*conv.operations, "depthwise_conv"))
    machine = machine.model_copy(
        update={"primitives": tuple(p for p in machine.primitives if p.name != "depthwise_conv")}
    )
    derived = derive(machine)
    assert derived.for_compute("conv", "matmul").mnemonic == "conv_product"
    assert derived.for_compute("conv", "depthwise_conv").mnemonic == "conv_depthwise"
    with pytest.raises(TilewrightError, match="isa-operation"):
        derived.for_compute("conv", "softmax")


def test_fields_follow_the_memories() -> None:
    for size in (1 << 12, 1 << 17, 1 << 22):
        machine = MACHINE.with_values({"memory.nbin.bytes": size})
        fields = derive(machine).by_mnemonic["conv"].format.by_name
        assert fields["input.address"].range == (0, size - 1)
        assert fields["co"].range[1] >= min(size, 32768)
        assert fields["row"].range[0] <= -fields["co"].range[1]


def test_waits_name_the_other_engines() -> None:
    for one in derive(MACHINE).instructions:
        own = MACHINE.engines[one.engine].name
        waits = {f.name for f in one.format.fields if f.name.startswith("wait.")}
        assert waits == {f"wait.{engine.name}" for engine in MACHINE.engines if engine.name != own}


@pytest.mark.parametrize(
    ("machine", "code"),
    [
        (without(MACHINE, "tables"), "isa-tables"),
        (primitives(epilogue_any=True), "isa-epilogue"),
        (primitives(epilogue=(("add",), ("fold",))), "isa-function"),
        (primitives(operands={"input": Storage(memory="nbin")}), "isa-roles"),
        (
            primitives(
                operands={**MACHINE.primitives[0].operands, "input": Storage(memory="dram")}
            ),
            "isa-in-place",
        ),
        (primitives(name="load_sb"), "isa-name"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_instructions_cannot_say_is_refused(machine: Machine, code: str) -> None:
    with pytest.raises(TilewrightError) as caught:
        derive(machine)
    assert caught.value.problems[0].code == code


def test_too_many_instructions_are_refused() -> None:
    one = MACHINE.moves[0]
    moves = tuple(
        Move.model_validate({**one.model_dump(), "name": f"move{i}", "target": "sb"})
        for i in range(260)
    )
    with pytest.raises(TilewrightError, match="isa-opcodes"):
        derive(MACHINE.model_copy(update={"moves": (*MACHINE.moves, *moves)}))


def test_manuals_are_made_for_any_machine() -> None:
    text = manual(derive(SMALL_NPU))
    assert "## load-feature" in text and "ceil(co/8)" in text
