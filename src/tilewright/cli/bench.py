"""``tilewright bench``: run several times and report the spread."""

from __future__ import annotations

import os
import statistics
import time
from math import inf
from typing import Annotated, Any

import typer

from tilewright.cli import console
from tilewright.cli.groups import ModelOptions, grouped
from tilewright.cli.inputs import InputOption, RandomOption, inputs_for
from tilewright.cli.numbers import NumberOptions
from tilewright.cli.run import ModelArgument, TrustOption, open_or_compile
from tilewright.errors import refuse


@grouped
def bench(
    model: ModelArgument,
    *,
    target: console.OptionalTargetOption = None,
    repeat: Annotated[int, typer.Option("--repeat", "-n", min=1, max=10000)] = 10,
    inputs: InputOption = None,
    random: RandomOption = None,
    formats: NumberOptions,
    options: ModelOptions,
    exact_convolution: console.ExactOption = False,
    threads: console.ThreadsOption = 1,
    kernels: console.KernelsOption = False,
    no_cache: console.NoCacheOption = False,
    trust_library: TrustOption = False,
    as_json: console.JsonOption = False,
    quiet: console.QuietOption = False,
) -> None:
    """Run a model or a package several times; print minimum, median and maximum.

    The first run is left out. Simulated targets give the same cycles every time, so they run once
    more, for the host's part.

    Example: tilewright bench resnet50.onnx --target cpu --repeat 20
    """
    from tilewright.runtime.glance import duration

    with console.refusals(as_json), console.progress(quiet) as progress:
        start = time.perf_counter()
        executable = open_or_compile(
            model,
            target,
            options,
            formats.chosen,
            progress,
            exact_convolution,
            inputs,
            keep=not no_cache,
            trust=trust_library,
        )
        compile_seconds = time.perf_counter() - start
        # The processor time of other programs, which is the C compiler's.
        c_compiler_seconds = os.times().children_user
        arrays = inputs_for(executable.inputs, inputs, random)
        executable.runner.threads = threads
        executable.run(arrays, profile=True)
        progress("run", 0, 0)
        simulated = executable.profile.cycles is not None
        if not simulated and executable.profile.seconds is None:
            target = executable.manifest.target
            raise refuse("profile-missing", f"a run on {target} has no times")
        times = executable.measure(arrays, 1 if simulated else repeat, inf)
        profile = executable.profile
        if profile.cycles is not None:
            times = [profile.cycles / (profile.clock_hz or 1.0)]
    result: dict[str, Any] = {
        "target": executable.manifest.target,
        "simulated": simulated,
        "runs": len(times),
        "threads": threads,
        "seconds": {
            "minimum": min(times),
            # The lower one of two in the middle, as the report's: it is one run's.
            "median": statistics.median_low(times),
            "maximum": max(times),
        },
        "compile_seconds": compile_seconds,
        "c_compiler_seconds": c_compiler_seconds,
        "profile": executable.summary(),
    }
    if as_json:
        console.print_json(result)
        return
    console.say(executable.report(kernels=kernels))
    low, middle, high = (result["seconds"][k] for k in ("minimum", "median", "maximum"))
    spread = f"; {len(times)} runs from {duration(low)} to {duration(high)}"
    console.say(
        f"{'simulated' if simulated else 'measured'} {duration(middle)}"
        + ("" if simulated else spread)
        + f"; compiled in {compile_seconds:.2f} s"
        + _by_the_compiler(c_compiler_seconds)
    )


def _by_the_compiler(seconds: float) -> str:
    """The C compiler's share, where it was at work."""
    return f" ({seconds:.2f} s of processor time by the C compiler)" if seconds >= 0.01 else ""
