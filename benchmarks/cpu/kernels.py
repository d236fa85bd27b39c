"""Every kernel's time against its roofline: what is slow, and how slow.

    python -m benchmarks.cpu.kernels mobilenet_v2 --rounds 20 --below 0.7

The roofline is the plan's physical bound at the machine's nominal clock: products at peak, and
bytes beyond the caches at the speed of main memory. Times are the least of
all rounds, one thread.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from benchmarks import models
from tilewright.compiler.api import compile as compile_model
from tilewright.runtime.executable import Executable
from tilewright.targets.cpu.machine import machine
from tilewright.targets.cpu.runner import CpuRunner

LOW = 0.7
"""Efficiency below which a kernel's row says why."""

SHORT = 10e-6
"""Seconds below which starting a kernel, and its first misses, are a part of its time."""

REASONS = {
    "winograd": "transforms, which the bound leaves out, of images and perhaps of weights",
    "conv_pieces": "numbers that are split, which the bound leaves out; weights from memory",
    "matmul_pieces": "numbers that are split, which the bound leaves out; weights from memory",
    "conv_first": "few channels: few products for every start and end of a register tile",
    "conv_grouped": "vectors that two groups share are computed for both",
    "conv": "few channels or points for every start and end of a register tile; the last cache",
    "depthwise_conv": "images that pass through the last cache, which the bound does not count",
    "separable": "images that pass through the last cache, which the bound does not count",
    "pool": "images that pass through the last cache, which the bound does not count",
    "shuffle": "lanes of a vector lie in several others",
    "matmul": "weights that other layers have pushed out of the cache: main memory",
    "attention": "exponentials, which the bound of the products leaves out",
    "layer_norm": "rows are read three times, and sums wait for each other",
    "softmax": "exponentials, and sums that wait for each other",
    "reduce": "images that pass through the last cache, which the bound does not count",
    "lrn": "squares that are written, and read by their neighbours",
    "pointwise": "values that pass through the last cache, or that change places one by one",
    "general": "one element after another",
}
"""By the beginning of a primitive's name, the longest first."""


@dataclass(frozen=True)
class Kernel:
    """One kernel of a network."""

    symbol: str
    seconds: float
    bound: float
    """Seconds on the roofline."""
    schedule: str

    @property
    def efficiency(self) -> float:
        """Of the roofline."""
        return self.bound / self.seconds if self.seconds else 1.0

    @property
    def reason(self) -> str:
        """Why it is below ``LOW``; "" if it is not."""
        if self.efficiency >= LOW:
            return ""
        if self.seconds < SHORT:
            return "short: its call, and the first bytes of everything"
        name = self.schedule.partition(" ")[0]
        known = sorted((key for key in REASONS if name.startswith(key)), key=len)
        return REASONS[known[-1]] if known else "not known"


def timed(package: Executable, feeds: Mapping[str, NDArray[Any]], rounds: int) -> list[Kernel]:
    """Run a package, and take each kernel's least time; other programs only ever add to it.

    Long kernels are interrupted in every round where others use the machine: of the time by the
    clock and that of the processor (which has Python's calls in it) the lesser counts.
    """
    runner = package.runner
    assert isinstance(runner, CpuRunner)
    found = {info.name: np.empty(info.shape, info.dtype) for info in runner.outputs}
    seconds = np.zeros((rounds, max(len(runner.steps), 1)))
    for row in seconds:
        runner.call("profile", feeds, found, row)
        marks = [0.0]

        def watch(symbol: str, arenas: object, marks: list[float] = marks) -> None:
            del symbol, arenas
            marks.append(time.process_time())

        runner.run(feeds, watch=watch)
        # What is in front of the first step is not its own.
        row[1:] = np.minimum(row[1:], np.diff(marks[1:]))
    clock = machine().clock_hz
    records = {record.name: record for record in package.manifest.kernels}
    return [
        Kernel(
            step.symbol,
            float(seconds[:, number].min()),
            (records[step.symbol].physical_bound or 0.0) / clock,
            records[step.symbol].schedule,
        )
        for number, step in enumerate(runner.steps)
    ]


def kernels_of(name: str, folder: Path, rounds: int, exact: bool = False) -> list[Kernel]:
    """Compile a network, and time its kernels; ``exact`` leaves out Winograd's and two pieces."""
    path = models.save(name, folder)
    package = compile_model(
        path, target="cpu", directory=folder / f"{name}.package", exact_convolution=exact
    )
    return timed(package, models.feeds(onnx.load(path)), rounds)


def main() -> None:
    """Print the kernels, those first that lose most."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("network")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--models", type=Path, help="folder that keeps the models")
    parser.add_argument("--below", type=float, default=9.0, help="efficiency to list")
    parser.add_argument("--most", type=int, default=40, help="lines")
    parser.add_argument(
        "--exact-convolution", action="store_true", help="without Winograd and two pieces"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.models or Path(scratch)
        found = kernels_of(arguments.network, folder, arguments.rounds, arguments.exact_convolution)
    total, bound = sum(k.seconds for k in found), sum(k.bound for k in found)
    print(f"{len(found)} kernels, {total * 1e3:.2f} ms, bound {bound * 1e3:.2f} ms")
    found.sort(key=lambda kernel: kernel.bound - kernel.seconds)
    for kernel in [k for k in found if k.efficiency < arguments.below][: arguments.most]:
        print(
            f"{kernel.seconds * 1e6:9.1f} us {kernel.efficiency:6.1%}  {kernel.symbol:34} "
            f"{kernel.schedule}{'  # ' + kernel.reason if kernel.reason else ''}"
        )


if __name__ == "__main__":
    main()
