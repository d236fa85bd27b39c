"""The commands of a tile program with the places of all that they touch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from tilewright.codegen.program.locations import BufferPlace, TensorPlace
from tilewright.codegen.program.operands import Computed, Fields
from tilewright.codegen.program.transfers import transfer_columns
from tilewright.codegen.words import Column
from tilewright.machine import Machine, Move
from tilewright.numerics.element_types import size_of
from tilewright.tile.dialect import BufferOp, ComputeOp, MoveOp, ProgramOp
from tilewright.tile.iteration import Order
from tilewright.tile.operations import SignalOp, WaitOp
from tilewright.tile.queues import Command, Queues


class Commands:
    """One program on a machine; ``bases`` has the addresses of the arenas in main memory.

    Machines with joined transfers, transforms or circular buffers need more than this.
    """

    def __init__(self, program: ProgramOp, machine: Machine, bases: Mapping[str, int]) -> None:
        self.machine, self.bases = machine, bases
        self.order = Order(program)
        self.queues = Queues(self.order)
        self._places: dict[BufferOp, BufferPlace] = {}

    @property
    def all(self) -> list[Command]:
        """The moves and computes in the order of the text."""
        return self.queues.commands

    def place(self, op: BufferOp) -> BufferPlace:
        """The place of a buffer."""
        if op not in self._places:
            self._places[op] = BufferPlace(op, self.order, size_of(self.machine.accumulator))
        return self._places[op]

    def computed(self, op: ComputeOp) -> Computed:
        """A compute with its operands."""
        return Computed(op, self.order, self.place)

    def move(self, op: MoveOp) -> Move:
        """The machine's move that a command is."""
        outer = op.buffer.outer_buffer
        ends = (self.machine.main if outer is None else outer.memory, op.buffer.memory)
        return self.machine.move(*(ends if op.loads else ends[::-1]))

    def moved(self, op: MoveOp) -> Fields:
        """The columns of a move: ``element``, ``size0``, ``source.address``, ``source.stride0``."""
        outer = op.buffer.outer_buffer
        far = (
            TensorPlace.of(op.buffer.tensor_op, self.bases) if outer is None else self.place(outer)
        )
        return transfer_columns(op, self.order, self.place(op.buffer), far, None)

    @cached_property
    def ids(self) -> Mapping[SignalOp | WaitOp, Column]:
        """The id of each execution of a signal, or of a wait for one."""
        events = self.queues.events
        return events.column(events.table["id"].astype(np.int64))
