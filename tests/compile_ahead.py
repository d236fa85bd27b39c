"""Compile what numba compiles while the tests' workers start: ``python -m tests.compile_ahead``.

In a fresh clone that takes half a minute, which each worker would spend. One that needs a function
before it is there waits for it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

import tilewright
from tilewright.memory import Buffer, Problem, allocate_exactly

TARGETS = ("cambricon", "cambricon-x")
"""A machine with a simulator of its own, and one that has the generic one; both plan."""


LIVES = ((2, 2, 4), (4, 0, 0), (1, 1, 3), (1, 1, 6), (4, 6, 7), (1, 0, 3), (3, 4, 7), (3, 3, 5),
         (4, 0, 2))  # fmt: skip
"""Size, birth and death of buffers that take the exact allocator's search."""


def main() -> None:
    """Run a product on each simulator, with all that it can look for, and search for offsets."""
    allocate_exactly(Problem(tuple(Buffer(str(i), *life) for i, life in enumerate(LIVES)), 1))
    a, b, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("a", (2, 3)), ("b", (3, 4)), ("y", (2, 4)))
    )
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["a", "b"], ["y"])], "product", [a, b], [y]
    )
    inputs = {"a": np.ones((2, 3), np.float32), "b": np.ones((3, 4), np.float32)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "product.onnx"
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
        for target in TARGETS:
            tilewright.compile(path, target).run(inputs, check_races=True)


if __name__ == "__main__":
    main()
