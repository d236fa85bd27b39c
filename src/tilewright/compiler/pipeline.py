"""The pipeline of a model, as one list that can be read in a minute: see ``PIPELINE``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import TypedDict

from tilewright import frontends
from tilewright.codegen.program.interface import CompiledKernel
from tilewright.compiler.fall_back import give_to_host, remember
from tilewright.compiler.loops import compile_loops, settle_loops, takes_loops
from tilewright.compiler.quantise import calibrate, kept_on_host, quantise, read_stated_points
from tilewright.compiler.state import (
    CompilationState,
    Model,
    context_of,
    drop_dead_weights,
)
from tilewright.errors import KernelError, Refusals, TilewrightError, refuse
from tilewright.graph.dialect import KernelOp, WeightOp, network_of
from tilewright.graph.kernels import kernel_of, operand_values
from tilewright.graph.passes import (
    address_pipeline,
    kernel_pipeline,
    layout_pipeline,
    simplify_pipeline,
)
from tilewright.graph.passes.stated_points import other_points
from tilewright.graph.passes.take_steps import TakeSteps, has_steps
from tilewright.graph.placement import arenas_of, placement_of
from tilewright.graph.values import value_names
from tilewright.ir import SSAValue, StringAttr
from tilewright.ir.passes import CompilerContext, PassEntry, PassRunner
from tilewright.ir.types import Array
from tilewright.machine import Machine
from tilewright.machine.capabilities import keeps_tensors
from tilewright.network.candidates import placements_of
from tilewright.network.fusion.chains import form_chains
from tilewright.network.residency import keep_tensors
from tilewright.numbers.calibration import (
    Samples,
)
from tilewright.numerics.formats import Numbers
from tilewright.planning import Ask, Plan, Planner
from tilewright.planning.domain import Kernel
from tilewright.planning.plan import plans_chains
from tilewright.planning.space.parts import as_planned
from tilewright.runtime.executable import Progress, quiet
from tilewright.shapes.forms import Shapes
from tilewright.targets.base import Target, find_target
from tilewright.tile.build import build
from tilewright.tile.dialect import programs_of
from tilewright.tile.lower import tile_module
from tilewright.tile.passes import last_used
from tilewright.tile.passes import pipeline as tile_pipeline
from tilewright.tile.residents import Residents


class Options(TypedDict, total=False):
    """Options of ``run_pipeline`` that complete a model, for functions that hand it on."""

    shapes: Shapes | None
    caffemodel: str | Path | None
    calibration: Samples | None
    progress: Progress


@dataclass(frozen=True)
class Stage:
    """One stage of the pipeline: its name, what it does, and what goes in and comes out."""

    name: str
    run: Callable[[CompilationState], None]
    purpose: str


def import_model(state: CompilationState) -> None:
    """Model file to graph."""
    model = state.model
    if isinstance(model, frontends.Imported):
        if state.caffemodel is not None:
            raise refuse("model-weights", "the model has been loaded, with its weights")
        if state.shapes:
            raise refuse("shape-fixed", "the model has been loaded, with its shapes")
        imported = model
    elif isinstance(model, frontends.Opened):
        imported = model.load(state.shapes, loops=takes_loops(state))
    else:
        imported = frontends.load(
            model, shapes=state.shapes, caffemodel=state.caffemodel, loops=takes_loops(state)
        )
    # What the caller holds may be compiled again; what was just loaded has no other user.
    state.network = imported.module.clone() if imported is model else imported.module
    if state.name:
        network_of(state.network).properties["symbol"] = StringAttr(state.name)
    if imported is not model:
        state.runner.trust(state.network)
    # A store of our own: one import may be compiled several times, each time the same.
    state.weights = imported.weights.subset(imported.weights)
    state.name = state.name or imported.name
    state.nodes = imported.nodes
    state.files = imported.files
    state.empty, state.ends, state.lists = imported.empty, imported.ends, imported.lists
    state.notes += imported.notes
    state.runner.context = context_of(state, {})
    if has_steps(state.network):
        taken = PassEntry(TakeSteps(), "what follows computes them; checks read the model again")
        state.runner.run(state.network, [taken], "graph-")
    settle_loops(state)


def optimise_graph(state: CompilationState) -> None:
    """Graph passes that keep the model's numbers."""
    if state.machine.fixed_bits:
        read_stated_points(state)
    state.runner.run(state.network, simplify_pipeline(state.machine), "graph-")
    drop_dead_weights(state)


def form_kernels(state: CompilationState) -> None:
    """Graph passes that decide what the machine runs, and as which kernels."""
    state.runner.run(state.network, kernel_pipeline(state.machine, kept_on_host(state)), "graph-")
    drop_dead_weights(state)


def place_graph(state: CompilationState) -> None:
    """Graph passes from the choice of numbers to the plan of memory."""
    if state.formed is None:
        remember(state)
    state.runner.run(state.network, layout_pipeline(state.machine), "graph-")
    if plans_chains(state.planner.ask):
        form_chains(network_of(state.network), state.planner, state.apart, state.progress)
    addresses = address_pipeline(exact_memory=state.exact_memory)
    state.runner.run(state.network, addresses, "graph-")
    if state.stated is not None:
        state.notes += other_points(network_of(state.network), state.stated.nodes)
    drop_dead_weights(state)


