"""What of a shape can be built, by every method, and what the cost model takes of it."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.papers.swatop.shapes import WINDOW, Shape
from tilewright.compiler.pipeline import run_pipeline
from tilewright.graph.dialect import KernelOp, network_of
from tilewright.graph.operations.convolution import ConvOp
from tilewright.machine import Machine
from tilewright.planning import Planner
from tilewright.planning.domain import Kernel
from tilewright.planning.schedule import Schedule
from tilewright.targets.cpu import TARGET
from tilewright.targets.cpu.passes.methods import methods_of
from tilewright.targets.cpu.planning.cost import cache_levels
from tilewright.targets.cpu.planning.planner import plan_cached, ranked

REPEATS = 3
"""Times that the model's planning is measured; the least counts."""

_TYPES = ("conv", "winograd_conv", "matmul")


@dataclass(frozen=True)
class Space:
    """All schedules of a shape by one method, best predicted first."""

    method: str
    kernel: Kernel
    schedules: tuple[Schedule, ...]
    predicted: tuple[float, ...]
    """Cycles."""


@dataclass(frozen=True)
class Pick:
    """What ``tilewright compile`` takes where memory may grow and weights stay in a cache."""

    method: str
    kernel: Kernel
    schedule: Schedule
    seconds: float = 0.0
    """The processor's time for planning: all methods and, once more, the one that is chosen."""


@dataclass(frozen=True)
class Explored:
    """A shape's spaces and picks: of all methods, and without Winograd's."""

    spaces: tuple[Space, ...]
    pick: Pick
    direct: Pick


def explore(shape: Shape, machine: Machine) -> Explored:
    """Take a network of one node through the pipeline, and list what else it might have become."""
    # Searches take whatever is fastest: the pick, too, may take what memory it likes. And they run
    # one kernel again and again, whose weights the last cache keeps.
    kept = cache_levels(machine)[-1][0]
    machine = machine.with_values({"memory_growth": 1e6, "own.cpu.weights_kept": kept})
    with tempfile.TemporaryDirectory(prefix="tilewright-swatop-") as folder:
        path = Path(folder) / "one.onnx"
        onnx.save(_model(shape), path)
        exact = machine.exact()
        pick, direct = (_pick(path, described) for described in (machine, exact))
        if shape.kind == "product":
            return Explored((_space(pick.method, pick.kernel, machine),), pick, pick)
        state = run_pipeline(path, TARGET, machine, until="kernels")
        op = next(
            op
            for op in network_of(state.network).block.ops
            if isinstance(op, KernelOp) and isinstance(op.operations[0], ConvOp)
        )
        kernels = [method.kernel for method in methods_of(op, machine)]
        spaces = tuple(_space(_method(kernel), kernel, machine) for kernel in kernels)
        pick = replace(
            pick, seconds=min(_planning(op, pick.kernel, machine) for _ in range(REPEATS))
        )
        direct = replace(
            direct, seconds=min(_planning(op, direct.kernel, exact) for _ in range(REPEATS))
        )
        return Explored(spaces, pick, direct)


def _space(method: str, kernel: Kernel, machine: Machine) -> Space:
    found = ranked(kernel, machine)
    return Space(method, kernel, tuple(s for _, _, s in found), tuple(c for c, _, _ in found))


def _pick(path: Path, machine: Machine) -> Pick:
    state = run_pipeline(path, TARGET, machine, until="plan")
    kernel = next(i.kernel for i in state.kernels if i.kernel.anchor.operation in _TYPES)
    begin = time.process_time()
    Planner(machine).plan(kernel)
    took = time.process_time() - begin
    schedule = replace(state.plans[kernel.symbol].schedule, shared="")
    return Pick(_method(kernel), kernel, schedule, took)


def _planning(op: KernelOp, kernel: Kernel, machine: Machine) -> float:
    begin = time.process_time()
    for method in methods_of(op, machine):
        plan_cached(method.kernel, machine)
    Planner(machine).plan(kernel)
    return time.process_time() - begin


def _method(kernel: Kernel) -> str:
    """Names a kernel's method: direct, winograd of some size of tile, or product."""
    anchor = kernel.anchor
    if anchor.operation == "winograd_conv":
        plain = ", weights transformed on the way" if "kh" in anchor.extents else ""
        return f"winograd {anchor.extents['r']}{plain}"
    return "product" if anchor.operation == "matmul" else "direct"


def _model(shape: Shape) -> onnx.ModelProto:
    """One node with constant weights; a convolution has a bias."""
    random = np.random.default_rng(1)
    if shape.kind == "product":
        rows, columns, depth = shape.sizes
        ins, outs = [rows, depth], [rows, columns]
        weights = {"w": random.random((depth, columns), np.float32)}
        node = helper.make_node("MatMul", ["x", "w"], ["y"])
    else:
        inputs, outputs, side = shape.sizes
        ins, outs = [1, inputs, side, side], [1, outputs, side, side]
        window = (outputs, inputs, WINDOW, WINDOW)
        weights = {
            "w": random.random(window, np.float32),
            "b": random.random(outputs, np.float32),
        }
        node = helper.make_node("Conv", ["x", "w", "b"], ["y"], pads=[WINDOW // 2] * 4)
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ins)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, outs)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
