"""Kernels into one that computes on the chip what it reads."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.graph.dialect import GraphOperation, KernelOp
from tilewright.graph.passes.editing import erase
from tilewright.graph.passes.enclosing import copied, enclose_with
from tilewright.ir import SSAValue, UnitAttr, VerifyException


def chained(kernels: Sequence[KernelOp]) -> KernelOp:
    """One kernel of several, in the place of the last; each reads results of those before it.

    What a kernel makes is then read by a later compute of the same kernel (``KernelOp``). The
    kernels are erased. Raises VerifyException where something outside reads a result of a kernel
    but the last, or a kernel but the last is read by none.
    """
    last = kernels[-1]
    for value in (kernel.result for kernel in kernels[:-1]):
        users = {use.operation for use in value.uses}
        if not users or not users <= set(kernels):
            raise VerifyException("a result of a chain is read outside of it, or not at all")
    known: dict[SSAValue, SSAValue] = {}
    chain: list[GraphOperation] = []
    for kernel in kernels:
        copies = copied(kernel.operations, kernel, known, last)
        if chain:
            copies[0].begins = UnitAttr()
        known[kernel.result] = copies[-1].result
        chain += copies
    fresh = enclose_with(chain, last.properties)
    fresh.result.name_hint = last.result.name_hint
    last.result.replace_all_uses_with(fresh.result)
    for kernel in reversed(kernels):
        erase(kernel)
    return fresh
