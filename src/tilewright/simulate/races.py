"""Races: accesses that no wait and no engine's order puts one after the other.

A command comes before another when it is earlier on the same engine, when the other waits for it,
or through any chain of these. (Busy phases of one engine never overlap, so that its accesses are
ordered even when latencies of its transfers overlap.) Two commands of different engines race when
neither comes before the other and they touch a common byte that at least one writes. What is found
does not depend on the timing of any run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import TilewrightError, refuse
from tilewright.machine.model import Machine
from tilewright.simulate.commands import AccessArray, TimedArray
from tilewright.simulate.timing import columns_of, name_of, refuse_beyond

MAX_RUNS = 1 << 22
"""Contiguous runs that one access may have."""

MAX_CELLS = 1 << 23
"""Cells of all shadow memories; granules grow where there would be more."""


@dataclass(frozen=True, order=True)
class Race:
    """Two commands of different engines touch a byte, one writes it, and nothing orders them."""

    first: int
    second: int
    memory: str
    address: int
    """Lowest byte that both touch."""


@dataclass(frozen=True, order=True)
class UnwrittenRead:
    """A command reads an on-chip byte that no command before it has written."""

    command: int
    memory: str
    address: int


@dataclass(frozen=True)
class RaceReport:
    """Races and unwritten reads of a program, at most ``limit`` of each; all if ``complete``."""

    races: tuple[Race, ...]
    unwritten: tuple[UnwrittenRead, ...]
    complete: bool

    @property
    def clean(self) -> bool:
        """True if there are no races and no unwritten reads."""
        return not self.races and not self.unwritten


def find_races(
    commands: TimedArray,
    accesses: AccessArray,
    machine: Machine,
    *,
    granule: int = 32,
    limit: int = 100,
    label: Callable[[int], str] | None = None,
) -> RaceReport:
    """Check a program's synchronisation; see the module's text.

    ``granule`` (bytes of a cell of shadow memory) changes time and space, never what is found.
    ``label`` names a command in errors. Raises TilewrightError for accesses outside their memory
    (``program-bounds``), records that cannot be (``program-invalid``), and waits that are never met
    (``program-deadlock``).
    """
    from tilewright.simulate.event_loop import engine_order
    from tilewright.simulate.race_loop import clocks, search  # compile on first use

    timed = columns_of(commands, machine, label)
    accesses = accesses[np.argsort(accesses["command"], kind="stable")]
    field: dict[str, NDArray[Any]] = {
        name: np.ascontiguousarray(accesses[name], np.int64)
        for name in ("command", "memory", "address", "run", "count", "stride")
    }
    _check_accesses(field, len(commands), machine, label)
    _merge_axes(field)
    write = np.ascontiguousarray(accesses["write"])
    engine = timed["engine"]
    first, order = engine_order(engine, len(machine.engines))
    sequence, clock = clocks(engine, timed["waits"], first, order)
    if len(sequence) < len(commands):
        raise _stuck(set(sequence.tolist()), commands, label)
    low, size, base, byte_base, bytes_checked = _shadow(field, write, machine, granule)
    races, unwritten, complete = search(
        engine,
        sequence,
        clock,
        first,
        order,
        np.searchsorted(field["command"], np.arange(len(commands) + 1)),
        field["memory"],
        write,
        field["address"],
        field["run"],
        field["count"],
        field["stride"],
        low,
        size,
        base,
        int(base[-1]),
        byte_base,
        bytes_checked,
        limit,
    )
    names = [memory.name for memory in machine.memories]
    return RaceReport(
        tuple(sorted(Race(int(a), int(b), names[m], int(byte)) for a, b, m, byte in races)),
        tuple(sorted({UnwrittenRead(int(c), names[m], int(byte)) for c, m, byte in unwritten})),
        bool(complete),
    )


def completed_before(commands: TimedArray, engines: int) -> NDArray[np.int64]:
    """[commands, engines]: how many commands of each engine are over before each starts, whatever
    the engines' speeds; 0 for what is stuck."""
    from tilewright.simulate.event_loop import engine_order
    from tilewright.simulate.race_loop import clocks  # compile on first use

    engine = np.ascontiguousarray(commands["engine"])
    first, order = engine_order(engine, engines)
    _, clock = clocks(engine, np.ascontiguousarray(commands["waits"]), first, order)
    return clock


