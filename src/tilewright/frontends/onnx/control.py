"""The operators If, Loop and Scan: branches chosen at import or, both computed, at run time; loops
kept, or unrolled."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import GraphProto, ValueInfoProto

from tilewright.errors import TilewrightError
from tilewright.frontends.limits import MAX_ROUNDS
from tilewright.frontends.loops import LEAST_ROUNDS, BodyBuilder, Scanned
from tilewright.frontends.moves import element_at
from tilewright.frontends.onnx.decided import ended, room
from tilewright.frontends.onnx.folding import shape_of_type
from tilewright.frontends.onnx.lowering import (
    Lowering,
    Value,
    dtype_of,
    dtype_of_value,
    shape_of_value,
)
from tilewright.frontends.onnx.nodes import AttributeValue, Node
from tilewright.frontends.onnx.run_loops import loop_of_run
from tilewright.frontends.onnx.sequences import Absent, Item, Items, ValueList, tensor_of
from tilewright.frontends.onnx.tensors import DTYPES, Constant
from tilewright.ir import SSAValue
from tilewright.ir.types import shape_of

if TYPE_CHECKING:
    from tilewright.frontends.onnx.body import Body, Scope


@dataclass(frozen=True)
class Call:
    """A node with subgraphs, and what it is given where it stands."""

    body: Body
    node: Node
    attributes: Mapping[str, AttributeValue]
    operands: Items
    scope: Scope

    @property
    def at(self) -> Lowering:
        """The node as operators' importers see it, with neither attributes nor operands."""
        return Lowering(self.node, {}, (), self.body.network)

    def graph(self, name: str) -> GraphProto:
        """An attribute that is a graph."""
        graph = self.attributes.get(name)
        if not isinstance(graph, GraphProto):
            raise self.node.refuse(f"the attribute {name!r} is not a graph")
        return graph

    def subgraph(self, graph: GraphProto, inputs: Sequence[Item]) -> list[Item] | None:
        """The outputs of a subgraph for given inputs; None if one depends on what was refused."""
        return self.body.subgraph(self.node, graph, self.scope, inputs)

    def refuse(self, reason: str) -> TilewrightError:
        """The refusal of control that only a run decides."""
        return self.node.refuse(
            reason,
            code="onnx-unsupported-operator",
            help="make what decides it a constant: --constant, where an input does; or export the "
            "model without control flow",
        )

    def flag(self, value: Item | None, subject: str) -> bool:
        """A boolean that must be known at import; absent is true."""
        if value is None:
            return True
        if not isinstance(value, Constant) or value.array.size != 1:
            raise self.refuse(f"its {subject} is computed at run time")
        return bool(value.array.reshape(-1)[0])


Control = Callable[[Call], "Sequence[Item] | None"]


def if_(call: Call) -> Sequence[Item] | None:
    """The branch that the condition chooses; where only the run knows it, both, and a choice.

    Operators have no effects, so that what the branch not taken computes harms nothing.
    """
    graphs = [call.graph(name) for name in ("then_branch", "else_branch")]
    condition = call.operands[0]
    if not isinstance(condition, SSAValue):
        return call.subgraph(graphs[not call.flag(condition, "condition")], ())
    at, problems = call.at, call.body.problems
    if dtype_of(condition) != np.bool_ or math.prod(shape_of(condition)) != 1:
        raise at.refuse("its condition is not one boolean", code="onnx-dtype")
    before = len(problems)
    branches = [call.subgraph(graph, ()) for graph in graphs]
    # A branch may be for inputs of another shape, whose case the caller knows.
    problems[before:] = [replace(item, help=item.help or CHOOSE) for item in problems[before:]]
    if branches[0] is None or branches[1] is None:
        return None
    condition = at.reshape(condition, ())
    return [
        _chosen(at, condition, first, second, number)
        for number, (first, second) in enumerate(zip(*branches, strict=False))
    ]


CHOOSE = "make the condition of the If a constant: --constant, where an input decides it"
"""The help for a branch that these inputs cannot take."""


def _chosen(at: Lowering, condition: SSAValue, first: Item, second: Item, number: int) -> Item:
    """The result of the branch that is taken; of sequences of one length, tensor by tensor."""
    if isinstance(first, ValueList | Absent) or isinstance(second, ValueList | Absent):
        lists = [item.items for item in (first, second) if isinstance(item, ValueList)]
        if len(lists) < 2 or len(lists[0]) != len(lists[1]):
            raise at.misfit("its branches give sequences of different lengths")
        chosen = [_chosen(at, condition, a, b, number) for a, b in zip(*lists, strict=True)]
        return ValueList(tuple(tensor_of(at, item) for item in chosen))
    if isinstance(first, Constant) and isinstance(second, Constant) and _equal(first, second):
        return first
    shapes = [list(shape_of_value(value)) for value in (first, second)]
    if len(shapes[0]) != len(shapes[1]) or 0 in (*shapes[0], *shapes[1]):
        raise at.refuse(
            f"its branches give the shapes {shapes[0]} and {shapes[1]}",
            code="onnx-shape",
            help=CHOOSE,
        )
    kinds = [dtype_of_value(value) for value in (first, second)]
    if kinds[0] != kinds[1]:
        raise at.refuse(f"its branches give {kinds[0]} and {kinds[1]}", code="onnx-dtype")
    return _of_two_sizes(at, condition, at.stored(first), at.stored(second), number)


