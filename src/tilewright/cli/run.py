"""``tilewright run``: run a model or a package once."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tilewright.cli import console, hlal
from tilewright.cli.engine import EngineOption, run_layers
from tilewright.cli.groups import ModelOptions, grouped
from tilewright.cli.inputs import InputOption, RandomOption, inputs_for
from tilewright.cli.numbers import Chosen, NumberOptions
from tilewright.cli.sizes import bound_model, bound_package, request_to_run
from tilewright.errors import refuse

if TYPE_CHECKING:
    from tilewright.compiler.pipeline import Progress
    from tilewright.runtime import Executable


ModelArgument = Annotated[Path, typer.Argument(help=f"{console.MODELS} Or a package, or .hlal.")]
TrustOption = Annotated[
    bool,
    typer.Option(
        "--trust-library", help="Load the package's library even if not sealed by your key."
    ),
]


def is_package(path: Path) -> bool:
    """Return True if a path is a package, not a model."""
    from tilewright.runtime.elf import is_elf

    return path.is_dir() or is_elf(path)


def open_or_compile(
    model: Path,
    target: str | None,
    options: ModelOptions,
    choices: Chosen,
    progress: Progress,
    exact_convolution: bool = False,
    files: list[str] | None = None,
    planner: str = "model",
    keep: bool = True,
    trust: bool = False,
    origin: Path | None = None,
) -> Executable:
    """The package at ``model``, or the model compiled into a temporary one.

    A model that was compiled before is taken from the cache, unless told not to ``keep`` it.
    Free dims take their sizes from ``options`` and from the shapes of the arrays in ``files``.
    ``origin`` is the model that a package was made from, for its check.
    """
    from tilewright.compiler.written import written
    from tilewright.runtime.executable import quiet

    if is_package(model):
        from tilewright.compiler.packages import Executable

        package = Executable.load(model, cache=console.cache(), progress=progress, trust=trust)
        if origin is not None and not package.free:
            only_shape = ModelOptions(shape=options.shape)
            package.model = written(lambda: bound_model(origin, only_shape, files, quiet), origin)
        fixed = options.constant or (bool(options.shape) and not package.free)
        chosen = exact_convolution or planner != "model"
        if target or options.settings or fixed or choices or options.caffemodel or chosen:
            raise refuse(
                "option-package", "a package is already compiled", str(model),
                "give these options to a model file",
            )  # fmt: skip
        return bound_package(package, options.shape, files, progress)
    if trust:
        raise refuse(
            "option-trust", "a model has no library", "--trust-library", "give it with a package"
        )
    cache = console.cache() if keep else None
    request = None
    if cache is not None and planner == "model" and not options.constant:
        request = request_to_run(
            model, target, options.shape, files,
            {"set": options.settings, "caffemodel": options.caffemodel,
             "exact": exact_convolution, **choices},
        )  # fmt: skip
    if cache is not None and request is not None:
        recalled = cache.recall(request.digest, model.parent)
        if recalled is not None:
            for note in recalled.notes:
                progress(note, 0, 0)
            executable = recalled.executable
            executable.model = written(
                lambda: bound_model(model, options, files, quiet),
                model, caffemodel=options.caffemodel,
            )  # fmt: skip
            return executable
    from tilewright.compiler.api import compile
    from tilewright.compiler.cached import beside, files_of

    notes: list[str] = []

    def noted(activity: str, done: int, total: int) -> None:
        notes.append(activity)
        progress(activity, done, total)

    source, shapes = bound_model(model, options, files, noted)
    parts = None if request is None else files_of(source, options.caffemodel)
    compiled = compile(
        source,
        target or "cpu",
        values=options.values,
        shapes=shapes,
        caffemodel=options.caffemodel,
        exact_convolution=exact_convolution,
        planner=planner,
        progress=progress,
        cache=cache,
        **choices,
    )
    if cache is not None and request is not None and parts and request.unchanged():
        cache.remember(request.digest, compiled, beside(parts), notes)
    return compiled


def need_model(executable: Executable, model: Path) -> None:
    """Refuse before the run a model that the package was not made from: one that cannot be read, or
    has other inputs."""
    if executable.model is None:
        return
    from tilewright.graph.dialect import network_of
    from tilewright.ir.types import shape_of

    module, _ = executable.model()
    model_inputs = {name: list(shape_of(value)) for name, value in network_of(module).inputs}
    packaged = {info.name: list(info.shape) for info in executable.inputs}
    if model_inputs != packaged:
        of, its = (
            ", ".join(f"{name} {shape}" for name, shape in shapes.items()) or "none"
            for shapes in (model_inputs, packaged)
        )
        raise refuse(
            "option-package", f"its inputs are {of}, the package's {its}", str(model),
            "name the model that the package was made from",
        )  # fmt: skip


@grouped
def run(
    model: ModelArgument,
    *,
    target: console.OptionalTargetOption = None,
    inputs: InputOption = None,
    random: RandomOption = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Compare outputs with the interpreter's and the model's.",
        ),
    ] = False,
    beside: Annotated[
        Path | None,
        typer.Option(
            "--model", metavar="FILE", help="With --check: the model a package was made from."
        ),
    ] = None,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="FILE", help="Write a timeline for Perfetto.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE.npz", help="Save the outputs.")
    ] = None,
    formats: NumberOptions,
    options: ModelOptions,
    exact_convolution: console.ExactOption = False,
    planner: console.PlannerOption = "model",
    threads: console.ThreadsOption = 1,
    no_cache: console.NoCacheOption = False,
    trust_library: TrustOption = False,
    functions: Annotated[
        list[Path] | None,
        typer.Option(
            "--functions",
            metavar="FILE",
            help="C of the machine's functions, in place of the package's for the host.",
        ),
    ] = None,
    engine: EngineOption = None,
    limit: hlal.LimitOption = hlal.MOST_INSTRUCTIONS,
    no_barriers: hlal.NoBarriersOption = False,
    kernels: console.KernelsOption = False,
    as_json: console.JsonOption = False,
    quiet: console.QuietOption = False,
) -> None:
    """Run a model, a package or an HLAL program, and report what it took.

    Times are the median of a few more runs, where these are short (docs/reports.md).

    With an HLAL program (.hlal), --check looks for missed barriers. With --engine DLP, a prototxt
    runs layer by layer through the library DLPlib on an accelerator, with CAFFE on the cpu.

    Example: tilewright run lenet5.onnx --target cambricon-x --random 1 --check --trace lenet5.json
    Example: tilewright run program.hlal --input arrays.npz --check -o results.npz
    """
    others = exact_convolution or planner != "model" or threads != 1 or trust_library or kernels
    others = others or bool(functions) or beside is not None
    programs = no_barriers or limit != hlal.MOST_INSTRUCTIONS
    if engine is not None:
        compiling = formats.compiling or trace is not None or options.settings is not None
        run_layers(
            model, engine, target, options, formats, inputs, random,
            check=check, output=output, as_json=as_json, others=others or compiling or programs,
        )  # fmt: skip
        return
    if model.suffix == hlal.SUFFIX:
        others = others or formats != NumberOptions()
        with console.refusals(as_json):
            if others or options != ModelOptions(settings=options.settings):
                raise refuse(
                    "option-hlal", "an HLAL program is not compiled from a model", str(model),
                    "give these options to a model",
                )  # fmt: skip
            finished = hlal.run_program(
                model, target, options.settings, inputs, random, check=check, trace=trace,
                output=output, limit=limit, barriers=not no_barriers,
            )  # fmt: skip
        hlal.report(*finished, as_json, check)
        return
    with console.refusals(as_json):
        if beside is not None and not (check and is_package(model)):
            raise refuse("option-package", "--model is for the --check of a package", str(model))
        if programs:
            raise refuse("option-hlal", "--limit and --no-barriers are for HLAL", str(model))
        if functions:
            from tilewright.codegen.program.interface import need_functions

            need_functions(functions)
        with console.progress(quiet) as progress:
            executable = open_or_compile(
                model,
                target,
                options,
                formats.chosen,
                progress,
                exact_convolution,
                inputs,
                planner,
                not no_cache,
                trust_library,
                beside,
            )
            if functions:
                executable.runner.use_functions(functions)
            if beside is not None:
                need_model(executable, beside)
            arrays = inputs_for(executable.inputs, inputs, random)
            progress("run", 0, 0)
            executable.runner.threads = threads
            begin = time.perf_counter()
            results = executable.run(arrays, trace=trace, check_races=check, profile=True)
            took = time.perf_counter() - begin
            results = executable.manifest.lists.told(results)  # Files have arrays.
            if output is not None:
                console.save_arrays(output, results)
            compared = None
            if check:
                progress("check", 0, 0)
                compared = executable.check(arrays, results)
            from tilewright.runtime.executable import AGAIN, LONG, MOST_RUNS

            if executable.profile.cycles is None or took < LONG:
                progress("run", 0, 0)
                executable.measure(arrays, MOST_RUNS, AGAIN)
        # A model that was named and cannot be compared with is no passed check.
        unknown = compared is not None and compared.model is not None and compared.model.reason
        failed = compared is not None and bool(not compared.passed or (beside and unknown))
        if as_json:
            console.print_json(
                {
                    "target": executable.manifest.target,
                    "outputs": console.describe(results),
                    "check": None if compared is None else compared.to_json(),
                    "profile": executable.summary(),
                }
            )
        else:
            console.say(executable.report(kernels=kernels))
            if compared is not None:
                word = "FAILED" if failed else "passed"
                how = "bit for bit" if compared.exact else "within the tolerance of float32"
                if executable.runner.roundoff:
                    how = "within what roundings of the target's numbers give"
                error, wrong = compared.max_abs_error, compared.mismatches
                console.say(
                    f"check {word} ({how}):\n  largest error {error:.3g}, {wrong} mismatches"
                )
                console.say(f"  {compared.model}")
                for loss in (*compared.overflows, *compared.underflows):
                    console.say(f"warning: {loss}")
            elif unbounded := console.not_finite(results):
                console.say(
                    f"warning: not all of {', '.join(unbounded)} is finite; --check says more"
                )
    if failed:
        raise typer.Exit(1)
