"""The messages for programs that the simulator cannot continue."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.errors import TilewrightError, refuse
from tilewright.targets.cambricon.simulate import state as at
from tilewright.targets.cambricon.simulate.state import Array, State
from tilewright.targets.cambricon.statements import disassemble, text_lines

MEMORIES = ("VSM", "MSM", "the tables", "main memory")

FAILURES = {
    at.BOUNDS: (
        "program-bounds",
        "touches {size} bytes at {address} of {memory}, which has {capacity}",
        "",
    ),
    at.ALIGNMENT: (
        "program-alignment",
        "address {address} of {memory} is no multiple of the element's size",
        "elements of 16, 32 and 64 bits lie at multiples of 2, 4 and 8 bytes",
    ),
    at.UNINITIALISED: (
        "program-uninitialised",
        "reads byte {address} of {memory}, which nothing has written",
        "",
    ),
    at.SIZE: ("program-size", "the number of elements is negative", ""),
    at.BRANCH: ("program-branch", "branches to word {address} of a program of {words}", ""),
    at.DIVISION: ("program-division", "divides by 0", ""),
    at.TABLE: (
        "program-table",
        "table {address} and {size} bytes: a function needs 514, powers 770, and a table holds "
        "1024",
        "fill it with VLOAD.table",
    ),
}
"""Code, message and help of each status of the loop."""


def failure(
    status: int, words: Array, s: State, label: Callable[[int], str] | None
) -> TilewrightError:
    """The refusal for a status of the loop: its code, the word or line, and the numbers."""
    word = int(s.n[at.PC])
    text = next(line for line in text_lines(disassemble(words[word : word + 1])) if line[0] == " ")
    where = f"{label(word) if label else f'word {word}'} ({text.strip()})"
    memory = MEMORIES[int(s.n[at.ERROR_MEMORY])]
    address = int(s.n[at.ERROR_ADDRESS])
    size = int(s.n[at.ERROR_BYTES])
    capacity = int(s.n[at.SIZES + int(s.n[at.ERROR_MEMORY])])
    numbers = {"size": size, "address": address, "memory": memory, "capacity": capacity}
    code, text, help = FAILURES[status]
    return refuse(code, text.format(**numbers, words=len(words)), where, help)
