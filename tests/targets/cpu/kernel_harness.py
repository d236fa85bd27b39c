"""Runs networks of hand-made kernels through the tile passes and the C compiler."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.codegen.program.interface import Compilation, CompiledKernel
from tilewright.graph.dialect import (
    KernelOp,
    NetworkOp,
    OutputOp,
    ScratchOp,
    WeightOp,
    YieldOp,
)
from tilewright.graph.interpreter import interpret
from tilewright.graph.kernels import kernel_of, operand_values
from tilewright.graph.operation import Operation
from tilewright.graph.placement import ACTIVATIONS, WEIGHTS, Placement, placement_of
from tilewright.graph.values import value_names
from tilewright.graph.weights import Weights
from tilewright.ir import (
    ArrayAttr,
    Attribute,
    Block,
    ModuleOp,
    PythonValue,
    Region,
    SSAValue,
    StringAttr,
)
from tilewright.ir.passes import CompilerContext
from tilewright.ir.types import element_dtype, layout_of, shape_of, tensor, tensor_type
from tilewright.machine import Machine
from tilewright.planning import Planner
from tilewright.planning.layout import Layout
from tilewright.planning.schedule import Schedule
from tilewright.targets.cpu.machine import machine as make_machine
from tilewright.targets.cpu.processors import Processor
from tilewright.targets.cpu.target import CpuTarget
from tilewright.tile.build import build
from tilewright.tile.passes.boundary import Boundary

Array = NDArray[Any]

PLAIN = make_machine(Processor(lanes=4, registers=15, vectors_per_cycle=2.0))
"""Four lanes: builds anywhere without -march."""


class Maker:
    """A network of kernels, made in steps."""

    def __init__(self, machine: Machine | None = None, seed: int = 0) -> None:
        self.machine = machine or make_machine()
        self.lanes = self.machine.memory("registers").granule // 4
        self.random = np.random.default_rng(seed)
        self.weights = Weights()
        self.network = NetworkOp.of("net", [], ["y"])
        self.inputs: dict[str, Array] = {}
        self.schedules: dict[str, Schedule] = {}
        self.kernels: list[KernelOp] = []

    def layout(self, text: str) -> str:
        """A layout with the machine's lanes for L."""
        return text.replace("L", str(self.lanes))

    def input(self, shape: Sequence[int], layout: str = "", scale: float = 1.0) -> SSAValue:
        """An input of the network with random data."""
        name = f"in{len(self.inputs)}"
        block = self.network.block
        value = block.insert_arg(tensor(shape, layout=self.layout(layout)), len(block.args))
        self.inputs[name] = (self.random.standard_normal(shape) * scale).astype(np.float32)
        self.network.properties["input_names"] = ArrayAttr(
            [StringAttr(name) for name in self.inputs]
        )
        return value

    def weight(self, shape: Sequence[int], layout: str = "", scale: float = 0.0) -> SSAValue:
        """A constant with random data."""
        size = scale or 1.0 / np.sqrt(max(np.prod(shape[1:]), 1))
        array = (self.random.standard_normal(shape) * size).astype(np.float32)
        op = WeightOp.of(self.weights.add(array, "w"), tensor(shape, layout=self.layout(layout)))
        self.network.block.add_op(op)
        return op.result

    def scratch(self, elements: int) -> SSAValue:
        """Memory for one kernel to work in."""
        op = ScratchOp.of(elements)
        self.network.block.add_op(op)
        return op.result

    def kernel(
        self,
        chain: Sequence[tuple[type[Operation], Sequence[SSAValue | int], dict[str, PythonValue]]],
        layout: str = "",
        types: Sequence[Attribute] | None = None,
    ) -> SSAValue:
        """A kernel of a chain of operations; an integer names an earlier one's result.

        ``types`` gives the results' types where they are not the inferred ones in ``layout``.
        """
        outer = list(
            dict.fromkeys(v for _, inputs, _ in chain for v in inputs if isinstance(v, SSAValue))
        )
        block = Block(arg_types=[value.type for value in outer])
        inner = dict(zip(outer, block.args, strict=True))
        results: list[SSAValue] = []
        kinds = self.layout(layout)
        for operation, inputs, attributes in chain:
            operands = [results[v] if isinstance(v, int) else inner[v] for v in inputs]
            if types is not None:
                typed = types[len(results)]
            else:
                op = operation.build_from(operands, attributes)
                kind = tensor_type(op.result)
                typed = tensor(kind.get_shape(), kind.element_type, kinds)
                op.erase(safe_erase=False)
            op = operation.build_from(
                operands, attributes, node=f"node{len(results)}", result_type=typed
            )
            block.add_op(op)
            results.append(op.result)
        block.add_op(YieldOp.build(operands=[[results[-1]]]))
        kernel = KernelOp.build(
            operands=[outer],
            result_types=[results[-1].type],
            properties={"symbol": StringAttr(f"k{len(self.kernels)}")},
            regions=[Region(block)],
        )
        self.network.block.add_op(kernel)
        self.kernels.append(kernel)
        return kernel.result

    def finish(self, *outputs: SSAValue) -> ModuleOp:
        """End the network."""
        self.network.properties["output_names"] = ArrayAttr(
            [StringAttr(f"out{number}") for number in range(len(outputs))]
        )
        self.network.block.add_op(OutputOp.build(operands=[list(outputs)]))
        self.module = ModuleOp([self.network])
        self.module.verify()
        return self.module

    def place(self) -> dict[str, int]:
        """Give every value a place of its own; memory between tensors is poison."""
        arenas = {ACTIVATIONS: 0, WEIGHTS: 0}

        def placed(value: SSAValue, arena: str) -> ArrayAttr[Any]:
            layout = Layout.parse(layout_of(value), len(shape_of(value)))
            size = layout.size(shape_of(value))
            size *= element_dtype(tensor_type(value).element_type).itemsize
            place = Placement(arena, arenas[arena], layout.strides(shape_of(value)))
            arenas[arena] += -(-size // 64) * 64
            return place.to_attribute()

        places = [placed(value, ACTIVATIONS) for value in self.network.block.args]
        self.network.placements = ArrayAttr(places)
        for op in self.network.block.ops:
            if isinstance(op, WeightOp):
                op.placement = placed(op.result, WEIGHTS)
            elif isinstance(op, KernelOp | ScratchOp):
                op.placement = placed(op.result, ACTIVATIONS)
        return arenas

    def compilation(self) -> Compilation:
        """Plan and build every kernel."""
        arenas = self.place()
        names = value_names(self.module)
        compiled: list[CompiledKernel] = []
        for op in self.kernels:
            kernel = kernel_of(op, names)
            schedule = (
                self.schedules.get(kernel.symbol) or Planner(self.machine).plan(kernel).schedule
            )
            places = {
                name: (p.arena, p.offset, p.strides)
                for name, value in operand_values(op, names).items()
                for p in [placement_of(value)]
            }
            program = build(kernel, schedule, self.machine, places)
            Boundary().apply(CompilerContext(self.machine, self.weights), program)
            compiled.append(CompiledKernel(kernel, schedule, program))
        return Compilation(self.machine, self.module, self.weights, tuple(compiled), arenas)

    def expected(self) -> dict[str, Array]:
        """What the graph means."""
        return interpret(self.module, self.weights, self.inputs)

    def run(self, flags: Sequence[str] | None = None) -> dict[str, Array]:
        """What the C computes."""
        directory = Path(tempfile.mkdtemp(prefix="tilewright-test-"))
        try:
            from tilewright.targets.cpu.runner import CpuRunner

            CpuTarget().emit(self.compilation(), directory)
            runner = CpuRunner(directory) if flags is None else CpuRunner(directory, flags)
            runner.workspace[:] = 255  # NaN
            return runner.run(self.inputs).outputs
        finally:
            shutil.rmtree(directory)


def check(maker: Maker, tolerance: float = 1e-5, flags: Sequence[str] | None = None) -> None:
    """The C agrees with the graph's meaning, relative to the largest element."""
    compare(maker.run(flags), maker.expected(), tolerance)


def compare(
    found: Mapping[str, Array], expected: Mapping[str, Array], tolerance: float = 1e-5
) -> None:
    """All outputs agree, relative to the largest element of each."""
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].shape == array.shape
        scale = max(float(np.abs(array).max(initial=0.0)), 1e-6)
        np.testing.assert_allclose(found[name] / scale, array / scale, atol=tolerance, err_msg=name)


Case = Callable[[Mapping[str, Any]], None]
