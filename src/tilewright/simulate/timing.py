"""Timing: when each command of a program starts and ends on a machine's engines.

- One dispatcher issues the commands in program order, each after ``issue_cycles``; when the queue
  of the command's engine is full (commands waiting or running) it waits for a place there.
- An engine starts its commands in order, each when its waits are met. A compute runs alone. A
  transfer may start while fewer than ``in_flight`` (of its move) of the engine's commands have
  started and not ended: with 1 its latency follows the end of the transfer before it, with more
  latencies overlap earlier transfers. Busy phases (data, compute) of an engine never overlap.
- After its latency a command is busy until its bytes have flowed and its cycles have passed.
- Bytes flow at the move's bandwidth or at the flow's share of the bandwidth of the memories at
  both ends, whichever is less; memories are shared max-min fairly among the flows of the moment.

Time is in cycles and may be fractional, since shares are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import TilewrightError, refuse
from tilewright.machine.model import Machine
from tilewright.simulate.commands import MAX_ENGINES, TimedArray


@dataclass(frozen=True)
class Spans:
    """The start and end of every command, in cycles from the start of the program."""

    start: NDArray[np.float64]
    """Per command: its waits are met and its latency begins."""
    data: NDArray[np.float64]
    """Per command: its latency is over and its bytes begin to flow, or its compute begins."""
    end: NDArray[np.float64]
    """Per command: it has completed."""
    kernel_end: NDArray[np.float64]
    """Per kernel: the last end of its commands."""
    kernel_bytes: NDArray[np.int64]
    """Per kernel: bytes through main memory."""


@dataclass(frozen=True)
class Timeline(Spans):
    """All that the timing core finds."""

    cycles: int
    """The whole program, rounded up."""
    busy: NDArray[np.float64]
    """Per engine: cycles in which at least one of its commands had started and not ended."""
    main_bytes: int
    """Bytes that flowed through main memory."""
    kernel_start: NDArray[np.float64]
    """Per kernel: the first start of its commands (0 for a kernel without commands)."""

    @property
    def kernel_cycles(self) -> NDArray[np.float64]:
        """Per kernel: by how much it moved the end of all that came before; sums to the total."""
        ends = np.maximum.accumulate(self.kernel_end) if self.kernel_end.size else self.kernel_end
        return np.diff(ends, prepend=0.0)


def simulate(
    commands: TimedArray, machine: Machine, *, label: Callable[[int], str] | None = None
) -> Timeline:
    """Run a program of TIMED records; see the module's text.

    ``label`` names a command in errors. Raises TilewrightError for records that the machine cannot
    have (``program-invalid``) and for a program that gets stuck (``program-deadlock``).
    """
    from tilewright.simulate.event_loop import engine_order, run  # compile on first use

    field = columns_of(commands, machine, label)
    engine, kernel = field["engine"], field["kernel"]
    first, order = engine_order(engine, len(machine.engines))
    start, data, end, issued, started = run(
        engine,
        field["move"],
        field["bytes"],
        field["cycles"],
        field["latency"],
        field["waits"],
        np.array([engine.queue for engine in machine.engines], np.int64),
        *_moves(machine),
        float(machine.issue_cycles),
        first,
        order,
    )
    if end.min(initial=0.0) < 0:
        raise _stuck(field["waits"], machine, label, first, order, issued, started, end)
    kernels = int(kernel.max(initial=-1)) + 1
    kernel_start, kernel_end = np.full(kernels, np.inf), np.zeros(kernels)
    np.minimum.at(kernel_start, kernel, start)
    np.maximum.at(kernel_end, kernel, end)
    kernel_bytes = np.zeros(kernels, np.int64)
    np.add.at(kernel_bytes, kernel, field["bytes"] * _touches_main(machine)[field["move"]])
    return Timeline(
        start,
        data,
        end,
        kernel_end,
        kernel_bytes,
        ceil(round(float(end.max(initial=0.0)), 6)),
        np.array([_busy(start[mine], end[mine]) for mine in np.split(order, first[1:-1])]),
        int(kernel_bytes.sum()),
        np.where(np.isinf(kernel_start), 0.0, kernel_start),
    )


def _busy(start: NDArray[np.float64], end: NDArray[np.float64]) -> float:
    """Cycles in which any of an engine's commands runs: they end in order."""
    return float(np.sum(end - np.maximum(start, np.append(0.0, end)[:-1])))


