"""The instructions of one kernel, each with the places that it touches."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.codegen.words import Statement
from tilewright.graph.placement import ACTIVATIONS
from tilewright.targets.dpu.build import Builder
from tilewright.targets.dpu.core import Core
from tilewright.targets.dpu.footprint import Span
from tilewright.targets.dpu.formats import CATEGORIES
from tilewright.targets.dpu.isa import REVISIONS
from tilewright.targets.dpu.lowering.dependences import Area, Dependences
from tilewright.targets.dpu.registers import REGISTERS

LOAD, SAVE = CATEGORIES.index("load"), CATEGORIES.index("save")


def engines_of(core: Core, statements: Sequence[Statement]) -> list[int]:
    """The engine of each instruction, as an index into CATEGORIES."""
    by_mnemonic = REVISIONS[core.isa].by_mnemonic
    engine = {name: CATEGORIES.index(known.category) for name, known in by_mnemonic.items()}
    return [engine[statement.mnemonic] for statement in statements]


class Instructions(Builder):
    """Collects a kernel's instructions and tells ``Dependences`` what they touch."""

    def __init__(self, core: Core, dependences: Dependences) -> None:
        super().__init__(core)
        self.dependences = dependences
        dependences.open()

    def add(self, mnemonic: str, **values: int) -> int:
        """Append an instruction, which waits for nothing so far; see ``Builder.add``."""
        self.dependences.add()
        return super().add(mnemonic, **values)

    def engine(self, number: int) -> int:
        """The engine of an instruction."""
        mnemonic = self.statements[number].mnemonic
        return CATEGORIES.index(self.instructions.by_mnemonic[mnemonic].category)

    def touch(self, first: int, reads: Sequence[Area], writes: Sequence[Area] = ()) -> None:
        """From ``first`` on to the last one, instructions of one engine touch the same places."""
        engine, last, start = self.engine(first), len(self.statements) - 1, self.dependences.start
        for areas, write in ((reads, False), (writes, True)):
            self.dependences.touch(engine, start + first, start + last, areas, write=write)

    def transfer(self, mnemonic: str, areas: Sequence[Area], **values: int) -> None:
        """Append a LOAD or a SAVE of some places of the banks."""
        number, store = self.add(mnemonic, **values), mnemonic == "save"
        self.touch(number, areas if store else (), () if store else areas)
        if values["reg_id"] != REGISTERS[ACTIVATIONS]:
            return  # Nothing is stored there.
        span = Span(
            values["reg_id"],
            values["ddr_addr"],
            values["channel"],
            values.get("length", 1),
            values.get("jump_write" if store else "jump_read", 1),
        )
        self.dependences.move(self.dependences.start + number, span, (LOAD, SAVE), store=store)
