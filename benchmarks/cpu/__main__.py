"""Time the cpu target against ONNX Runtime, one thread, batch 1, float32.

    python -m benchmarks.cpu resnet50 --rounds 40 --exact-convolution

prints; `python -m benchmarks cpu` keeps a table of all networks.

Both run in one process and take turns, so that what else the machine does meets both alike.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime

from benchmarks import models
from tilewright.driver import compile as compile_model
from tilewright.targets.cpu.compiler import compiler_version
from tilewright.targets.cpu.machine import this_processor
from tilewright.targets.cpu.runner import CpuRunner

NETWORKS = (
    *("resnet50", "resnet18", "alexnet", "vgg16", "vgg19", "squeezenet", "googlenet"),
    "mobilenet_v2",
)


@dataclass(frozen=True)
class Row:
    """One network: milliseconds per run."""

    name: str
    ours: float
    theirs: float
    ours_best: float
    theirs_best: float
    error: float
    compile_seconds: float

    def __str__(self) -> str:
        return (
            f"| {self.name} | {self.ours:.2f} | {self.theirs:.2f} | {self.ours / self.theirs:.2f} "
            f"| {self.ours_best:.2f} | {self.theirs_best:.2f} | {self.error:.1e} "
            f"| {self.compile_seconds:.1f} |"
        )


HEAD = (
    "| network | Tilewright ms | ONNX Runtime ms | ratio | best | best | max rel. difference "
    "| compile s |\n|---|---|---|---|---|---|---|---|"
)


def measure(name: str, rounds: int, folder: Path, exact: bool = False) -> Row:
    """Compile a network, and time both in turns; ``exact`` leaves out Winograd's method."""
    path = models.save(name, folder)
    image = models.images(models.build(name)[1])
    begin = time.perf_counter()
    executable = compile_model(
        path, target="cpu", directory=folder / f"{name}.package", exact_convolution=exact
    )
    runner = executable.runner
    assert isinstance(runner, CpuRunner)
    compile_seconds = time.perf_counter() - begin
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feed = {session.get_inputs()[0].name: image}
    given = {runner.inputs[0].name: image}
    found = {info.name: np.empty(info.shape, info.dtype) for info in runner.outputs}

    def ours() -> None:
        runner.call("run", given, found)

    def theirs() -> None:
        session.run(None, feed)

    reference = session.run(None, feed)[0]
    ours()
    scale = float(np.abs(reference).max())
    error = float(np.abs(next(iter(found.values())) - reference).max()) / scale
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds):
        pair = [(0, ours), (1, theirs)]
        for which, run in pair if number % 2 else reversed(pair):
            start = time.perf_counter()
            run()
            times[which].append((time.perf_counter() - start) * 1e3)
    return Row(
        name,
        statistics.median(times[0]),
        statistics.median(times[1]),
        min(times[0]),
        min(times[1]),
        error,
        compile_seconds,
    )


def processor_name() -> str:
    """The processor as /proc/cpuinfo names it."""
    path = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.*)", path.read_text()) if path.exists() else None
    return found.group(1) if found else platform.processor()


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", default=list(NETWORKS))
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--exact-convolution", action="store_true", help="without Winograd")
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    lines = [
        "# The cpu target against ONNX Runtime",
        "",
        f"One thread, batch 1, float32, medians of {arguments.rounds} runs in turns. "
        f"{processor_name()}, {this_processor().lanes} lanes; {compiler_version()}; "
        f"onnxruntime {onnxruntime.__version__}, numpy {np.__version__}, "
        f"Python {platform.python_version()}. Compile: model file to loaded library, C compiler "
        "included.",
        "",
        HEAD,
    ]
    print("\n".join(lines))
    with tempfile.TemporaryDirectory() as scratch:
        for name in arguments.networks:
            row = measure(name, arguments.rounds, Path(scratch), arguments.exact_convolution)
            print(row, flush=True)


if __name__ == "__main__":
    main()
