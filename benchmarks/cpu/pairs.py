"""Depthwise and 1x1 convolutions in one kernel against the two one after the other.

    python -m benchmarks.cpu.pairs --rounds 41

The pairs are MobileNet-v2's, and some with windows of 5x5 as in EfficientNet-Lite. Schedules are
the planner's own; both ways are built, and timed in turns on one thread by the processor's time.
Medians; ``taken`` says whether the planner fuses the pair.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from statistics import median

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tilewright.frontends.onnx import import_onnx
from tilewright.graph.dialect import KernelOp, network_of
from tilewright.graph.kernels import kernel_of
from tilewright.graph.passes import (
    address_pipeline,
    kernel_pipeline,
    layout_pipeline,
    simplify_pipeline,
)
from tilewright.graph.values import value_names
from tilewright.ir.passes import CompilerContext, PassEntry, PassRunner
from tilewright.machine import Machine
from tilewright.planning import Planner
from tilewright.planning.domain import Kernel
from tilewright.targets.cpu.candidates import Sources, built
from tilewright.targets.cpu.machine import machine
from tilewright.targets.cpu.passes.fuse_separable import FuseSeparable

PAIRS = (
    *((32, 112, 1, 16, 3), (96, 112, 2, 24, 3), (144, 56, 1, 24, 3), (144, 56, 2, 32, 3)),
    *((192, 28, 1, 32, 3), (192, 28, 2, 64, 3), (384, 14, 1, 64, 3), (384, 14, 1, 96, 3)),
    *((576, 14, 1, 96, 3), (576, 14, 2, 160, 3), (960, 7, 1, 160, 3), (960, 7, 1, 320, 3)),
    *((144, 56, 2, 40, 5), (240, 28, 1, 40, 5), (480, 14, 1, 80, 5), (672, 14, 1, 112, 5)),
    *((672, 14, 2, 192, 5), (1152, 7, 1, 192, 5)),
)
"""Channels, extent of the image, stride, channels of the result, extent of the window."""

TURN = 1e-3
"""Seconds of a turn, so that reading the clock does not count."""

HEAD = "| pair | two kernels us | one us | ratio | predicted | taken |\n|---|---|---|---|---|---|"


def model(c: int, size: int, stride: int, co: int, taps: int) -> onnx.ModelProto:
    """Both convolutions with ReLU6 between them."""
    random = np.random.default_rng((c, co))
    shapes = {"v": (c, 1, taps, taps), "a": (c,), "w": (co, c, 1, 1), "b": (co,)}
    constants = {k: (random.standard_normal(s) * 0.1).astype(np.float32) for k, s in shapes.items()}
    constants |= {"low": np.float32(0.0), "high": np.float32(6.0)}  # type: ignore[dict-item]
    nodes = [
        helper.make_node(
            "Conv", ["x", "v", "a"], ["d"], group=c, strides=[stride] * 2, pads=[taps // 2] * 4
        ),
        helper.make_node("Clip", ["d", "low", "high"], ["e"]),
        helper.make_node("Conv", ["e", "w", "b"], ["y"]),
    ]
    out, value = -(-size // stride), helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "pair",
        [value("x", 1, (1, c, size, size))],
        [value("y", 1, (1, co, out, out))],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _pipeline(target: Machine) -> list[PassEntry]:
    """All passes of the graph, from the model as it is to addresses."""
    numbers = [*simplify_pipeline(target), *kernel_pipeline(target)]
    return [*numbers, *layout_pipeline(target), *address_pipeline()]


def kernels(made: onnx.ModelProto, target: Machine, fused: bool) -> list[Kernel]:
    """The convolutions' kernels with the layouts that they have in a package."""
    imported = import_onnx(made)
    context = CompilerContext(target, imported.weights)
    steps = _pipeline(target)
    kept = [entry for entry in steps if not isinstance(entry.step, FuseSeparable)]
    where = next(n for n, entry in enumerate(steps) if isinstance(entry.step, FuseSeparable))
    runner = PassRunner(context)
    runner.run(imported.module, kept[:where], "")
    if fused:
        FuseSeparable(always=True).apply(context, imported.module)
    runner.run(imported.module, kept[where:], "")
    names = value_names(imported.module)
    found = [op for op in network_of(imported.module).block.ops if isinstance(op, KernelOp)]
    return [kernel_of(op, names) for op in found if op.operations[0].name.endswith("conv")]


def measure(pair: tuple[int, int, int, int, int], rounds: int) -> str:
    """A row of the table."""
    target, made = machine(), model(*pair)
    both = kernels(made, target, False), kernels(made, target, True)
    plans = [[Planner(target).plan(kernel) for kernel in some] for some in both]
    with ExitStack() as stack:
        sides = [
            [
                stack.enter_context(built(Sources.of(kernel, target, [found.schedule]), [0]))
                for kernel, found in zip(some, planned, strict=True)
            ]
            for some, planned in zip(both, plans, strict=True)
        ]
        first = [sum(one.seconds(0) for one in some) for some in sides]
        repeats = max(1, int(TURN / max(first)))
        times: list[list[float]] = [[], []]
        for number in range(rounds):
            for side in (0, 1) if number % 2 else (1, 0):
                times[side].append(sum(one.seconds(0, repeats) for one in sides[side]))
    two, one = (1e6 * median(taken) for taken in times)
    predicted = [sum(found.predicted_cycles for found in planned) for planned in plans]
    c, size, stride, co, taps = pair
    layer = f"{c} to {co}, {size} x {size}, {taps} x {taps}" + (f" by {stride}" * (stride > 1))
    ratio = predicted[1] / predicted[0]
    taken = "yes" if len(_taken(made, target)) == 1 else "no"
    return f"| {layer} | {two:.1f} | {one:.1f} | {one / two:.2f} | {ratio:.2f} | {taken} |"


def _taken(made: onnx.ModelProto, target: Machine) -> list[KernelOp]:
    """The convolutions' kernels when the planner decides."""
    imported = import_onnx(made)
    context = CompilerContext(target, imported.weights)
    steps = _pipeline(target)
    PassRunner(context).run(imported.module, steps, "")
    found = [op for op in network_of(imported.module).block.ops if isinstance(op, KernelOp)]
    return [op for op in found if op.operations[0].name.endswith("conv")]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=41)
    arguments = parser.parse_args()
    print(HEAD)
    for pair in PAIRS:
        print(measure(pair, arguments.rounds), flush=True)


if __name__ == "__main__":
    main()
