"""RNN, GRU and LSTM: loops of steps, each a product and maps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.frontends.limits import MAX_ROUNDS
from tilewright.frontends.loops import BodyBuilder, Scanned
from tilewright.frontends.moves import cut, element_at, stretch
from tilewright.frontends.onnx.lowering import Lowering, Rule, Value
from tilewright.ir import SSAValue
from tilewright.ir.types import shape_of

Activation = Callable[[SSAValue], SSAValue]

Product = Callable[[SSAValue, SSAValue], SSAValue]
"""The product of a matrix of rows with another, transposed."""

Products = Callable[[Lowering, int, int], Product]
"""The product of a node with its W or R (input 1 or 2), of one direction."""


def plain(at: Lowering, index: int, number: int) -> Product:
    """The product of floats."""
    return lambda x, rows: at.emit("matmul", x, rows, transpose_b=True)


@dataclass(frozen=True)
class Cell:
    """One direction's operands and functions."""

    at: Lowering
    hidden: int
    activations: Sequence[Activation]
    recurrence: SSAValue
    """R, [gates * hidden, hidden]."""
    recurrent_bias: SSAValue | None
    """Rb, [gates * hidden]."""
    peepholes: Sequence[SSAValue]
    product: Product
    """The product of a state with rows of R."""

    def gate(self, value: SSAValue, index: int) -> SSAValue:
        """The columns of one gate."""
        last = len(shape_of(value)) - 1
        return stretch(self.at, value, last, index * self.hidden, (index + 1) * self.hidden)

    def recur(self, state: SSAValue, first: int, count: int) -> SSAValue:
        """The product of a state with some gates' rows of R, and their bias."""
        at, low, high = self.at, first * self.hidden, (first + count) * self.hidden
        value = self.product(state, cut(at, self.recurrence, {0: (low, high, 1)}))
        if self.recurrent_bias is None:
            return value
        return at.emit("add", value, cut(at, self.recurrent_bias, {0: (low, high, 1)}))


State = tuple[SSAValue, ...]
Step = Callable[[Cell, SSAValue, State], State]


def _rnn(cell: Cell, x: SSAValue, state: State) -> State:
    return (cell.activations[0](cell.at.emit("add", x, cell.recur(state[0], 0, 1))),)


def _gru(cell: Cell, x: SSAValue, state: State) -> State:
    at, (h,) = cell.at, state
    f, g = cell.activations[:2]
    gates = cell.recur(h, 0, 2)
    z = f(at.emit("add", cell.gate(x, 0), cell.gate(gates, 0)))
    r = f(at.emit("add", cell.gate(x, 1), cell.gate(gates, 1)))
    if at.integer("linear_before_reset"):
        inner = at.emit("mul", r, cell.recur(h, 2, 1))
    else:
        inner = cell.recur(at.emit("mul", r, h), 2, 1)
    new = g(at.emit("add", cell.gate(x, 2), inner))
    # (1 - z) * new + z * h
    return (at.emit("add", new, at.emit("mul", z, at.emit("sub", h, new))),)


def _lstm(cell: Cell, x: SSAValue, state: State) -> State:
    at, (h, c) = cell.at, state
    f, g, last = cell.activations[:3]
    gates = at.emit("add", x, cell.recur(h, 0, 4))

    def peep(value: SSAValue, index: int, memory: SSAValue) -> SSAValue:
        if not cell.peepholes:
            return value
        return at.emit("add", value, at.emit("mul", cell.peepholes[index], memory))

    enter = f(peep(cell.gate(gates, 0), 0, c))
    keep = f(peep(cell.gate(gates, 2), 2, c))
    if at.integer("input_forget"):
        keep = at.emit("sub", at.made(1, enter, "one"), enter)
    new = at.emit("add", at.emit("mul", keep, c), at.emit("mul", enter, g(cell.gate(gates, 3))))
    leave = f(peep(cell.gate(gates, 1), 1, new))
    return at.emit("mul", leave, last(new)), new


def recurrent(step: Step, gates: int, defaults: Sequence[str], states: int) -> Rule:
    """The rule of one recurrent operator."""

    def rule(at: Lowering) -> Sequence[Value]:
        return _run(at, step, gates, defaults, states, plain)

    return rule


def lstm(at: Lowering, products: Products) -> Sequence[Value]:
    """An LSTM whose products with its weights are other ones."""
    return _run(at, _lstm, 4, ("Sigmoid", "Tanh", "Tanh"), 2, products)


