"""From a model to an executable package, and from one with free dims to a shape's own."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tilewright import frontends
from tilewright.compiler.cached import obtained
from tilewright.compiler.packages import opened
from tilewright.compiler.pipeline import advance, check_files, resolve, run_pipeline
from tilewright.compiler.quantise import check_format
from tilewright.compiler.state import CompilationState, Model
from tilewright.errors import KernelError, refuse
from tilewright.graph.dialect import network_of
from tilewright.graph.names import chosen_name, network_name
from tilewright.graph.placement import (
    arenas_of,
)
from tilewright.ir.types import Array
from tilewright.machine import Machine
from tilewright.machine.forms import machine_of
from tilewright.numbers.calibration import (
    Samples,
    sample_shapes,
)
from tilewright.numerics.formats import Numbers, numbers_of
from tilewright.planning.planners.by_hand import ByHand, Steps
from tilewright.runtime.cache import Cache
from tilewright.runtime.executable import Executable, Progress, quiet, replacing
from tilewright.runtime.manifest import MANIFEST, PROGRAM, Manifest
from tilewright.runtime.open_package import Recipe, write_open_package
from tilewright.runtime.package import write_package
from tilewright.shapes import Settled, Shapes, settle, sizes_of
from tilewright.targets.base import Compilation, Form, Target, find_target


def compile(
    model: Model,
    target: str | Target = "cpu",
    *,
    machine: Machine | str | Path | None = None,
    values: Mapping[str, float] | None = None,
    shapes: Shapes | None = None,
    constants: Mapping[str, Any] | None = None,
    weights: str | Path | None = None,
    example_inputs: Any = None,
    dynamic_shapes: Any = None,
    calibration: Samples | None = None,
    numbers: str | Numbers | None = None,
    observer: str | None = None,
    keep_float: Sequence[str] = (),
    equalise: bool | None = None,
    directory: str | Path | None = None,
    dump: str | Path | None = None,
    exact_memory: bool = False,
    exact_convolution: bool = False,
    cpu: str | None = None,
    name: str | None = None,
    weights_as: str | None = None,
    bare: bool = False,
    planner: str = "model",
    schedules: Mapping[str, Steps] | None = None,
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
    processor other than the one at hand (``amx``, ``avx512``, ``avx2``, ``sse2``, ``neon``,
    ``portable``, ``cortex-m7``). ``name`` is what the package's C functions and files are called:
    by default the model file's name, made an identifier. ``weights_as="array"`` writes the weights
    as constant arrays in C, not to a file; ``bare`` does, too, and uses neither threads, heap,
    files nor clocks (docs/microcontrollers.md).
    With ``database``, schedules that were measured (``compiler.tune``) are taken from it; with
    ``planner="measured"``, what it lacks is measured first. ``planner`` takes the names of
    planning/planners/choice.py, with options (``greedy{start=granule}``). ``schedules`` has, by the
    model's nodes, functions that schedule the kernels of these by hand (docs/scheduling.md).

    ``numbers`` names a number format other than the machine's own (``int8``; numerics/formats.py
    has all). ``calibration`` gives the sample inputs from which ``observer``
    (``minimum-maximum``, ``percentile``, ``mean-squared-error``) chooses scales and binary points;
    the nodes ``keep_float`` stay float32. ``equalise`` makes channels of activations alike before
    they are quantised (the default in ``int8``; docs/quantisation.md).

    A PyTorch module is captured with ``example_inputs`` (a tensor, a tuple of arguments, or a dict
    of them by name) and, for torch.export, ``dynamic_shapes`` (docs/pytorch.md).

    ``constants`` gives inputs of an ONNX model values for good (``{"sizes": [1, 3, 64, 64]}``):
    sizes, axes and branches may depend on them, and a run does not take them any more.

    ``shapes`` gives sizes to dims that the model leaves free, or names and bounds
    (``{"image": ("batch", 3, 224, 224), "batch": "1..8"}``; ``tilewright.shapes.forms`` has all
    forms). If dims stay free, the result is a ``DynamicExecutable``: it compiles the model for each
    shape when it is first used, keeps what it built in ``cache``, and tells ``progress``.

    With a ``cache``, a model file that was compiled before with the same options, by this very
    Tilewright and C compiler, is not compiled again: its package is taken from there. Calibrated
    and measured compilations, dumps and models in memory are not kept. Raises TilewrightError.
    """
    found, described = resolve(target, machine, values, cpu)
    form = _form(found, weights_as, bare)
    name = "" if name is None else chosen_name(name)
    options = observer is not None or keep_float or equalise is not None
    if isinstance(numbers, str) or options:
        if isinstance(numbers, Numbers):
            raise refuse("numbers-format", "numbers given as a value hold all that is chosen")
        numbers = numbers_of(numbers or described.element, observer, tuple(keep_float), equalise)
    if exact_convolution:
        described = described.exact()
    model = _opened(model, weights, example_inputs, dynamic_shapes, constants)
    if isinstance(model, frontends.Opened):
        settled = settle(model.signature.inputs, shapes)
        if settled.free and (database is not None or planner != "model" or schedules):
            free = ", ".join(settled.free)
            raise refuse("option-planner", f"a planner is chosen for one shape, and {free} is free")
        if settled.free:
            if form != Form():
                raise refuse(
                    "shape-open", "C with arrays of weights is of one shape", "--weights-as",
                    "give sizes to the free dims",
                )  # fmt: skip
            if dump is not None:
                raise refuse(
                    "shape-open", "before free dims have sizes, no pass runs", "dump",
                    "give their sizes too",
                )  # fmt: skip
            source = model
            notes = source.trial(settled)
            ranges, factors = _calibrated(
                source, settled, found, described, calibration, numbers, progress
            )
            how = Recipe(found.name, described, exact_memory, ranges, notes, numbers, factors, name)
            make = partial(write_open_package, source=source, settled=settled, recipe=how)
            return _written(make, directory, cache, progress)

    def write(place: Path) -> None:
        with found.planner(planner, described, database) as asked:
            by_hand = ByHand(schedules, described, asked) if schedules else None
            state = run_pipeline(
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
                planner=by_hand or asked,
                name=name,
            )
            emit(state, place, form)
            if by_hand is not None:
                hosted = [kernel.kernel for kernel in state.kernels if kernel.on_host]
                reasons = {n: state.refused.get(k.symbol) for k in hosted for n in k.nodes}
                by_hand.check(reasons)

    plain = calibration is None and dump is None and database is None
    plain = plain and planner == "model" and not schedules
    if cache is not None and plain:
        kept = obtained(
            cache, model, weights, found, described, shapes,
            numbers=numbers, exact_memory=exact_memory, name=name, form=form, directory=directory,
            write=write, progress=progress,
        )  # fmt: skip
        if kept is not None:
            return kept
    return _written(write, directory, cache, progress)


