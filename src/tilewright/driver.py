"""The road of a model, as one list that can be read in a minute: see ``ROAD``."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tilewright import frontends
from tilewright.calibration import (
    Samples,
    sample_shapes,
)
from tilewright.choose_numbers import calibrate, check_format, kept_on_host, quantise
from tilewright.errors import refuse
from tilewright.graph.dialect import KernelOp, network_of
from tilewright.graph.kernels import kernel_of, operand_values
from tilewright.graph.passes import kernel_pipeline, place_pipeline, simplify_pipeline
from tilewright.graph.placement import (
    Placement,
    arenas_of,
    placement_of,
)
from tilewright.graph.values import value_names
from tilewright.ir import SSAValue
from tilewright.machine import Machine
from tilewright.machine.forms import machine_of
from tilewright.numerics.formats import Numbers, numbers_of
from tilewright.passes import CompilerContext, PassRunner
from tilewright.planning import PlanCache, plan
from tilewright.planning.planners.measured import planner_of
from tilewright.runtime.cache import Cache
from tilewright.runtime.executable import Executable, Progress, opened, quiet, replacing
from tilewright.runtime.manifest import MANIFEST, Manifest
from tilewright.runtime.open_package import Recipe, write_open_package
from tilewright.runtime.package import write_package
from tilewright.shapes import Settled, Shapes, settle, sizes_of
from tilewright.targets.base import Compilation, CompiledKernel, Target, find_target
from tilewright.tile.build import build
from tilewright.tile.passes import pipeline as tile_pipeline
from tilewright.work import Model, Planner, Work, context_of, drop_dead_weights


@dataclass(frozen=True)
class Station:
    """One stage of the road: its name, what it does, and what goes in and comes out."""

    name: str
    run: Callable[[Work], None]
    what: str


def import_model(work: Work) -> None:
    """Model file to graph."""
    model = work.model
    if isinstance(model, frontends.Imported):
        if work.weights_file is not None:
            raise refuse("model-weights", "the model has been loaded, with its weights")
        if work.shapes:
            raise refuse("shape-fixed", "the model has been loaded, with its shapes")
        imported = model
    elif isinstance(model, frontends.Opened):
        imported = model.load(work.shapes)
    else:
        imported = frontends.load(model, shapes=work.shapes, weights=work.weights_file)
    work.network = imported.module.clone()
    # A store of our own: one import may be compiled several times, each time the same.
    work.weights = imported.weights.subset(imported.weights)
    work.name = imported.name
    work.nodes = imported.nodes
    work.files = imported.files
    work.notes += imported.notes
    work.runner.context = context_of(work, {})


def optimise_graph(work: Work) -> None:
    """Graph passes that keep the model's numbers."""
    work.runner.run(work.network, simplify_pipeline(work.machine), "graph-")
    drop_dead_weights(work)


def form_kernels(work: Work) -> None:
    """Graph passes that decide what the machine runs, and as which kernels."""
    work.runner.run(work.network, kernel_pipeline(work.machine, kept_on_host(work)), "graph-")
    drop_dead_weights(work)


def place_graph(work: Work) -> None:
    """Graph passes from the choice of numbers to the plan of memory."""
    passes = place_pipeline(work.machine, exact_memory=work.exact_memory)
    work.runner.run(work.network, passes, "graph-")
    drop_dead_weights(work)


def _check_files(work: Work) -> None:
    """Refuse a model that has changed while it was read; let go of its pages."""
    for file in work.files:
        file.check()
        file.release()


