"""The commands of a tile program with the places of all that they touch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from tilewright.codegen.program.locations import BufferPlace, TensorPlace
from tilewright.codegen.program.operands import Computed, Fields
from tilewright.codegen.program.transfers import Place, transfer_columns
from tilewright.codegen.words import Column
from tilewright.errors import refuse
from tilewright.machine import Machine, Move
from tilewright.machine.expression import parse_expression
from tilewright.numerics.element_types import size_of
from tilewright.tile.dialect import BufferOp, ComputeOp, MoveOp, ProgramOp, TensorOp
from tilewright.tile.iteration import Order, own_extents
from tilewright.tile.operations import SignalOp, WaitOp
from tilewright.tile.queues import Command, Queues, followers_of
from tilewright.tile.tensors import holding_memory


class Commands:
    """One program on a machine; ``bases`` has the addresses of the arenas in main memory."""

    def __init__(self, program: ProgramOp, machine: Machine, bases: Mapping[str, int]) -> None:
        self.program, self.machine, self.bases = program, machine, bases
        self.order = Order(program)
        self.queues = Queues(self.order)
        self.engines = [engine.name for engine in machine.engines]
        self._places: dict[BufferOp, BufferPlace] = {}
        self._tensors: dict[TensorOp, TensorPlace] = {}

    @cached_property
    def all(self) -> list[Command]:
        """The moves and computes in the order of the text, without joined moves."""
        commands = self.queues.commands
        return [op for op in commands if not (isinstance(op, MoveOp) and op.joined is not None)]

    def place(self, op: BufferOp) -> BufferPlace:
        """The place of a buffer."""
        if op not in self._places:
            self._places[op] = BufferPlace(op, self.order, size_of(self.machine.accumulator))
        return self._places[op]

    def tensor(self, op: TensorOp) -> TensorPlace:
        """The place of a tensor in main memory."""
        if op not in self._tensors:
            self._tensors[op] = TensorPlace.of(op, self.bases)
        return self._tensors[op]

    def outer(self, op: BufferOp) -> Place:
        """The place of what a buffer is of."""
        outer = op.outer_buffer
        return self.tensor(op.tensor_op) if outer is None else self.place(outer)

    def computed(self, op: ComputeOp) -> Computed:
        """A compute with its operands."""
        return Computed(op, self.order, self.place)

    def cycles(self, op: ComputeOp) -> Column:
        """The cycles of each execution of a compute."""
        expression = parse_expression(self.machine.primitive(op.primitive.data).cycles)
        rows, extents = self.order.rows(op).renamed(op.dim_names), own_extents(op, self.program)
        sizes = {dim: rows.size(dim) for dim in expression.names if dim in extents}
        return np.ceil(expression.evaluate(sizes))

    def move(self, op: MoveOp) -> Move:
        """The machine's move that a command is."""
        ends = (holding_memory(op.buffer.outer.owner, self.machine), op.buffer.memory)
        return self.machine.move(*(ends if op.loads else ends[::-1]))

    def moved(self, op: MoveOp) -> Fields:
        """The columns of a move: ``element``, ``size0``, ``source.address``, ``source.stride0``,
        and those of a move that travels with it, ``extra.source``."""
        place, joined, followers = self.place(op.buffer), None, followers_of(op)
        if followers:
            other, *more = followers
            if more or self.place(other.buffer).memory != place.memory:
                raise refuse(
                    "lower-joined",
                    "a transfer carries one more run, into the same memory",
                    place.name,
                )
            joined = other, self.place(other.buffer), self.outer(other.buffer)
        return transfer_columns(op, self.order, place, self.outer(op.buffer), joined)

    @cached_property
    def ids(self) -> Mapping[SignalOp | WaitOp, Column]:
        """The id of each execution of a signal, or of a wait for one."""
        events = self.queues.events
        return events.column(events.table["id"].astype(np.int64))
