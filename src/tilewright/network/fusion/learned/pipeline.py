"""How long a kernel's instructions take together: the machine's timing core says it.

An instruction starts when those that it waits for are done, its engine's queue has had room for it,
and the dispatcher has come to it; transfers share main memory. A kernel's own instructions are few
against what a target does to make words of them, so this takes a small part of a simulation's time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tilewright.ir.types import Array
from tilewright.machine import Machine
from tilewright.network.fusion.learned.instructions import Access, Floats, Reading
from tilewright.planning import Plan
from tilewright.planning.domain import Kernel
from tilewright.simulate import simulate
from tilewright.simulate.commands import TimedArray, timed_table
from tilewright.tile.build import build_program
from tilewright.tile.dialect import ProgramOp
from tilewright.tile.passes import AssignEvents, Check, Synchronise, TilePass, pipeline

MOST_AMOUNT = 1 << 40
"""Cycles or bytes of an instruction: a file of costs may say more."""


@dataclass(frozen=True)
class Instructions:
    """The instructions of a kernel in program order."""

    machine: Machine
    kinds: tuple[str, ...]
    """Of instructions; the first is ``kind`` 0."""
    windows: tuple[str, ...]
    """Of primitives whose windows are loaded."""
    kind: Array
    loads: Array
    """Of loads of windows, the primitive's number in ``windows``; -1 for all others."""
    engine: Array
    move: Array
    known: Floats
    """Cycles, or bytes."""
    apart: Floats
    """Bytes if windows are brought one by one."""
    waits: Array
    """[instructions, engines]: how many of an engine's must be done before."""
    computes: int

    def table(self, values: Mapping[str, float]) -> TimedArray:
        """The instructions as the timing core takes them; ``values`` are fitted
        (``fitting.Term``)."""
        size, move = np.array(self.known), self.move
        share = _column(values, [f"apart.{name}" for name in self.windows], 0.0, self.loads)
        size += share * (self.apart - size)
        size *= _column(values, [f"times.{kind}" for kind in self.kinds], 1.0, self.kind)
        size += _column(values, [f"more.{kind}" for kind in self.kinds], 0.0, self.kind)
        table = timed_table(len(move))
        latency = np.array([*(int(m.latency) for m in self.machine.moves), 0])
        amount = np.rint(np.clip(size, 0, MOST_AMOUNT)).astype(np.int64)
        table["engine"], table["move"] = self.engine, move
        table["bytes"] = np.where(move >= 0, amount, 0) + self._fetched
        table["cycles"] = np.where(move < 0, amount, 0)
        table["latency"] = latency[move]
        table["waits"][:, : self.waits.shape[1]] = self.waits
        return table

    @cached_property
    def _fetched(self) -> Array:
        """Bytes of instructions, which each transfer from or to main memory brings since the one
        before."""
        main = [self.machine.main in (m.source, m.target) for m in self.machine.moves]
        transfers = np.flatnonzero(np.array([*main, False])[self.move])
        fetched = np.zeros(len(self.move), np.int64)
        if transfers.size:
            fetched[transfers] = np.diff(transfers, prepend=-1) * self.machine.instruction_bytes
        return fetched

    def cycles(self, values: Mapping[str, float], *, ready: bool) -> float:
        """Cycles of the kernel. ``ready``: several computes' instructions are dispatched in the
        order in which they could begin, not in the program's."""
        table = self.table(values)
        if ready and self.computes > 1:
            engines = [
                engine.model_copy(update={"queue": len(table)}) for engine in self.machine.engines
            ]
            endless = self.machine.model_copy(update={"issue_cycles": 0, "engines": tuple(engines)})
            table = table[np.argsort(simulate(table, endless).start, kind="stable")]
        return float(simulate(table, self.machine).cycles)


def instructions_of(kernel: Kernel, plan: Plan, machine: Machine) -> Instructions:
    """The instructions of a kernel under a plan.

    Raises TilewrightError where the plan has no tile program.
    """
    from tilewright.network.fusion.learned.dependences import waits_of  # It compiles on first use.

    works = Reading(_placed(kernel, plan, machine), machine).works
    kinds = tuple(sorted({work.kind for work in works}))
    windows = tuple(sorted({work.windows for work in works if work.windows}))
    counts = [work.execution.size for work in works]
    place = np.concatenate([work.execution for work in works])
    order = np.argsort(place, kind="stable")

    def column(values: Sequence[int]) -> Array:
        return np.repeat(np.array(values, np.int64), counts)[order]

    engine = column([work.engine for work in works])
    known = np.concatenate([work.known for work in works])
    apart = np.concatenate([w.known if w.apart is None else w.apart for w in works])
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.arange(len(order))
    starts = np.cumsum([0, *counts])
    accesses = [
        (numbers[start : start + count], access)
        for work, start, count in zip(works, starts.tolist(), counts, strict=False)
        for access in work.accesses
    ]
    first, begin, end, writes, places = _touched(accesses, len(order))
    return Instructions(
        machine,
        kinds,
        windows,
        column([kinds.index(work.kind) for work in works]),
        column([windows.index(work.windows) if work.windows else -1 for work in works]),
        engine,
        column([work.move for work in works]),
        known[order],
        apart[order],
        waits_of(engine, first, begin, end, writes, len(machine.engines), places),
        sum(work.move < 0 for work in works),
    )


def _placed(kernel: Kernel, plan: Plan, machine: Machine) -> ProgramOp:
    """The tile program with its buffers in place, and no waits: instructions have their own."""
    program = build_program(kernel, plan.schedule, machine)
    for step in (entry.step for entry in pipeline(machine)):
        if isinstance(step, TilePass) and not isinstance(step, Synchronise | AssignEvents | Check):
            step.run(program, machine)
    return program


FAR = 1 << 40
"""Bytes between memories."""


def _touched(
    accesses: Sequence[tuple[Array, Access]], count: int
) -> tuple[Array, Array, Array, Array, int]:
    """Accesses by instruction: where those of each begin, and of each its first place, the place
    behind it, and whether it writes. Places are what no access takes a part of."""
    number = np.concatenate([at for at, _ in accesses])
    begin = np.concatenate([a.begin + a.memory * FAR for _, a in accesses])
    end = np.concatenate([a.end + a.memory * FAR for _, a in accesses])
    writes = np.concatenate([np.full(at.size, a.writes) for at, a in accesses])
    order = np.argsort(number, kind="stable")
    bounds = np.unique(np.concatenate([begin, end]))
    first = np.searchsorted(number[order], np.arange(count + 1))
    begin, end = (np.searchsorted(bounds, ends[order]) for ends in (begin, end))
    return first, begin, end, writes[order], len(bounds)


def _column(values: Mapping[str, float], names: Sequence[str], plain: float, at: Array) -> Floats:
    """The value of what each instruction is, by its number; ``plain`` where there is none."""
    return np.array([*(values.get(name, plain) for name in names), plain])[at]


__all__ = ["Instructions", "instructions_of"]