def plan_kernels(work: Work) -> None:
    """A schedule for every kernel; kernels alike are planned once."""
    network = network_of(work.network)
    names = value_names(network)
    timer = work.target.timer(work.machine)
    cache: PlanCache = {}
    kernels = [op for op in network.block.ops if isinstance(op, KernelOp)]
    for number, op in enumerate(kernels):
        work.progress("plan", number, len(kernels))
        kernel = kernel_of(op, names)
        if op.on_host:
            work.kernels.append(CompiledKernel(kernel))
            continue
        found = None if work.planner is None else work.planner(kernel)
        if found is None:
            found = plan(kernel, work.machine, timer=timer, cache=cache)
        work.plans[kernel.symbol] = found
        work.kernels.append(CompiledKernel(kernel, found.schedule, None, found.predicted_cycles))


def build_tiles(work: Work) -> None:
    """Kernel and schedule to tile program, and the tile passes."""
    network = network_of(work.network)
    names = value_names(network)
    kernels = {op.symbol.data: op for op in network.block.ops if isinstance(op, KernelOp)}
    for number, item in enumerate(work.kernels):
        work.progress("tile", number, len(work.kernels))
        if item.schedule is None:
            continue
        values = operand_values(kernels[item.kernel.symbol], names)
        placements = {name: _place(value) for name, value in values.items()}
        program = build(item.kernel, item.schedule, work.machine, placements)
        work.runner.run(program, tile_pipeline(work.machine), f"{item.kernel.symbol}-")
        work.kernels[number] = replace(item, program=program)


def _place(value: SSAValue) -> tuple[str, int, tuple[int, ...]]:
    """A value's placement as the tile level takes it."""
    found: Placement = placement_of(value)
    return found.arena, found.offset, found.strides


ROAD: tuple[Station, ...] = (
    Station("import", import_model, "model file -> graph"),
    Station("graph passes", optimise_graph, "graph -> graph, in the model's numbers"),
    Station("quantise", quantise, "graph + samples -> graph of the numbers asked for"),
    Station("kernels", form_kernels, "graph -> graph of kernels, on accelerator or host"),
    Station("calibrate", calibrate, "graph + samples -> ranges of values"),
    Station("numbers, layouts, memory", place_graph, "graph -> graph of placed kernels"),
    Station("plan", plan_kernels, "kernel + machine -> schedule"),
    Station("tile", build_tiles, "kernel + schedule -> tile program"),
)
"""Everything up to the target's own part; ``compile`` then lets the target emit a package."""


def resolve(
    target: str | Target,
    machine: Machine | str | Path | None = None,
    values: Mapping[str, float] | None = None,
    cpu: str | None = None,
) -> tuple[Target, Machine]:
    """The target and its machine, with ``values`` such as ``memory.sb.bytes`` changed.

    ``target`` may be the path of a machine file (``.toml``): the generic target then runs it.
    ``cpu`` names the processor that the cpu target makes C for (by default the one at hand).
    """
    if isinstance(target, str) and target.endswith(".toml"):
        machine, target = target, "generic"
    found = find_target(target) if isinstance(target, str) else target
    if isinstance(machine, str | Path):
        from tilewright.machine.load import load_machine

        machine = load_machine(Path(machine))
    if machine is not None and cpu is not None:
        raise refuse("option-cpu", "a machine of one's own has its processor already", "--cpu")
    described = machine or (found.machine() if cpu is None else found.variant(cpu))
    return found, described.with_values(values) if values else described


def travel(
    model: Model,
    target: Target,
    machine: Machine,
    *,
    shapes: Shapes | None = None,
    weights: str | Path | None = None,
    calibration: Samples | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    numbers: Numbers | None = None,
    dump: Path | None = None,
    progress: Progress = quiet,
    exact_memory: bool = False,
    planner: Planner | None = None,
    until: str = "tile",
) -> Work:
    """Take a model along the road, to the end of the station ``until``."""
    runner = PassRunner(CompilerContext(machine), dump)
    work = Work(target, machine, model, shapes or {}, calibration, progress, runner, exact_memory)
    work.weights_file, work.ranges, work.numbers = weights, ranges, numbers
    work.planner = planner
    for station in ROAD:
        progress(station.name, 0, 0)
        station.run(work)
        _check_files(work)
        if station.name == until:
            break
    return work


