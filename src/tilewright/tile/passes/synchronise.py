"""Order the engines by the fewest waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.ir import to_attribute
from tilewright.machine import Machine
from tilewright.tile.dependences import Dependences, visits
from tilewright.tile.dialect import BufferOp, MoveOp, ProgramOp, enclosing_loops
from tilewright.tile.iteration import Order
from tilewright.tile.passes.base import TilePass
from tilewright.tile.queues import ROWS, Command, fills, is_out_of_order, leader_of
from tilewright.tile.races import Proof, share_addresses

PROVEN = 20_000
"""The most executions of a program whose waits are pruned by proof."""


@dataclass(frozen=True)
class Synchronise(TilePass):
    """Puts on each move and compute what it must wait for; see the dialect for the words.

    An engine runs its commands in program order, so waits stand between engines only: whoever
    reads a buffer waits until it is ``ready``, whoever fills it until its slot is ``free``. A wait
    is left out when another one implies it: of several fills by one engine, the latest is waited
    for; a buffer that is filled no more often than it has slots is always free; and of programs
    with at most ``PROVEN`` executions, each wait without which the proof (races.py) still holds.

    Without ``fewest`` the last of these stay: that is shorter, and they take no time where commands
    wait themselves. With ``every`` all fills are waited for: which is the latest differs where a
    program also runs with fewer indices of some dims.

    Machines without synchronisation (``synchronisation = "none"``) get no waits, nor do programs
    with an issuer, whose order says most (assign-events adds the rest).

    Where instructions wait for rows (``synchronisation.grain``), a wait implies nothing of other
    buffers. Each command waits for the rows of every buffer that it uses, but for buffers that are
    always free.

    Before::

        tile.move %x to %x_nbin on "load"
        tile.move %w to %w_sb on "load"
        tile.compute "conv" on "compute" to %y_nbout {...}
        tile.move %y_nbout to %y on "store"

    After::

        tile.move %x to %x_nbin on "load" waits ["free x"]
        tile.move %w to %w_sb on "load"
        tile.compute "conv" on "compute" to %y_nbout waits ["ready w", "free y"] {...}
        tile.move %y_nbout to %y on "store" waits ["ready y"]
    """

    name = "synchronise"

    fewest: bool = True
    every: bool = False

    def run(self, program: ProgramOp, machine: Machine) -> None:
        """Set the waits of one program."""
        dependences = Dependences(program)
        for op in dependences.commands:
            op.properties.pop("waits", None)
        if machine.synchronisation.style == "none" or program.issuer is not None:
            return
        by_rows = machine.synchronisation.by_rows
        for op in dependences.commands:
            if isinstance(op, MoveOp) and op.joined is not None:
                continue
            if by_rows:
                waits = _rows(op, dependences)
            else:
                ready = _ready(op, dependences, every=self.every)
                waits = [f"ready {buffer.symbol.data}" for buffer in ready]
                waits += [f"free {buffer.symbol.data}" for buffer in _free(op, dependences)]
            if waits:
                op.properties["waits"] = to_attribute(tuple(waits))
        if self.fewest and not by_rows:
            _prune(program, dependences.commands)


def _prune(program: ProgramOp, commands: Sequence[Command]) -> None:
    """Leave out the waits without which no dependence is unordered, the last first."""
    order = Order(program)
    if sum(order.rows(op).count for op in commands) > PROVEN:
        return
    for op in reversed(commands):
        for wait in reversed(op.wait_list):
            waits = op.wait_list
            op.set("waits", tuple(other for other in waits if other != wait))
            if Proof(order).races():
                op.set("waits", waits)
        if not op.wait_list:
            op.properties.pop("waits", None)


def _ready(op: Command, known: Dependences, *, every: bool) -> list[BufferOp]:
    """The buffers for whose content an operation waits: of each other engine, the latest, or
    ``every`` one."""
    latest: dict[str, tuple[tuple[int, int], BufferOp]] = {}
    unranked: list[BufferOp] = []
    for buffer in known.buffers:
        users = known.users[buffer]
        if op not in users or fills(op, buffer):
            continue
        for other in users:
            if fills(other, buffer) and other.engine != op.engine:
                # Of two fills that precede an operation, the one in the inner block, or later in
                # the same block, is always executed last; unless one of them stands elsewhere in
                # its queue.
                command = leader_of(other) if isinstance(other, MoveOp) else other
                if every or is_out_of_order(other):
                    unranked.append(buffer)
                    continue
                rank = (known.depth[buffer], known.position[command])
                engine = other.engine.data
                if engine not in latest or latest[engine][0] < rank:
                    latest[engine] = (rank, buffer)
    chosen = [*unranked, *(buffer for _, buffer in latest.values())]
    return [buffer for buffer in known.buffers if buffer in chosen]


def _rows(op: Command, known: Dependences) -> list[str]:
    """The waits of a command each of whose instructions waits for the rows that it touches."""
    waits, filled = list[str](), known.filled.get(op, [])
    for buffer in known.buffers:
        users, name = known.users[buffer], buffer.symbol.data
        others = [user for user in users if user.engine != op.engine]
        if buffer in filled and others and _is_reused(buffer):
            # A move that is joined fills its buffer as a whole.
            waits.append(f"free {ROWS}{name}" if op in users else f"free {name}")
        elif op in users and buffer not in filled and any(fills(user, buffer) for user in others):
            waits.append(f"ready {ROWS}{name}")
    return waits + [f"free {other.symbol.data}" for other in _replaced(op, filled, known)]


def _is_reused(buffer: BufferOp) -> bool:
    """Return True unless a buffer has a slot for every visit, and so is always free."""
    return visits(buffer) > buffer.slot_count


def _free(op: Command, known: Dependences) -> list[BufferOp]:
    """The buffers whose users an operation waits for, because it fills their memory."""
    filled = known.filled.get(op, [])
    waits = [
        buffer for buffer in filled if known.foreign(buffer, op.engine.data) and _is_reused(buffer)
    ]
    return waits + _replaced(op, filled, known)


def _replaced(op: Command, filled: Sequence[BufferOp], known: Dependences) -> list[BufferOp]:
    """The buffers whose addresses those that an operation fills have been given, too."""
    waits: list[BufferOp] = []
    for other in known.buffers:
        if other in filled or not any(share_addresses(other, buffer) for buffer in filled):
            continue
        if known.foreign(other, op.engine.data) and _may_precede(other, op, known):
            waits.append(other)
    return waits


def _may_precede(buffer: BufferOp, op: Command, known: Dependences) -> bool:
    """Return True if an execution of a buffer's users can come before one of ``op``."""
    shared = set(enclosing_loops(op)) & set(enclosing_loops(buffer))
    return bool(shared) or known.position[buffer] < known.position[op]
