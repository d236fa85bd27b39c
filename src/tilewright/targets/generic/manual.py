"""The instruction manual, made from the definitions."""

from __future__ import annotations

from tilewright.codegen.words import field_table
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
"""How engines wait for one another, by the machine's style."""


def manual(instructions: InstructionSet) -> str:
    """A markdown page: every instruction with its meaning, engine, cycles and fields."""
    machine = instructions.machine
    style = machine.synchronisation.style
    engines = ", ".join(f"{e.name} (queue of {e.queue})" for e in machine.engines)
    memories = "\n".join(
        f"- `{m.name}`: {'main memory' if m.bytes is None else f'{m.bytes} bytes'}"
        for m in machine.memories
    )
    lines = [
        f"# Instructions of {machine.name}",
        "",
        machine.description,
        "",
        f"Words have {instructions.word_bytes} bytes: units of {UNIT_BITS} bits, each stored "
        "little-endian; a field lies in one unit, the opcode in the lowest "
        "8 bits of the first. Bits that no field names are zero. Addresses and "
        "strides are in bytes, extents in elements.",
        "",
        f"Engines: {engines}. One dispatcher issues a word every {machine.issue_cycles} cycles to "
        f"the queue of its engine; an engine runs its words in order. {_ORDER[style]}",
        "",
        memories,
        "",
        "Assembly has one instruction a line, `mnemonic field=value, ...`; fields that are left "
        "out hold their default (0 unless the table names another). `;` starts a remark.",
        "",
        "| instruction | opcode | engine | what it does |",
        "|---|---|---|---|",
        *(
            f"| [{instruction.mnemonic}](#{instruction.mnemonic}) | {instruction.opcode:#04x} | "
            f"{machine.engines[instruction.engine].name} | {instruction.meaning} |"
            for instruction in instructions.instructions
        ),
        "",
    ]
    for instruction in instructions.instructions:
        lines += _page(instruction)
    return "\n".join(lines).rstrip() + "\n"


def _page(instruction: Instruction) -> list[str]:
    lines = [
        f"## {instruction.mnemonic}",
        "",
        instruction.meaning,
        "",
        instruction.family.text.strip(),
        "",
    ]
    if instruction.operations:
        lines += [f"Computes: {', '.join(f'`{name}`' for name in instruction.operations)}.", ""]
    if instruction.primitive is not None:
        steps = "; ".join(
            f"`then{i}`: {', '.join(group)}"
            for i, group in enumerate(instruction.primitive.epilogue, 1)
        )
        if steps:
            lines += [f"Steps: {steps}.", ""]
        lines += [
            f"Cycles: `{instruction.primitive.cycles}`, dims that are not fields counting 1.",
            "",
        ]
    if instruction.move is not None:
        move = instruction.move
        lines += [
            f"Latency {move.latency} cycles, {move.bytes_per_cycle:g} bytes per cycle, "
            f"{move.in_flight} in flight.",
            "",
        ]
    return [*lines, *field_table(instruction.format)]