def compile(
    model: Model,
    target: str | Target = "cpu",
    *,
    machine: Machine | str | Path | None = None,
    values: Mapping[str, float] | None = None,
    shapes: Shapes | None = None,
    weights: str | Path | None = None,
    example_inputs: Any = None,
    dynamic_shapes: Any = None,
    calibration: Samples | None = None,
    numbers: str | Numbers | None = None,
    observer: str | None = None,
    keep_float: Sequence[str] = (),
    directory: str | Path | None = None,
    dump: str | Path | None = None,
    exact_memory: bool = False,
    exact_convolution: bool = False,
    cpu: str | None = None,
    planner: str = "model",
    database: str | Path | None = None,
    progress: Progress = quiet,
    cache: Cache | None = None,
) -> Executable:
    """Compile a model for a target; returns an executable package.

    ``target`` is a target's name or a machine file; ``machine`` and ``values`` vary its machine
    (``{"memory.sb.bytes": 65536}``). ``weights`` is the file of the weights where a format keeps
    them apart (Caffe). The package is written to ``directory`` (nothing is there until it is
    whole), or to a temporary one that lives as long as the result. ``dump`` collects the
    representation after every pass. ``exact_convolution`` leaves out methods that round otherwise
    than by the order of their sums (``Machine.exact``). ``cpu`` makes the cpu target's C for a
    processor other than the one at hand (``avx512``, ``avx2``, ``sse2``, ``neon``, ``portable``).
    With ``database``, schedules that were measured (``tilewright.tuning``) are taken from it; with
    ``planner="measured"``, what it lacks is measured first.

    ``numbers`` names a number format other than the machine's own (``int8``; numerics/formats.py
    has all). ``calibration`` gives the sample inputs from which ``observer``
    (``minimum-maximum``, ``percentile``, ``mean-squared-error``) chooses scales and binary points;
    the nodes ``keep_float`` stay float32.

    A PyTorch module is captured with ``example_inputs`` (a tensor, a tuple of arguments, or a dict
    of them by name) and, for torch.export, ``dynamic_shapes`` (docs/pytorch.md).

    ``shapes`` gives sizes to dims that the model leaves free, or names and bounds
    (``{"image": ("batch", 3, 224, 224), "batch": "1..8"}``; ``tilewright.shapes.forms`` has all
    forms). If dims stay free, the result is a ``DynamicExecutable``: it compiles the model for each
    shape when it is first used, keeps what it built in ``cache``, and tells ``progress``. Raises
    TilewrightError.
    """
    found, described = resolve(target, machine, values, cpu)
    if isinstance(numbers, str) or observer is not None or keep_float:
        if isinstance(numbers, Numbers):
            raise refuse("numbers-format", "numbers given as a value hold all that is chosen")
        numbers = numbers_of(numbers or described.element, observer, tuple(keep_float))
    if exact_convolution:
        described = described.exact()
    model = _opened(model, weights, example_inputs, dynamic_shapes)
    if isinstance(model, frontends.Opened):
        settled = settle(model.signature.inputs, shapes)
        if settled.free and (database is not None or planner != "model"):
            free = ", ".join(settled.free)
            raise refuse("option-planner", f"there are no kernels to measure while {free} is free")
        if settled.free:
            if dump is not None:
                raise refuse(
                    "shape-open", "before free dims have sizes, no pass runs", "dump",
                    "give their sizes too",
                )  # fmt: skip
            source = model
            notes = source.trial(settled)
            ranges = _ranges_of(source, settled, found, described, calibration, numbers, progress)
            how = Recipe(found.name, described, exact_memory, ranges, notes, numbers)
            write = partial(write_open_package, source=source, settled=settled, recipe=how)
            return _written(write, directory, cache, progress)
    with planner_of(planner, found.measurer(), found.built(), described, database) as asked:
        work = travel(
            model,
            found,
            described,
            shapes=shapes,
            weights=weights,
            calibration=calibration,
            numbers=numbers,
            dump=None if dump is None else Path(dump),
            progress=progress,
            exact_memory=exact_memory,
            planner=asked,
        )
    progress("emit", 0, 0)
    return _written(partial(_emit, work), directory, cache, progress)


