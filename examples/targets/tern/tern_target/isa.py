"""Tern's words. This definition gives encoder, decoder, assembler, disassembler and manual.

A compute is a nest of eight loops. Every operand has an address, and bytes per run of each loop. A
loop along which the result does not move is summed, or its maximum taken. Windows of images say
beside how rows and columns follow from loops 0 to 3, and which rows and columns there are.
"""

from dataclasses import replace

from tern_target.machine import MACHINE
from tilewright.codegen.program.transfers import AXES
from tilewright.codegen.words import Field, Instruction, InstructionSet, lay_out, selector

SLOTS = {"oh": 0, "ow": 1, "kh": 2, "kw": 3, "n": 4, "co": 5, "ci": 6, "g": 7}
SLOTS |= {"b0": 0, "b1": 1, "m": 4, "c": 5, **{f"d{n}": n for n in range(6)}, "axis": 7}
"""The loop of each dim."""
LOOPS = 8
STEPS = ("none", "relu", "clip", "add", "sub", "mul", "requantise", "softmax")
"""What may follow the nest, and what a map does: up to four functions in a row."""
MOST_STEPS = 4
ENGINES = tuple(engine.name for engine in MACHINE.engines)
_OPCODE = Field("opcode", 8, "which instruction")


def _sizes(name: str, count: int) -> list[Field]:
    return [Field(f"{name}{number}", 16, "how many", default=1) for number in range(count)]


def _operand(name: str, memory: str, steps: list[str]) -> list[Field]:
    bits = 36 if memory == MACHINE.main else 18
    parts = {"address": f"first byte in {memory}", **dict.fromkeys(steps, "bytes to the next")}
    return [Field(f"{name}.{part}", bits, meaning) for part, meaning in parts.items()]


def _transfer(source: str, target: str) -> list[Field]:
    fields = [Field("element", 4, "bytes of an element", default=2), *_sizes("size", AXES)]
    for name, memory in (("source", source), ("target", target)):
        fields += _operand(name, memory, [f"stride{axis}" for axis in range(AXES)])
    return fields


def _compute() -> list[Field]:
    fields = _sizes("n", LOOPS)
    for name in ("x", "w", "b", "r", "y"):
        fields += _operand(name, "tile", [str(loop) for loop in range(LOOPS)])
    for axis, low, there in (("h", "row", "rows"), ("w", "column", "columns")):
        fields += [Field(low, 16, f"first {low} of the window", signed=True)]
        fields += [Field(there, 16, "that are there; all others are padding", default=1)]
        fields += [Field(f"{part}.{axis}", 6, "of the window") for part in ("stride", "dilation")]
        fields += [Field(f"x.{axis}", 18, f"bytes from one {low} to the next")]
    fields += [Field(name, 1, "part of a reduction", default=1) for name in ("first", "last")]
    fields += [Field("bias", 1, "1: sums begin with b")]
    for number in range(MOST_STEPS):
        fields.append(selector(f"f{number}", STEPS, "function"))
        fields += [Field(f"{letter}{number}", 32, "its number", signed=True) for letter in "pq"]
    return fields


_EVENT = [selector(name, ENGINES, f"engine that {name}s") for name in ("signal", "wait")]
_EVENT.append(Field("flag", 4, "of this ordered pair of engines"))
_KINDS = {move.name: _transfer(move.source, move.target) for move in MACHINE.moves}
_KINDS |= {primitive.name: _compute() for primitive in MACHINE.primitives}
_KINDS |= {"set": _EVENT, "await": _EVENT, "barrier": []}
_FORMATS = {name: lay_out(fields, _OPCODE.bits, 64) for name, fields in _KINDS.items()}
_INSTRUCTIONS = tuple(
    Instruction(name, opcode, replace(form, units=MACHINE.instruction_bytes // 8), name)
    for opcode, (name, form) in enumerate(_FORMATS.items(), 1)
)
INSTRUCTIONS = InstructionSet("tern", _OPCODE, 0, _INSTRUCTIONS, help="smaller tiles")
"""One instruction for each move and primitive of the machine, and those that order its engines."""
