"""The steps of a compilation around the pipeline: what is read before it, and written after it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from tilewright import frontends
from tilewright.codegen.program.interface import Compilation, Form, LoopBody
from tilewright.compiler.host_time import host_seconds
from tilewright.compiler.loops import check_rooms, write_loops
from tilewright.compiler.packages import opened
from tilewright.compiler.pipeline import (
    PLACED,
    advance,
    check_files,
    kernels_overlap,
    run_pipeline,
)
from tilewright.compiler.quantise import check_format
from tilewright.compiler.state import CompilationState, Model
from tilewright.errors import KernelError, refuse
from tilewright.graph.dialect import KernelOp, network_of
from tilewright.graph.free_axes import FreeSize
from tilewright.graph.names import network_name
from tilewright.graph.overflow import losses_on
from tilewright.graph.placement import arenas_of
from tilewright.ir.types import Array
from tilewright.machine import Machine
from tilewright.machine.components import with_figures
from tilewright.machine.forms import machine_of
from tilewright.network.limits import NetworkLimits, network_limits
from tilewright.network.overlap import added_cycles
from tilewright.numbers.calibration import (
    Samples,
    sample_shapes,
    samples_of,
)
from tilewright.numerics.formats import Numbers, numbers_of
from tilewright.planning import Plan
from tilewright.runtime.cache import Cache
from tilewright.runtime.elf import becomes_elf
from tilewright.runtime.executable import Executable, Progress, quiet
from tilewright.runtime.manifest import MANIFEST, PROGRAM, Manifest, OutputSize, Tensor
from tilewright.runtime.package import Planned, write_package
from tilewright.runtime.replacing import replacing
from tilewright.shapes.run import sizes_of
from tilewright.shapes.settlement import Settled
from tilewright.system.temporary import make_folder, remove_folder, temporary_folder
from tilewright.targets.base import Target, find_target

Free = Mapping[str, FreeSize]
"""Axes of inputs that end early in a run, by the name of the size (``Compilation.free``)."""


def opened_model(
    model: Model,
    caffemodel: str | Path | None,
    example_inputs: Any,
    dynamic_shapes: Any,
    constants: Mapping[str, Any] | None,
) -> Model:
    """The model read as far as it can be before its shapes are settled."""
    if isinstance(model, frontends.Imported | frontends.Opened):
        if constants:
            raise refuse("model-constants", "the model has been loaded, with its inputs")
        if example_inputs is not None or dynamic_shapes is not None:
            raise refuse("torch-example-inputs", "the model has been loaded, with its inputs")
        return model
    if caffemodel is not None:
        if isinstance(model, str | Path | frontends.Exported):
            return model  # The front-ends know which of their formats take weights.
        raise refuse("model-weights", "a model in memory has its own weights")
    return (
        frontends.open_model(
            model,
            example_inputs=example_inputs,
            dynamic_shapes=dynamic_shapes,
            constants=constants,
        )
        or model
    )


def specialise(
    directory: Path, manifest: Manifest, sizes: Mapping[str, int], place: Path, progress: Progress
) -> None:
    """Compile a package's model for sizes of its free dims, into an empty directory.

    The bytes are those of ``compile`` with the same shapes. Raises TilewrightError.
    """
    emit(bound(directory, manifest, sizes, progress), place)


def shapes_at(manifest: Manifest, sizes: Mapping[str, int]) -> dict[str, list[int] | int]:
    """The shapes of a package's inputs at sizes of its free dims, rooms of values and lengths."""
    shapes: dict[str, list[int] | int] = {
        tensor.name: [sizes[dim] if isinstance(dim, str) else dim for dim in tensor.shape]
        for tensor in manifest.inputs
    }
    rooms = manifest.open_model.rooms if manifest.open_model else {}
    return shapes | rooms | manifest.lists.lengths()


def without_chains(machine: Machine) -> Machine:
    """Return the machine without fusions of kernels: what a domain computes of its producer follows
    from a tile's size, and none has that of a length yet."""
    return machine.model_copy(update={"fusions": ()})