def check_files(state: CompilationState) -> None:
    """Refuse a model that has changed while it was read; let go of its pages."""
    for file in state.files:
        file.check()
        file.release()


def plan_kernels(state: CompilationState) -> None:
    """A schedule for every kernel that the accelerator runs."""
    network = network_of(state.network)
    names = value_names(network)
    kernels = network.kernels
    ops = {op.symbol.data: op for op in kernels}
    described = [(_described(op, names, state.machine), op.on_host) for op in kernels]
    planned = [kernel for kernel, on_host in described if not on_host]
    if state.planner.timer is not None and planned:
        # Timed with its first load. The cost model charges every kernel for its own, so where
        # nothing is timed, kernels alike stay alike and are planned once.
        begin = planned[0] = replace(planned[0], first=True)
        described = [(begin if k.symbol == begin.symbol else k, host) for k, host in described]
    refused = Refusals()
    state.plans = plans_of(planned, state.planner, state.progress, refused)
    if state.target.falls_back:
        _not_lowered(state, planned, ops, names, refused)
    refused.check()
    # A planner that was asked for knows nothing of what stays, and the body of a loop runs on the
    # same chip: constants that are loaded before the first kernel are gone after it.
    holds = state.hold and not state.loops and state.planner.ask is None
    if holds and keeps_tensors(state.machine):
        by_symbol = {kernel.symbol: kernel for kernel in planned}
        run_timer = state.target.run_timer(state.machine, arenas_of(network))
        residency = keep_tensors(
            network,
            state.machine,
            by_symbol,
            state.plans,
            run_timer,
            state.planner,
        )
        state.staying = residency.tensors
        state.plans |= residency.plans
    for kernel, on_host in described:
        if on_host:
            state.kernels.append(CompiledKernel(kernel))
        else:
            plan = state.plans[kernel.symbol]
            state.kernels.append(CompiledKernel(kernel, plan.schedule, None, plan.cycles))


def _described(op: KernelOp, names: Mapping[SSAValue, str], machine: Machine) -> Kernel:
    """Planning's kernel, with the dims that the machine cuts it along, and one for all pixels where
    the machine gains by that."""
    kernel = kernel_of(op, names)
    if op.on_host:
        return kernel
    # Constants lie as planning's kernel has them.
    strides = {
        name: placement_of(value).strides
        for name, value in operand_values(op, names).items()
        if not isinstance(value.owner, WeightOp)
    }
    return as_planned(kernel, machine, strides)


def plans_of(
    kernels: Sequence[Kernel],
    planner: Planner,
    progress: Progress = quiet,
    refused: Refusals | None = None,
) -> dict[str, Plan]:
    """Plans by the kernels' symbols; kernels alike are planned once.

    Refusals are added to ``refused``, and their kernels left out; without it, raises KernelError.
    """
    gathered = Refusals() if refused is None else refused
    plans: dict[str, Plan] = {}
    for number, kernel in enumerate(kernels):
        progress("plan", number, len(kernels))
        with gathered.of(kernel.symbol):
            plans[kernel.symbol] = planner.plan(kernel)
        if refused is None:
            gathered.check()
    return plans


def _not_lowered(
    state: CompilationState,
    kernels: Sequence[Kernel],
    ops: Mapping[str, KernelOp],
    names: Mapping[SSAValue, str],
    refused: Refusals,
) -> None:
    """Refuse the kernels of which the timer could time no schedule, with the reasons."""
    untimed = [
        k for k in kernels if k.symbol in state.plans and state.plans[k.symbol].cycles == inf
    ]
    if not untimed:
        return
    run = state.target.run_timer(state.machine, arenas_of(network_of(state.network)))
    if run is None:
        return
    for kernel in untimed:
        schedule = state.plans[kernel.symbol].schedule
        placements = placements_of(ops[kernel.symbol], names, kernel)
        with refused.of(kernel.symbol):
            honours = state.target.honours
            program = tile_module(kernel, schedule, state.machine, placements, honours=honours)
            run([CompiledKernel(kernel, schedule, program)])


def build_tiles(state: CompilationState) -> None:
    """Kernel and schedule to tile program, and the tile passes."""
    network = network_of(state.network)
    names = value_names(network)
    kernels = {op.symbol.data: op for op in network.kernels}
    used: dict[str, tuple[str, ...]] = {}
    refused, residents = Refusals(), Residents()
    for number, item in enumerate(state.kernels):
        state.progress("tile", number, len(state.kernels))
        if item.schedule is None:
            residents.forget()
            continue
        placements = placements_of(kernels[item.kernel.symbol], names, item.kernel)
        passes = tile_pipeline(
            state.machine,
            tuple(text for texts in used.values() for text in texts),
            honours=state.target.honours,
        )
        state.runner.context = context_of(state, {})
        with refused.of(item.kernel.symbol):
            program = build(item.kernel, item.schedule, state.machine, placements)
            title = f"{item.kernel.symbol}-"
            state.runner.run(program, passes, title, verify_each=False)
            if kernels_overlap(state):
                for tile_program in programs_of(program):
                    used |= last_used(tile_program)
            for tile_program in programs_of(program):
                if problems := list(residents.problems(tile_program)):
                    raise TilewrightError(problems)
            state.kernels[number] = replace(item, program=program)
    refused.check()


