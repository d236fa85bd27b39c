"""Programs from Python, their tokens derived from what the finished instructions touch.

Compiled programs have their tokens from the waits of tile programs, and no footprint of a word is
asked for. So these are an independent statement of what has to be ordered.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tilewright.codegen.words import Statement, decode, encode, to_bytes
from tilewright.targets.dpu.core import DEPTH, Core
from tilewright.targets.dpu.footprint import Footprint, Footprints, Span
from tilewright.targets.dpu.isa import REVISIONS
from tilewright.targets.dpu.operations import Operation, operations_of, read_program
from tilewright.targets.dpu.tokens import CLASSES, tokens_for


class Builder:
    """Collects the instructions of one program for a core.

    build = Builder(core)
    build.add("load", bank_id=0, channel=16, reg_id=2)
    ...
    operations = build.finish()        # tokens set, END added
    """

    def __init__(self, core: Core) -> None:
        self.core = core
        self.instructions = REVISIONS[core.isa]
        self.statements: list[Statement] = []

    def add(self, mnemonic: str, **values: int) -> int:
        """Append an instruction; fields by name, choices as their numbers. Returns its number."""
        self.instructions.by_mnemonic[mnemonic].format.verify(values, mnemonic)
        self.statements.append(Statement(mnemonic, values))
        return len(self.statements) - 1

    def words(self) -> bytes:
        """The program with END and tokens, as bytes of a file.

        Raises TilewrightError for what ``footprint`` refuses.
        """
        statements = synchronised(self.core, [*self.statements, Statement("end", {})])
        return to_bytes(self.instructions, encode(self.instructions, statements))

    def finish(self) -> list[Operation]:
        """The operations of ``words``."""
        return read_program(self.core, self.words())


def synchronised(core: Core, statements: Sequence[Statement]) -> list[Statement]:
    """The statements with the tokens that order all that touch the same place, and no others.

    A token that another of its pair of classes implies is left out; one that only a chain through a
    third class implies is not.
    """
    instructions = REVISIONS[core.isa]
    bare = [
        Statement(
            statement.mnemonic,
            {k: v for k, v in statement.values.items() if k not in ("take", "put")},
        )
        for statement in statements
    ]
    operations = operations_of(decode(instructions, encode(instructions, bare)))
    needs = needs_of(core, operations)
    take, put = tokens_for([operation.engine for operation in operations], needs)
    return [
        Statement(statement.mnemonic, {**statement.values, "take": take[row], "put": put[row]})
        for row, statement in enumerate(bare)
    ]


def needs_of(core: Core, operations: Sequence[Operation]) -> list[tuple[int, int]]:
    """(producer, consumer): what each operation must wait for, of each other class the latest."""
    footprints = Footprints(core)
    shadow = _Shadow(core, {op.fields["reg_id"] for op in operations if op.mnemonic == "save"})
    return [
        (producer, operation.number)
        for operation in operations
        for producer in shadow.visit(operation, footprints.of(operation))
    ]


class _Shadow:
    """Who read and wrote each place last, class by class."""

    def __init__(self, core: Core, stored: set[int]) -> None:
        self.stored = stored
        """The registers behind which anything is stored: others need no order."""
        size = (CLASSES, core.banks * DEPTH)
        self.read: NDArray[np.int32] = np.full(size, -1, np.int32)
        self.written: NDArray[np.int32] = np.full(size, -1, np.int32)
        self.memory: dict[tuple[int, bool], NDArray[np.int32]] = {}
        """(register, stored) -> per byte the last LOAD that read it, or SAVE that wrote it."""

    def visit(self, operation: Operation, touched: Footprint) -> list[int]:
        """Earlier operations of other classes that one must wait for; remembers what it touches."""
        own = operation.engine
        needs: list[int] = []
        last = np.full(CLASSES, -1)
        if touched.reads.size:
            last = np.maximum(last, self.written[:, touched.reads].max(axis=1))
        if touched.writes.size:
            last = np.maximum(last, self.written[:, touched.writes].max(axis=1))
            last = np.maximum(last, self.read[:, touched.writes].max(axis=1))
        needs += [number for other, number in enumerate(last.tolist()) if other != own]
        self.read[own, touched.reads] = operation.number
        self.written[own, touched.writes] = operation.number
        if touched.loads is not None and touched.loads.register in self.stored:
            needs.append(int(self._bytes(touched.loads, True).max(initial=-1)))
            self._bytes(touched.loads, False)[:] = operation.number
        if touched.stores is not None:
            needs.append(int(self._bytes(touched.stores, False).max(initial=-1)))
            self._bytes(touched.stores, True)[:] = operation.number
        return [need for need in needs if need >= 0]

    def _bytes(self, span: Span, stored: bool) -> NDArray[np.int32]:
        """[runs, bytes]: a view of the bytes of a span."""
        key = (span.register, stored)
        memory = self.memory.get(key, np.zeros(0, np.int32))
        if memory.size < span.end:
            grown = np.full(max(span.end, 2 * memory.size), -1, np.int32)
            grown[: memory.size] = memory
            self.memory[key] = memory = grown
        return np.lib.stride_tricks.as_strided(
            memory[span.address :],
            (span.count, span.run),
            (span.stride * memory.itemsize, memory.itemsize),
        )