def bound(
    directory: Path,
    manifest: Manifest,
    sizes: Mapping[str, int],
    progress: Progress = quiet,
    until: str = "tile",
    *,
    lengths: bool = False,
    imported: frontends.Imported | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
) -> CompilationState:
    """A package's model with sizes for its free dims, taken through the pipeline; kernels that take
    ``lengths`` in a run compute one operation each. ``imported`` is the model at these sizes, if it
    has been read, and ``ranges`` are those of its values, if the package has none."""
    model = manifest.open_model
    if model is None or model.file not in manifest.files:
        raise refuse("package-invalid", "it has no model", str(directory))
    shapes = shapes_at(manifest, sizes)
    target = find_target(manifest.target)
    machine = machine_of(manifest.machine, str(directory / MANIFEST))
    if lengths:
        machine = without_chains(machine)
    # Ranges are of the values of a network whose loops are unrolled.
    loops = not lengths and imported is None and model.ranges is None
    with target.planner("model", machine) as asked:
        return run_pipeline(
            imported or directory / model.file,
            target,
            machine,
            shapes=None if imported else shapes,
            ranges=ranges or None if model.ranges is None else model.ranges,
            factors=None
            if model.factors is None
            else {name: np.array(row, np.float32) for name, row in model.factors.items()},
            numbers=None if model.numbers is None else numbers_of(*model.numbers),
            progress=progress,
            exact_memory=model.exact_memory,
            until=until,
            ask=asked,
            name=network_name(manifest.model),
            loops=loops,
        )


def calibrated(
    model: frontends.Opened,
    settled: Settled,
    target: Target,
    machine: Machine,
    samples: Samples | None,
    numbers: Numbers | None,
    progress: Progress,
) -> tuple[Mapping[str, tuple[float, float]] | None, Mapping[str, Array] | None]:
    """Ranges of values and factors of channels, from samples.

    Samples have a shape of their own; what they tell holds for every shape.
    """
    needed = machine.number.is_integer or (numbers is not None and numbers.needs_ranges)
    if numbers is not None:
        check_format(machine, numbers, samples is not None)
    if samples is None or not needed:
        return None, None
    shapes, samples = sample_shapes(settled.inputs, samples)
    bound = settled.bind(sizes_of(settled.inputs, settled.free, shapes))
    state = run_pipeline(
        model,
        target,
        machine,
        shapes=bound,
        calibration=samples,
        numbers=numbers,
        progress=progress,
        until="calibrate",
    )
    return state.runner.context.ranges, state.factors


def write_apart(
    write: Callable[[Path], None],
    directory: str | Path | None,
    cache: Cache | None,
    progress: Progress,
) -> Executable:
    """A package that ``write`` makes, in its place or in a temporary one."""
    if directory is not None and becomes_elf(Path(directory)):
        write_apart(write, None, cache, progress).save(directory, build=False)
        return opened(Path(directory), cache=cache, progress=progress)
    if directory is not None:
        with replacing(Path(directory)) as fresh:
            write(fresh)
        return opened(Path(directory), cache=cache, progress=progress, written_here=True)
    temporary = make_folder()
    try:
        write(temporary)
        return opened(temporary, temporary=True, cache=cache, progress=progress, written_here=True)
    except BaseException:
        remove_folder(temporary)
        raise


def form_of(target: Target, weights: str | None, bare: bool) -> Form:
    """Return the form of a package's C; refuses (``option-form``) what the target cannot write."""
    if weights not in (None, "file", "array"):
        raise refuse(
            "option-form", f"weights cannot be written as {str(weights)[:200]!r}", "--weights",
            "file or array; the weights of a prototxt are given as --caffemodel",
        )  # fmt: skip
    if bare and weights == "file":
        raise refuse("option-form", "without an operating system there are no files", "--bare")
    if not target.writes_c and (bare or weights == "array"):
        reason = f"packages for {target.name} are no C of their own"
        raise refuse("option-form", reason, "--bare" if bare else "--weights", "--target cpu")
    return Form("array" if bare else weights or "file", bare)


def settle_engines(state: CompilationState) -> None:
    """Lower a network of formed kernels, if its target's host takes what instructions cannot say:
    only then is it known which kernels that are, and how the others are planned beside them.

    Raises TilewrightError.
    """
    if state.target.falls_back:
        with temporary_folder() as directory:
            advance(state, PLACED)
            emit(state, directory)


