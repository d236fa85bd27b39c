"""The instructions of a program, one after the other."""

from __future__ import annotations

from tilewright.codegen.words import Statement
from tilewright.targets.dpu.core import Core
from tilewright.targets.dpu.isa import REVISIONS


class Builder:
    """Collects instructions for a core."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.instructions = REVISIONS[core.isa]
        self.statements: list[Statement] = []

    def add(self, mnemonic: str, **values: int) -> int:
        """Append an instruction; fields by name, choices as their numbers. Returns its number.

        Raises TilewrightError (``isa-field``) where a field cannot hold its value, KeyError for an
        instruction or a field that the core's revision does not have.
        """
        self.instructions.by_mnemonic[mnemonic].format.verify(values, mnemonic)
        self.statements.append(Statement(mnemonic, values))
        return len(self.statements) - 1
