"""Hoist buffers and moves out of loops that do not change what they hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.errors import refuse
from tilewright.ir import Operation
from tilewright.machine import Machine
from tilewright.planning.space.levels import input_levels, result_levels
from tilewright.tile.dialect import (
    BufferOp,
    ComputeOp,
    DomainOp,
    LoopOp,
    MoveOp,
    ProgramOp,
    all_dims,
    enclosing_loops,
    enclosing_scopes,
)
from tilewright.tile.passes.base import TilePass
from tilewright.tile.queues import computes_of, leader_of


@dataclass(frozen=True)
class PlaceMoves(TilePass):
    """Puts each buffer and its move into the outermost loop in which its box is settled.

    A box is settled in a loop if no loop further in changes it. A buffer in a memory that has a
    level of its own in the schedule first goes out to that level: it then holds the level's tile
    while the loops of further levels run inside. Where one of these is over a reduction dim and
    changes the box, it does not: only sums wait there until the reduction is done, and what further
    buffers hold parts of. Those on the way to a primitive and from it are of the level that
    planning gives their memories (planning/space/levels.py). A joined move stays beside the move it
    joins.
    (swATOP, section 4.5.1: moves are placed as far as possible from the primitive.)

    Before::

        tile.loop "co" 0 to 64 step 16 {
          tile.loop "oh" 0 to 56 step 4 {
            %w_sb = tile.buffer "w" of %w [co, ci, kh, kw] in "sb" slots 1
            tile.move %w to %w_sb on "load"
            ...

    After::

        tile.loop "co" 0 to 64 step 16 {
          %w_sb = tile.buffer "w" of %w [co, ci, kh, kw] in "sb" slots 1
          tile.move %w to %w_sb on "load"
          tile.loop "oh" 0 to 56 step 4 {
            ...

    Refuses (``schedule-partial-sums``) a loop over a reduction dim outside of a loop over a
    parallel one within the output's level: accumulators would have to leave their buffer.
    """

    name = "place-moves"

    def run(self, program: ProgramOp, machine: Machine) -> None:
        """Place the moves of one program."""
        levels = {memory: number for number, memory in enumerate(program.get("levels", ()))}
        levels.pop(machine.main, None)  # Its loops are the grid of parts that cores share.
        for group in _groups(program):
            _place(group, _Levels(levels, machine), program)


@dataclass(frozen=True)
class _Levels:
    """The levels of a program."""

    number: Mapping[str, int]
    """Numbers of levels by the memories that name them, outermost first."""
    machine: Machine

    def of(self, group: _Group) -> int | None:
        """The level to whose loops a group first goes out; None for the innermost."""
        first = group.buffers[0]
        named = self.number.get(first.memory)
        ends = [self.machine.primitive(name) for name in sorted(_primitives(first))]
        if not self.number or not ends:
            return named
        further = _has_further(first)
        if group.loads and further:
            found = [input_levels(self.machine, each).get(first.memory, 0) for each in ends]
        elif group.stores and further:
            found = [
                level
                for each in ends
                if (level := result_levels(self.machine, each).get(first.memory)) is not None
            ]
        elif not group.loads and not group.stores:
            return named
        else:
            found = []
        if found:
            # A schedule of fewer levels has the tiles of its last but one in all memories within.
            least = min(self.number.values())
            return least + min(*found, max(len(self.number) - 2, 0))
        passed = any(first.memory in input_levels(self.machine, each) for each in ends)
        return None if passed else named


def _has_further(buffer: BufferOp) -> bool:
    """Return True if further buffers hold parts of a buffer."""
    return any(isinstance(use.operation, BufferOp) for use in buffer.result.uses)


def _computes(buffer: BufferOp) -> list[ComputeOp]:
    """The computes that read or write a buffer, or what is of it."""
    further = [use.operation for use in buffer.result.uses]
    parts = [op for part in further if isinstance(part, BufferOp) for op in _computes(part)]
    return [*computes_of(buffer), *parts]


def _primitives(buffer: BufferOp) -> set[str]:
    """The primitives that read or write a buffer, or what is of it."""
    return {op.primitive.data for op in _computes(buffer)}


@dataclass(frozen=True)
class _Group:
    """Buffers that move together: one, or those of joined moves; leader first."""

    buffers: list[BufferOp]
    loads: list[MoveOp]
    stores: list[MoveOp]

    @property
    def dims(self) -> frozenset[str]:
        """The dims that the group's boxes depend on, with those to which domains bind them."""
        return frozenset().union(*(all_dims(b.window.dims, b) for b in self.buffers))

    def before(self) -> list[Operation]:
        """Buffers and loads in the order in which they stand."""
        ops: list[Operation] = []
        for buffer in self.buffers:
            ops.append(buffer)
            ops += [move for move in self.loads if move.buffer is buffer]
        return ops


def _groups(program: ProgramOp) -> list[_Group]:
    groups: dict[Operation, _Group] = {}
    moves = [op for op in program.walk() if isinstance(op, MoveOp)]
    leaders: dict[BufferOp, Operation] = {}
    for move in moves:
        if move.loads and move.joined is not None:
            leaders[move.buffer] = leader_of(move).buffer
    for op in program.walk():
        if isinstance(op, BufferOp):
            group = groups.setdefault(leaders.get(op, op), _Group([], [], []))
            group.buffers.append(op)
    for move in moves:
        group = groups[leaders.get(move.buffer, move.buffer)]
        (group.loads if move.loads else group.stores).append(move)
    return list(groups.values())


def _place(group: _Group, levels: _Levels, program: ProgramOp) -> None:
    first = group.buffers[0]
    depth = len(enclosing_loops(first))
    chain = _loops_through(first)
    target = max(_settled(group, chain, levels, program), _around_domain(group))
    if target > depth and first.accumulates is not None:
        reduced = program.reduction_dims
        loop = next(loop for loop in chain[depth:] if loop.dim.data in reduced)
        raise refuse(
            "schedule-partial-sums",
            f"the loop over {loop.dim.data} reduces, but stands outside of the loop over "
            f"{chain[target - 1].dim.data}: partial sums of {first.symbol.data} "
            f"would have to leave {first.memory}",
            program.symbol.data,
            "loop over reduction dims within those over the output's dims",
        )
    if target < depth:
        _hoist(group, chain[target])


def _around_domain(group: _Group) -> int:
    """Return the number of loops that stay around a group because a domain within them binds its
    dims."""
    dims = frozenset().union(*(buffer.window.dims for buffer in group.buffers))
    for scope in reversed(enclosing_scopes(group.buffers[0])):
        if isinstance(scope, DomainOp) and dims.intersection(scope.bound):
            return len(enclosing_loops(scope))
    return 0


def _settled(group: _Group, chain: Sequence[LoopOp], levels: _Levels, program: ProgramOp) -> int:
    """Return the number of loops of the chain that stay around the group."""
    target = len(chain)
    level = levels.of(group)
    dims = group.dims
    reduced = set[str]()
    if not _has_further(group.buffers[0]):
        reduced = set(program.reduction_dims) & dims
    if level is not None and not any(
        loop.dim.data in reduced and levels.number.get(_memory(loop), level) > level
        for loop in chain
    ):
        while target and levels.number.get(_memory(chain[target - 1]), level) > level:
            target -= 1
    while target:
        if chain[target - 1].dim.data in dims and _moves(chain, target - 1, program):
            break
        target -= 1
    return target


def _hoist(group: _Group, loop: LoopOp) -> None:
    """Put buffers and loads right before a loop, stores right after it."""
    block = loop.parent_block()
    if block is None:
        return
    for op in group.before():
        op.detach()
        block.insert_op_before(op, loop)
    for op in reversed(group.stores):
        op.detach()
        block.insert_op_after(op, loop)


def _moves(chain: Sequence[LoopOp], number: int, program: ProgramOp) -> bool:
    """Return True if a loop changes its dim's interval: it does not if it runs once, over all of
    it."""
    loop = chain[number]
    dim = loop.dim.data
    size = min([program.extents[dim], *(o.step_size for o in chain[:number] if o.dim.data == dim)])
    return loop.lower_bound > 0 or loop.step_size < size or loop.upper_bound < size


def _memory(loop: LoopOp) -> str:
    return "" if loop.memory is None else loop.memory.data


def _loops_through(buffer: BufferOp) -> list[LoopOp]:
    """The loops around a buffer, and the first of each block from there inwards in which something
    computes with it."""
    chain = enclosing_loops(buffer)
    block = buffer.parent_block()
    computing = [loop for compute in _computes(buffer) for loop in enclosing_loops(compute)]
    while block is not None:
        loop = next((op for op in block.ops if isinstance(op, LoopOp) and op in computing), None)
        if loop is None:
            break
        chain.append(loop)
        block = loop.body.block
    return chain