def _of_two_sizes(
    at: Lowering, condition: SSAValue, first: SSAValue, second: SSAValue, number: int
) -> SSAValue:
    """A choice of values, of the sizes of the one that is taken: axes have room for the longer."""
    found: dict[int, tuple[str, SSAValue]] = {}
    for axis, (a, b) in enumerate(zip(shape_of(first), shape_of(second), strict=True)):
        if a == b:
            continue
        name, extent = room(at, axis, most=max(a, b), result=number)
        wide = [np.minimum(np.arange(extent), have - 1) for have in (a, b)]
        first, second = (
            at.emit("gather", value, at.weight(places, f"{at.node.name}.wide"), axis=axis)
            for value, places in zip((first, second), wide, strict=True)
        )
        ends = [at.weight(np.array(have), f"{at.node.name}.size") for have in (a, b)]
        found[axis] = name, at.emit("select", condition, *ends)
    chosen = at.emit("select", condition, first, second)
    for axis, (name, size) in found.items():
        ended(at, chosen, axis, name, size)
    return chosen


def _equal(first: Constant, second: Constant) -> bool:
    """Return True if two constants are the same, bit for bit."""
    a, b = first.array, second.array
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def loop(call: Call) -> Sequence[Item] | None:
    """Rounds one after another, as many as the constants say, or as a run computes."""
    graph, (limit, *others) = call.graph("body"), call.operands
    if limit is not None and (not isinstance(limit, Constant) or limit.array.size != 1):
        return loop_of_run(call)
    rounds = None if limit is None else int(limit.array.reshape(-1)[0])
    state = [value for value in others[1:] if value is not None]
    going = others[0] if others else None
    if rounds is not None and call.flag(going, "condition") and rounds <= MAX_ROUNDS:
        numbers = Constant(np.arange(rounds, dtype=np.int64), f"{call.node.name}.rounds")
        kept = Rounds(call, graph, rounds, state, [(numbers, 0, False)], leads=1).loop()
        if kept is not None:
            return kept
    scanned: list[list[Item]] = [[] for _ in range(len(graph.output) - 1 - len(state))]
    index = 0
    if isinstance(going, SSAValue):
        return loop_of_run(call)
    while (rounds is None or index < rounds) and call.flag(going, "condition"):
        if index == MAX_ROUNDS:
            raise call.refuse(f"it goes over {MAX_ROUNDS} rounds")
        number = Constant(np.array(index, np.int64), f"{call.node.name}.round")
        flag = going or Constant(np.array(True), f"{call.node.name}.condition")
        results = call.subgraph(graph, [number, flag, *state])
        if results is None:
            return None
        if isinstance(results[0], SSAValue):
            return loop_of_run(call)
        going, *state = results[: 1 + len(state)]
        for rows, value in zip(scanned, results[1 + len(state) :], strict=True):
            rows.append(value)
        index += 1
    if not index and scanned:
        given = [Constant(np.array(0), ""), Constant(np.array(True), ""), *state]
        return [*state, *_no_rows(call, graph, given, [0] * len(scanned))]
    return [*state, *(_stacked(call, rows, 0) for rows in scanned)]


def scan(call: Call) -> Sequence[Item] | None:
    """Rounds along an axis of the last operands, whose extent is known."""
    return _scanned(call) if call.node.version >= 9 else _scan_of_batches(call)