def _opened(
    model: Model, weights: str | Path | None, example_inputs: Any, dynamic_shapes: Any
) -> Model:
    """The model read as far as it can be before its shapes are settled."""
    if isinstance(model, frontends.Imported | frontends.Opened):
        if example_inputs is not None or dynamic_shapes is not None:
            raise refuse("torch-example-inputs", "the model has been loaded, with its inputs")
        return model
    if weights is not None:
        if isinstance(model, str | Path | frontends.Exported):
            return model  # The front-ends know which of their formats take weights.
        raise refuse("model-weights", "a PyTorch module brings its weights")
    return (
        frontends.open_model(model, example_inputs=example_inputs, dynamic_shapes=dynamic_shapes)
        or model
    )


def specialise(
    directory: Path, manifest: Manifest, sizes: Mapping[str, int], place: Path, progress: Progress
) -> None:
    """Compile a package's model for sizes of its free dims, into an empty directory.

    The bytes are those of ``compile`` with the same shapes. Raises TilewrightError.
    """
    found = manifest.open_model
    if found is None or found.file not in manifest.files:
        raise refuse("package-invalid", "it has no model", str(directory))
    shapes = {
        tensor.name: [sizes[dim] if isinstance(dim, str) else dim for dim in tensor.shape]
        for tensor in manifest.inputs
    }
    work = travel(
        directory / found.file,
        find_target(manifest.target),
        machine_of(manifest.machine, str(directory / MANIFEST)),
        shapes=shapes,
        ranges=found.ranges,
        numbers=None if found.numbers is None else numbers_of(*found.numbers),
        progress=progress,
        exact_memory=found.exact_memory,
    )
    progress("emit", 0, 0)
    _emit(work, place)


def _ranges_of(
    model: frontends.Opened,
    settled: Settled,
    target: Target,
    machine: Machine,
    samples: Samples | None,
    numbers: Numbers | None,
    progress: Progress,
) -> Mapping[str, tuple[float, float]] | None:
    """Ranges of values on samples, which have a shape of their own: they hold for every shape."""
    needed = machine.element != "float32" or (numbers is not None and numbers.needs_ranges)
    if numbers is not None:
        check_format(machine, numbers, samples is not None)
    if samples is None or not needed:
        return None
    shapes, samples = sample_shapes(settled.inputs, samples)
    bound = settled.bind(sizes_of(settled.inputs, settled.free, shapes))
    work = travel(
        model,
        target,
        machine,
        shapes=bound,
        calibration=samples,
        numbers=numbers,
        progress=progress,
        until="calibrate",
    )
    return work.runner.context.ranges


def _written(
    write: Callable[[Path], None],
    directory: str | Path | None,
    cache: Cache | None,
    progress: Progress,
) -> Executable:
    """A package that ``write`` makes, in its place or in a temporary one."""
    if directory is not None:
        with replacing(Path(directory)) as fresh:
            write(fresh)
        return opened(Path(directory), cache=cache, progress=progress)
    temporary = Path(tempfile.mkdtemp(prefix="tilewright-"))
    try:
        write(temporary)
        return opened(temporary, temporary=True, cache=cache, progress=progress)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _emit(work: Work, directory: Path) -> None:
    """Let the target emit its part, and write the package around it."""
    arenas = arenas_of(network_of(work.network))
    kernels = tuple(work.kernels)
    made = Compilation(work.machine, work.network, work.weights, kernels, arenas)
    write_package(directory, work.target, made, work.plans, work.name, work.notes)
    _check_files(work)
