"""A package for every length of a text beside packages for one length each: ratios of times.

    python -m benchmarks.cpu.sizes 1 4 7 12 17 23 33 48 90 128

A BERT of two layers, 256 wide, on one thread; processor time, median of 25 pairs of runs in turns.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import cast

import numpy as np
import onnx

import tilewright
from benchmarks import models
from benchmarks.transformers import bert_small
from tilewright.ir.types import Array
from tilewright.runtime.dynamic import DynamicExecutable
from tilewright.targets.cpu.runner import CpuRunner

PAIRS = 25
LONG_ENOUGH = 0.02
"""Seconds that runs of one side take at least in each pair."""


def seconds(runner: CpuRunner, inputs: dict[str, Array], runs: int) -> float:
    """Processor time of some runs."""
    begin = time.process_time()
    for _ in range(runs):
        _ = runner.run(inputs)
    return time.process_time() - begin


def main() -> None:
    """Print the ratios at the lengths that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("lengths", type=int, nargs="+")
    lengths: list[int] = parser.parse_args().lengths
    with tempfile.TemporaryDirectory(prefix="tilewright-sizes-") as name:
        path = Path(name) / "bert.onnx"
        model = bert_small(2, 256, max(lengths), free="length", head=32)
        onnx.save(models.randomise(model), path)
        bounds = {"length": f"1..{max(lengths)}"}
        free = cast(DynamicExecutable, tilewright.compile(path, "cpu", shapes=bounds))
        print("| tokens | milliseconds | ratio |\n|---|---|---|")
        for length in lengths:
            tokens = np.random.default_rng(length).integers(0, 1000, (1, length))
            inputs = {"tokens": tokens, "mask": np.ones((1, length), np.int64)}
            fixed = tilewright.compile(path, "cpu", shapes={"length": length})
            sides = [cast(CpuRunner, e.runner) for e in (free.specialise_for(inputs), fixed)]
            for runner in sides:
                runner.threads = 1
                _ = runner.run(inputs)
            runs = max(3, int(LONG_ENOUGH / max(1e-6, seconds(sides[1], inputs, 3) / 3)))
            pairs = [[seconds(side, inputs, runs) for side in sides] for _ in range(PAIRS)]
            least = min(alone for _, alone in pairs) / runs
            ratio = median(every / alone for every, alone in pairs)
            print(f"| {length} | {1e3 * least:.3f} | {ratio:.3f} |", flush=True)


if __name__ == "__main__":
    main()
