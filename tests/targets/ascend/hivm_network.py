"""A network compiled to HIVM, run in NumPy: its text by the interpreter, the host's kernels by the
graph's own meaning, all values at their places in main memory."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray
from tests.targets.ascend.hivm_interpreter import execute

from tilewright.compiler.build import emit
from tilewright.compiler.pipeline import resolve, run_pipeline
from tilewright.graph.dialect import KernelOp, OutputOp, WeightOp, network_of
from tilewright.graph.operation import Operation
from tilewright.graph.placement import ACTIVATIONS, WEIGHTS, arenas_of, placement_of
from tilewright.ir import SSAValue
from tilewright.ir.types import element_dtype, layout_of, shape_of, tensor_type
from tilewright.planning.layout import Layout
from tilewright.targets.ascend.hivm.emit import function_name
from tilewright.targets.ascend.hivm.target import FILE

Array = NDArray[Any]


class HivmNetwork:
    """One model's text and graph."""

    def __init__(self, model: Path, folder: Path) -> None:
        self.state = run_pipeline(model, *resolve("ascend910b"))
        folder.mkdir()
        emit(self.state, folder)
        (file,) = folder.rglob(FILE)
        self.text = file.read_text()
        parts = re.split(r"(?=  func\.func @)", self.text)[1:]
        self.functions = {part.split("@", 1)[1].split("(", 1)[0]: part for part in parts}
        self.network = network_of(self.state.network)
        self.hosted = [
            [step.name.removeprefix("graph.") for step in op.operations]
            for op in self.network.block.ops
            if isinstance(op, KernelOp) and function_name(op.symbol.data) not in self.functions
        ]
        """What the host's kernels compute."""

    def run(self, *inputs: Array) -> list[Array]:
        """The outputs for inputs in the order of the model's."""
        sizes = arenas_of(self.network)
        memory = {
            name: np.full(int(sizes[name]), 0xFF, np.uint8) for name in (ACTIVATIONS, WEIGHTS)
        }

        def place(value: SSAValue) -> tuple[Array, Layout]:
            """A value where it lies, by its physical axes."""
            where, shape = placement_of(value), shape_of(value)
            layout = Layout.parse(layout_of(value), len(shape))
            dtype = np.dtype(element_dtype(tensor_type(value).element_type))
            rest = memory[where.arena][where.offset :]
            whole = rest[: len(rest) // dtype.itemsize * dtype.itemsize].view(dtype)
            steps = [step * dtype.itemsize for step in where.strides]
            return as_strided(whole, layout.physical_shape(shape), steps), layout

        def read(value: SSAValue) -> Array:
            array, layout = place(value)
            return layout.unpack(array, shape_of(value))

        def write(value: SSAValue, array: Array) -> None:
            target, layout = place(value)
            target[...] = layout.pack(array)

        for value, array in zip(self.network.block.args, inputs, strict=True):
            write(value, array)
        for op in self.network.block.ops:
            if isinstance(op, WeightOp):
                write(op.result, self.state.weights.get(op.symbol.data))
            elif isinstance(op, OutputOp):
                return [read(value) for value in op.operands]
            elif isinstance(op, KernelOp):
                text = self.functions.get(function_name(op.symbol.data))
                if text is None:
                    write(op.result, _computed(op, [read(value) for value in op.inputs]))
                else:
                    execute(text, [place(value)[0] for value in (*op.inputs, op.result)])
        raise AssertionError("no outputs")


def _computed(kernel: KernelOp, inputs: list[Array]) -> Array:
    """A kernel by the meaning of its operations."""
    known: dict[SSAValue, Array] = dict(zip(kernel.body.block.args, inputs, strict=True))
    result: Array = np.zeros(0)
    for op in kernel.body.block.ops:
        if isinstance(op, Operation):
            result = known[op.result] = op.evaluate(*(known[value] for value in op.inputs))
    return result
