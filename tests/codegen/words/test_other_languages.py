"""The format language that a target still has says nothing that this one cannot.

Its instruction set, written down as fields of this language, encodes to the same words.
"""

import random

import pytest

from tilewright.codegen.words import (
    Field,
    Format,
    Instruction,
    InstructionSet,
    Statement,
    encode,
)
from tilewright.targets import cambricon
from tilewright.targets.cambricon import isa as cambricon_isa
from tilewright.targets.cambricon.formats import IMMEDIATE_FLAG, OPCODE_BITS, WORD_BITS


def of_cambricon():
    """ACC-C's instructions: registers, the immediate and modifiers are fields of one unit."""
    instructions = []
    for instruction in cambricon_isa.INSTRUCTIONS:
        fields = {Field(name, 6): low for name, low in instruction.places.items()}
        if instruction.immediate_low is not None:
            fields[Field("number", 32, signed=True)] = instruction.immediate_low
        flags = (IMMEDIATE_FLAG,) if instruction.flagged else ()
        for modifier in (*instruction.modifiers, *flags):
            fields[Field(modifier.name, modifier.bits, signed=modifier.signed)] = modifier.low
        places = {field.name: (0, low) for field, low in fields.items()}
        form = Format(tuple(fields), places, 1, 64)
        instructions.append(
            Instruction(instruction.mnemonic, instruction.opcode, form, instruction.meaning)
        )
    opcode = Field("opcode", OPCODE_BITS)
    return InstructionSet("ACC-C", opcode, WORD_BITS - OPCODE_BITS, tuple(instructions))


@pytest.mark.parametrize("seed", range(20))
def test_instructions_of_acc_c(seed):
    assert cambricon.TARGET.name == "cambricon"
    same = of_cambricon()
    draw = random.Random(seed)
    words, statements = [], []
    for instruction in cambricon_isa.INSTRUCTIONS:
        operands, values = [], {}
        for operand in instruction.operands:
            number = operand.has_immediate and (not operand.has_register or draw.random() < 0.5)
            if number and "number" not in values:
                values["number"] = draw.randint(-(1 << 31), (1 << 31) - 1)
                operands.append(cambricon_isa.Immediate(values["number"]))
                if operand.has_register:
                    values[IMMEDIATE_FLAG.name] = 1
            else:
                values[operand.name] = draw.randrange(64)
                operands.append(cambricon_isa.Register(values[operand.name]))
        modifiers = {}
        for modifier in instruction.modifiers:
            rivals = {
                name for pair in cambricon_isa.EXCLUSIVE if modifier.name in pair for name in pair
            }
            if draw.random() < 0.5 and not rivals & set(modifiers):
                modifiers[modifier.name] = draw.randint(*modifier.range)
        words.append(cambricon_isa.encode(instruction.mnemonic, operands, modifiers))
        statements.append(Statement(instruction.mnemonic, {**values, **modifiers}))
    assert encode(same, statements).tolist() == words