def _opened(
    model: Model,
    weights: str | Path | None,
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
    if weights is not None:
        if isinstance(model, str | Path | frontends.Exported):
            return model  # The front-ends know which of their formats take weights.
        raise refuse("model-weights", "a PyTorch module brings its weights")
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
    found = manifest.open_model
    if found is None or found.file not in manifest.files:
        raise refuse("package-invalid", "it has no model", str(directory))
    shapes = {
        tensor.name: [sizes[dim] if isinstance(dim, str) else dim for dim in tensor.shape]
        for tensor in manifest.inputs
    }
    state = run_pipeline(
        directory / found.file,
        find_target(manifest.target),
        machine_of(manifest.machine, str(directory / MANIFEST)),
        shapes=shapes,
        ranges=found.ranges,
        factors=None
        if found.factors is None
        else {name: np.array(row, np.float32) for name, row in found.factors.items()},
        numbers=None if found.numbers is None else numbers_of(*found.numbers),
        progress=progress,
        exact_memory=found.exact_memory,
        name=network_name(manifest.model),
    )
    emit(state, place)


def _calibrated(
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


def _form(target: Target, weights_as: str | None, bare: bool) -> Form:
    """How the package's C is written; refuses (``option-form``) what a target does not write."""
    if weights_as not in (None, "file", "array"):
        raise refuse(
            "option-form", f"weights cannot be written as {weights_as!r}", "--weights-as",
            "file or array",
        )  # fmt: skip
    if bare and weights_as == "file":
        raise refuse("option-form", "without an operating system there are no files", "--bare")
    if not target.writes_c and (bare or weights_as == "array"):
        reason = f"packages for {target.name} are no C of their own"
        raise refuse("option-form", reason, "--bare" if bare else "--weights-as", "--target cpu")
    return Form("array" if bare else weights_as or "file", bare)


def emit(state: CompilationState, directory: Path, form: Form = Form()) -> None:  # noqa: B008 -- a value
    """Let the target emit its part, and write the package around it.

    Kernels that it refuses go to the host, where it has one. Raises TilewrightError.
    """
    advance(state, (), lambda: _write(state, form, directory))


def _write(state: CompilationState, form: Form, directory: Path) -> None:
    state.progress("emit", 0, 0)
    arenas = arenas_of(network_of(state.network))
    kernels = tuple(state.kernels)
    made = Compilation(state.machine, state.network, state.weights, kernels, arenas, form)
    try:
        write_package(directory, state.target, made, state.plans, state.name, state.notes)
    except KernelError:
        # Nothing half-written is left to an attempt without that kernel.
        shutil.rmtree(directory / PROGRAM, ignore_errors=True)
        raise
    check_files(state)