def _run(
    at: Lowering,
    step: Step,
    gates: int,
    defaults: Sequence[str],
    states: int,
    products: Products,
) -> Sequence[Value]:
    if 0 in at.shape(0):
        raise at.refuse("its sequence has no step", help="--shape gives it one at least")
    x = at.tensor(0)
    if at.integer("layout"):
        x = at.transpose(x, (1, 0, 2))
    length, batch, _ = _checked(at, x)
    hidden = at.integer("hidden_size") or at.shape(2)[2]
    direction = at.text("direction", "forward")
    if direction not in ("forward", "reverse", "bidirectional"):
        raise at.refuse(f"direction {direction!r} is not known")
    count = 2 if direction == "bidirectional" else 1
    if at.shape(1)[:2] != (count, gates * hidden) or at.shape(2) != (count, gates * hidden, hidden):
        raise at.misfit("its weights do not fit its hidden size")
    steps = _Steps(at, step, defaults, products, hidden, count, length, batch)
    mask = _going(at, length, batch)
    outputs: list[SSAValue] = []
    finals: list[State] = []
    for number in range(count):
        back = direction == "reverse" or number == 1
        bias = steps.part(3, number) if at.has(3) else None
        half = gates * hidden
        kept = (
            steps.part(2, number),
            None if bias is None else stretch(at, bias, 0, half, 2 * half),
            [stretch(at, steps.part(7, number), 0, i * hidden, (i + 1) * hidden) for i in range(3)]
            if states == 2 and at.has(7)
            else [],
        )
        projected = products(at, 1, number)(x, steps.part(1, number))
        if bias is not None:
            projected = at.emit("add", projected, stretch(at, bias, 0, 0, half))
        state: State = tuple(_initial(at, 5 + i, number, (batch, hidden)) for i in range(states))
        taken = [projected] if mask is None else [projected, mask]
        body = BodyBuilder(at.network, state, [Scanned(value, 0, back) for value in taken])
        rows, state = steps.looped(steps.cell(at.within(body), number, *kept), body, back)
        outputs.append(rows)
        if mask is not None:  # ONNX Runtime gives zeros for a sequence of no step.
            first, zeros = element_at(at, mask, 0, 0), at.made(0, state[0], "zero")
            state = (at.emit("select", first, state[0], zeros), *state[1:])
        finals.append(state)
    return _results(at, outputs, finals, states)


@dataclass(frozen=True)
class _Steps:
    """The steps of a node, of each direction in turn."""

    at: Lowering
    step: Step
    defaults: Sequence[str]
    products: Products
    hidden: int
    directions: int
    length: int
    batch: int

    def looped(self, cell: Cell, body: BodyBuilder, back: bool) -> tuple[SSAValue, State]:
        """The rows of all steps, [steps, 1, batch, hidden], and the last state: a loop over
        ``body``, of which the cell is a part. A sequence that has ended, where its mask is false,
        keeps its state and gives zeros."""
        at, state, (x, *mask) = cell.at, tuple(body.states), body.parts
        new = self.step(cell, x, state)
        row = new[0]
        for goes in mask:
            row = at.emit("select", goes, row, at.made(0, row, "zero"))
            pairs = zip(new, state, strict=True)
            new = tuple(at.emit("select", goes, now, before) for now, before in pairs)
        finals, (rows,) = body.loop(self.at, self.length, new, [row], [back])
        shape = (self.length, 1, self.batch, self.hidden)
        return self.at.reshape(rows, shape), tuple(finals)

    def part(self, index: int, number: int) -> SSAValue:
        """An operand's part of one direction."""
        return element_at(self.at, self.at.tensor(index), 0, number)

    def functions(self, at: Lowering) -> list[Activation]:
        """The functions of the gates of all directions, whose operations ``at`` appends."""
        functions = _activations(at, list(self.defaults) * self.directions)
        if not at.number("clip"):
            return functions
        # As ONNX Runtime has it: what an LSTM's memory gives is not clipped.
        return [
            function if index % len(self.defaults) == 2 else _clipped(at, function)
            for index, function in enumerate(functions)
        ]

    def cell(
        self,
        at: Lowering,
        number: int,
        recurrence: SSAValue,
        bias: SSAValue | None,
        peepholes: Sequence[SSAValue],
    ) -> Cell:
        """A direction's cell, whose operations ``at`` appends."""
        functions = self.functions(at)[number * len(self.defaults) :]
        product = self.products(at, 2, number)
        return Cell(at, self.hidden, functions, recurrence, bias, peepholes, product)


