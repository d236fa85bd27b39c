"""Listings: addresses, words and instructions beside the lines that they come from."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.targets.cambricon.hlal.assemble import Program
from tilewright.targets.cambricon.statements import Statement, text_lines


def listing(program: Program) -> str:
    """A text for people; ``tilewright disasm`` makes one that assembles."""
    return "".join(f"{line}\n" for line in _lines(program))


def _lines(program: Program) -> Iterator[str]:
    yield f";; {program.name}: {len(program.words)} words"
    yield f";; {program.vsm_bytes} bytes of VSM, {program.msm_bytes} bytes of MSM on chip"
    yield ";;"
    yield ";; main memory: address, bytes, what"
    entries = [
        (array.address, array.bytes, f"@{array.kind} {array.name}, {_sizes(array.shape)}"
         f", segments {_sizes(tuple(axis.segment for axis in array.axes))}, {array.layout}, "
         f"Q{array.fraction}, {'fix16' if array.element_bytes == 2 else 'fix32'}, "
         f"{'static_rw' if array.writable else 'static_ro'}")
        for array in program.data.arrays
    ]  # fmt: skip
    entries += [(scalar.address, 4, f"@fix {scalar.name}") for scalar in program.data.scalars]
    entries += [
        (table.address, 2 * len(table.entries), f"table of {name}")
        for (name, _), table in program.data.tables.items()
    ]
    for address, size, description in sorted(entries):
        yield f";; {address + program.base:10} {size:10}  {description}"
    yield ";;"
    yield ";; word, its bits, instruction, line"
    marks = frozenset(program.relocations)
    index = 0
    for statement in program.statements:
        if statement.label is not None:
            yield f"{statement.label}:"
        if not statement.mnemonic:
            continue
        (text,) = text_lines(
            [Statement(statement.mnemonic, statement.operands, statement.modifiers)]
        )
        mark = "+" if index in marks else " "
        word = int(program.words[index])
        yield f"{index:6} {word:016x}{mark} {text.strip():56} ;; {program.where(index)}"
        index += 1


def _sizes(values: tuple[int, ...]) -> str:
    return " x ".join(map(str, values))
