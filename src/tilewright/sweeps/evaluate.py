"""One point of a sweep: a model is planned on a variant of the machine; nothing is emitted.

A process keeps what its points share: the model as it is before its kernels are formed, ranges of
values on samples, and plans of kernels (sweeps/shared.py). A row does not depend on which points
came before.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from tilewright import frontends
from tilewright.codegen.program.interface import CompiledKernel
from tilewright.compiler.build import host_times
from tilewright.compiler.loops import every_kernel
from tilewright.compiler.pipeline import PIPELINE, Stage, advance
from tilewright.compiler.state import CompilationState, Model, context_of
from tilewright.errors import TilewrightError, refuse
from tilewright.ir import to_text
from tilewright.ir.passes import CompilerContext, PassRunner
from tilewright.machine import Machine
from tilewright.machine.energy import area_of, has_energy, network_energy
from tilewright.machine.forms import machine_of
from tilewright.numerics.formats import numbers_of
from tilewright.planning import Plan, Planner
from tilewright.planning.canonical import canonical, renamed
from tilewright.planning.chains.known import texts_of
from tilewright.runtime.executable import quiet
from tilewright.runtime.manifest import digest_of_file
from tilewright.sweeps.rows import Row
from tilewright.sweeps.shared import QUICK, SharedPlans, SweepPlanner, form_of, text_of
from tilewright.sweeps.space import Point
from tilewright.targets.base import Target, find_target
from tilewright.tile.counts import ProgramCounts, counts_of
from tilewright.tile.dialect import BufferOp
from tilewright.tile.lower import tile
from tilewright.tile.tensors import separate_arenas

K = TypeVar("K")
V = TypeVar("V")

MOST_MODELS = 8
"""Models that a process keeps in mind, those that were asked for last."""

MOST_COSTS = 10_000
"""Planned networks whose costs a process keeps in mind."""

_BEFORE = "kernels"
_AFTER = ("loops", "numbers, layouts, memory", "plan")
_STAGES: Mapping[str, Stage] = {stage.name: stage for stage in PIPELINE}


@dataclass(frozen=True)
class Study:
    """The part that all points of a sweep have in common; sent to whoever evaluates one."""

    target: str
    machine: Mapping[str, Any]
    """The base machine's JSON."""
    digests: Mapping[str, str]
    """SHA-256 of the models' files."""
    shapes: Mapping[str, str] = field(default_factory=dict[str, str])
    constants: Mapping[str, Any] = field(default_factory=dict[str, Any])
    caffemodel: str | None = None
    numbers: str | None = None
    effort: str = "quick"
    version: str = ""


_benches: OrderedDict[str, Bench] = OrderedDict()
_alone = Lock()


def evaluate(study: Study, point: Point) -> dict[str, Any]:
    """The row of a point, as JSON; a point that is refused has a row, too.

    Where this process has other files than the sweep began with, the answer is ``problems``
    (``sweep-worker``) in place of a row.
    """
    # A process has one store of plans, and threads gain nothing.
    with _alone:
        key = repr(study)
        if key not in _benches:
            while len(_benches) >= 2:
                _benches.popitem(last=False)
            _benches[key] = Bench(study)
        try:
            return _benches[key].row(point).to_json()
        except TilewrightError as error:
            return {"problems": [asdict(problem) for problem in error.problems]}