def kernels_overlap(state: CompilationState) -> bool:
    """Return True if engines run on over the ends of kernels, in order by their waits."""
    return state.target.kernels_overlap and state.machine.synchronisation.style != "none"


PIPELINE: tuple[Stage, ...] = (
    Stage("import", import_model, "model file -> graph"),
    Stage("graph passes", optimise_graph, "graph -> graph, in the model's numbers"),
    Stage("quantise", quantise, "graph + samples -> graph of the numbers asked for"),
    Stage("kernels", form_kernels, "graph -> graph of kernels, on accelerator or host"),
    Stage("calibrate", calibrate, "graph + samples -> ranges of values"),
    Stage("loops", compile_loops, "bodies of loops -> networks of their own, compiled"),
    Stage("numbers, layouts, memory", place_graph, "graph -> graph of placed kernels"),
    Stage("plan", plan_kernels, "kernel + machine -> schedule"),
    Stage("tile", build_tiles, "kernel + schedule -> tile program"),
)
"""Everything up to the target's own part; ``compile`` then lets the target emit a package."""

PLACED = PIPELINE[[stage.name for stage in PIPELINE].index("calibrate") + 1 :]
"""The stages after the forming of kernels."""


def resolve(
    target: str | Target,
    machine: Machine | str | Path | None = None,
    values: Mapping[str, float] | None = None,
    cpu: str | None = None,
) -> tuple[Target, Machine]:
    """The target and its machine, with ``values`` such as ``memory.sb.bytes`` changed.

    ``target`` may be the path of a machine file (``.toml``): the generic target then runs it.
    Keys that the target does not implement are refused (``Target.check_machine``).
    ``cpu`` names the processor that the cpu target makes C for (by default the one at hand).
    """
    if isinstance(target, str) and target.endswith(".toml"):
        machine, target = target, "generic"
    if isinstance(target, str):
        target = find_target(target)
    source = ""
    if isinstance(machine, str | Path):
        from tilewright.machine.load import load_machine

        source = str(machine)
        machine = load_machine(Path(machine), complete=target.completes_machines)
    if machine is not None and cpu is not None:
        raise refuse("option-cpu", "the given machine already has a processor", "--cpu")
    described = machine or (target.machine() if cpu is None else target.variant(cpu))
    if values:
        described = described.with_values(values)
    target.check_machine(described, source)
    if described.host is not None and described.host.cpu:
        find_target("cpu").variant(described.host.cpu)
    return target, described


def run_pipeline(
    model: Model,
    target: Target,
    machine: Machine,
    *,
    shapes: Shapes | None = None,
    caffemodel: str | Path | None = None,
    calibration: Samples | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    factors: Mapping[str, Array] | None = None,
    numbers: Numbers | None = None,
    dump: Path | None = None,
    progress: Progress = quiet,
    exact_memory: bool = False,
    ask: Ask | None = None,
    hold: bool = True,
    until: str = "tile",
    name: str = "",
    loops: bool = False,
    settled: bool = False,
    planner: Planner | None = None,
) -> CompilationState:
    """Take a model through the pipeline, to the end of the stage ``until``.

    ``name`` is the network's; by default it is the model's own. ``ask`` is asked for each kernel's
    plan before the machine's cost model is.
    With ``hold`` tensors may stay on the chip between kernels (network/residency.py). With
    ``loops`` loops stay loops where the target takes them (compiler/loops.py), else all are
    unrolled. For the body of a loop, ``settled`` says that the numbers that are asked for are those
    of the network around, whose ``planner`` knows kernels that are alike.
    """
    runner = PassRunner(CompilerContext(machine), dump)
    state = CompilationState(
        target, machine, model, shapes or {}, calibration, progress, runner,
        planner or Planner(machine, target.timer(machine), ask=ask), exact_memory,
    )  # fmt: skip
    state.caffemodel, state.ranges, state.numbers = caffemodel, ranges, numbers
    state.factors, state.hold, state.name = factors, hold, name
    state.loops_kept, state.settled = loops, settled
    names = [stage.name for stage in PIPELINE]
    advance(state, PIPELINE[: names.index(until) + 1])
    return state


def advance(
    state: CompilationState, stages: Sequence[Stage], finish: Callable[[], None] | None = None
) -> None:
    """Run stages, then ``finish``.

    Where a kernel is refused and the host can run it, the pipeline runs again from the formed
    network on (compiler/fall_back.py). Raises TilewrightError.
    """
    while True:
        try:
            for stage in stages:
                state.progress(stage.name, 0, 0)
                stage.run(state)
                check_files(state)
            if finish is not None:
                finish()
            return
        except KernelError as error:
            give_to_host(state, error)
            stages = PLACED
