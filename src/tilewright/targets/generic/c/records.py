"""The header of a machine's C functions: one record and one function per derived instruction.

A record's members are the instruction's fields (isa.py), without opcode and waits; names have ``_``
where those of fields have a dot.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tilewright.codegen.c.loops import engine_constant, ticket_type
from tilewright.codegen.c.source import Writer, comment
from tilewright.codegen.c.template import filled
from tilewright.codegen.words import Field
from tilewright.errors import refuse
from tilewright.graph.names import identifier
from tilewright.machine import Machine
from tilewright.machine.c_functions import CInterface
from tilewright.targets.generic.isa import Instruction, InstructionSet


def c_of(machine: Machine) -> CInterface:
    """The names that all programs of a machine use: its table ``[c]``, which it must have."""
    if machine.c is None:
        raise refuse("target-machine", f"{machine.name} names no C functions", "c")
    return machine.c


def function_of(instruction: Instruction) -> str:
    """The C function of an instruction."""
    part = instruction.move or instruction.primitive
    assert part is not None and part.c is not None
    if instruction.mnemonic != part.name:
        return f"{part.c.function}_{instruction.family.name}"
    return part.c.function


def commands_of(instructions: InstructionSet) -> list[Instruction]:
    """The instructions that move or compute; the machine's own functions signal and wait."""
    return [
        instruction
        for instruction in instructions.instructions
        if instruction.move or instruction.primitive
    ]


def members(instruction: Instruction) -> Iterator[Field]:
    """The fields that a record has."""
    for field in instruction.format.fields:
        if field.name not in ("reply", "take", "put") and "wait." not in field.name:
            yield field


def member(field: Field) -> str:
    """The name of a field's member."""
    return identifier(field.name)


def constants(instruction: Instruction, field: Field) -> tuple[str, ...]:
    """Constants for the choices of a field."""
    name = function_of(instruction)
    return tuple(f"{name}_{member(field)}_{identifier(choice)}".upper() for choice in field.choices)


TEMPLATES = Path(__file__).parent / "templates"
"""The texts of a package's C, with names to fill in."""


def names_of(machine: Machine) -> dict[str, object]:
    """The names of a machine's functions in templates, and the depth of its flags."""
    named = c_of(machine)
    return {
        "prefix": named.prefix,
        "flags": bool(named.signal),
        "signal": named.signal,
        "barrier": named.barrier,
        "wait": named.wait,
        "finish": named.finish,
        "ticket": ticket_type(named),
        "depth": machine.synchronisation.limit,
    }


def header_text(instructions: InstructionSet) -> str:
    """Return the header of the functions that the machine's driver provides."""
    machine = instructions.machine
    named = c_of(machine)
    records: list[str] = []
    for instruction in commands_of(instructions):
        writer = Writer()
        _record(writer, instruction, named)
        records.append(str(writer))
    return filled(
        TEMPLATES / "machine.h.in",
        **names_of(machine),
        about=comment(f"{machine.name}: what programs call, for its driver to provide."),
        upper=named.prefix.upper(),
        engines=", ".join(engine_constant(named, engine.name) for engine in machine.engines),
        last=machine.synchronisation.count - 1,
        indent=" " * len(named.wait),
        records="\n".join(records).rstrip("\n"),
    )


def _record(writer: Writer, instruction: Instruction, named: CInterface) -> None:
    name = function_of(instruction)
    plain = instruction.family.name == "transfer"
    text = (
        instruction.meaning
        if plain
        else f"{instruction.family.summary}\n\n{instruction.family.text}"
    )
    lines = [comment(part) for part in text.strip().splitlines()]
    for number, part in enumerate(lines):
        end = " */" if number == len(lines) - 1 else ""
        writer.line(f"{'/*' if number == 0 else '  '} {part}{end}" if part else "")
    for field in members(instruction):
        if field.choices:
            listed = ", ".join(constants(instruction, field))
            writer.line(f"enum {{ {listed} }};")
    with writer.block(f"struct {name}"):
        for field in members(instruction):
            bits = 64 if field.bits > 32 else 32
            kind = f"{'' if field.signed else 'u'}int{bits}_t"
            writer.line(f"{kind} {member(field)}; /* {comment(field.meaning)} */")
    writer.lines[-1] += ";"
    writer.line(f"{result_of(named)} {name}(const struct {name} *command);")


def result_of(named: CInterface) -> str:
    """Return the C result type of functions that start a command."""
    return "void" if named.signal else ticket_type(named)
