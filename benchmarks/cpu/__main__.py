"""Time the cpu target against ONNX Runtime and OpenVINO, batch 1, float32 and int8 (QDQ).

    python -m benchmarks.cpu resnet50 --rounds 40 --exact-convolution

prints; `python -m benchmarks cpu` keeps a table of all networks.

All run in one process and take turns, so that what else the machine does meets all alike.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks import models
from benchmarks.cpu.peers import available
from tilewright.compiling import compile as compile_model
from tilewright.runtime.executable import Executable
from tilewright.targets.cpu.compiler import compiler_version
from tilewright.targets.cpu.processors import this_processor
from tilewright.targets.cpu.runner import CpuRunner

NETWORKS = (
    *("lenet5", "squeezenet", "shufflenet", "mobilenet_v2", "resnet18", "resnet50", "googlenet"),
    *("inception_v2", "densenet121", "alexnet", "zfnet", "vgg16", "vgg19", "bert_base", "vit_b16"),
    *("resnet50-int8", "mobilenet_v2-int8"),
)


@dataclass(frozen=True)
class Row:
    """One network: milliseconds per run, medians and least."""

    name: str
    ours: float
    ours_best: float
    theirs: dict[str, float]
    """Medians by the peer's name and version."""
    error: float
    """Largest difference to ONNX Runtime over all outputs, relative to the largest element."""
    compile_seconds: float
    remarks: list[str] = field(default_factory=list[str])

    @property
    def ratio(self) -> float:
        """Our time over that of the fastest peer."""
        return self.ours / min(self.theirs.values())

    def __str__(self) -> str:
        peers = " | ".join(f"{value:.2f}" for value in self.theirs.values())
        return (
            f"| {self.name} | {self.ours:.2f} | {self.ours_best:.2f} | {peers} | {self.ratio:.2f} "
            f"| {1 / self.ratio:.2f} | {self.error:.1e} | {self.compile_seconds:.1f} |"
        )


def head(row: Row) -> str:
    """The table's head, with the peers that a row has."""
    columns = ["network", "Tilewright ms", "its best", *(f"{name} ms" for name in row.theirs)]
    columns += ["time of the faster", "speed-up", "max rel. difference", "compile s"]
    return "| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|"


def measure(
    name: str,
    rounds: int,
    folder: Path,
    exact: bool = False,
    threads: int = 1,
    watch: Callable[[Executable, dict[str, Any]], None] | None = None,
) -> Row:
    """Compile a network, and time all in turns; ``exact`` leaves out Winograd's method.

    ``watch`` gets the package and the inputs when the times are taken.
    """
    path = models.save(name, folder)
    feeds = models.feeds(onnx.load(path))
    begin = time.perf_counter()
    executable = compile_model(
        path, target="cpu", directory=folder / f"{name}.package", exact_convolution=exact
    )
    runner = executable.runner
    assert isinstance(runner, CpuRunner)
    compile_seconds = time.perf_counter() - begin
    peers, remarks = available(path, feeds, threads)
    found = {info.name: np.empty(info.shape, info.dtype) for info in runner.outputs}

    def ours() -> None:
        runner.call("run", feeds, found)

    reference = peers[0].run()
    ours()
    error = max(
        float(np.abs(found[key] - array).max()) / float(np.abs(array).max())
        for key, array in reference.items()
    )
    runs: list[Callable[[], object]] = [ours, *(peer.run for peer in peers)]
    for run in runs:
        run()
    # On one thread the processor's time: a machine that others use hands it out in slices.
    clock = time.process_time if threads == 1 else time.perf_counter
    times: list[list[float]] = [[] for _ in runs]
    for number in range(rounds):
        order = range(len(runs))
        for which in order if number % 2 else reversed(order):
            start = clock()
            runs[which]()
            times[which].append((clock() - start) * 1e3)
    if watch is not None:
        watch(executable, feeds)
    medians = [statistics.median(each) for each in times]
    theirs = {
        f"{peer.name} {peer.version}": median
        for peer, median in zip(peers, medians[1:], strict=True)
    }
    return Row(name, medians[0], min(times[0]), theirs, error, compile_seconds, remarks)


def processor_name() -> str:
    """The processor as /proc/cpuinfo names it."""
    path = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.*)", path.read_text()) if path.exists() else None
    return found.group(1) if found else platform.processor()


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", default=list(NETWORKS))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1, help="of the peers")
    parser.add_argument("--models", type=Path, help="folder that keeps the models")
    parser.add_argument("--exact-convolution", action="store_true", help="without Winograd")
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", str(arguments.threads))
    kind = "processor time" if arguments.threads == 1 else "wall time"
    print(
        f"# The cpu target against its peers\n\nThreads: {arguments.threads}; batch 1, float32, "
        f"medians of {arguments.rounds} runs in turns, {kind}. {processor_name()}, "
        f"{this_processor().lanes} lanes; {compiler_version()}; numpy {np.__version__}, Python "
        f"{platform.python_version()}. Compile: model file to loaded library, C compiler included."
    )
    ratios: list[float] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.models or Path(scratch)
        for name in arguments.networks:
            exact = arguments.exact_convolution
            row = measure(name, arguments.rounds, folder, exact, arguments.threads)
            if not ratios:
                print("\n".join(["", *row.remarks, "", head(row)]))
            ratios.append(row.ratio)
            print(row, flush=True)
    print(f"\nGeometric mean of the speed-ups: {1 / statistics.geometric_mean(ratios):.2f}")


if __name__ == "__main__":
    main()
