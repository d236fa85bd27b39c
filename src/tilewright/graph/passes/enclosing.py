"""Operations into kernels, and out of them again: how passes form kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.graph.dialect import KernelOp, NetworkOp, YieldOp, network_of
from tilewright.graph.names import identifier
from tilewright.graph.operations import Operation
from tilewright.graph.passes.editing import VIEWS, erase, insert
from tilewright.ir import (
    Attribute,
    Block,
    Region,
    SSAValue,
    StringAttr,
    UnitAttr,
    VerifyException,
)
from tilewright.ir import Operation as AnyOperation

_SYMBOL_LENGTH = 40


def enclose(chain: Sequence[Operation], symbol: str) -> KernelOp:
    """Put operations, each reading the one before, into a kernel in the place of the last."""
    engine, reason = chain[0].engine, chain[0].reason
    properties = {
        "symbol": StringAttr(symbol),
        "engine": engine or StringAttr("accelerator"),
        **({"reason": reason} if reason is not None else {}),
    }
    return enclose_with(chain, properties)


def enclose_with(chain: Sequence[Operation], properties: Mapping[str, Attribute]) -> KernelOp:
    """Enclose a chain of operations in a kernel with these properties."""
    last, inside = chain[-1], {step.result for step in chain}
    outer = list(
        dict.fromkeys(value for step in chain for value in step.inputs if value not in inside)
    )
    block = Block(arg_types=[value.type for value in outer])
    for value, argument in zip(outer, block.args, strict=True):
        argument.name_hint = value.name_hint
    kernel = KernelOp.build(
        operands=[outer],
        result_types=[last.result.type],
        properties=dict(properties),
        regions=[Region(block)],
    )
    insert(kernel, last)
    kernel.result.name_hint = last.result.name_hint
    last.result.replace_all_uses_with(kernel.result)
    inner = dict(zip(outer, block.args, strict=True))
    for step in chain:
        step.detach()
        step.engine = step.reason = None
        for index, value in enumerate(step.inputs):
            if value in inner:
                step.operands[index] = inner[value]
        block.add_op(step)
    block.add_op(YieldOp.build(operands=[[last.result]]))
    return kernel


def copied(
    operations: Sequence[Operation],
    kernel: KernelOp,
    known: Mapping[SSAValue, SSAValue],
    before: AnyOperation,
) -> list[Operation]:
    """Copies of a kernel's operations in the network, before ``before``.

    They read the kernel's operands; where ``known`` has a value of the network for an operand, or
    for a result within the kernel, they read that.
    """
    outer = {argument: known.get(value, value) for argument, value in kernel.outside.items()}
    values: dict[SSAValue, SSAValue] = {**outer, **known}
    copies = [op.clone(values) for op in operations]
    for copy in copies:
        insert(copy, before)
    return copies


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
    chain: list[Operation] = []
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


def kernel_symbol(chain: Sequence[Operation], index: int, used: set[str], hint: str = "") -> str:
    """A C identifier, unique among ``used`` (to which it is added), that reminds of the node."""
    name = hint or next((step.node_name for step in chain if step.node_name), "")
    plain = identifier(name, chain[0].operation)[:_SYMBOL_LENGTH].rstrip("_")
    symbol = f"k{index}_{plain}"
    while symbol in used:
        index += 1
        symbol = f"k{index}_{plain}"
    used.add(symbol)
    return symbol


def symbols_of(module: AnyOperation) -> set[str]:
    """The symbols of the network's kernels."""
    return {kernel.symbol.data for kernel in network_of(module).kernels}


def accelerated_values(network: NetworkOp) -> set[SSAValue]:
    """Values that the accelerator's kernels give, and views that read any of them."""
    accelerated: set[SSAValue] = set()
    for op in network.block.ops:
        if isinstance(op, KernelOp):
            if not op.on_host:
                accelerated.add(op.result)
        elif (
            isinstance(op, Operation)
            and op.operation in VIEWS
            and any(value in accelerated for value in op.inputs)
        ):
            accelerated.add(op.result)
    return accelerated