def _moves(machine: Machine) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Transfers in flight, bandwidth, and the memories at both ends, per move; limits per memory.

    The last row is for commands without a move: alone, without a limit but main memory's.
    """
    index = {memory.name: i for i, memory in enumerate(machine.memories)}
    return (
        np.array([*(move.in_flight for move in machine.moves), 1], np.int64),
        np.array([*(move.bytes_per_cycle for move in machine.moves), np.inf]),
        np.array(
            [
                *((index[move.source], index[move.target]) for move in machine.moves),
                (index[machine.main], -1),
            ],
            np.int64,
        ),
        np.array([memory.bytes_per_cycle or np.inf for memory in machine.memories]),
    )


def _touches_main(machine: Machine) -> NDArray[np.bool_]:
    return np.array(
        [*(not {*machine.homes}.isdisjoint((m.source, m.target)) for m in machine.moves), True],
        np.bool_,
    )


def columns_of(
    commands: TimedArray, machine: Machine, label: Callable[[int], str] | None = None
) -> dict[str, NDArray[Any]]:
    """The fields of TIMED records, each contiguous.

    Refuses records out of range, and waits for more commands than an engine has.
    """
    bounds = {
        "engine": (0, len(machine.engines)),
        "move": (-1, len(machine.moves)),
        "kernel": (0, 1 << 24),
        "bytes": (0, 1 << 48),
        "cycles": (0, 1 << 48),
        "latency": (0, 1 << 48),
    }
    field: dict[str, NDArray[Any]] = {
        name: np.ascontiguousarray(commands[name]) for name in (*bounds, "waits")
    }
    refuse_beyond(field, bounds, "command")
    if field["waits"].min(initial=0) < 0:
        command = int(np.argmax((field["waits"] < 0).any(1)))
        raise refuse("program-invalid", "a wait is negative", f"command {command}")
    counts = np.bincount(field["engine"], minlength=MAX_ENGINES)
    if (field["waits"].max(axis=0, initial=0) > counts).any():
        raise _unmet(field["waits"], counts, machine, label)
    return field


def refuse_beyond(
    field: Mapping[str, NDArray[Any]], bounds: Mapping[str, tuple[int, int]], what: str
) -> None:
    """Refuse (``program-invalid``) records with a field below its first bound, or from its second
    one on."""
    for name, (least, beyond) in bounds.items():
        bad = (field[name] < least) | (field[name] >= beyond)
        if bad.any():
            where = int(np.argmax(bad.reshape(len(bad), -1).any(1)))
            reason = f"{name} is {field[name][where]}, out of range"
            raise refuse("program-invalid", reason, f"{what} {where}")


def name_of(command: int, label: Callable[[int], str] | None) -> str:
    """A command in messages."""
    return f"command {command} ({label(command)})" if label else f"command {command}"


def _unmet(
    waits: NDArray[Any],
    counts: NDArray[np.int64],
    machine: Machine,
    label: Callable[[int], str] | None,
) -> TilewrightError:
    """Name the first command that waits for more commands than an engine has."""
    command, engine = (int(indices[0]) for indices in np.nonzero(waits > counts))
    names = [part.name for part in machine.engines]
    name = names[engine] if engine < len(names) else f"engine {engine}"
    return refuse(
        "program-deadlock",
        f"{name_of(command, label)} waits for {waits[command, engine]} commands of {name}, "
        f"which has {counts[engine]}",
    )


def _stuck(
    waits: NDArray[np.int64],
    machine: Machine,
    label: Callable[[int], str] | None,
    first: NDArray[np.int64],
    order: NDArray[np.int64],
    issued: NDArray[np.int64],
    started: NDArray[np.int64],
    end: NDArray[np.float64],
) -> TilewrightError:
    """Name the earliest command that waits for ever, what it waits for, and why that never ends."""
    engines = len(machine.engines)
    heads = [int(order[first[e] + started[e]]) for e in range(engines) if started[e] < issued[e]]
    command = min(heads)
    reason = ""
    for e in range(engines):
        count = int(waits[command, e])
        awaited = int(order[first[e] + count - 1]) if count else command
        if count == 0 or end[awaited] >= 0:
            continue
        number = count - 1
        if awaited == command:
            why = "which is itself"
        elif number < int(issued[e]):
            why = f"which waits in {machine.engines[e].name}"
        else:
            why = "which is never issued, since a queue before it stays full"
        reason = f"{name_of(command, label)} waits for {name_of(awaited, label)}, {why}"
    return refuse("program-deadlock", reason, help="remove the wait, or reorder the commands")