def _scanned(call: Call) -> Sequence[Item] | None:
    graph, at = call.graph("body"), call.at
    count = call.attributes.get("num_scan_inputs", 0)
    values = [tensor_of(at, value) for value in call.operands if value is not None]
    if not isinstance(count, int) or not 1 <= count <= len(values):
        raise call.node.refuse("num_scan_inputs does not fit its inputs")
    state, sequences = list[Item](values[:-count]), values[-count:]
    outputs = len(graph.output) - len(state)

    def listed(name: str, length: int) -> tuple[int, ...]:
        value = call.attributes.get(name) or (0,) * length
        if not isinstance(value, tuple) or len(value) != length:
            raise call.node.refuse(f"{name} needs {length} entries")
        return tuple(int(item) for item in value)

    axes, back = listed("scan_input_axes", count), listed("scan_input_directions", count)
    axes_out, back_out = (
        listed("scan_output_axes", outputs),
        listed("scan_output_directions", outputs),
    )
    lengths = set[int]()
    for value, axis in zip(sequences, axes, strict=True):
        shape = shape_of_value(value)
        lengths.add(shape[at.axis(axis, len(shape))])
    if len(lengths) != 1 or not 0 <= max(lengths) <= MAX_ROUNDS:
        raise call.refuse(f"its inputs do not have one length of at most {MAX_ROUNDS}")
    (length,) = lengths
    if not length:
        rows: list[Item] = []
        for value, axis in zip(sequences, axes, strict=True):
            shape = list(shape_of_value(value))
            del shape[at.axis(axis, len(shape))]
            rows.append(Constant(np.zeros(shape, dtype_of_value(value)), ""))
        return [*state, *_no_rows(call, graph, [*state, *rows], axes_out)]
    read = [
        (value, at.axis(axis, len(shape_of_value(value))), bool(reverse))
        for value, axis, reverse in zip(sequences, axes, back, strict=True)
    ]
    kept = Rounds(call, graph, length, state, read, backwards=[bool(b) for b in back_out]).loop()
    if kept is not None:
        count = len(state)
        return [
            *kept[:count],
            *(_turned(at, v, a) for v, a in zip(kept[count:], axes_out, strict=True)),
        ]
    scanned: list[list[Item]] = [[] for _ in range(outputs)]
    for index in range(length):
        parts = [
            _row(at, value, axis, length - 1 - index if reverse else index)
            for value, axis, reverse in zip(sequences, axes, back, strict=True)
        ]
        results = call.subgraph(graph, [*state, *parts])
        if results is None:
            return None
        state = list(results[: len(state)])
        for rows, value in zip(scanned, results[len(state) :], strict=True):
            rows.append(value)
    return [
        *state,
        *(
            _stacked(call, rows[::-1] if reverse else rows, axis)
            for rows, axis, reverse in zip(scanned, axes_out, back_out, strict=True)
        ),
    ]


def _scan_of_batches(call: Call) -> Sequence[Item] | None:
    """A Scan of operator set 8: the lengths of sequences come first (refused), and all operands and
    results have a batch as their first axis, each index of which is scanned for itself."""
    lengths, *operands = call.operands
    if lengths is not None or not operands:
        raise call.refuse("its sequences have lengths of their own")
    at, values = call.at, [tensor_of(call.at, value) for value in operands if value is not None]
    batches = {shape_of_value(value)[0] if shape_of_value(value) else 0 for value in values}
    (batch,) = batches if len(batches) == 1 else (0,)
    if not 1 <= batch <= MAX_ROUNDS:
        raise call.refuse("its operands have no batch in common")
    renamed = {"directions": "scan_input_directions"}
    attributes = {renamed.get(name, name): value for name, value in call.attributes.items()}
    results: list[Sequence[Item]] = []
    for index in range(batch):
        rows = [_row(at, value, 0, index) for value in values]
        found = _scanned(replace(call, operands=rows, attributes=attributes))
        if found is None:
            return None
        results.append(found)
    return [_stacked(call, items, 0) for items in zip(*results, strict=True)]


