"""Instruction words: formats as data, encoder and decoder, assembler, disassembler.

An instruction has one or more units of 8, 16, 32 or 64 bits; instructions of one set may differ in
how many. A target writes its instructions down as ``InstructionSet(...)``; all else follows:

    units = assemble(instructions, "load bank_id=3, channel=16")
    program = decode(instructions, units)        # whole columns of fields, a group per mnemonic
    text = disassemble(instructions, units)      # assembles to the same units
"""

from tilewright.codegen.words.assemble import assemble
from tilewright.codegen.words.disassemble import disassemble, instruction_text
from tilewright.codegen.words.fields import (
    Column,
    Columns,
    Field,
    Format,
    Units,
    bits_for,
    lay_out,
    selector,
)
from tilewright.codegen.words.instructions import Instruction, InstructionSet
from tilewright.codegen.words.manual import manual
from tilewright.codegen.words.program import (
    Group,
    Program,
    Statement,
    decode,
    encode,
    encode_columns,
    from_bytes,
    to_bytes,
)

__all__ = [
    "Column",
    "Columns",
    "Field",
    "Format",
    "Group",
    "Instruction",
    "InstructionSet",
    "Program",
    "Statement",
    "Units",
    "assemble",
    "bits_for",
    "decode",
    "disassemble",
    "encode",
    "encode_columns",
    "from_bytes",
    "instruction_text",
    "lay_out",
    "manual",
    "selector",
    "to_bytes",
]