def _results(
    at: Lowering, outputs: Sequence[SSAValue], finals: Sequence[State], states: int
) -> Sequence[Value]:
    """Y, and the last states, batch first if the layout says so."""
    y = _joined(at, outputs, 1)
    lasts = [
        _joined(at, [at.reshape(state[i], (1, *shape_of(state[i]))) for state in finals], 0)
        for i in range(states)
    ]
    if at.integer("layout"):
        y = at.transpose(y, (2, 0, 1, 3))
        lasts = [at.transpose(value, (1, 0, 2)) for value in lasts]
    return [y, *lasts][: len(at.node.outputs)]


def _joined(at: Lowering, values: Sequence[SSAValue], axis: int) -> SSAValue:
    return values[0] if len(values) == 1 else at.emit("concat", *values, axis=axis)


def _going(at: Lowering, length: int, batch: int) -> SSAValue | None:
    """For each step, which sequences have it, [steps, batch, 1]; None where all have all.

    A sequence that ends keeps its state and gives zeros. One that is read backwards begins at its
    own end, as its state before is the first one.
    """
    if not at.has(4):
        return None
    if at.shape(4) != (batch,):
        raise at.misfit(f"{batch} sequences have lengths {list(at.shape(4))}")
    times = np.arange(length, dtype=np.int32).reshape(length, 1, 1)
    known = at.constant(4)
    if known is not None:
        if (known >= length).all():
            return None
        return at.weight(times < known.reshape(1, batch, 1), f"{at.node.name}.going")
    lengths = at.reshape(at.cast(at.tensor(4), np.int32), (1, batch, 1))
    return at.emit("less", at.weight(times, f"{at.node.name}.times"), lengths)


def _checked(at: Lowering, x: SSAValue) -> tuple[int, ...]:
    shape = shape_of(x)
    if len(shape) != 3 or len(at.shape(1)) != 3 or len(at.shape(2)) != 3:
        raise at.misfit("its inputs are not of rank 3")
    if shape[0] > MAX_ROUNDS:
        raise at.refuse(f"a sequence is longer than {MAX_ROUNDS}", code="onnx-too-large")
    if at.dtype(0) != np.float32:
        raise at.refuse(f"it is not computed on {at.dtype(0)}", code="onnx-dtype")
    return shape


def _activations(at: Lowering, defaults: Sequence[str]) -> list[Activation]:
    """The functions of the gates; those with parameters only at their defaults."""
    attribute = at.attributes.get("activations")
    names = list(attribute) if isinstance(attribute, tuple) else list(defaults)
    if names == ["Tanh", "Tanh"]:  # The schema's own default, also for one direction.
        names = names[: len(defaults)]
    if at.attributes.get("activation_alpha") or at.attributes.get("activation_beta"):
        raise at.refuse("parameters of its activations are not taken")
    known = {"sigmoid": "sigmoid", "tanh": "tanh", "relu": "relu", "softplus": "softplus"}
    activations: list[Activation] = []
    for name in names:
        operation = known.get(str(name).lower())
        if operation is None:
            raise at.refuse(f"the activation {name!r} is not computed")
        activations.append(lambda value, operation=operation: at.emit(operation, value))
    if len(activations) != len(defaults):
        raise at.refuse(f"it has {len(activations)} activations, not {len(defaults)}")
    return activations


def _clipped(at: Lowering, function: Activation) -> Activation:
    """A function of what is brought within ``clip`` first."""
    bound = at.number("clip")
    if bound < 0:
        raise at.refuse(f"its clip {bound} is negative")
    return lambda value: function(at.emit("clip", value, minimum=-bound, maximum=bound))


def _initial(at: Lowering, index: int, number: int, shape: tuple[int, int]) -> SSAValue:
    """A state before the first step: given, or zeros."""
    if not at.has(index):
        return at.weight(np.zeros(shape, np.float32), f"{at.node.name}.zeros")
    state = at.tensor(index)
    if at.integer("layout"):
        state = at.transpose(state, (1, 0, 2))
    return element_at(at, state, 0, number)


RECURRENT: dict[str, Rule] = {
    "RNN": recurrent(_rnn, 1, ("Tanh",), 1),
    "GRU": recurrent(_gru, 3, ("Sigmoid", "Tanh"), 1),
    "LSTM": recurrent(_lstm, 4, ("Sigmoid", "Tanh", "Tanh"), 2),
}
"""The rules by operator."""
