"""eliminate-views: reshapes, transposes, slices and joins become addresses or copies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tilewright.errors import refuse
from tilewright.graph.dialect import KernelOp, NetworkOp, WeightOp, network_of
from tilewright.graph.operations import Operation
from tilewright.graph.operations.views import JoinOperation
from tilewright.graph.passes.addresses import Addresses
from tilewright.graph.passes.assign_layouts import copy_kernel
from tilewright.graph.passes.editing import Rewriter, compiler, sweep
from tilewright.graph.passes.enclosing import symbols_of
from tilewright.graph.passes.insertion import insert_kernel, objected
from tilewright.graph.passes.strides import dense_box, parse, reshape_box, slice_box
from tilewright.ir import Context, ModuleOp, ModulePass, SSAValue, StringAttr, UnitAttr
from tilewright.ir.passes import CompilerContext
from tilewright.ir.types import layout_of, shape_of
from tilewright.machine import Machine

MOST_AXES = 4
"""Axes of a box that most machines transfer at once."""


@dataclass(frozen=True)
class EliminateViews(ModulePass):
    """Leave only views that cost nothing; what cannot be one becomes a kernel that copies.

    Before::

        %3 = graph.concat %1, %x {axis = 1} : ...
        %4 = graph.transpose %3 {permutation = [0, 3, 1, 2]} : ...

    After::

        %2 = graph.kernel "k5_copy_x" (%x) { graph.convert_layout } : ...
        %3 = graph.concat %1, %2 {axis = 1} : ...
        %4 = graph.kernel "k6_transpose" (%3) { graph.transpose } : ...

    Views that are left stand outside kernels and are addresses (addresses.py): plan-memory gives
    them a place in the memory of another value, and no code is made for them. An operand of a join
    (a concatenation, an interleaving) is copied if no kernel can write it in place: an input of the
    network, a weight, a view, or a value that already lies in another join. A transpose of more
    axes than transfers have has one for those that stay side by side. A network's outputs are dense
    and row-major; an output that is not, or that is a weight, is copied too.
    """

    name = "eliminate-views"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrite the module in place."""
        context, network = compiler(ctx), network_of(op)
        symbols = symbols_of(network)
        _copy_parts(network, context, symbols)
        # Each round copies at least one view that the addresses of the last one ruled out.
        while _copy_views(network, context, symbols):
            pass
        _copy_outputs(network, context, symbols)
        sweep(network)


def _copy_parts(network: NetworkOp, context: CompilerContext, symbols: set[str]) -> None:
    addresses = Addresses(network)
    for op in list(network.block.ops):
        if not isinstance(op, JoinOperation):
            continue
        whole = dense_box(layout_of(op.result), shape_of(op.result))
        inputs, parts = list(op.inputs), op.parts()
        for index, (value, part) in enumerate(zip(inputs, parts, strict=True)):
            if not addresses.is_part(op, index, value):
                copy = copy_kernel(value, layout_of(op.result), op, context, symbols)
                inputs[index] = copy.result
                if slice_box(whole, part) is None:
                    _scatter(copy, context.machine)
        op.operands = inputs


def _scatter(copy: KernelOp, machine: Machine) -> None:
    """Let a copy write elements that lie apart, one by one: no machine's moves do that."""
    copy.scattered = UnitAttr()
    if machine.moves:
        copy.engine = StringAttr("host")
        copy.reason = StringAttr("what it joins to other values lies element by element")


def _copy_views(network: NetworkOp, context: CompilerContext, symbols: set[str]) -> bool:
    addresses = Addresses(network)
    for op in list(network.block.ops):
        if not isinstance(op, Operation) or addresses.of(op.result) is not None:
            continue
        if op.operation == "reshape":
            layout = _dense_layout(op)
            op.operands[0] = copy_kernel(op.inputs[0], layout, op, context, symbols).result
        elif op.operation != "transpose" or not _narrowed(op, addresses, Rewriter(context, op)):
            insert_kernel(op, objected(op, context.machine), context, symbols)
        return True
    return False


def _narrowed(op: Operation, addresses: Addresses, at: Rewriter) -> bool:
    """Let a transpose of more axes than transfers have, if it can, transpose fewer: those that lie
    alike in operand and result become one, between two reshapes that are addresses."""
    (value,), rank = op.inputs, len(shape_of(op.result))
    address = addresses.of(value)
    dense = address is not None and address.box.dense
    if rank <= MOST_AXES or not dense or layout_of(value) or layout_of(op.result):
        return False
    shape, order = _joined_axes(shape_of(value), op.integers("permutation"))
    if len(shape) == rank:
        return False
    joined = at.make("reshape", value, shape=shape)
    turned = at.make("transpose", joined, permutation=order)
    return at.replace(at.make("reshape", turned, shape=shape_of(op.result)))


def _joined_axes(
    shape: Sequence[int], permutation: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and permutation of the same transpose with as few axes as can be."""
    places = {axis: n for n, axis in enumerate(a for a in range(len(shape)) if shape[a] > 1)}
    runs: list[list[int]] = []
    for axis in permutation:
        if axis not in places:
            continue
        if runs and places[axis] == places[runs[-1][-1]] + 1:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    sources = sorted(runs)
    joined = tuple(prod(shape[axis] for axis in run) for run in sources)
    return joined, tuple(sources.index(run) for run in runs)


def _dense_layout(op: Operation) -> str:
    """The layout in which a dense copy of a reshape's operand makes it an address."""
    shape, result = shape_of(op.inputs[0]), shape_of(op.result)
    target = parse(layout_of(op.result), len(result))
    for text in (layout_of(op.inputs[0]), ""):
        if reshape_box(dense_box(text, shape), result, target) is not None:
            return text
    reason = f"no layout of {list(shape)} makes it an address in {layout_of(op.result)!r}"
    raise refuse("views-reshape", reason, op.node_name, "run assign-layouts first")


def _copy_outputs(network: NetworkOp, context: CompilerContext, symbols: set[str]) -> None:
    addresses = Addresses(network)
    last = network.output_op
    copies: dict[SSAValue, SSAValue] = {}
    for index, value in enumerate(list(last.values)):
        address = addresses.of(value)
        if (
            address is not None
            and address.box.dense
            and not layout_of(value)
            and not isinstance(address.root.owner, WeightOp)
        ):
            continue
        if value not in copies:
            copies[value] = copy_kernel(value, "", last, context, symbols).result
        last.operands[index] = copies[value]
