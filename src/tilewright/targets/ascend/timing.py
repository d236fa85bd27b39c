"""The times at which a kernel's commands run: pipes in order, flags, barriers, and command costs.

The scalar unit issues a command a cycle. A pipe starts a command when it is issued, the one before
has left the pipe, and the flags before it are set; the flags after it are set when it is complete.

- A copy keeps its pipe as long as its bytes take at the path's rate, or its bursts at their least;
  from or to main memory it is complete a latency later, which the next copy overlaps, except on
  cores whose latency was measured as time of the pipe (``burst``).
- A ``mad`` takes a cycle for each block product; its result is there ``mad_head`` cycles later,
  which the next one's blocks hide.
- A vector operation takes its repeats, times what each takes.

Commands of one pipe that touch the same bytes are as far apart as barriers say, as on the core.
Bandwidth of main memory is the core's own share (``DaVinci.paths``), or what others leave of it
(sharing.py): loads and stores do not share it; queues have no end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from tilewright.targets.ascend.machine import DaVinci
from tilewright.targets.ascend.program import (
    Access,
    Barrier,
    Command,
    Executed,
    Flag,
    Program,
    trace,
)
from tilewright.targets.ascend.proof import PIPES


class Timing(BaseModel):
    """The simulated time of a kernel."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    cycles: float = Field(ge=0)
    busy: dict[str, float]
    """Cycles in which each pipe was busy."""
    main_bytes: int = Field(ge=0)
    """Loaded from main memory and stored there."""

    @property
    def cube(self) -> float:
        """Part of the time in which the cube multiplied."""
        return self.busy["M"] / self.cycles if self.cycles else 0.0


class Timed(NamedTuple):
    """A command's start and end, in cycles from the launch."""

    command: Command
    start: float
    end: float
    """Cycle at which the command leaves its pipe; the latency of a move comes after it."""
    main_bytes: int


def bytes_of(access: Access) -> int:
    """Bytes that an access moves."""
    size = access.bytes
    for count in access.counts:
        size *= count
    return size


def _is_main(access: Access) -> bool:
    return access.home.startswith("gm ")


def _space(access: Access) -> str:
    return "gm" if _is_main(access) else access.home


def simulate(
    program: Program, core: DaVinci, *, issue: float = 1.0, length: int | None = None
) -> Timing:
    """The times of a program with its flags; the scalar unit issues one of its statements in
    ``issue`` cycles. ``length`` is the kernel's parameter, if not the longest."""
    return simulate_trace(trace(program, length=length), core, issue=issue)


def simulate_trace(
    steps: Sequence[Executed],
    core: DaVinci,
    *,
    issue: float = 1.0,
    rates: Mapping[tuple[str, str], float] | None = None,
    commands: list[Timed] | None = None,
) -> Timing:
    """``simulate`` of a block's executions; ``rates`` are those of paths between a tensor (``gm``
    and its name) and a memory, if not the core's own. ``commands`` gets those of the pipes."""
    rates = rates or {}
    free = dict.fromkeys(PIPES, 0.0)
    done = dict.fromkeys(PIPES, 0.0)
    busy = dict.fromkeys(PIPES, 0.0)
    raised: dict[tuple[str, str, int], list[float]] = {}
    issued, moved = 0.0, 0
    for step in steps:
        statement = step.statement
        issued += issue
        if isinstance(statement, Flag):
            key = (statement.source, statement.target, step.event)
            if statement.kind == "set":
                raised.setdefault(key, []).append(max(done[statement.source], issued))
            else:
                free[statement.target] = max(free[statement.target], raised[key].pop(0))
            continue
        if statement.pipe == "S":
            issued += step.cycles
            continue
        if isinstance(statement, Barrier):
            pipes = PIPES if statement.pipe == "ALL" else (statement.pipe,)
            last = max(done[pipe] for pipe in pipes)
            for pipe in pipes:
                free[pipe] = max(free[pipe], last)
            continue
        pipe = statement.pipe
        taken, latency = _cost(statement, step.cycles, step.reads, step.writes, core, rates)
        start = max(free[pipe], issued)
        free[pipe] = start + taken
        done[pipe] = max(done[pipe], start + taken + latency)
        busy[pipe] += taken
        size = sum(bytes_of(access) for access in (*step.reads, *step.writes) if _is_main(access))
        moved += size
        if commands is not None:
            commands.append(Timed(statement, start, start + taken, size))
    return Timing(cycles=max(*done.values(), issued), busy=busy, main_bytes=moved)


def _cost(
    command: Command,
    cycles: int,
    reads: tuple[Access, ...],
    writes: tuple[Access, ...],
    core: DaVinci,
    rates: Mapping[tuple[str, str], float],
) -> tuple[float, float]:
    """Cycles in which a command keeps its pipe, and those until it is complete."""
    if command.pipe == "M":
        return cycles, core.mad_head
    if cycles:
        return cycles, 0.0
    path = _space(reads[0]), _space(writes[0])
    # Copies within UB take the vector unit, 256 bytes a cycle.
    rate = core.paths.get(path, 256.0)
    rate = rates.get((reads[0].home, writes[0].home), rate)
    taken = bytes_of(reads[0]) / rate
    if "gm" not in path:
        return taken + (core.load_head if command.pipe == "MTE1" else 0.0), 0.0
    if path[0] == "gm" and core.burst:
        bursts = bytes_of(reads[0]) // reads[0].bytes
        return max(taken, bursts * core.burst) + core.latency, 0.0
    return taken, core.latency
