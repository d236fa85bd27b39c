"""A program of words: kernels one after the other, and END."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tilewright.codegen.words import Statement, encode, to_bytes
from tilewright.simulate.commands import TimedArray
from tilewright.targets.dpu.core import Core
from tilewright.targets.dpu.isa import REVISIONS
from tilewright.targets.dpu.lowering.dependences import Dependences
from tilewright.targets.dpu.lowering.instructions import Instructions, engines_of
from tilewright.targets.dpu.timing import timed_commands
from tilewright.targets.dpu.tokens import CLASSES, tokens_for


class Program:
    """Instructions of one program, and what each waits for."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.statements: list[Statement] = []
        self.dependences = Dependences(core)

    def append(self, kernel: Instructions, order: NDArray[np.int64] | None = None) -> None:
        """Append a kernel, its instructions perhaps in another order."""
        statements = kernel.statements
        if order is not None:
            statements = [statements[number] for number in order.tolist()]
        self.statements += statements
        self.dependences.close(order)

    @property
    def whole(self) -> list[Statement]:
        """All instructions, with END and tokens."""
        bare = [*self.statements, Statement("end", {})]
        needs = [
            (producer, consumer)
            for consumer, waits in enumerate(self.dependences.waits)
            for producer in waits
            if producer >= 0
        ]
        take, put = tokens_for(engines_of(self.core, bare), needs)
        return [
            Statement(statement.mnemonic, {**statement.values, "take": take[row], "put": put[row]})
            for row, statement in enumerate(bare)
        ]

    def words(self) -> bytes:
        """The program as bytes of a file."""
        instructions = REVISIONS[self.core.isa]
        return to_bytes(instructions, encode(instructions, self.whole))

    def commands(self) -> TimedArray:
        """The program as the timing core sees it, which is what its words say."""
        bare = [*self.statements, Statement("end", {})]
        return commands_of(self.core, bare, [*self.dependences.waits, [-1] * CLASSES])


def commands_of(
    core: Core, statements: Sequence[Statement], waits: Sequence[Sequence[int]]
) -> TimedArray:
    """TIMED records of instructions; ``waits``: the last one of each engine to wait for, or -1."""
    engines = np.array(engines_of(core, statements))
    completed = np.zeros(len(engines) + 1, np.int64)  # The last one is that of -1.
    for engine in range(CLASSES):
        mine = np.flatnonzero(engines == engine)
        completed[mine] = np.arange(1, len(mine) + 1)
    by_mnemonic, initialised = REVISIONS[core.isa].by_mnemonic, dict[str, dict[str, int]]()
    named: list[tuple[str, dict[str, int]]] = []
    for statement in statements:
        name, values = statement.mnemonic, dict(statement.values)
        if by_mnemonic[name].sets:
            initialised[by_mnemonic[name].sets] = values
        elif name in initialised and name != "elew":
            values = {**initialised[name], **values}
        named.append((name, values))
    return timed_commands(core, engines.tolist(), named, completed[np.array(waits)])
