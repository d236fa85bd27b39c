"""``tilewright bench``: run several times and report the spread."""

from __future__ import annotations

import statistics
import time
from typing import Annotated, Any

import typer

from tilewright.cli import console, numbers
from tilewright.cli.run import InputOption, ModelArgument, RandomOption, open_or_compile


def bench(
    model: ModelArgument,
    target: console.OptionalTargetOption = None,
    repeat: Annotated[int, typer.Option("--repeat", "-n", min=1, max=10000)] = 10,
    inputs: InputOption = None,
    random: RandomOption = None,
    format: numbers.NumbersOption = None,
    calibration: numbers.CalibrationOption = None,
    preprocess: numbers.PreprocessOption = None,
    observer: numbers.ObserverOption = None,
    keep_float: numbers.KeepFloatOption = None,
    equalise: numbers.EqualiseOption = None,
    shape: console.ShapeOption = None,
    weights: console.WeightsOption = None,
    settings: console.SetOption = None,
    exact_convolution: console.ExactOption = False,
    threads: console.ThreadsOption = 1,
    as_json: console.JsonOption = False,
    quiet: console.QuietOption = False,
) -> None:
    """Run a model or a package several times; print minimum, median and maximum.

    Simulated targets give the same cycles every time, so they run once.

    Example: tilewright bench resnet50.onnx --target cpu --repeat 20
    """
    with console.refusals(as_json), console.progress(quiet) as progress:
        start = time.perf_counter()
        executable = open_or_compile(
            model,
            target,
            settings,
            shape,
            numbers.chosen(format, calibration, preprocess, observer, keep_float, equalise),
            progress,
            weights,
            exact_convolution,
            inputs,
        )
        compile_seconds = time.perf_counter() - start
        arrays = console.inputs_for(executable.inputs, inputs, random)
        executable.runner.threads = threads
        executable.run(arrays)
        simulated = executable.profile.cycles is not None
        times: list[float] = []
        for number in range(1 if simulated else repeat):
            progress("run", number, repeat)
            if not simulated:
                executable.run(arrays)
            profile = executable.profile
            times.append(
                profile.cycles / (profile.clock_hz or 1.0)
                if profile.cycles is not None
                else profile.seconds or 0.0
            )
    result: dict[str, Any] = {
        "target": executable.manifest.target,
        "simulated": simulated,
        "runs": len(times),
        "threads": threads,
        "seconds": {
            "minimum": min(times),
            "median": statistics.median(times),
            "maximum": max(times),
        },
        "compile_seconds": compile_seconds,
        "profile": executable.summary(),
    }
    if as_json:
        console.print_json(result)
        return
    console.say(executable.report())
    low, middle, high = (1e3 * result["seconds"][k] for k in ("minimum", "median", "maximum"))
    console.say(
        f"{'simulated' if simulated else 'measured'} {middle:.3f} ms"
        + ("" if simulated else f" (median of {len(times)}; {low:.3f} to {high:.3f})")
        + f"; compiled in {compile_seconds:.2f} s"
    )
