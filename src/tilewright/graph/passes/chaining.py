"""Kernels into one that computes on the chip what it reads."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.graph.dialect import KernelOp, YieldOp
from tilewright.graph.passes.editing import insert
from tilewright.ir import Block, Region, SSAValue, UnitAttr, VerifyException


def chained(kernels: Sequence[KernelOp]) -> KernelOp:
    """One kernel of several, in the place of the last; each reads results of those before it.

    What a kernel makes is then read by a later compute of the same kernel (``KernelOp``). The
    kernels are erased. Raises VerifyException where something outside reads a result of a kernel
    but the last, or a kernel but the last is read by none.
    """
    last = kernels[-1]
    results = {kernel.result for kernel in kernels[:-1]}
    for value in results:
        users = {use.operation for use in value.uses}
        if not users or not users <= set(kernels):
            raise VerifyException("a result of a chain is read outside of it, or not at all")
    outer = [v for kernel in kernels for v in kernel.inputs if v not in results]
    outer = list(dict.fromkeys(outer))
    block = Block(arg_types=[value.type for value in outer])
    inner: dict[SSAValue, SSAValue] = dict(zip(outer, block.args, strict=True))
    for value, argument in zip(outer, block.args, strict=True):
        argument.name_hint = value.name_hint
    for kernel in kernels:
        known: dict[SSAValue, SSAValue] = {
            argument: inner[value]
            for argument, value in zip(kernel.body.block.args, kernel.inputs, strict=True)
        }
        for number, op in enumerate(kernel.operations):
            copy = op.clone(known)
            known[op.result] = copy.result
            if kernel is not kernels[0] and not number:
                copy.begins = UnitAttr()
            block.add_op(copy)
            inner[kernel.result] = copy.result
    block.add_op(YieldOp.build(operands=[[inner[last.result]]]))
    chain = KernelOp.build(
        operands=[outer],
        result_types=[last.result.type],
        properties=dict(last.properties),
        regions=[Region(block)],
    )
    insert(chain, last)
    chain.result.name_hint = last.result.name_hint
    last.result.replace_all_uses_with(chain.result)
    for kernel in reversed(kernels):
        kernel.detach()
        kernel.erase()
    return chain
