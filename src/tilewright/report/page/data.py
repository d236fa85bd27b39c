"""Figures of a compiled network and its last run, as plain data.

The page, the DataFrames and the tests read these; nothing here knows how they are shown. Times of a
simulated run are in cycles of the accelerator from the run's start; those of a native run are in
microseconds, one kernel after the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tilewright.codegen.program.buffers import Levels, Occupant, occupants_of, taken_bytes
from tilewright.errors import TilewrightError
from tilewright.machine import Machine
from tilewright.machine.forms import machine_of
from tilewright.machine.model import Engine, Memory
from tilewright.report.page.intervals import EngineTimeline, engine_timelines, shares_of
from tilewright.report.page.network import Edge, Window, network_figures
from tilewright.runtime.dynamic import DynamicExecutable
from tilewright.runtime.glance import target_name
from tilewright.runtime.manifest import KernelEntry, Manifest
from tilewright.runtime.summary import summary

if TYPE_CHECKING:
    from tilewright.codegen.program.interface import Profile
    from tilewright.codegen.program.stepped import SteppedRunner
    from tilewright.runtime.executable import Executable

Facts = Mapping[str, Any]


@dataclass(frozen=True)
class KernelFigures:
    """One kernel: how long it takes, what of it is spent on what, and what bounds it."""

    name: str
    nodes: tuple[str, ...]
    """The model's nodes that it computes; several are fused into it."""
    engine: str
    """The runner of the kernel: ``accelerator`` or ``host``."""
    limit: str
    """The resource whose time its physical bound is: ``compute``, ``memory`` (main memory and
    caches) or a move; ``host``."""
    seconds: float | None
    """Time: measured, simulated, or predicted where nothing has run."""
    share: float | None
    """The kernel's part of the sum of all kernels' times."""
    bound: float | None
    """The physical bound, in cycles, as the next two."""
    granule: float | None
    planned: float | None
    """Cycles by the planner's prediction."""
    simulated: float | None
    measured: float | None
    """Seconds on this processor."""
    compute: float | None
    """Simulated cycles in which an engine computes; ``moves``: in which only data move; ``idle``:
    in which nothing runs. The three sum to the simulated cycles."""
    moves: float | None
    idle: float | None
    bytes: int | None
    """Through main memory: simulated, or else planned."""
    operations: int | None
    peak: float | None
    """Cycles of its computes at the machine's peak."""
    energy: float | None
    """Picojoules, where the machine has figures of energy."""
    reason: str = ""
    """The reason why it is on the host."""
    why_low: str = ""
    """The reason why it stays below its bound."""
    schedule: str = ""


@dataclass(frozen=True)
class MemoryFigures:
    """A memory over the run."""

    name: str
    bytes: int | None
    """Size in bytes; None without a limit."""
    occupants: tuple[Occupant, ...]
    taken: Levels
    """Times, and the bytes that are taken from each on."""

    @property
    def peak(self) -> int:
        """The most bytes that are taken at once."""
        return max(self.taken[1], default=0)


@dataclass(frozen=True)
class Figures:
    """All figures of one package, with those of a run where there was one."""

    name: str
    """The model's name and the target's."""
    model: str
    machine: Machine
    kind: str
    """The source of the kernels' times: ``simulated``, ``measured`` or ``predicted``."""
    unit: str
    """The unit of times on a timeline: ``cycles`` or ``us``."""
    facts: Facts
    """The totals: what ``Executable.summary`` gives."""
    notes: tuple[str, ...]
    kernels: tuple[KernelFigures, ...]
    windows: tuple[Window, ...]
    """Every kernel with its start and end on the timeline, in the order of the run."""
    engines: tuple[EngineTimeline, ...]
    """Empty where a run leaves no timeline of commands."""
    memories: tuple[MemoryFigures, ...]
    edges: tuple[Edge, ...]

    @property
    def end(self) -> float:
        """The end of the timeline."""
        return max((end for _, _, end in self.windows), default=0.0)

    def _repr_html_(self) -> str:
        from tilewright.runtime.notebook import facts_table

        return facts_table(self.name, self.facts)

    def frames(self) -> dict[str, Any]:
        """The figures as pandas DataFrames by name; refuses (``report-library``) without pandas."""
        from tilewright.report.page.frames import frames

        return frames(self)


def figures(executable: Executable) -> Figures:
    """The figures of a package and of its last run.

    Where nothing has run, simulated times are those of any run if they do not depend on values;
    otherwise they are predicted.
    """
    if isinstance(executable, DynamicExecutable):
        executable = executable.last
    manifest = executable.manifest
    machine = machine_of(manifest.machine, str(executable.directory))
    ran = executable.has_run
    facts: Facts = executable.summary() if ran else summary(manifest, _timed(executable))
    return _gathered(executable, manifest, machine, facts)


def figures_of_run(facts: Facts, name: str) -> Figures:
    """The figures in the JSON that ``tilewright run --json`` prints: kernels and totals alone."""
    # The JSON does not describe the machine: what a machine has at least stands for it.
    machine = Machine(
        name=name,
        clock_hz=float(facts["clock_hz"]),
        memories=(Memory(name="dram"),),
        engines=(Engine(name="engine"),),
        primitives=(),
    )
    rows = tuple(_kernel(row, None, None) for row in facts["kernels"])
    kind, unit = _kind(facts)
    windows = _row_windows(facts, unit)
    return Figures(name, name, machine, kind, unit, facts, (), rows, windows, (), (), ())


def _timed(executable: Executable) -> Profile | None:
    """The profile of any run, if one is known without values."""
    if not executable.manifest.runs:
        return None
    try:
        return executable.runner.timed()
    except TilewrightError as error:
        if any(problem.code == "profile-missing" for problem in error.problems):
            return None
        raise


