"""The order in which the operations of a block are issued.

Queues that fill by themselves take them in the order of the text, and what is issued ahead, for the
next run of the block, before the block's first loop besides.

An issuer (``issuer`` of ProgramOp; issued.py) has an order of its own. What it gives ahead stands
before the block's first wait, loop or compute, so that it is under way meanwhile; what one
core loads for all cores stands after the waits, for these say that all are done with its slot. The
first such load of a part stands before the first wait, loop or compute of the part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tilewright.ir import Block, Operation
from tilewright.tile.dialect import (
    BufferOp,
    ComputeOp,
    DomainOp,
    LoopOp,
    MoveOp,
    ProgramOp,
    SignalOp,
    part_block,
    shared_loops,
)


@dataclass(frozen=True)
class Step:
    """An operation where it is issued."""

    op: Operation
    run: Literal["this", "next", "first"] = "this"
    """The run of the operation's block that is meant: this one, the next one, or the first one of
    the part."""


def steps_of(program: ProgramOp, block: Block) -> list[Step]:
    """The operations of a block in the order in which they are issued."""
    ahead = [op for op in block.ops if isinstance(op, MoveOp) and op.ahead is not None]
    if program.issuer is None:
        first = next((op for op in block.ops if isinstance(op, LoopOp)), None)
        early = [Step(move, "next") for move in ahead]
        return [s for op in block.ops for s in (*(early if op is first else ()), Step(op))]
    shared = shared_loops(program)
    to_all = {name for name, axis in program.get("exchanged", ()) if axis == "all"}
    for_all = [move for move in ahead if move.buffer.tensor_op.symbol.data in to_all]
    early = [Step(op, "next") for move in ahead if move not in for_all for op in with_signal(move)]
    following = [Step(op, "next") for move in for_all for op in with_signal(move)]
    if block is part_block(program):
        moves = [op for op in block.walk() if isinstance(op, MoveOp) and op.ahead is not None]
        early = [Step(op, "first") for move in moves for op in with_signal(move)] + early
    elsewhere = {step.op for step in (*early, *following)}
    steps: list[Step] = []
    for op in block.ops:
        if op in elsewhere:
            continue
        if not isinstance(op, (BufferOp, MoveOp, SignalOp)) and op not in shared:
            steps, early = steps + early, []
            if isinstance(op, (ComputeOp, DomainOp, LoopOp)):
                steps, following = steps + following, []
        steps.append(Step(op))
    return steps


def signal_of(move: MoveOp) -> SignalOp | None:
    """The signal of the words that a transfer counts up, which stands right after it."""
    following = move.next_op
    if not isinstance(following, SignalOp) or following.source_engine != move.engine.data:
        return None
    return following


def with_signal(move: MoveOp) -> list[Operation]:
    """A transfer and its signal."""
    signal = signal_of(move)
    return [move] if signal is None else [move, signal]
