"""Kernels with another anchor: what passes share that choose how a kernel is computed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from tilewright.graph.dialect import KernelOp, YieldOp
from tilewright.graph.kernels import kernel_of
from tilewright.graph.operations import Operation
from tilewright.graph.passes.editing import erase, insert, make
from tilewright.ir import Block, PythonValue, Region, SSAValue
from tilewright.machine import Machine, Primitive
from tilewright.planning.domain import Kernel


def plain_kernel(kernel: KernelOp) -> Kernel:
    """Planning's kernel, of names of its own."""
    names = {value: f"v{number}" for number, value in enumerate((*kernel.inputs, kernel.result))}
    return kernel_of(kernel, names)


def with_layouts(kernel: Kernel, machine: Machine, primitive: Primitive) -> Kernel:
    """The kernel with the layouts that a primitive asks for; row-major where it takes any."""

    def layout(role: str, rank: int) -> str:
        found = machine.layout_of(primitive, role, rank)
        return "" if found == "any" else found

    stages = [
        dataclasses.replace(
            stage,
            inputs=tuple(
                dataclasses.replace(o, layout=layout(o.role, len(o.shape))) for o in stage.inputs
            ),
            output=dataclasses.replace(
                stage.output,
                layout=layout("output", len(stage.output.shape)),
            ),
        )
        for stage in kernel.stages
    ]
    return dataclasses.replace(kernel, stages=tuple(stages))


def anchor_operands(kernel: KernelOp) -> list[SSAValue]:
    """The network's values that a kernel's anchor reads."""
    outer = dict(zip(kernel.body.block.args, kernel.inputs, strict=True))
    return [outer[value] for value in kernel.operations[0].inputs]  # type: ignore[index]


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
    anchor = kernel.operations[0]
    assert isinstance(anchor, Operation)
    outer = dict(zip(kernel.body.block.args, kernel.inputs, strict=True))
    old = anchor_operands(kernel)
    others = [value for value in kernel.inputs if value not in old or _again(kernel, value)]
    inputs = list(dict.fromkeys([*operands, *others]))
    block = Block(arg_types=[value.type for value in inputs])
    inside: dict[SSAValue, SSAValue] = dict(zip(inputs, block.args, strict=True))
    values: dict[SSAValue, SSAValue] = {
        arg: inside[outer[arg]] for arg in outer if outer[arg] in inside
    }
    last = kernel.body.block.last_op
    assert isinstance(last, YieldOp)
    end = YieldOp.build(operands=[[block.args[0]]])
    block.add_op(end)
    made = make(name, [inside[v] for v in operands], dict(attributes), before=end, like=anchor)
    made.result.name_hint = anchor.result.name_hint
    values[anchor.result] = made.result
    for op in kernel.operations[1:]:
        copy = op.clone(values)  # type: ignore[arg-type]
        copy.result.name_hint = op.result.name_hint
        insert(copy, end)
        values[op.result] = copy.result
    end.operands = [values[last.values[0]]]
    fresh = KernelOp.build(
        operands=[inputs],
        result_types=[kernel.result.type],
        properties=dict(kernel.properties),
        regions=[Region(block)],
    )
    insert(fresh, kernel)
    if replace:
        fresh.result.name_hint = kernel.result.name_hint
        kernel.result.replace_all_uses_with(fresh.result)
        erase(kernel)
    return fresh


def _again(kernel: KernelOp, value: SSAValue) -> bool:
    """Whether a kernel's operand is read by more than its anchor."""
    anchor = kernel.operations[0]
    return any(
        use.operation is not anchor
        for argument, outer in zip(kernel.body.block.args, kernel.inputs, strict=True)
        if outer is value
        for use in argument.uses
    )
