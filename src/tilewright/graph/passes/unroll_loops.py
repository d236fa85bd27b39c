"""unroll-loops: every round of a loop in line."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import cast

from tilewright.graph.dialect import WeightOp, network_of
from tilewright.graph.operations import LoopOp, Operation
from tilewright.graph.operations.loops import MOST_ROUNDS
from tilewright.graph.passes.editing import erase, insert, make
from tilewright.ir import Context, ModuleOp, ModulePass, PythonValue, SSAValue
from tilewright.ir import Operation as AnyOperation
from tilewright.ir.types import shape_of


@dataclass(frozen=True)
class UnrollLoops(ModulePass):
    """Write out the rounds of every loop of fewer than ``below``, for those that take none.

    Before::

        %y = graph.loop (%h, %xs) ... {rounds = 3, carried = 1, axes = [0]} {
        ^bb0(%state, %x):
          %new = graph.add %state, %x
          graph.yield %new
        }

    After::

        %x0 = graph.slice %xs {starts = [0], ends = [1]}
        %s1 = graph.add %h, (%x0 without its first axis)
        %x1 = graph.slice %xs {starts = [1], ends = [2]}
        %s2 = graph.add %s1, ...
        ...

    Rows that are stacked become joins. Slices of a loop's result that take out one of its parts
    read that part itself.
    """

    name = "unroll-loops"
    below: int = MOST_ROUNDS + 1

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrite the module in place."""
        del ctx
        network = network_of(op)
        while loops := [step for step in network.walk() if self._takes(step)]:
            _unroll(cast(LoopOp, loops[0]))

    def _takes(self, op: AnyOperation) -> bool:
        return isinstance(op, LoopOp) and op.count < self.below


def _unroll(loop: LoopOp) -> None:
    def emit(operation: str, *values: SSAValue, **attributes: PythonValue) -> SSAValue:
        return make(operation, values, dict(attributes), before=loop, like=loop).result

    block, states = loop.body.block, loop.states
    constants: dict[SSAValue, SSAValue] = {}
    for op in block.ops:
        if isinstance(op, WeightOp):
            insert(copy := op.clone(), loop)
            constants[op.result] = copy.result
    carried = list(loop.inputs[:states])
    sequences = list(zip(loop.inputs[states:], loop.sequences, strict=False))
    given = list(loop.inputs[states + len(sequences) :])
    stacks: list[list[SSAValue]] = [[] for _ in loop.stacks]
    for number in range(loop.count):
        parts: list[SSAValue] = []
        for value, (axis, back) in sequences:
            shape, index = shape_of(value), loop.count - 1 - number if back else number
            part = emit("slice", value, starts=[index], ends=[index + 1], axes=(axis,), steps=[1])
            parts.append(emit("reshape", part, shape=[*shape[:axis], *shape[axis + 1 :]]))
        values = constants | dict(zip(block.args, [*carried, *parts, *given], strict=True))
        for op in block.ops:
            if isinstance(op, Operation):
                insert(copy := op.clone(values), loop)
                values[op.result] = copy.result
        results = [values[value] for value in loop.yielded.values]
        carried = results[:states]
        for stack, row in zip(stacks, results[states:], strict=True):
            stack.append(emit("reshape", row, shape=[1, *shape_of(row)]))
    wholes = [
        emit("concat", *(stack[::-1] if back else stack), axis=0) if len(stack) > 1 else stack[0]
        for stack, back in zip(stacks, loop.stacks, strict=True)
    ]
    for (start, _), value in zip(loop.parts, [*carried, *wholes], strict=True):
        _read_instead(loop, start, value)
    if loop.result.first_use is not None:
        flat = [
            emit("reshape", value, shape=[prod(shape_of(value))]) for value in (*carried, *wholes)
        ]
        loop.result.replace_all_uses_with(emit("concat", *flat, axis=0))
    erase(loop)


def _read_instead(loop: LoopOp, start: int, value: SSAValue) -> None:
    """Let those that take the part from ``start`` on out of the result read ``value``."""
    size = prod(shape_of(value))
    whole = size == shape_of(loop.result)[0]
    for user in [use.operation for use in loop.result.uses]:
        if not isinstance(user, Operation):
            continue
        tap: SSAValue = loop.result
        if user.operation == "slice" and user.get("starts") == (start,):
            if shape_of(user.result) != (size,) or user.get("steps", (1,)) != (1,):
                continue
            tap = user.result
        elif not whole:
            continue
        for reader in [use.operation for use in tap.uses]:
            if not isinstance(reader, Operation) or reader.operation != "reshape":
                continue
            if shape_of(reader.result) == shape_of(value):
                reader.result.replace_all_uses_with(value)
                erase(reader)
        if tap.first_use is not None and tap is not loop.result:
            flat = make("reshape", [value], {"shape": [size]}, before=loop, like=loop)
            tap.replace_all_uses_with(flat.result)
        if tap is not loop.result:
            erase(user)
