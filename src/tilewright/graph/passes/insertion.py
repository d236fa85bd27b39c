"""Kernels that passes insert once kernels are formed: copies, conversions and views that move data.

Lowering may refuse one of them, as any kernel, and the pipeline then runs again from the formed
network, in which it does not stand. So the pass that inserts it again is told: the context keeps
what was refused, by a form of the kernel that is the same in each run.
"""

from __future__ import annotations

from collections.abc import Hashable

from tilewright.graph.dialect import KernelOp
from tilewright.graph.operations import Operation
from tilewright.graph.passes.constraints import objection
from tilewright.graph.passes.enclosing import enclose, kernel_symbol
from tilewright.ir import StringAttr
from tilewright.ir.passes import CompilerContext
from tilewright.ir.types import layout_of, shape_of, tensor_type
from tilewright.machine import Machine


def insert_kernel(
    op: Operation, reason: str | None, context: CompilerContext, symbols: set[str], hint: str = ""
) -> KernelOp:
    """Put an operation into a kernel of its own, in its place.

    The accelerator has it unless there is a reason against that, or its lowering was refused
    before. ``symbols`` are those that are taken; the new one is added, and reminds of ``hint``.
    """
    form = form_of(op)
    reason = reason or context.refused.get(form)
    op.engine = StringAttr("accelerator" if reason is None else "host")
    op.reason = None if reason is None else StringAttr(reason)
    kernel = enclose([op], kernel_symbol([op], len(symbols), symbols, hint))
    context.inserted[kernel.symbol.data] = form
    return kernel


def objected(op: Operation, machine: Machine) -> str | None:
    """The reason why a machine does not compute an operation; None if it does."""
    refusal = objection(op, machine)
    return None if refusal is None else refusal[1]


def form_of(op: Operation) -> Hashable:
    """Return a key of an operation: its name, attributes, types of operands and result, and
    node."""
    values = (*op.inputs, op.result)
    types = tuple((tensor_type(v).element_type, shape_of(v), layout_of(v)) for v in values)
    return op.operation, op.node_name, tuple(sorted(op.values.items())), types
