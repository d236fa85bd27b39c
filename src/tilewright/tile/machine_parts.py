"""Checks that a machine has the memories, moves, engines, primitives that a tile program names.

Programs that ``tile/build.py`` makes name nothing else; texts may.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tilewright.ir import Operation, SSAValue
from tilewright.machine import Machine
from tilewright.numerics.operators import OPERATORS
from tilewright.tile.dialect import BufferOp, ComputeOp, LoopOp, MoveOp, ProgramOp
from tilewright.tile.tensors import holding_memory


class Absent(NamedTuple):
    """An operation that names what its machine has not."""

    op: Operation
    reason: str
    help: str = ""
    """The names of the parts that the machine has."""


def absent_parts(program: ProgramOp, machine: Machine) -> Iterator[Absent]:
    """Yield the parts that the program names and the machine lacks; other checks take for granted
    that the machine has all parts."""
    for op in program.walk():
        if isinstance(op, ProgramOp):
            yield from _header(op, machine)
        elif isinstance(op, LoopOp):
            if op.memory is not None:
                yield from _level(op, op.memory.data, machine)
        elif isinstance(op, BufferOp):
            yield from _buffer(op, op.memory, machine)
        elif isinstance(op, MoveOp):
            yield from _move(op, machine)
        elif isinstance(op, ComputeOp):
            yield from _compute(op, machine)


def _header(op: ProgramOp, machine: Machine) -> Iterator[Absent]:
    """The levels that a program names, and the memories of its slots."""
    for name in dict.fromkeys(op.get("levels", ())):
        yield from _level(op, name, machine)
    further = [name for _, _, *memory in op.get("slots", ()) for name in memory]
    for name in dict.fromkeys(further):
        yield from _buffer(op, name, machine)


def _level(op: Operation, name: str, machine: Machine) -> Iterator[Absent]:
    """A level is a memory's, or cuts what an engine computes at once."""
    if name not in [engine.name for engine in machine.engines]:
        yield from _buffer(op, name, machine)


def _buffer(op: Operation, name: str, machine: Machine) -> Iterator[Absent]:
    names = [memory.name for memory in machine.memories]
    if name not in names:
        yield Absent(op, f"{machine.name} has no memory {name}", f"one of {', '.join(names)}")


def memory_of(end: SSAValue, machine: Machine) -> str:
    """The memory of one end of a move."""
    return holding_memory(end.owner, machine)


def _move(op: MoveOp, machine: Machine) -> Iterator[Absent]:
    ends = memory_of(op.source, machine), memory_of(op.target, machine)
    moves = [move for move in machine.moves if (move.source, move.target) == ends]
    engines = [move.engine for move in moves]
    transform = "" if op.transform is None else op.transform.data
    if not engines:
        known = ", ".join(f"{move.source} to {move.target}" for move in machine.moves)
        reason = f"{machine.name} has no move from {ends[0]} to {ends[1]}"
        yield Absent(op, reason, f"one of {known}")
    elif op.engine.data not in engines:
        reason = f"moves from {ends[0]} to {ends[1]} run on {engines[0]}, not on {op.engine.data}"
        yield Absent(op, reason)
    elif transform and all(transform not in move.transforms for move in moves):
        known = ", ".join(sorted({name for move in moves for name in move.transforms}))
        reason = f"{moves[0].name}, from {ends[0]} to {ends[1]}, does not {transform} on the way"
        yield Absent(op, reason, f"it does {known}" if known else "it copies")


def _compute(op: ComputeOp, machine: Machine) -> Iterator[Absent]:
    primitives = {primitive.name: primitive for primitive in machine.primitives}
    primitive = primitives.get(op.primitive.data)
    if primitive is None:
        reason = f"{machine.name} has no primitive {op.primitive.data}"
        yield Absent(op, reason, f"one of {', '.join(primitives)}")
    elif primitive.engine != op.engine.data:
        reason = f"{primitive.name} runs on {primitive.engine}, not on {op.engine.data}"
        yield Absent(op, reason)
    named = {operation for each in machine.primitives for operation in each.operations}
    named |= {name for each in machine.primitives for group in each.epilogue for name in group}
    for stage in op.stages:
        if stage.operation.data not in named and stage.operation.data not in OPERATORS:
            yield Absent(stage, f"no operation is named {stage.operation.data}")
