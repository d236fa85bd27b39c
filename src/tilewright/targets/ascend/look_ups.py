"""Check of look-ups: a number that a kernel reads in main memory decides only where it reads an
operand.

A look-up's copy reads a row that nobody knows before the kernel runs. The proof of flags and the
comparison of blocks take row 0 for all of them: that is right as long as the rows lie in a tensor
that the kernel does not write, and nothing else depends on the index.
"""

from __future__ import annotations

import re

from tilewright.codegen.nest.value import Expr, Value, variable
from tilewright.errors import refuse
from tilewright.targets.ascend.program import (
    ASSIGNMENTS,
    UNKNOWN,
    Command,
    Flag,
    Loop,
    Program,
    Tensor,
    statements,
)


def check_look_ups(program: Program) -> None:
    """Refuse (``cce-value``) what depends on a number from main memory (``element_at``), and is
    neither another scalar nor where a command reads in a tensor that the kernel does not write."""
    unknown: set[str] = set()

    def depends(*values: Value) -> bool:
        return any(
            isinstance(value, Expr)
            and (
                UNKNOWN in value.python or not unknown.isdisjoint(re.findall(r"\w+", value.python))
            )
            for value in values
        )

    for statement in statements(program.body):
        if isinstance(statement, Loop):
            wrong = depends(statement.count)
        elif isinstance(statement, Flag):
            wrong = depends(statement.event)
        elif not isinstance(statement, Command):
            continue
        elif statement.name in ASSIGNMENTS:
            name, value = statement.arguments
            if depends(value):
                unknown.add(variable(name).python)
            continue
        else:
            parts = [region.place.address for region in statement.writes]
            for place in (region.place for region in statement.reads):
                if not isinstance(place.home, Tensor) or place.home.written:
                    parts.append(place.address)
            for region in (*statement.reads, *statement.writes):
                parts += [region.bytes, *region.counts, *region.strides]
            wrong = depends(*parts, statement.cycles)
        if wrong:
            raise refuse(
                "cce-value",
                "a number from main memory decides more than where an operand is read",
                program.name,
            )
