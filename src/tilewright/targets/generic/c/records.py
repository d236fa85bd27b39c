"""The header of a machine's C functions: one record and one function per derived instruction.

A record's members are the instruction's fields (isa.py), without opcode and waits; names have ``_``
where those of fields have a dot. Parameters of functions of one element (``then1.x``) are named
after the function and the parameter (``then1_requantise_linear_zero``), but for those of fixed
point; real ones are floats.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap

from tilewright.codegen.c.loops import engine_constant, ticket_type
from tilewright.codegen.c.source import Writer, comment
from tilewright.codegen.words import Field
from tilewright.errors import refuse
from tilewright.graph.names import identifier
from tilewright.machine import Machine
from tilewright.machine.c_functions import CInterface
from tilewright.numerics.element_types import Kind
from tilewright.system.template import filled
from tilewright.targets.generic.c.meanings import meanings
from tilewright.targets.generic.functions import FUNCTIONS, LETTERS
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


@dataclass(frozen=True)
class Member:
    """A member of a record: a field, or a parameter of a function that a field selects."""

    name: str
    field: Field
    meaning: str
    real: bool = False
    """True if it is a float, of which the field holds the bits."""
    selector: str = ""
    """The field that selects the function whose parameter it is."""
    choice: int = 0
    """The number that selects that function."""
    parameter: str = ""

    @property
    def type(self) -> str:
        """The type of the member in C."""
        if self.real:
            return "float"
        bits = 64 if self.field.bits > 32 else 32
        return f"{'' if self.field.signed else 'u'}int{bits}_t"


def members(instruction: Instruction, kind: Kind) -> Iterator[Member]:
    """The members of the record of an instruction that computes on elements of a kind."""
    for field in instruction.format.fields:
        if field.name in ("reply", "take", "put") or "wait." in field.name:
            continue
        selector, _, letter = field.name.partition(".")
        if kind != "fixed" and letter in (*LETTERS,) and selector_of(instruction, selector):
            if letter == LETTERS[0]:
                yield from parameters_of(instruction, selector, kind)
            continue
        yield Member(identifier(field.name), field, field.meaning, field.real)


def selector_of(instruction: Instruction, name: str) -> Field | None:
    """The field that selects a function of one element or two, if it is one."""
    field = instruction.format.by_name.get(name)
    if field is None or not any(choice in FUNCTIONS for choice in field.choices):
        return None
    return field


def parameters_of(instruction: Instruction, selector: str, kind: Kind) -> Iterator[Member]:
    """The parameters of the functions that a field selects, function by function."""
    fields = instruction.format.by_name
    for choice, name in enumerate(fields[selector].choices):
        function = FUNCTIONS.get(name)
        parameters = () if function is None else function.parameters(kind)
        for letter, parameter in zip(LETTERS, parameters, strict=False):
            assert function is not None
            yield Member(
                f"{identifier(selector)}_{name}_{parameter}",
                fields[f"{selector}.{letter}"],
                f"{name}: {parameter.replace('_', ' ')}",
                function.is_real(parameter),
                selector,
                choice,
                parameter,
            )


def constants(instruction: Instruction, field: Field) -> tuple[str, ...]:
    """Constants for the choices of a field."""
    name = function_of(instruction)
    return tuple(
        f"{name}_{identifier(field.name)}_{identifier(choice)}".upper() for choice in field.choices
    )


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
        _record(writer, instruction, named, kind_of(instructions, instruction))
        records.append(str(writer))
    return filled(
        TEMPLATES / "machine.h.in",
        **names_of(machine),
        about=comment(f"{machine.name}: what programs call, for its driver to provide."),
        upper=named.prefix.upper(),
        engines=", ".join(engine_constant(named, engine.name) for engine in machine.engines),
        last=machine.synchronisation.count - 1,
        indent=" " * len(named.wait),
        functions=_functions(instructions),
        real=any(
            member.real
            for instruction in commands_of(instructions)
            for member in members(instruction, kind_of(instructions, instruction))
        ),
        records="\n".join(records).rstrip("\n"),
    )


def kind_of(instructions: InstructionSet, instruction: Instruction) -> Kind:
    """The kind of numbers that an instruction computes on."""
    return instructions.machines[instruction.opcode].number.kind


def _functions(instructions: InstructionSet) -> str:
    """The meanings of the functions that fields select, as a comment; "" without any."""
    known: dict[str, None] = {}
    for instruction in commands_of(instructions):
        kind = kind_of(instructions, instruction)
        for field in instruction.format.fields:
            if selector_of(instruction, field.name):
                known |= dict.fromkeys(meanings(field.choices, kind))
    if not known:
        return ""
    intro = (
        "Functions of an element a, or of a and a second operand b, which is the residual of a "
        "step `then1`, `then2`, ... and `other` elsewhere. Each step takes the result of the one "
        "before:"
    )
    writer = Writer()
    _comment(writer, [intro, *(f"  {line}" for line in known)])
    return str(writer)


def _comment(writer: Writer, parts: Sequence[str]) -> None:
    """Lines of a comment, each part wrapped."""
    lines: list[str] = []
    for part in parts:
        indent = " " * (len(part) - len(part.lstrip()))
        following = f"{indent}  " if indent else ""
        lines += wrap(part.strip(), 93, initial_indent=indent, subsequent_indent=following)
    lines = [comment(line) for line in lines]
    for number, line in enumerate(lines):
        end = " */" if number == len(lines) - 1 else ""
        writer.line(f"{'/*' if number == 0 else '  '} {line}{end}".rstrip())


def _record(writer: Writer, instruction: Instruction, named: CInterface, kind: Kind) -> None:
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
    for field in instruction.format.fields:
        if field.choices:
            listed = ", ".join(constants(instruction, field))
            writer.line(f"enum {{ {listed} }};")
    with writer.block(f"struct {name}"):
        for member in members(instruction, kind):
            writer.line(f"{member.type} {member.name}; /* {comment(member.meaning)} */")
    writer.lines[-1] += ";"
    writer.line(f"{result_of(named)} {name}(const struct {name} *command);")


def result_of(named: CInterface) -> str:
    """Return the C result type of functions that start a command."""
    return "void" if named.signal else ticket_type(named)
