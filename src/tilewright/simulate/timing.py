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

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import TilewrightError, refuse
from tilewright.machine.model import Machine
from tilewright.simulate.commands import MAX_ENGINES, TimedArray


@dataclass(frozen=True)
class Timeline:
    """The start and end of every command, in cycles from the start of the program."""

    start: NDArray[np.float64]
    """Per command: its waits are met and its latency begins."""
    data: NDArray[np.float64]
    """Per command: its latency is over and its bytes begin to flow, or its compute begins."""
    end: NDArray[np.float64]
    """Per command: it has completed."""
    cycles: int
    """The whole program, rounded up."""
    busy: NDArray[np.float64]
    """Per engine: cycles in which at least one of its commands had started and not ended."""
    main_bytes: int
    """Bytes that flowed through main memory."""
    kernel_start: NDArray[np.float64]
    """Per kernel: the first start of its commands (0 for a kernel without commands)."""
    kernel_end: NDArray[np.float64]
    """Per kernel: the last end of its commands."""
    kernel_bytes: NDArray[np.int64]
    """Per kernel: bytes through main memory."""
    kernel_work: NDArray[np.float64]
    """Per kernel and engine: cycles in which its bytes flowed or its computes ran; no latencies."""

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
    # These compile on first use.
    from tilewright.simulate.event_loop import engine_order, run
    from tilewright.simulate.record_loop import summary

    field = columns_of(commands, machine, label)
    engine, move = field["engine"], field["move"]
    first, order = engine_order(engine, len(machine.engines))
    start, data, end, issued, started = run(
        engine,
        move,
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
    last = float(end.max(initial=0.0))
    if end.min(initial=0.0) < 0:
        raise _stuck(field["waits"], machine, label, first, order, issued, started, end)
    busy, kernel_start, kernel_end, kernel_bytes, kernel_work = summary(
        engine,
        move,
        field["kernel"],
        field["bytes"],
        start,
        data,
        end,
        len(machine.engines),
        _touches_main(machine),
    )
    return Timeline(
        start,
        data,
        end,
        ceil(round(last, 6)),
        busy,
        int(kernel_bytes.sum()),
        kernel_start,
        kernel_end,
        kernel_bytes,
        kernel_work,
    )


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
        [*(machine.main in (move.source, move.target) for move in machine.moves), True], np.bool_
    )


def columns_of(
    commands: TimedArray, machine: Machine, label: Callable[[int], str] | None = None
) -> dict[str, NDArray[Any]]:
    """The fields of TIMED records, each contiguous.

    Refuses records out of range, and waits for more commands than an engine has.
    """
    from tilewright.simulate.record_loop import possible

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
    if possible(
        field["engine"],
        field["move"],
        field["kernel"],
        field["bytes"],
        field["cycles"],
        field["latency"],
        field["waits"],
        np.array(list(bounds.values()), np.int64),
    ):
        return field
    for name, (low, high) in bounds.items():
        bad = (field[name] < low) | (field[name] >= high)
        if bad.any():
            where = int(np.argmax(bad))
            raise refuse(
                "program-invalid",
                f"{name} is {field[name][where]}, out of range",
                f"command {where}",
            )
    command = int(np.argmax((field["waits"] < 0).any(1)))
    if field["waits"][command].min() < 0:
        raise refuse("program-invalid", "a wait is negative", f"command {command}")
    raise _unmet(field["waits"], np.bincount(field["engine"]), machine, label)


def _name(command: int, label: Callable[[int], str] | None) -> str:
    return f"command {command} ({label(command)})" if label else f"command {command}"


def _unmet(
    waits: NDArray[Any],
    counts: NDArray[np.int64],
    machine: Machine,
    label: Callable[[int], str] | None,
) -> TilewrightError:
    """Name the first command that waits for more commands than an engine has."""
    has = np.zeros(MAX_ENGINES, np.int64)
    has[: counts.size] = counts
    command, engine = (int(indices[0]) for indices in np.nonzero(waits > has))
    names = [part.name for part in machine.engines]
    name = names[engine] if engine < len(names) else f"engine {engine}"
    return refuse(
        "program-deadlock",
        f"{_name(command, label)} waits for {waits[command, engine]} commands of {name}, "
        f"which has {has[engine]}",
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
        reason = f"{_name(command, label)} waits for {_name(awaited, label)}, {why}"
    return refuse("program-deadlock", reason, help="remove the wait, or reorder the commands")
