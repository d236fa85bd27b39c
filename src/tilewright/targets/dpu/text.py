"""Text of programs, and back; the manual of a core's instructions."""

from __future__ import annotations

from tilewright.codegen import words
from tilewright.codegen.words import from_bytes, to_bytes
from tilewright.targets.dpu.core import DEPTH, Core
from tilewright.targets.dpu.isa import REVISIONS


def assemble(core: Core, text: str, name: str = "assembly") -> bytes:
    """Words of a source text, as a file has them; raises TilewrightError (``asm-...``)."""
    instructions = REVISIONS[core.isa]
    return to_bytes(instructions, words.assemble(instructions, text, name))


def disassemble(core: Core, data: bytes) -> str:
    """Text of words, which assembles to the same; raises TilewrightError (``isa-...``)."""
    instructions = REVISIONS[core.isa]
    return words.disassemble(instructions, from_bytes(instructions, data))


def listing(core: Core, data: bytes) -> str:
    """Addresses, words and text of a program; raises TilewrightError (``isa-...``)."""
    instructions = REVISIONS[core.isa]
    return words.listing(instructions, from_bytes(instructions, data))


def manual(core: Core) -> str:
    """The instruction manual of the core's revision, as a markdown page."""
    groups = ", ".join(
        f"`{group.name}` {group.first}"
        + (f" to {group.first + group.count - 1}" if group.count > 1 else "")
        for group in core.bank_groups
    )
    return words.manual(
        REVISIONS[core.isa],
        f"{core.name}: {core.rows} rows, {core.channels} input and {core.channels} output "
        f"channels at once. Banks: {groups}; a row of a bank is {core.channels} bytes, addresses "
        f"are modulo {DEPTH}. `take` waits for a token of each class that it names, `put` leaves "
        "one; both name the instruction's own class.",
    )
