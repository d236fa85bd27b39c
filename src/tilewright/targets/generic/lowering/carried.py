"""Signals and waits of a tile program as fields of commands, and as instructions of their own.

Flags are set and waited for by instructions of their own. Reply words are counted up, and tokens
put, by the command before a signal; tokens are taken by the command after a wait. A signal or
a wait that stands beside none (slots that are free at the start, say), or beside one that has that
bit already, becomes an instruction without a command.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from tilewright.codegen.program.commands import Commands
from tilewright.codegen.words import Column
from tilewright.ir.types import Array
from tilewright.targets.generic.families.ordering import others
from tilewright.targets.generic.isa import InstructionSet
from tilewright.targets.generic.program import Part
from tilewright.tile.operations import BarrierOp, SignalOp, WaitOp
from tilewright.tile.queues import Command


class Carried:
    """The ordering of one program's engines; ``signalled`` is the count of each reply word
    before it, and is kept up to date."""

    def __init__(self, commands: Commands, signalled: dict[int, int] | None = None) -> None:
        self.commands, self.queues = commands, commands.queues
        self.machine = commands.machine
        self.style = self.machine.synchronisation.style
        self.engines = {name: number for number, name in enumerate(commands.engines)}
        self.signalled = {} if signalled is None else signalled
        self._masks: dict[tuple[Command, str], Array] = {}
        self._alone: dict[SignalOp | WaitOp, Array] = {}
        """For signals and waits, a mask of the executions that have an instruction of their own."""
        if self.style in ("replies", "tokens"):
            for engine in self.queues.engines:
                self._carry(engine)

    def fields(self, op: Command) -> dict[str, Column]:
        """The fields of a command's executions that signal and take."""
        return {
            name: self._masks[op, name]
            for name in ("reply", "take", "put")
            if (op, name) in self._masks
        }

    def parts(self, instructions: InstructionSet) -> list[Part]:
        """Instructions that no command stands for."""
        if not self.machine.synchronisation.signals:
            return []
        named, parts = instructions.by_mnemonic, list[Part]()
        for op in self.queues.orderings:
            keys = self.queues.order.rows(op).key
            if isinstance(op, BarrierOp):
                parts.append(Part(named["barrier"], {}, keys))
                continue
            signals = isinstance(op, SignalOp)
            engine, other = op.source_engine, op.target_engine
            engine, other = (engine, other) if signals else (other, engine)
            columns = self._columns(op, engine, other)
            alone = self._alone.get(op)
            if alone is not None:
                columns = {name: column[alone] for name, column in columns.items()}
                keys = keys[alone]
            takes = not signals and self.style != "tokens"
            parts.append(Part(named[f"{'wait' if takes else 'signal'}_{engine}"], columns, keys))
        for word, count in self._counted.items():
            self.signalled[word] = self.signalled.get(word, 0) + count
        return parts

    def _columns(self, op: SignalOp | WaitOp, engine: str, other: str) -> dict[str, Column]:
        """The fields of each execution as an instruction of its own."""
        ids, signals = self.commands.ids[op], isinstance(op, SignalOp)
        if self.style == "flags":
            choices = others(self.machine, self.machine.engine(engine))
            pair = np.full(len(ids), choices.index(other), np.int64)
            return {"to" if signals else "from": pair, "id": ids}
        if self.style == "tokens":
            return {"put" if signals else "take": np.full(len(ids), 1 << self.engines[other])}
        if signals:
            return {"reply": np.left_shift(1, ids)}
        before = np.array([self.signalled.get(int(word), 0) for word in ids], np.int64)
        return {"word": ids, "value": before + self._values[op]}

    @cached_property
    def _values(self) -> Mapping[SignalOp | WaitOp, Column]:
        """The number of each signal or wait among those of its counted reply word, from 1."""
        events = self.queues.events
        table, values = events.table, np.zeros(len(events.table), np.int64)
        for word in self._counted:
            mine = table["id"] == word
            for signal in (True, False):
                chosen = np.flatnonzero(mine & (table["signal"] == signal))
                values[chosen] = np.arange(1, chosen.size + 1)
        return events.column(values)

    @cached_property
    def _counted(self) -> dict[int, int]:
        """Signals of each reply word."""
        table = self.queues.events.table
        if self.style != "replies":
            return {}
        words, number = np.unique(table["id"][table["signal"]], return_counts=True)
        return dict(zip(words.tolist(), number.tolist(), strict=True))

    def _carry(self, engine: str) -> None:
        """Let the commands of one engine carry what stands beside them."""
        ops = self.queues.operations(engine)
        keys = [self.queues.order.rows(op).key.tolist() for op in ops]
        entries = sorted(
            (key, number, row) for number, mine in enumerate(keys) for row, key in enumerate(mine)
        )
        last: tuple[Command, int] | None = None
        """The command before, if there are only signals in between."""
        waiting: list[tuple[WaitOp, int]] = []
        for _, number, row in entries:
            op = ops[number]
            match op:
                case SignalOp():
                    waiting = []
                    if last is not None:
                        self._give(op, row, *last)
                case WaitOp():
                    last = None
                    waiting.append((op, row))
                case BarrierOp():
                    last, waiting = None, []
                case _:
                    for wait, at in waiting if self.style == "tokens" else ():
                        self._give(wait, at, op, row)
                    last, waiting = (op, row), []

    def _give(self, op: SignalOp | WaitOp, row: int, to: Command, at: int) -> None:
        """Let one execution of a command carry one of a signal or of a wait, if it can."""
        if self.style == "replies":
            field, bit = "reply", 1 << int(self.commands.ids[op][row])
        elif isinstance(op, SignalOp):
            field, bit = "put", 1 << self.engines[op.target_engine]
        else:
            field, bit = "take", 1 << self.engines[op.source_engine]
        mask = self._masks.get((to, field))
        if mask is None:
            mask = np.zeros(self.queues.order.rows(to).count, np.int64)
            self._masks[to, field] = mask
        if mask[at] & bit:
            return
        mask[at] |= bit
        alone = self._alone.get(op)
        if alone is None:
            alone = self._alone[op] = np.ones(self.queues.order.rows(op).count, np.bool_)
        alone[row] = False