@dataclass
class Bench:
    """The points of one sweep that one process evaluates."""

    study: Study
    plans: SharedPlans = field(default_factory=SharedPlans)
    models: OrderedDict[tuple[str, str], CompilationState] = field(
        default_factory=OrderedDict[tuple[str, str], CompilationState]
    )
    """The models before their kernels are formed, by file and by what passes see of machines."""
    ranges: OrderedDict[tuple[str, str], Mapping[str, tuple[float, float]]] = field(
        default_factory=OrderedDict[tuple[str, str], Mapping[str, tuple[float, float]]]
    )
    """Ranges of values by file and formed network."""
    programs: OrderedDict[object, ProgramFigures] = field(
        default_factory=OrderedDict[object, "ProgramFigures"]
    )
    """Figures of the tile programs of kernels under schedules."""
    costs: OrderedDict[tuple[str, str, str], Costs] = field(
        default_factory=OrderedDict[tuple[str, str, str], "Costs"]
    )
    """By model, planner, and all that plans depend on in a machine."""

    def __post_init__(self) -> None:
        """Find the target and the machine that is varied."""
        self.target = find_target(self.study.target)
        self.machine = machine_of(dict(self.study.machine))

    def row(self, point: Point) -> Row:
        """A point's figures, or its refusal."""
        row = Row(point.model, point.planner, dict(point.values))
        try:
            machine = self.machine.with_values(dict(point.values)) if point.values else self.machine
            self.target.check_machine(machine)
            with Planner.sharing(self.plans):
                return self._planned(row, machine)
        except TilewrightError as error:
            problem = error.problems[0]
            if problem.code == "sweep-worker":
                raise
            place = f"{problem.where}: " if problem.where else ""
            reason = " ".join(f"{place}{problem.reason}".split())
            return Row(
                row.model, row.planner, row.values, "refused", code=problem.code, reason=reason
            )

    def _planned(self, row: Row, machine: Machine) -> Row:
        key = row.model, row.planner, text_of(machine)
        if key not in self.costs:
            _keep(self.costs, key, self._costs(row, machine), MOST_COSTS)
        return self.costs[key].of(row, machine)

    def _costs(self, row: Row, machine: Machine) -> Costs:
        timer = self.target.timer(machine)
        self.plans.begin(machine, timer)
        budget = QUICK if self.study.effort == "quick" else None
        with self.target.planner(row.planner, machine) as ask:
            planner = SweepPlanner(machine, timer, budget=budget, ask=ask)
            state = self._formed(row.model, machine, planner)
            advance(state, [_STAGES[name] for name in _AFTER])
        return self._figures(state)

    def _formed(self, model: str, machine: Machine, planner: Planner) -> CompilationState:
        """The model with kernels for a machine, and the ranges of its values."""
        started = self._started(model, machine)
        state = self.state_of(model, machine, planner)
        state.network = started.network.clone()
        state.runner.trust(state.network)
        state.weights = started.weights.subset(started.weights)
        state.name, state.nodes, state.empty = started.name, started.nodes, started.empty
        state.ends, state.lists = started.ends, started.lists
        state.samples, state.stated, state.factors = (
            started.samples,
            started.stated,
            started.factors,
        )
        state.numbers, state.ranges, state.notes = started.numbers, started.ranges, [*started.notes]
        state.loop_samples = started.loop_samples
        state.runner.context = context_of(state, started.runner.context.ranges)
        _STAGES["kernels"].run(state)
        if machine.number.kind != "fixed":
            return state
        key = model, to_text(state.network)
        if key in self.ranges:
            state.runner.context = context_of(state, self.ranges[key])
        else:
            _STAGES["calibrate"].run(state)
            _keep(self.ranges, key, state.runner.context.ranges, MOST_MODELS)
        return state

    def _started(self, model: str, machine: Machine) -> CompilationState:
        """The model before its kernels are formed; machines of one form share it."""
        key = model, form_of(machine)
        if key not in self.models:
            self._check_file(model)
            state = self.state_of(model, machine, Planner(machine))
            names = [stage.name for stage in PIPELINE]
            advance(state, PIPELINE[: names.index(_BEFORE)])
            _keep(self.models, key, state, MOST_MODELS)
        self.models.move_to_end(key)
        return self.models[key]

    def state_of(self, model: str, machine: Machine, planner: Planner) -> CompilationState:
        """A pipeline's state before its first stage."""
        study = self.study
        state = CompilationState(
            self.target, machine, _opened(study, model), study.shapes, None, quiet,
            PassRunner(CompilerContext(machine)), planner,
        )  # fmt: skip
        state.caffemodel, state.loops_kept = study.caffemodel, True
        state.numbers = None if study.numbers is None else numbers_of(study.numbers)
        return state

    def _check_file(self, model: str) -> None:
        """Refuse a file that is not the one that the sweep began with."""
        try:
            same = digest_of_file(Path(model)).sha256 == self.study.digests[model]
        except OSError as error:
            reason = f"the model cannot be read here: {error.strerror}"
            help = "workers read models by the same path: use a file system that all share"
            raise refuse("sweep-worker", reason, model, help) from error
        if not same:
            reason = "the model is another file here than where the sweep began"
            raise refuse("sweep-worker", reason, model, "begin the sweep anew")

    def _figures(self, state: CompilationState) -> Costs:
        every = list(every_kernel(state))
        planned = [each for each in every if each.compiled.schedule is not None]

        def total(figure: Callable[[Plan], float]) -> float:
            return sum(
                each.rounds * figure(each.state.plans[each.compiled.kernel.symbol])
                for each in planned
            )

        peaks, energies = dict[str, int](), list[dict[str, float]]()
        for each in planned:
            program = self._program(each.compiled, state)
            for memory, size in program.peaks.items():
                peaks[memory] = max(peaks.get(memory, 0), size)
            energy = program.counts.energy(state.machine)
            energies.append({name: each.rounds * part for name, part in energy.items()})
        return Costs(
            cycles=total(lambda plan: plan.cycles),
            bound_cycles=total(lambda plan: plan.physical_bound),
            granule_bound_cycles=total(lambda plan: plan.granule_bound),
            moved_bytes=int(total(lambda plan: plan.moved_bytes)),
            peak_bytes=dict(sorted(peaks.items())),
            energies=energies,
            kernels=len(planned),
            host_kernels=len(every) - len(planned),
            host_seconds=sum(host_times(state).values()) if state.machine.host else None,
        )

    def _program(self, item: CompiledKernel, state: CompilationState) -> ProgramFigures:
        """The bytes that a kernel's tile program takes of memories, and its counts."""
        assert item.schedule is not None
        form, names = canonical(item.kernel)
        sizes = tuple(memory.bytes for memory in state.machine.memories)
        key = texts_of(state.machine)[0], sizes, form, renamed(item.schedule, names)
        if key not in self.programs:
            found = program_figures(item, state.machine, state.target)
            _keep(self.programs, key, found, 100_000)
        return self.programs[key]


