"""partition: which operations the accelerator runs, which the host, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from tilewright.graph.dialect import NetworkOp, WeightOp, network_of
from tilewright.graph.operation import Operation
from tilewright.graph.operations.pointwise import PointwiseOperation
from tilewright.graph.passes.constraints import objection
from tilewright.graph.passes.editing import VIEWS, compiler, constant, operations_of
from tilewright.graph.passes.points import LOWEST
from tilewright.graph.saturation import maskable
from tilewright.ir import Context, ModuleOp, ModulePass, SSAValue, StringAttr
from tilewright.ir.passes import CompilerContext

MOST_JOINED = 64
"""Operands that one node may join, two at a time, for the accelerator to do it: each pair is a
kernel with a program of its own, which takes longer to make than anyone would wait for."""

CARRYING = (*VIEWS, "add", "sub", "neg", "select", "gather", "log_softmax")
"""Operations that give infinities of their operands' infinities."""


def _long_joins(steps: Sequence[Operation]) -> set[Operation]:
    """Operations of chains of one kind and of one node that are longer than that."""
    chains: dict[Operation, list[Operation]] = {}
    for step in steps:
        before = step.inputs[0].owner if step.inputs else None
        alike = (
            isinstance(before, Operation)
            and step.operation == before.operation
            and bool(step.node_name)
            and step.node_name == before.node_name
        )
        chain = chains.get(before, []) if alike and isinstance(before, Operation) else []
        chain.append(step)
        chains[step] = chain
    return {step for step, chain in chains.items() if len(chain) >= MOST_JOINED}


def _without_numbers(network: NetworkOp, ctx: CompilerContext) -> set[Operation]:
    """Operations that read what numbers of a scale have not: constants with infinities, NaN or
    -3.4e38, and what sums and choices take over of them, but for -infinity in masks, which is as
    good as a low number (graph/saturation.py)."""
    if ctx.machine.number.kind == "float":
        return set()
    # What the coarsest binary point does not hold, masks of -3.4e38, is as good as -infinity.
    bits = ctx.machine.fixed_bits
    limit = 2.0 ** (bits - 1 - LOWEST) if bits else inf
    endless: dict[SSAValue, bool] = {}
    for op in network.block.ops:
        array = constant(op.result, ctx) if isinstance(op, WeightOp) else None
        if array is None or array.dtype.kind != "f":
            continue
        low = array < -limit
        if low.any() or not np.isfinite(array).all():
            endless[op.results[0]] = bool(np.all(np.isfinite(array) | low))
    masks = maskable(network, ctx.weights) if any(endless.values()) else set[SSAValue]()
    said = {value for value, lowest in endless.items() if lowest and value in masks}
    unsayable, carried = set[Operation](), endless.keys() - said
    for op in network.operations:
        read = any(value in carried and value not in masks for value in op.inputs)
        if read or (op.operation == "pad" and not np.isfinite(op.get("value", 0.0))):
            unsayable.add(op)
        if op.operation in CARRYING and not carried.isdisjoint(op.inputs):
            carried.add(op.result)
    return unsayable


def _with_the_rest_of_their_nodes(steps: Sequence[Operation]) -> None:
    """Give pointwise operations to the host whose results the host alone reads, for others of the
    same node of the model, with the reason of those.

    Their operands and results would be rounded to the accelerator's numbers, and the rest of the
    node computes with numbers that are not: x / |x| is not 1 then. Changing the numbers there and
    back takes the host longer than the operation itself, too.
    """
    for step in reversed(steps):
        if not isinstance(step, PointwiseOperation) or _engine(step) != "accelerator":
            continue
        readers = [use.operation for use in step.result.uses]
        if not readers or not step.node_name or any(map(_is_the_accelerators, step.inputs)):
            continue
        if all(
            isinstance(each, Operation)
            and _engine(each) == "host"
            and each.node_name == step.node_name
            for each in readers
        ):
            step.engine = StringAttr("host")
            step.reason = next(op.reason for op in readers if isinstance(op, Operation))


def _engine(op: Operation) -> str:
    """The engine of an operation, or "" where it has none yet."""
    return op.engine.data if op.engine is not None else ""


def _is_the_accelerators(value: SSAValue) -> bool:
    """Return True if the accelerator computes a value."""
    return isinstance(value.owner, Operation) and _engine(value.owner) == "accelerator"


@dataclass(frozen=True)
class Partition(ModulePass):
    """Mark every operation that computes with its engine, and those of the host with the reason.

    Before::

        %1 = graph.conv %x, %w : ...
        %2 = graph.softmax %1 : ...

    After::

        %1 = graph.conv %x, %w {engine = "accelerator"} : ...
        %2 = graph.softmax %1 {engine = "host", reason = "softmax with axis = 5000 kept whole
             needs 20000 bytes of nbin, which holds 8192 (...)"} : ...

    Views (reshape, transpose, slice, and joins) get no engine: eliminate-views decides on them.
    ``host`` names operations (``graph.`` left out) or nodes of the model that are to run on the
    host whatever the machine can do.
    """

    name = "partition"
    host: tuple[str, ...] = ()

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrite the module in place."""
        machine = compiler(ctx).machine
        steps = operations_of(op)
        long = set[Operation]()
        if machine.moves:
            long = _long_joins(steps)
        unsayable = _without_numbers(network_of(op), compiler(ctx))
        for step in steps:
            if step.operation in VIEWS:
                continue
            reason = ""
            if step.operation in self.host or (step.node_name and step.node_name in self.host):
                reason = "asked for"
            elif (refusal := objection(step, machine)) is not None:
                constraint, why = refusal
                reason = f"{why} ({constraint.help})"
            elif step in unsayable:
                reason = (
                    f"it has numbers that are infinite or no numbers, and {machine.element} has "
                    "none (state finite ones)"
                )
            elif step in long:
                reason = (
                    f"its node joins more than {MOST_JOINED} operands, each by a kernel of its own "
                    "(join them in several nodes)"
                )
            step.engine = StringAttr("host" if reason else "accelerator")
            step.reason = StringAttr(reason) if reason else None
        if machine.number.kind == "fixed":
            _with_the_rest_of_their_nodes(steps)
