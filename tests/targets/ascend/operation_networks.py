"""Networks of few nodes, compiled for a DaVinci target and run in several orders of its pipes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

import tilewright
from tilewright.graph.dialect import KernelOp, network_of
from tilewright.runtime.executable import Executable, Progress, quiet
from tilewright.targets.ascend.runner import AscendRunner

Arrays = Mapping[str, Any]
"""Of arrays, or numbers, by name."""


@dataclass(frozen=True)
class Compiled:
    """A compiled network, and the symbols of its kernels by where they run."""

    executable: Executable
    device: tuple[str, ...]
    host: tuple[str, ...]

    def outputs(
        self, given: Arrays, orders: Sequence[int] = (0, 1, 2, 77)
    ) -> dict[str, NDArray[Any]]:
        """The outputs, the same in all orders, within what the interpreter's allow."""
        runner = self.executable.runner
        assert isinstance(runner, AscendRunner)
        results: dict[str, NDArray[Any]] = {}
        for order in orders:
            runner.order = order
            result = self.executable.run(dict(given))
            for name, array in results.items():
                np.testing.assert_array_equal(result[name], array)
            results = dict(result)
        assert self.executable.check(dict(given), results).equal
        return results


def compiled(
    folder: Path,
    nodes: Sequence[onnx.NodeProto],
    inputs: Arrays,
    outputs: Mapping[str, tuple[type[np.generic], Sequence[int]]],
    weights: Arrays | None = None,
    target: str = "ascend910",
    values: Arrays | None = None,
    progress: Progress = quiet,
) -> Compiled:
    """The network of nodes, compiled."""

    def value(name: str, dtype: type[np.generic], shape: Sequence[int]) -> onnx.ValueInfoProto:
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return helper.make_tensor_value_info(name, kind, list(shape))

    graph = helper.make_graph(
        list(nodes),
        "operations",
        [value(name, array.dtype.type, array.shape) for name, array in inputs.items()],
        [value(name, *kind) for name, kind in outputs.items()],
        [numpy_helper.from_array(np.asarray(a), name) for name, a in (weights or {}).items()],
    )
    path = folder / "model.onnx"
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    executable = tilewright.compile(path, target=target, values=values, progress=progress)
    kernels = [op for op in network_of(executable.graph).walk() if isinstance(op, KernelOp)]
    sides = (
        tuple(op.symbol.data for op in kernels if op.on_host is host) for host in (False, True)
    )
    return Compiled(executable, *sides)