def race_error(report: RaceReport, where: list[str]) -> TilewrightError:
    """The refusal for races; ``where`` describes every instruction's kernel."""
    lines = [
        f"instructions {race.first} ({where[race.first]}) and {race.second} "
        f"({where[race.second]}) at {race.memory}:{race.address:#x} in no order"
        for race in report.races[:5]
    ] + [
        f"instruction {access.command} ({where[access.command]}) reads "
        f"{access.memory}:{access.address:#x} before anything wrote it"
        for access in report.unwritten[:5]
    ]
    count = len(report.races) + len(report.unwritten)
    return refuse("simulate-race", f"{count} races: " + "; ".join(lines))


def _check_accesses(
    field: dict[str, NDArray[Any]],
    commands: int,
    machine: Machine,
    label: Callable[[int], str] | None,
) -> None:
    """Refuse accesses that cannot be, and those beyond the end of their memory."""
    bounds = {
        "command": (0, commands),
        "memory": (0, len(machine.memories)),
        "address": (0, 1 << 48),
        "run": (0, 1 << 48),
        "count": (1, 1 << 31),
        "stride": (0, 1 << 48),
    }
    refuse_beyond(field, bounds, "access")
    if not commands:
        return
    reach = field["address"] + field["run"]
    reach = reach + np.sum((field["count"] - 1) * field["stride"].astype(np.float64), axis=1)
    sizes = np.array([memory.bytes or 1 << 48 for memory in machine.memories])
    outside = (reach > sizes[field["memory"]]) & (field["run"] > 0)
    if outside.any():
        where = int(np.argmax(outside))
        memory = machine.memories[field["memory"][where]]
        command = int(field["command"][where])
        raise refuse(
            "program-bounds",
            f"touches {memory.name} up to byte {int(reach[where])}, but it has {memory.bytes}",
            name_of(command, label),
        )


def _merge_axes(field: dict[str, NDArray[Any]]) -> None:
    """Make runs as long as they can be: axes that continue a run, and axes that repeat it."""
    run, count, stride = field["run"], field["count"], field["stride"]
    count[stride == 0] = 1
    count[run == 0] = 1
    for _ in range(3):
        for axis in range(3):
            joins = stride[:, axis] == run
            run[joins] *= count[joins, axis]
            count[joins, axis] = 1
    many = np.prod(count.astype(np.float64), axis=1) > MAX_RUNS
    if many.any():
        where = int(np.argmax(many))
        raise refuse(
            "program-invalid",
            f"access {where} has more than {MAX_RUNS} contiguous runs",
            f"command {field['command'][where]}",
        )


def _shadow(
    field: dict[str, NDArray[Any]], write: NDArray[np.bool_], machine: Machine, granule: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], int]:
    """Return the shadow of each memory: lowest address, granule, first cell, first byte flag.

    On-chip memories are shadowed whole, with a flag per byte; of others only what is written.
    """
    memories = len(machine.memories)
    low, cells = np.zeros(memories, np.int64), np.zeros(memories, np.int64)
    size = np.full(memories, max(granule, 1), np.int64)
    byte_base = np.full(memories, -1, np.int64)
    bytes_checked = 0
    for m, memory in enumerate(machine.memories):
        mine = write & (field["memory"] == m) & (field["run"] > 0)
        if not (field["memory"] == m).any():
            continue
        if memory.bytes is not None and memory.name not in machine.homes:
            high = memory.bytes
            byte_base[m] = bytes_checked
            bytes_checked += high
        elif mine.any():
            reach = np.sum((field["count"] - 1) * field["stride"], axis=1)
            low[m] = field["address"][mine].min()
            high = int((field["address"] + reach + field["run"])[mine].max())
        else:
            continue
        while (high - low[m] + size[m] - 1) // size[m] > MAX_CELLS // memories:
            size[m] *= 2
        cells[m] = (high - low[m] + size[m] - 1) // size[m]
    return (
        low,
        size,
        np.concatenate([np.zeros(1, np.int64), np.cumsum(cells)]),
        byte_base,
        (bytes_checked),
    )


def _stuck(
    done: set[int], commands: TimedArray, label: Callable[[int], str] | None
) -> TilewrightError:
    command = next(c for c in range(len(commands)) if c not in done)
    reason = f"{name_of(command, label)} waits for ever: it waits, in a cycle, for itself"
    return refuse("program-deadlock", reason)
