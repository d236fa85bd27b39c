"""The header of a machine's C functions: one record and one function per derived instruction.

A record's members are the instruction's fields (isa.py), without opcode and waits; names have ``_``
where those of fields have a dot.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.codegen.c.loops import engine_constant, ticket_type
from tilewright.codegen.c.source import Writer, comment
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


_ABOUT = """\
   A function that takes a record appends a command to its engine's queue, and returns the
   command's ticket: how many commands the engine has been given. It keeps no pointer to
   the record. Commands of one engine run in their order; those of several run side by
   side. Addresses in main memory are 64-bit numbers, all others are bytes from the start
   of their memory. */"""
_ABOUT_FLAGS = """\
   A function that takes a record appends a command to its engine's queue. It keeps no
   pointer to the record. Commands of one engine run in their order; those of several run
   side by side. Addresses in main memory are 64-bit numbers, all others are bytes from
   the start of their memory. */"""


def header_text(instructions: InstructionSet) -> str:
    """Return the header of the functions that the machine's driver provides."""
    machine = instructions.machine
    named = c_of(machine)
    guard = f"{named.prefix}_H".upper()
    engines = ", ".join(engine_constant(named, engine.name) for engine in machine.engines)
    ticket = "" if named.signal else f"typedef uint32_t {ticket_type(named)};\n\n"
    writer = Writer()
    writer.text(f"""\
/* {comment(f"{machine.name}: what programs call, for its driver to provide.")}

{_ABOUT_FLAGS if named.signal else _ABOUT}
#ifndef {guard}
#define {guard}

#include <stdint.h>

{ticket}enum {named.prefix}_engine {{ {engines} }};

{_flags(machine, named) if named.signal else _tickets(named)}

/* Returns once all engines have completed all commands{"" if named.signal else _AGAIN}. */
void {named.finish}(void);

/* Where the parts of a network lie in main memory. */
struct {named.prefix}_memory {{
    uint64_t weights;
    uint64_t activations;
    uint64_t tables;
}};""")
    for instruction in commands_of(instructions):
        writer.line()
        _record(writer, instruction, named)
    writer.text("\n#endif")
    return str(writer)


_AGAIN = "; tickets may begin at 1 again"


def _tickets(named: CInterface) -> str:
    engine, head = f"enum {named.prefix}_engine", f"void {named.wait}("
    return f"""\
/* What the engine is given after this starts only once the other engine has completed its
   commands up to the ticket; 0 is no command. The caller need not wait. */
{head}{engine} engine, {engine} other,
{" " * len(head)}{ticket_type(named)} ticket);"""


def _flags(machine: Machine, named: CInterface) -> str:
    engine = f"enum {named.prefix}_engine"
    depth, last = machine.synchronisation.limit, machine.synchronisation.count - 1
    return f"""\
/* Flags 0 to {last} of each ordered pair of engines. One is set once the engine has
   completed all that it was given before; what the other is given after a wait starts
   only once the flag is set, and takes it down. The caller need not wait. No flag is set
   more than {depth} times ahead of its waits. */
void {named.signal}({engine} engine, {engine} other, uint32_t flag);
void {named.wait}({engine} engine, {engine} other, uint32_t flag);

/* What any engine is given after this starts once all that was given before is done. */
void {named.barrier}(void);"""


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