def _kind(facts: Facts) -> tuple[str, str]:
    """The source of the kernels' times, and the unit of the timeline."""
    if not facts["measured"]:
        return "predicted", "cycles"
    return ("measured", "us") if facts.get("cycles") is None else ("simulated", "cycles")


def _gathered(
    executable: Executable, manifest: Manifest, machine: Machine, facts: Facts
) -> Figures:
    kind, unit = _kind(facts)
    entries = {entry.name: entry for entry in manifest.kernels}
    stepped = _with_events(executable) if kind == "simulated" else None
    windows = _row_windows(facts, unit)
    engines: tuple[EngineTimeline, ...] = ()
    shares: dict[str, tuple[float, float, float]] = {}
    if stepped is not None:
        spans, commands, _ = stepped.events()
        names = [row.symbol for row in stepped.parts.file.kernels]
        engines = engine_timelines(spans, commands, machine)
        found = shares_of(spans, commands, machine, spans.kernel_end.tolist())
        columns = (found.compute.tolist(), found.moves.tolist(), found.idle.tolist())
        shares = dict(zip(names, zip(*columns, strict=True), strict=False))
        windows = _event_windows(windows, names, spans.kernel_end.tolist(), stepped)
    rows = tuple(
        _kernel(row, entries.get(row["name"]), shares.get(row["name"])) for row in facts["kernels"]
    )
    buffers = {entry.name: entry.buffers for entry in manifest.kernels}
    graph = network_figures(_network(executable), windows, buffers, machine.main)
    occupants = [_renamed(each, graph.names) for each in occupants_of(windows, buffers)]
    return Figures(
        name=f"{manifest.model} on {target_name(manifest)}",
        model=manifest.model,
        machine=machine,
        kind=kind,
        unit=unit,
        facts=facts,
        notes=manifest.notes,
        kernels=rows,
        windows=windows,
        engines=engines,
        memories=_memories(machine, [*occupants, *graph.occupants]),
        edges=graph.edges,
    )


def _with_events(executable: Executable) -> SteppedRunner | None:
    """The package's runner, if it knows when each command of the last run started and ended."""
    from tilewright.codegen.program.stepped import SteppedRunner, TimedRunner

    runner = executable.runner
    if isinstance(runner, TimedRunner) or (isinstance(runner, SteppedRunner) and runner.traced):
        return runner
    return None


def _network(executable: Executable) -> Any:
    from tilewright.codegen.program.stepped import SteppedRunner
    from tilewright.graph.dialect import network_of

    if executable.manifest.runs and isinstance(executable.runner, SteppedRunner):
        return executable.runner.parts.network
    return network_of(executable.graph)


def _row_windows(facts: Facts, unit: str) -> tuple[Window, ...]:
    """One kernel after the other: what each takes on the timeline, which is nothing for the host
    beside an accelerator."""
    at, windows = 0.0, list[Window]()
    for row in facts["kernels"]:
        cycles = row.get("cycles") if facts["measured"] else row.get("predicted_cycles")
        taken = (row.get("seconds") or 0.0) * 1e6 if unit == "us" else cycles or 0.0
        windows.append((row["name"], at, at + taken))
        at += taken
    return tuple(windows)


def _event_windows(
    windows: Sequence[Window], names: Sequence[str], ends: Sequence[float], runner: SteppedRunner
) -> tuple[Window, ...]:
    """The windows with the starts and ends of commands; a kernel may start before another ends."""
    starts = dict(zip(names, runner.times().kernel_start.tolist(), strict=False))
    known = dict(zip(names, ends, strict=False))
    return tuple(
        (name, starts[name], known[name]) if known.get(name, 0.0) > starts.get(name, 0.0) else row
        for row in windows
        for name in (row[0],)
    )


def _kernel(
    row: Facts, entry: KernelEntry | None, shares: tuple[float, float, float] | None
) -> KernelFigures:
    compute, moves, idle = shares or (None, None, None)
    energy = row.get("energy_pj")
    return KernelFigures(
        name=row["name"],
        nodes=tuple(row["nodes"]),
        engine=row["engine"],
        limit=_limit(row, entry),
        seconds=row["time"],
        share=row["share"],
        bound=row["bound_cycles"],
        granule=row["granule_bound_cycles"],
        planned=row["predicted_cycles"],
        simulated=row.get("cycles"),
        measured=row.get("seconds"),
        compute=compute,
        moves=moves,
        idle=idle,
        bytes=row.get("dram_bytes") or (entry.moved_bytes if entry else None),
        operations=entry.operations if entry else None,
        peak=entry.peak_cycles if entry else None,
        energy=sum(energy.values()) if isinstance(energy, Mapping) else energy,
        reason=row.get("reason", ""),
        why_low=row.get("why_low", ""),
        schedule=row.get("schedule", ""),
    )


def _limit(row: Facts, entry: KernelEntry | None) -> str:
    """The resource whose time a kernel's physical bound is."""
    if row["engine"] == "host":
        return "host"
    bound = row["bound_cycles"]
    if entry is None or entry.peak_cycles is None or bound is None:
        return ""
    if entry.peak_cycles >= bound * (1 - 1e-9):
        return "compute"
    return entry.slow_move.partition(",")[0] or "memory"


def _renamed(occupant: Occupant, names: Mapping[str, str]) -> Occupant:
    return replace(occupant, tensor=names.get(occupant.tensor, occupant.tensor))


def _memories(machine: Machine, occupants: Sequence[Occupant]) -> tuple[MemoryFigures, ...]:
    taken = taken_bytes(occupants)
    return tuple(
        MemoryFigures(
            memory.name,
            memory.bytes,
            tuple(each for each in occupants if each.memory == memory.name),
            taken.get(memory.name, ([], [])),
        )
        for memory in machine.memories
    )
