"""One layer of LeNet-5 scheduled by hand, the others by swTVM's planner.

    python examples/scheduling/by_hand.py

Compiles for one core group of SW26010, runs the emitted C on the host, and compares every value of
the result with the interpreter.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import tilewright
from tilewright.planning.planners.papers.scheduling import Scheduling

LENET = Path(__file__).parents[1] / "lenet5" / "lenet5.onnx"


def second_convolution(schedule: Scheduling) -> None:
    """16 channels of 10 x 10 pixels from 6 channels: rows in fives, input channels in threes."""
    n, co, oh, ow, ci, kh, kw = schedule.axes("n", "co", "oh", "ow", "ci", "kh", "kw")
    oh_outer, oh_inner = schedule.split(oh, 5)
    ci_outer, ci_inner = schedule.split(ci, 3)
    schedule.reorder(n, co, oh_outer, ci_outer, oh_inner, ow, ci_inner, kh, kw)
    schedule.buffer_read("input", oh_inner, ow, ci_inner, kh, kw)
    schedule.buffer_read("weight", ci_inner, kh, kw)
    schedule.buffer_write(oh_inner, ow)
    schedule.double_buffer("input")
    # 16 channels are fewer than 64 cores: with the rows' halves they are 32 parts.
    schedule.athread_parallel(schedule.fuse(n, co, oh_outer))


def main() -> None:
    """Compile, run, compare."""
    package = tilewright.compile(
        LENET, "sunway", planner="ldm", schedules={"conv2": second_convolution}
    )
    image = np.random.default_rng(0).normal(size=(1, 1, 32, 32)).astype(np.float32)
    inputs = {package.inputs[0].name: image.reshape([int(n) for n in package.inputs[0].shape])}
    checked = package.check(inputs, package.run(inputs))
    print(f"largest error {checked.max_abs_error:.1e}, passed: {checked.passed}")


if __name__ == "__main__":
    main()
