"""The two format languages that targets still have say nothing that this one cannot.

Their instruction sets, written down as fields of this language, encode to the same words.
"""

import random

import numpy as np
import pytest

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
    to_bytes,
)
from tilewright.targets import cambricon, cambricon_x
from tilewright.targets.cambricon import isa as cambricon_isa
from tilewright.targets.cambricon.formats import IMMEDIATE_FLAG, OPCODE_BITS, WORD_BITS
from tilewright.targets.generic import encode as generic_encode
from tilewright.targets.generic.isa import derive


def of_generic(instructions):
    """A derived instruction set: lanes are units, the opcode leaves the fields."""
    units = instructions.lanes
    return InstructionSet(
        instructions.machine.name,
        Field("opcode", 0, 0, 8),
        tuple(
            Instruction(
                one.mnemonic,
                one.opcode,
                Format(
                    tuple(
                        Field(
                            field.name,
                            *one.format.places[field.name],
                            field.bits,
                            field.meaning,
                            signed=field.signed,
                            choices=field.choices,
                            default=field.default,
                        )
                        for field in one.format.fields
                        if field.name != "opcode"
                    ),
                    units,
                    64,
                ),
                one.summary,
            )
            for one in instructions.instructions
        ),
    )


def test_derived_instruction_sets():
    derived = derive(cambricon_x.TARGET.machine())
    same = of_generic(derived)
    draw = random.Random(1)
    for one in derived.instructions:
        rows = []
        for _ in range(20):
            values = {
                field.name: draw.randint(*field.range)
                for field in one.format.fields
                if field.name != "opcode"
            }
            rows.append(values)
        columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
        words = generic_encode.to_bytes(generic_encode.encode(derived, one, columns, len(rows)))
        units = encode(same, [Statement(one.mnemonic, row) for row in rows])
        assert to_bytes(same, units) == words
        assert decode(same, units).size == len(rows)
        assert np.array_equal(assemble(same, disassemble(same, units)), units)


def of_cambricon():
    """ACC-C's instructions: registers, the immediate and modifiers are fields of one unit."""
    instructions = []
    for one in cambricon_isa.INSTRUCTIONS:
        fields = [Field(name, 0, low, 6) for name, low in one.places.items()]
        if one.immediate_low is not None:
            fields.append(Field("number", 0, one.immediate_low, 32, signed=True))
        flags = (IMMEDIATE_FLAG,) if one.flagged else ()
        fields += [
            Field(m.name, 0, m.low, m.bits, signed=m.signed) for m in (*one.modifiers, *flags)
        ]
        form = Format(tuple(fields), 1, 64)
        instructions.append(Instruction(one.mnemonic, one.opcode, form, one.meaning))
    opcode = Field("opcode", 0, WORD_BITS - OPCODE_BITS, OPCODE_BITS)
    return InstructionSet("ACC-C", opcode, tuple(instructions))


@pytest.mark.parametrize("seed", range(20))
def test_instructions_of_acc_c(seed):
    assert cambricon.TARGET.name == "cambricon"
    same = of_cambricon()
    draw = random.Random(seed)
    words, statements = [], []
    for one in cambricon_isa.INSTRUCTIONS:
        operands, values = [], {}
        for operand in one.operands:
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
        for modifier in one.modifiers:
            rivals = {
                name for pair in cambricon_isa.EXCLUSIVE if modifier.name in pair for name in pair
            }
            if draw.random() < 0.5 and not rivals & set(modifiers):
                modifiers[modifier.name] = draw.randint(*modifier.range)
        words.append(cambricon_isa.encode(one.mnemonic, operands, modifiers))
        statements.append(Statement(one.mnemonic, {**values, **modifiers}))
    assert encode(same, statements).tolist() == words