@dataclass(frozen=True)
class Costs:
    """The costs of a planned network, whatever the machine's clock."""

    cycles: float
    bound_cycles: float
    granule_bound_cycles: float
    moved_bytes: int
    peak_bytes: Mapping[str, int]
    energies: Sequence[Mapping[str, float]]
    """The picojoules of each kernel by part, without those at rest."""
    kernels: int
    host_kernels: int
    host_seconds: float | None

    def of(self, row: Row, machine: Machine) -> Row:
        """The row of a point with these costs, at the machine's clock."""
        areas, seconds = area_of(machine), self.cycles / machine.clock_hz
        energy = None
        if has_energy(machine):
            energy = sum(network_energy(self.energies, machine, self.cycles).values())
        host = self.host_seconds
        return Row(
            row.model,
            row.planner,
            row.values,
            cycles=self.cycles,
            seconds=seconds,
            host_seconds=host,
            total_seconds=None if host is None else seconds + host,
            bound_cycles=self.bound_cycles,
            granule_bound_cycles=self.granule_bound_cycles,
            moved_bytes=self.moved_bytes,
            peak_bytes=self.peak_bytes,
            energy_pj=energy,
            area_mm2=sum(areas.values()) if areas else None,
            kernels=self.kernels,
            host_kernels=self.host_kernels,
        )


def check_model(study: Study, model: str) -> None:
    """Refuse a model that no point can be of: it cannot be read with the sweep's options."""
    opened = _opened(study, model)
    if isinstance(opened, frontends.Opened):
        opened.load(study.shapes)
    else:
        frontends.load(Path(model), shapes=study.shapes, caffemodel=study.caffemodel)


def _opened(study: Study, model: str) -> Model:
    """A model, opened with the values of its constant inputs where there are some."""
    if not study.constants:
        return Path(model)
    return frontends.open_model(Path(model), constants=study.constants) or Path(model)


@dataclass(frozen=True)
class ProgramFigures:
    """Figures of a kernel's tile program."""

    peaks: Mapping[str, int]
    """By memory that software manages, the end of the last buffer in bytes."""
    counts: ProgramCounts


def program_figures(item: CompiledKernel, machine: Machine, target: Target) -> ProgramFigures:
    """The figures of a kernel with a schedule."""
    peaks: dict[str, int] = {}
    if not machine.moves or item.schedule is None:
        return ProgramFigures(peaks, ProgramCounts())
    placements, _ = separate_arenas(item.kernel)
    program = tile(item.kernel, item.schedule, machine, placements, check=False)
    for op in program.walk():
        if isinstance(op, BufferOp) and op.bytes is not None and op.address is not None:
            end = op.address.value.data + op.bytes.value.data * op.slots.value.data
            peaks[op.memory] = max(peaks.get(op.memory, 0), end)
    return ProgramFigures(peaks, counts_of([program], machine))


def _keep(known: OrderedDict[K, V], key: K, value: V, most: int) -> None:
    """Keep a value, and let go of those that were kept first."""
    known[key] = value
    while len(known) > most:
        known.popitem(last=False)
