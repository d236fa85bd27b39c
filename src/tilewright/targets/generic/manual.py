"""The instruction manual, made from the definitions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tilewright.codegen.words.manual import field_table, memory_list, page
from tilewright.system.template import filled
from tilewright.targets.generic.isa import UNIT_BITS, Instruction, InstructionSet

_ORDER = {
    "counters": "A word starts when, for every other engine E, `wait.E` of E's words since the "
    "start of the program have completed.",
    "flags": "Engines order one another by flags, which `signal_E` sets and `wait_E` takes down.",
    "replies": "Words that complete count up reply words (`reply`), whose values `wait_E` awaits.",
    "tokens": "A word takes tokens of other engines before it starts (`take`), and puts tokens for "
    "them once it is done (`put`); all tokens of an ordered pair of engines are alike.",
    "none": "One word runs at a time.",
}
"""The way in which engines wait for one another, by the machine's style."""


def manual(instructions: InstructionSet) -> str:
    """A markdown page: every instruction with its meaning, engine, cycles and fields."""
    machine = instructions.machine
    introduction = filled(
        Path(__file__).with_suffix(".in"),
        description=machine.description,
        word_bytes=instructions.word_bytes,
        unit_bits=UNIT_BITS,
        engines=", ".join(f"{e.name} (queue of {e.queue})" for e in machine.engines),
        issue_cycles=machine.issue_cycles,
        order=_ORDER[machine.synchronisation.style],
        memories=memory_list(machine),
    )
    sections = {
        one.mnemonic: (
            (f"{one.opcode:#04x}", machine.engines[one.engine].name, one.meaning),
            _section(one),
        )
        for one in instructions.instructions
    }
    return page(machine.name, introduction, ("opcode", "engine", "what it does"), sections)


def _section(instruction: Instruction) -> Iterator[str]:
    yield instruction.meaning
    yield instruction.family.text.strip()
    if instruction.operations:
        yield f"Computes: {', '.join(f'`{name}`' for name in instruction.operations)}."
    if instruction.primitive is not None:
        steps = "; ".join(
            f"`then{i}`: {', '.join(group)}"
            for i, group in enumerate(instruction.primitive.epilogue, 1)
        )
        if steps:
            yield f"Steps: {steps}."
        yield f"Cycles: `{instruction.primitive.cycles}`, dims that are not fields counting 1."
    if instruction.move is not None:
        move = instruction.move
        yield (
            f"Latency {move.latency} cycles, {move.bytes_per_cycle:g} bytes per cycle, "
            f"{move.in_flight} in flight."
        )
    yield field_table(instruction.format)
