"""Kernels with another anchor: what passes share that choose how a kernel is computed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from tilewright.graph.dialect import KernelOp, WeightOp
from tilewright.graph.kernels import kernel_of
from tilewright.graph.passes.editing import erase, make
from tilewright.graph.passes.enclosing import copied, enclose_with
from tilewright.ir import PythonValue, SSAValue
from tilewright.machine import Machine, Primitive
from tilewright.planning.domain import Kernel, Operand
from tilewright.planning.space.operand_layouts import operand_layout


def plain_kernel(kernel: KernelOp) -> Kernel:
    """Planning's kernel, of names of its own."""
    names = {value: f"v{number}" for number, value in enumerate((*kernel.inputs, kernel.result))}
    return kernel_of(kernel, names)


def with_layouts(kernel: Kernel, machine: Machine, primitive: Primitive) -> Kernel:
    """The kernel with the layouts that a primitive asks for; row-major where it takes any."""

    def laid(operand: Operand) -> Operand:
        layout = operand_layout(machine, primitive, operand)
        return dataclasses.replace(operand, layout="" if layout == "any" else layout)

    stages = [
        dataclasses.replace(
            stage,
            inputs=tuple(laid(operand) for operand in stage.inputs),
            output=laid(dataclasses.replace(stage.output, role="output")),
        )
        for stage in kernel.stages
    ]
    candidates = [
        machine.primitives_for(producer.anchor.operation) for producer in kernel.producers
    ]
    producers = tuple(
        with_layouts(producer, machine, next(iter(serving), primitive))
        for producer, serving in zip(kernel.producers, candidates, strict=True)
    )
    return dataclasses.replace(kernel, stages=tuple(stages), producers=producers)


def anchor_operands(kernel: KernelOp) -> list[SSAValue]:
    """The network's values that a kernel's anchor reads."""
    outside = kernel.outside
    return [outside[value] for value in kernel.anchor.inputs]


def anchor_weights(kernel: KernelOp) -> WeightOp:
    """The constant weights of a kernel's anchor."""
    owner = anchor_operands(kernel)[1].owner
    assert isinstance(owner, WeightOp)
    return owner


def reanchored(
    kernel: KernelOp,
    name: str,
    operands: Sequence[SSAValue],
    attributes: Mapping[str, PythonValue],
    *,
    replace: bool = True,
) -> KernelOp:
    """The kernel with operation ``name`` on the network's values ``operands`` as its anchor.

    It takes the old kernel's place, or, without ``replace``, stands before it: a trial.
    """
    anchor, *maps = kernel.operations
    fresh_anchor = make(name, operands, dict(attributes), before=kernel, like=anchor)
    fresh_anchor.result.name_hint = anchor.result.name_hint
    copies = copied(maps, kernel, {anchor.result: fresh_anchor.result}, kernel)
    fresh = enclose_with([fresh_anchor, *copies], kernel.properties)
    if replace:
        fresh.result.name_hint = kernel.result.name_hint
        kernel.result.replace_all_uses_with(fresh.result)
        erase(kernel)
    return fresh
