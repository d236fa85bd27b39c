"""A program of words as it is made: its instructions, kernel by kernel, and what each waits for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.codegen.words import Statement, encode, to_bytes
from tilewright.graph.placement import ACTIVATIONS
from tilewright.simulate import simulate
from tilewright.simulate.commands import TimedArray
from tilewright.targets.dpu.core import Core
from tilewright.targets.dpu.footprint import Span
from tilewright.targets.dpu.formats import CATEGORIES
from tilewright.targets.dpu.isa import REVISIONS
from tilewright.targets.dpu.lowering.dependences import Area, Dependences
from tilewright.targets.dpu.machine import machine_of
from tilewright.targets.dpu.registers import REGISTERS
from tilewright.targets.dpu.timing import timed_commands
from tilewright.targets.dpu.tokens import CLASSES, numbers, tokens_for

LOAD, SAVE = CATEGORIES.index("load"), CATEGORIES.index("save")


class Program:
    """Instructions of one program, by number in the order in which kernels name them."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.instructions = REVISIONS[core.isa]
        self.statements: list[Statement] = []
        self.dependences = Dependences(core)
        self.order: list[int] = []
        """The instructions of the kernels that are complete, as the program has them."""
        inits = [init for init in self.instructions.instructions if init.sets]
        self._inits = {
            i.sets: (i.mnemonic, {field.name for field in i.format.fields}) for i in inits
        }
        self._last_init: dict[str, dict[str, int]] = {}
        """By mnemonic, the last INIT of the kernel."""

    def open(self) -> None:
        """Begin a kernel; instructions that a refused kernel left are taken away."""
        del self.statements[self.dependences.start :]
        self._last_init.clear()
        self.dependences.open()

    def close(self) -> None:
        """End a kernel, and put its instructions in order.

        The dispatcher hands out instructions in the program's order and stops at one whose engine's
        queue is full. So they stand in the order in which they could begin if queues had no end,
        which the timing core knows: every engine keeps its order, and what waits for another
        instruction stands after it::

            queues of 2, before     conv conv conv conv pool pool
            after                   conv conv pool conv conv pool
        """
        start, machine = self.dependences.start, machine_of(self.core)
        waits = np.maximum(np.array(self.dependences.waits[start:]) - start, -1).tolist()
        engines = tuple(e.model_copy(update={"queue": len(waits)}) for e in machine.engines)
        endless = machine.model_copy(update={"issue_cycles": 0, "engines": engines})
        commands = commands_of(self.core, self.statements[start:], waits)
        order = np.argsort(simulate(commands, endless).start, kind="stable")
        self.order += (order + start).tolist()
        self.dependences.close()

    def add(self, mnemonic: str, **values: int) -> int:
        """Append an instruction, which waits for nothing so far; returns its number.

        Fields by name, choices as their numbers. Raises TilewrightError (``isa-field``) where a
        field cannot hold its value, KeyError for an instruction or a field that the core's revision
        does not have.
        """
        self.instructions.by_mnemonic[mnemonic].format.verify(values, mnemonic)
        self.statements.append(Statement(mnemonic, values))
        self.dependences.add()
        return len(self.statements) - 1

    def add_with_init(self, mnemonic: str, values: dict[str, int]) -> int:
        """Append an instruction with its INIT, where that differs from the one before; ``values``
        are the fields of both."""
        init, names = self._inits[mnemonic]
        shared = {name: value for name, value in values.items() if name in names}
        if self._last_init.get(mnemonic) != shared:
            self._last_init[mnemonic] = shared
            self.add(init, **shared)
        rest = {name: value for name, value in values.items() if name not in names}
        return self.add(mnemonic, **rest)

    def engine(self, number: int) -> int:
        """The engine of an instruction."""
        mnemonic = self.statements[number].mnemonic
        return CATEGORIES.index(self.instructions.by_mnemonic[mnemonic].category)

    def touch(self, first: int, reads: Sequence[Area], writes: Sequence[Area] = ()) -> None:
        """From ``first`` on to the last one, instructions of one engine touch the same places."""
        engine, last = self.engine(first), len(self.statements) - 1
        self.dependences.touch(engine, first, last, reads, write=False)
        self.dependences.touch(engine, first, last, writes, write=True)

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
        self.dependences.move(number, span, (LOAD, SAVE), store=store)

    def _ordered(self) -> tuple[list[Statement], list[list[int]]]:
        """The instructions in the program's order, with END, and the last instruction of each
        engine that each waits for, or -1."""
        place = np.full(len(self.order) + 1, -1)  # The last one is that of -1.
        place[self.order] = np.arange(len(self.order))
        waits = np.array(self.dependences.waits).reshape(-1, CLASSES)[self.order]
        statements = [self.statements[number] for number in self.order]
        return [*statements, Statement("end", {})], [*place[waits].tolist(), [-1] * CLASSES]

    def words(self) -> bytes:
        """The program as bytes of a file, with END and tokens."""
        bare, every = self._ordered()
        needs = [
            (producer, consumer)
            for consumer, waits in enumerate(every)
            for producer in waits
            if producer >= 0
        ]
        take, put = tokens_for(engines_of(self.core, bare), needs)
        whole = [
            Statement(statement.mnemonic, {**statement.values, "take": take[row], "put": put[row]})
            for row, statement in enumerate(bare)
        ]
        return to_bytes(self.instructions, encode(self.instructions, whole))

    def commands(self) -> TimedArray:
        """The program as the timing core sees it, which is what its words say."""
        return commands_of(self.core, *self._ordered())


def engines_of(core: Core, statements: Sequence[Statement]) -> list[int]:
    """The engine of each instruction, as an index into CATEGORIES."""
    by_mnemonic = REVISIONS[core.isa].by_mnemonic
    engine = {name: CATEGORIES.index(known.category) for name, known in by_mnemonic.items()}
    return [engine[statement.mnemonic] for statement in statements]


def commands_of(
    core: Core, statements: Sequence[Statement], waits: Sequence[Sequence[int]]
) -> TimedArray:
    """TIMED records of instructions; ``waits``: the last one of each engine to wait for, or -1."""
    engines = np.array(engines_of(core, statements))
    completed = np.append(numbers(engines), 0)  # The last one is that of -1.
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
