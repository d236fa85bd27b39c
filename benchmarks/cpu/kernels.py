"""Every kernel's time against its roofline: what is slow, and how slow.

    python -m benchmarks.cpu.kernels mobilenet_v2 --rounds 20 --below 0.7

The roofline is the plan's physical bound at the machine's nominal clock: products at peak, and
bytes beyond the caches at the speed of main memory. Times are the least of
all rounds, one thread.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from benchmarks import models
from tilewright.driver import compile as compile_model
from tilewright.targets.cpu.machine import machine
from tilewright.targets.cpu.runner import CpuRunner


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


def kernels_of(name: str, folder: Path, rounds: int, exact: bool = False) -> list[Kernel]:
    """Compile a network, run it, and take each kernel's median time."""
    path = models.save(name, folder)
    feeds = models.feeds(onnx.load(path))
    package = compile_model(
        path, target="cpu", directory=folder / f"{name}.package", exact_convolution=exact
    )
    runner = package.runner
    assert isinstance(runner, CpuRunner)
    found = {info.name: np.empty(info.shape, info.dtype) for info in runner.outputs}
    seconds = np.zeros((rounds, max(len(runner.steps), 1)))
    for row in seconds:
        runner.call("run", feeds, found)
        runner.call("profile", feeds, found, row)
    clock = machine().clock_hz
    records = {record.name: record for record in package.manifest.kernels}
    return [
        Kernel(
            symbol,
            float(seconds[:, number].min()),
            (records[symbol].physical_bound or 0.0) / clock,
            records[symbol].schedule,
        )
        for number, (symbol, _) in enumerate(runner.steps)
    ]


def main() -> None:
    """Print the kernels, those first that lose most."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("network")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--models", type=Path, help="folder that keeps the models")
    parser.add_argument("--below", type=float, default=9.0, help="efficiency to list")
    parser.add_argument("--most", type=int, default=40, help="lines")
    parser.add_argument("--exact-convolution", action="store_true", help="without Winograd")
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
            f"{kernel.schedule}"
        )


if __name__ == "__main__":
    main()