@dataclass(frozen=True)
class Rounds:
    """The rounds of a Loop or a Scan that can be one loop of the network: its body is imported once
    (frontends/loops.py)."""

    call: Call
    graph: GraphProto
    count: int
    state: Sequence[Item]
    """The carried values before the first round."""
    sequences: Sequence[tuple[Value, int, bool]]
    """Tensors of which each round reads an index, the axis, and True if it counts from the end."""
    leads: int = 0
    """1 for a Loop: the body takes the round's number and the condition first, and gives the
    condition first."""
    backwards: Sequence[bool] = ()
    """For each row that is collected, whether the first round's comes last."""

    def loop(self) -> list[Item] | None:
        """The results: what is carried, and each row collected along a first axis.

        None where the rounds have to be written out: they are few, differ in shapes or element
        types, or the body needs to know numbers that only writing them out tells.
        """
        tensors = all(isinstance(item, SSAValue | Constant) for item in self.state)
        if self.count < LEAST_ROUNDS or not tensors:
            return None
        same = frozenset[int]()
        while True:
            found = self._tried(same)
            if not isinstance(found, frozenset):
                return found
            same |= found

    def _tried(self, same: frozenset[int]) -> list[Item] | frozenset[int] | None:
        """The results, with the states ``same`` taken for what they are in all rounds; or further
        states that no round changes."""
        call, at, problems = self.call, self.call.at, self.call.body.problems
        before = len(problems)
        moving = [n for n in range(len(self.state)) if n not in same]
        states = [at.stored(self._tensor(n)) for n in moving]
        scanned = [Scanned(at.stored(v), axis, back) for v, axis, back in self.sequences]
        network = BodyBuilder(call.body.network, states, scanned)
        body = replace(call.body, network=network)
        given: dict[int, Item] = dict(zip(moving, network.states, strict=True))
        inputs = [given.get(n, item) for n, item in enumerate(self.state)]
        ahead: list[Item] = []
        if self.leads:
            ahead = [network.parts[0], Constant(np.array(True), f"{call.node.name}.condition")]
        try:
            outer = [*ahead, *inputs, *network.parts[self.leads :]]
            results = body.subgraph(call.node, self.graph, call.scope, outer)
        except TilewrightError:
            results = None
        call.body.taken = body.taken
        found = None
        if results is not None and len(problems) == before:
            found = self._found(network, results, moving)
        if not isinstance(found, list):
            network.discard()
        del problems[before:]
        return found

    def _tensor(self, number: int) -> Value:
        item = self.state[number]
        assert isinstance(item, SSAValue | Constant)
        return item

    def _found(
        self, network: BodyBuilder, results: Sequence[Item], moving: Sequence[int]
    ) -> list[Item] | frozenset[int] | None:
        if self.leads:
            going, *results = results
            if not isinstance(going, Constant) or not bool(going.array.all()):
                return None
        inner, states = self.call.at.within(network), network.states
        if any(not isinstance(item, SSAValue | Constant) for item in results):
            return None
        still = [n for n, old in zip(moving, states, strict=True) if results[n] is old]
        if still:
            return frozenset(still)
        news = [inner.stored(tensor_of(inner, results[n])) for n in moving]
        rows = [inner.stored(tensor_of(inner, item)) for item in results[len(self.state) :]]
        if not (news or rows) or not network.fits(news, rows):
            return None
        backwards = self.backwards or [False] * len(rows)
        finals, stacks = network.loop(self.call.at, self.count, news, rows, backwards)
        last = dict(zip(moving, finals, strict=True))
        return [*(last.get(n, item) for n, item in enumerate(self.state)), *stacks]


def _turned(at: Lowering, value: Item, axis: int) -> Value:
    """The collected tensor, whose first axis is that of the rounds, with that axis at ``axis``."""
    tensor = tensor_of(at, value)
    axis = at.axis(axis, len(shape_of_value(tensor)))
    order = list(range(1, len(shape_of_value(tensor))))
    return at.transpose(at.stored(tensor), (*order[:axis], 0, *order[axis:]))


def _no_rows(
    call: Call, graph: GraphProto, given: Sequence[Item], axes: Sequence[int]
) -> Sequence[Value]:
    """Return the results that a body which never runs collects along ``axes``: empty, of the shapes
    of a round.

    Shapes that the body does not declare come from importing one iteration for the values
    ``given``; the operations of that iteration have no reader.
    """
    at = call.at
    declared = [_declared(value) for value in graph.output][-len(axes) :]
    known = [kind for kind in declared if kind is not None]
    if len(known) < len(declared):
        results = call.subgraph(graph, given)
        if results is None:
            raise call.refuse("it goes no round, and the shape of a round's result is not known")
        tensors = [tensor_of(at, value) for value in results[-len(axes) :]]
        known = [(shape_of_value(value), dtype_of_value(value)) for value in tensors]
    empty: list[Value] = []
    for (shape, dtype), axis in zip(known, axes, strict=True):
        axis = at.axis(axis, len(shape) + 1)
        empty.append(Constant(np.zeros((*shape[:axis], 0, *shape[axis:]), dtype), call.node.name))
    return empty


def _declared(value: ValueInfoProto) -> tuple[tuple[int, ...], np.dtype[Any]] | None:
    """The shape and element type that a graph states for a value, if it states all of both."""
    shape, dtype = shape_of_type(value.type), DTYPES.get(value.type.tensor_type.elem_type)
    return None if shape is None or dtype is None else (shape, dtype)


def _row(at: Lowering, value: Value, axis: int, index: int) -> Value:
    """One index along an axis, which goes."""
    shape = shape_of_value(value)
    axis = at.axis(axis, len(shape))
    if isinstance(value, Constant):
        return Constant(np.take(value.array, index, axis), value.name)
    return element_at(at, value, axis, index)


def _stacked(call: Call, items: Sequence[Item], axis: int) -> Value:
    """Values one after another along a new axis."""
    at = call.at
    rows = [tensor_of(at, item) for item in items]
    axis = at.axis(axis, len(shape_of_value(rows[0])) + 1)
    return at.joined(rows, axis, new=True)


CONTROL: Mapping[str, Control] = {"If": if_, "Loop": loop, "Scan": scan}
"""The importer of each operator with subgraphs."""
