"""The error that a machine's numbers add: each kernel against itself in float32."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.graph.dialect import KernelOp, WeightOp, network_of
from tilewright.graph.interpreter import round_of
from tilewright.graph.operation import Operation
from tilewright.graph.operations.loops import LoopOp
from tilewright.ir import ModuleOp, SSAValue
from tilewright.ir.passes import WeightStore
from tilewright.ir.types import Array
from tilewright.report.measures import Measures, measure


@dataclass(frozen=True)
class Noise:
    """The error of one kernel's result in the machine's numbers."""

    total: Measures
    """Against the float32 network on the same inputs."""
    added: Measures
    """Against the kernel in float32 on the operands that the machine gave it: its own share."""


def noise(
    network: ModuleOp,
    weights: WeightStore,
    inputs: Mapping[str, Array],
    computed: Mapping[str, Array],
) -> dict[str, Noise]:
    """The noise of every kernel, by symbol.

    ``network`` is the float32 graph with its kernels, before numbers are chosen; ``computed`` the
    results of the machine's kernels as real numbers, by symbol.
    """
    block = network_of(network).block
    true: dict[SSAValue, Array] = {}
    given: dict[SSAValue, Array] = {}
    for name, value in network_of(network).inputs:
        true[value] = given[value] = inputs[name]
    result: dict[str, Noise] = {}
    for op in block.ops:
        if isinstance(op, WeightOp):
            true[op.result] = given[op.result] = weights.get(op.symbol.data)
        elif isinstance(op, KernelOp):
            wanted, disturbed = (_kernel(op, arrays, weights) for arrays in (true, given))
            true[op.result] = wanted
            array = computed.get(op.symbol.data)
            given[op.result] = (
                disturbed
                if array is None
                else array.reshape(disturbed.shape).astype(disturbed.dtype)
            )
            if array is not None:
                result[op.symbol.data] = Noise(
                    measure(array.reshape(disturbed.shape), wanted),
                    measure(array.reshape(disturbed.shape), disturbed),
                )
        elif isinstance(op, Operation):
            for arrays in (true, given):
                arrays[op.result] = op.evaluate(*(arrays[value] for value in op.inputs))
    return result


def _kernel(kernel: KernelOp, arrays: Mapping[SSAValue, Array], weights: WeightStore) -> Array:
    """A kernel's result by its meaning."""
    values: dict[SSAValue, Array] = {
        argument: arrays[value]
        for argument, value in zip(kernel.body.block.args, kernel.inputs, strict=True)
    }
    with np.errstate(all="ignore"):
        for op in kernel.operations:
            operands = [values[value] for value in op.inputs]
            values[op.result] = (
                op.run(operands, round_of(op, weights))
                if isinstance(op, LoopOp)
                else op.evaluate(*operands)
            )
    return values[kernel.computed]
