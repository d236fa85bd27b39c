"""Loops of which a run decides the number of rounds: all that there may be, the last ones in vain.

What is carried stays as it is after a run's last round, and what rounds collect has the size of
the rounds that were taken (frontends/onnx/decided.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from onnx import GraphProto

from tilewright.errors import TilewrightError
from tilewright.frontends.limits import MAX_ROUNDS
from tilewright.frontends.loops import LEAST_ROUNDS, BodyBuilder, Scanned
from tilewright.frontends.onnx.decided import Decided, ended, first, room
from tilewright.frontends.onnx.lowering import Lowering, Value, dtype_of
from tilewright.frontends.onnx.sequences import Absent, Item, ValueList, tensor_of
from tilewright.frontends.onnx.tensors import Constant
from tilewright.ir import SSAValue
from tilewright.ir.types import shape_of

if TYPE_CHECKING:
    from tilewright.frontends.onnx.body import Body
    from tilewright.frontends.onnx.control import Call


def loop_of_run(call: Call) -> Sequence[Item] | None:
    """Rounds of which a run decides how many it takes, up to the most that there may be: after its
    last one a run keeps what is carried as it is."""
    graph, at, (limit, *others) = call.graph("body"), call.at, call.operands
    if any(isinstance(value, ValueList | Absent) for value in others[1:]):
        raise at.refuse("a run decides its rounds, and they carry a sequence", code="onnx-shape")
    state = [tensor_of(at, value) for value in others[1:] if value is not None]
    rows = len(graph.output) - 1 - len(state)
    most = None
    if isinstance(limit, Constant) and int(limit.array.reshape(-1)[0]) <= MAX_ROUNDS:
        most = max(1, int(limit.array.reshape(-1)[0]))
    what = "how many rounds it takes, and nothing says how many at most"
    name, extent = room(at, most=most, result=len(state) if rows else 0, what=what)
    decided = at.network.decided
    assert isinstance(decided, Decided)
    rounds = decided.rooms[name]
    if rounds > MAX_ROUNDS:
        raise call.refuse(f"it goes over {MAX_ROUNDS} rounds")
    stop = None if limit is None else at.reshape(at.stored(tensor_of(at, limit)), ())
    going = None if not others or others[0] is None else at.stored(tensor_of(at, others[0]))
    going = at.weight(np.array(True), "going") if going is None else at.reshape(going, ())
    if stop is not None:
        going = at.emit("bit_and", going, at.emit("less", at.made(0, stop, "first"), stop))
    stages = RunRounds(call, graph, stop)
    kept = stages.loop(rounds, state, going)
    if kept is None:
        kept = stages.written(rounds, state, going)
    if kept is None:
        return None
    (*carried, further), (taken, *stacks) = kept
    count = at.emit("reduce_sum", at.cast(taken, np.int64), axes=(0,), keep_dims=False)
    # A run that would go on has one round too many for the room.
    count = at.emit("add", count, at.cast(further, np.int64))
    decided.sizes[name] = at.reshape(count, ())
    return [*carried, *(ended(at, first(at, s, 0, extent), 0, name, count) for s in stacks)]


Kept = tuple[list[SSAValue], list[SSAValue]]
"""Values carried after the last round, with whether there would be a further one, and those that
the rounds collect."""


@dataclass(frozen=True)
class RunRounds:
    """The rounds of a Loop of which a run decides how many it takes."""

    call: Call
    graph: GraphProto
    stop: SSAValue | None
    """The number of rounds at most, of rank 0; None where the condition alone ends them."""

    def loop(self, rounds: int, state: Sequence[Value], going: SSAValue) -> Kept | None:
        """The rounds as a loop of the network; None where it is none, as ``Rounds`` says."""
        call, at, problems = self.call, self.call.at, self.call.body.problems
        before, taken = len(problems), call.body.taken
        states = [at.stored(value) for value in state]
        kinds = {dtype_of(value) for value in states} or {np.dtype(np.float32)}
        if len(kinds) > 1 or rounds < LEAST_ROUNDS:
            return None
        (kind,) = kinds
        flag = at.cast(going, kind)
        numbers = at.weight(np.arange(rounds, dtype=np.int64), f"{call.node.name}.rounds")
        network = BodyBuilder(at.network, [*states, flag], [Scanned(numbers)])
        inner, body = at.within(network), replace(call.body, network=network)
        found = None
        try:
            *old, now = network.states
            found = self._round(inner, body, network.parts[0], old, inner.cast(now, np.bool_))
        except TilewrightError:
            pass
        call.body.taken = max(taken, body.taken)
        if found is not None:
            news, after, rows = found
            after, now = inner.cast(after, kind), network.states[-1]
            if len(problems) == before and network.fits([*news, after], [now, *rows]):
                backwards = [False] * (1 + len(rows))
                carried, stacks = network.loop(at, rounds, [*news, after], [now, *rows], backwards)
                return carried, stacks
        network.discard()
        del problems[before:]
        return None

    def written(self, rounds: int, state: Sequence[Value], going: SSAValue) -> Kept | None:
        """The rounds one after another."""
        at, call = self.call.at, self.call
        carried = [at.stored(value) for value in state]
        collected: list[list[SSAValue]] = []
        for number in range(rounds):
            index = at.weight(np.array(number, np.int64), f"{call.node.name}.round")
            found = self._round(at, call.body, index, carried, going)
            if found is None:
                return None
            carried, after, rows = found
            collected.append([going, *rows])
            going = after
        stacks = [at.joined(list(rows), 0, new=True) for rows in zip(*collected, strict=True)]
        return [*carried, going], [at.stored(stack) for stack in stacks]

    def _round(
        self, at: Lowering, body: Body, index: SSAValue, state: Sequence[SSAValue], going: SSAValue
    ) -> tuple[list[SSAValue], SSAValue, list[SSAValue]] | None:
        """What is carried on, whether there is a further round, and what is collected."""
        call = self.call
        condition = Constant(np.array(True), f"{call.node.name}.condition")
        results = body.subgraph(call.node, self.graph, call.scope, [index, condition, *state])
        if results is None:
            return None
        values = [at.stored(tensor_of(at, item)) for item in results]
        news = values[1 : 1 + len(state)]
        if any(shape_of(new) != shape_of(old) for new, old in zip(news, state, strict=True)):
            raise at.misfit("a run decides its rounds, and what they carry changes its shape")
        kept = [at.emit("select", going, new, old) for new, old in zip(news, state, strict=True)]
        after = at.emit("bit_and", going, at.reshape(values[0], ()))
        if self.stop is not None:
            following = at.apply("add", at.reshape(index, ()), 1)
            after = at.emit("bit_and", after, at.emit("less", following, self.stop))
        return kept, after, values[1 + len(state) :]
