"""From a model to an executable package.

What was compiled before is found by what was asked for; only what is new needs the compiler, which
takes a second to import.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.compiler.request import request_of
from tilewright.errors import refuse
from tilewright.runtime.executable import Executable, Progress, placed, quiet

if TYPE_CHECKING:
    from tilewright.compiler.state import Model
    from tilewright.machine import Machine
    from tilewright.numbers.calibration import Samples
    from tilewright.numerics.formats import Numbers
    from tilewright.planning.planners.by_node import Steps
    from tilewright.runtime.cache import Cache
    from tilewright.shapes.forms import Shapes
    from tilewright.targets.base import Target


def compile(
    model: Model,
    target: str | Target | Any = "cpu",
    *,
    machine: Machine | str | Path | None = None,
    values: Mapping[str, float] | None = None,
    shapes: Shapes | None = None,
    constants: Mapping[str, Any] | None = None,
    caffemodel: str | Path | None = None,
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
    weights: str | None = None,
    bare: bool = False,
    planner: str = "model",
    schedules: Mapping[str, Steps] | None = None,
    database: str | Path | None = None,
    progress: Progress = quiet,
    cache: Cache | None = None,
) -> Executable:
    """Compile a model for a target; returns an executable package.

    ``target`` is a target's name or a machine file; ``machine`` and ``values`` vary its machine
    (``{"memory.sb.bytes": 65536}``). ``caffemodel`` is the file of the weights of a prototxt. The
    package is written to ``directory`` (nothing is there until it is whole), or to a temporary one
    that lives as long as the result. ``dump`` collects the representation after every pass.
    ``exact_convolution`` leaves out methods that round otherwise than by the order of their sums
    (``Machine.exact``). ``cpu`` makes the cpu target's C for a processor other than the one at hand
    (``amx``, ``avx512``, ``avx2``, ``sse2``, ``neon``, ``portable``, ``cortex-m7``). ``name`` is
    what the package's C functions and files are called: by default the model file's name, made an
    identifier. ``weights="array"`` writes the weights as constant arrays in C, not to a file;
    ``bare`` does, too, and uses neither threads, heap, files nor clocks (docs/microcontrollers.md).
    With ``database``, schedules that were measured (``compiler.tune``) are taken from it; with
    ``planner="measured"``, what it lacks is measured first. ``planner`` takes the names of
    planning/planners/registry.py, with options (``greedy{start=granule}``). ``schedules`` has, by
    the model's nodes, functions that schedule the kernels of these by hand (docs/scheduling.md).

    ``numbers`` names a number format other than the machine's own (``int8``; numerics/formats.py
    has all). ``calibration`` gives the sample inputs from which ``observer``
    (``minimum-maximum``, ``percentile``, ``mean-squared-error``) chooses scales and binary points;
    the nodes ``keep_float`` stay float32. ``equalise`` makes channels of activations alike before
    they are quantised (the default in ``int8``; docs/quantisation.md).

    A PyTorch module is captured with ``example_inputs`` (a tensor, a tuple of arguments, or a dict
    of them by name) and, for torch.export, ``dynamic_shapes`` (docs/pytorch.md). They may stand in
    the place of ``target``, too: ``compile(module, example)``.

    ``constants`` makes inputs of an ONNX model constant (``{"sizes": [1, 3, 64, 64]}``):
    sizes, axes and branches may depend on them, and a run does not take them any more.

    ``shapes`` gives sizes to dims that the model leaves free, or names and bounds
    (``{"image": ("batch", 3, 224, 224), "batch": "1..8"}``; ``tilewright.shapes.forms`` has all
    forms). If dims stay free, the result is a ``DynamicExecutable``: it compiles the model for each
    shape when it is first used, keeps what it built in ``cache``, and tells ``progress``.

    With a ``cache``, a model file that was compiled before with the same options, by this very
    Tilewright and C compiler, is not compiled again: its package is taken from there. Calibrated
    and measured compilations, dumps and models in memory are not kept.
    Raises TilewrightError.
    """
    file = model if isinstance(model, str | Path) else None
    if not isinstance(target, str):
        target, example_inputs = _told_apart(target, example_inputs)
    plain = calibration is None and dump is None and database is None
    plain = plain and planner == "model" and not schedules
    alone = example_inputs is None and dynamic_shapes is None and not constants
    request = None
    if cache is not None and plain and alone:
        request = request_of(
            model, target,
            {
                "machine": Path(machine) if isinstance(machine, str) else machine,
                "values": values, "shapes": shapes,
                "caffemodel": None if caffemodel is None else Path(caffemodel),
                "numbers": numbers, "observer": observer, "keep_float": tuple(keep_float),
                "equalise": None if equalise is None else str(equalise),
                "cpu": Path(cpu) if cpu is not None and cpu.endswith(".json") else cpu,
                "name": name,
                "exact_memory": exact_memory, "exact_convolution": exact_convolution,
                "weights": weights, "bare": bare, "kept": directory is not None,
            },
        )  # fmt: skip
    if cache is not None and request is not None:
        recalled = cache.recall(request.digest, Path(str(model)).parent)
        if recalled is not None:
            return _beside(placed(recalled.executable, directory), model, file, shapes, caffemodel)

    from tilewright import frontends
    from tilewright.codegen.program.interface import Form
    from tilewright.compiler.build import (
        calibrated,
        emit,
        form_of,
        opened_model,
        write_apart,
    )
    from tilewright.compiler.cached import obtained
    from tilewright.compiler.pipeline import resolve, run_pipeline
    from tilewright.compiler.plans import write_with_plans
    from tilewright.graph.names import chosen_name
    from tilewright.numerics.formats import Numbers, numbers_of
    from tilewright.planning.planners.by_node import by_hand
    from tilewright.runtime.open_package import Recipe
    from tilewright.shapes.settlement import settle

    chosen, described = resolve(target, machine, values, cpu)
    form = form_of(chosen, weights, bare)
    name = "" if name is None else chosen_name(name)
    options = observer is not None or keep_float or equalise is not None
    if isinstance(numbers, str) or options:
        if isinstance(numbers, Numbers):
            raise refuse("numbers-format", "numbers given as a value leave no other choices")
        numbers = numbers_of(numbers or described.element, observer, tuple(keep_float), equalise)
    if exact_convolution:
        described = described.exact()
    model = opened_model(model, caffemodel, example_inputs, dynamic_shapes, constants)
    if isinstance(model, frontends.Opened):
        settled = settle(model.signature.inputs, shapes, computed=model.signature.computed)
        if settled.free and (database is not None or planner != "model" or schedules):
            free = ", ".join(settled.free)
            raise refuse("option-planner", f"a planner needs fixed shapes, and {free} is free")
        if settled.free:
            if form != Form():
                raise refuse(
                    "shape-open", "C with arrays of weights needs fixed shapes", "--weights",
                    "give sizes to the free dims",
                )  # fmt: skip
            if dump is not None:
                raise refuse(
                    "shape-open", "passes run only once free dims have sizes", "dump",
                    "give their sizes too",
                )  # fmt: skip
            source = model
            notes = source.trial(settled)
            ranges, factors = calibrated(
                source, settled, chosen, described, calibration, numbers, progress
            )
            how = Recipe(
                chosen.name, described, exact_memory, ranges, notes, numbers, factors, name
            )
            make = partial(
                write_with_plans, source=source, settled=settled, recipe=how, progress=progress
            )
            return write_apart(make, directory, cache, progress)

    def write(place: Path) -> None:
        with chosen.planner(planner, described, database) as asked:
            scheduled = by_hand(schedules, described, asked) if schedules else None
            state = run_pipeline(
                model,
                chosen,
                described,
                shapes=shapes,
                caffemodel=caffemodel,
                calibration=calibration,
                numbers=numbers,
                dump=None if dump is None else Path(dump),
                progress=progress,
                exact_memory=exact_memory,
                ask=scheduled or asked,
                name=name,
                loops=True,
            )
            emit(state, place, form)
            if scheduled is not None:
                hosted = [kernel.kernel for kernel in state.kernels if kernel.on_host]
                reasons = {n: state.refusal_of(k.symbol) for k in hosted for n in k.nodes}
                scheduled.check(reasons)

    if cache is not None and plain:
        kept = obtained(
            cache, model, caffemodel, chosen, described, shapes,
            numbers=numbers, exact_memory=exact_memory, name=name, form=form, directory=directory,
            write=write, progress=progress, request=request,
        )  # fmt: skip
        if kept is not None:
            return _beside(kept, model, file, shapes, caffemodel)
    executable = write_apart(write, directory, cache, progress)
    return _beside(executable, model, file, shapes, caffemodel)


def _beside(
    executable: Executable,
    model: Model,
    file: str | Path | None,
    shapes: Shapes | None,
    caffemodel: str | Path | None,
) -> Executable:
    """An executable that knows the model that it was compiled from, for checks."""
    from tilewright.compiler.written import written

    if not executable.free:  # Of free dims the package keeps the model itself.
        executable.model = written(lambda: (model, shapes), file, caffemodel=caffemodel)
    return executable


def _told_apart(second: Any, example_inputs: Any) -> tuple[str | Target, Any]:
    """Target and example inputs, of which the second argument is one."""
    from tilewright.targets.base import Target

    if isinstance(second, Target):
        return second, example_inputs
    if isinstance(second, Path):
        return str(second), example_inputs
    if example_inputs is not None:
        raise refuse("target-unknown", f"a {type(second).__name__} names no target")
    return "cpu", second