def emit(
    state: CompilationState,
    directory: Path,
    form: Form = Form(),  # noqa: B008 -- a value
    free: Free | None = None,
) -> None:
    """Let the target emit its part, and write the package around it.

    ``free`` are axes of inputs that may end early in a run (``Compilation.free``). Kernels that the
    target refuses go to the host, where it has one. Raises TilewrightError.
    """
    advance(state, (), lambda: _write(state, form, directory, free or {}))


def _write(state: CompilationState, form: Form, directory: Path, free: Free) -> None:
    state.progress("emit", 0, 0)
    if state.samples is not None:
        samples = samples_of(network_of(state.network), state.samples)
        state.notes += map(str, losses_on(state.network, state.weights, samples))
    check_rooms(state)
    compilation = _compilation(state, form, free)
    program = directory / PROGRAM
    program.mkdir()
    try:
        state.target.emit(compilation, program)
        loops = {} if state.target.writes_loops else write_loops(state, program)
        state.plans = _plans_in_a_row(state)
        limits = limits_of(state)
        write_package(
            directory,
            state.target,
            compilation,
            _planned(state),
            state.name,
            state.notes,
            on_chip_bound=None if limits is None else limits.cycles,
            empty=[Tensor(name=t.name, shape=t.shape, dtype=t.dtype) for t in state.empty],
            sizes=[OutputSize(**asdict(end)) for end in state.ends],
            lists=state.lists,
            loops=loops,
        )
    except KernelError:
        # Nothing half-written is left to an attempt without that kernel.
        shutil.rmtree(program, ignore_errors=True)
        raise
    check_files(state)


def _planned(state: CompilationState) -> Planned:
    """The plans of a network, with those of its loops' bodies."""
    bodies = {symbol: _planned(loop.body) for symbol, loop in state.loops.items()}
    return Planned(state.plans, bodies)


def _compilation(state: CompilationState, form: Form, free: Free) -> Compilation:
    """The part of a network that a target emits, with bodies of loops if it writes them itself."""
    loops = state.loops if state.target.writes_loops else {}
    return Compilation(
        with_figures(state.machine),
        state.network,
        state.weights,
        tuple(state.kernels),
        arenas_of(network_of(state.network)),
        form,
        free,
        host_times(state),
        state.lists,
        {
            symbol: LoopBody(loop.rounds, _compilation(loop.body, form, {}))
            for symbol, loop in loops.items()
        },
    )


def host_times(state: CompilationState) -> dict[int, float]:
    """Predicted seconds of the host's steps by their place in the network; {} where the machine
    does not describe its host."""
    network, loops = network_of(state.network), state.loops
    compiled = {k.kernel.symbol: k.kernel for k in state.kernels if k.schedule is None}
    kernels = {symbol: kernel for symbol, kernel in compiled.items() if symbol not in loops}
    seconds = host_seconds(network, kernels, state.machine)
    for number, op in enumerate(network.block.ops):
        if state.machine.host and isinstance(op, KernelOp) and op.symbol.data in loops:
            loop = loops[op.symbol.data]
            seconds[number] = loop.rounds * sum(host_times(loop.body).values())
    return seconds


def limits_of(state: CompilationState) -> NetworkLimits | None:
    """The limits of a planned network; None on machines whose memories software does not manage."""
    planned = {k.kernel.symbol: k for k in state.kernels if k.schedule is not None}
    if not state.machine.moves:
        return None
    whole = None
    if planned:
        whole = network_limits(network_of(state.network), planned, state.machine)
    for loop in state.loops.values():
        inner = limits_of(loop.body)
        if inner is not None:
            inner = inner.times(loop.rounds)
            whole = inner if whole is None else whole.then(inner)
    return whole


def _plans_in_a_row(state: CompilationState) -> dict[str, Plan]:
    """The plans, each with the cycles that its kernel adds to those before, where kernels overlap
    and the target can time programs in a row."""
    run_timer = state.target.run_timer(state.machine, arenas_of(network_of(state.network)))
    if run_timer is None or not kernels_overlap(state):
        return state.plans
    # What a loop's body leaves on the chip is no other program's.
    breaks = None if state.target.waits_for_host else state.loops
    added = added_cycles(state.kernels, run_timer, breaks)
    return {
        symbol: plan.in_a_row(added[symbol]) if symbol in added else plan
        for symbol, plan in state.plans.items()
    }
