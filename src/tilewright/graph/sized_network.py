"""A network whose sizes are values of it: the sizes that follow from others, and masks after ends.

What it emits stands before the operation at hand.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from math import lcm, prod

import numpy as np

from tilewright.errors import TilewrightError, refuse
from tilewright.graph.derived_sizes import Form
from tilewright.graph.dialect import NetworkOp, WeightOp
from tilewright.graph.joined_axes import Ending, Ends
from tilewright.graph.operations import BY_NAME, Operation
from tilewright.graph.operations.quantisation import DequantiseLinearOp
from tilewright.graph.weights import Weights
from tilewright.ir import Operation as AnyOperation
from tilewright.ir import PythonValue, SSAValue, Use
from tilewright.ir.types import Array, dtype_of, element_of, shape_of, tensor


class SizedNetwork:
    """The sizes of one network by their names, and where its values end."""

    def __init__(
        self,
        network: NetworkOp,
        weights: Weights,
        sizes: Mapping[str, SSAValue],
        rooms: Mapping[str, int],
        units: Mapping[str, int],
    ) -> None:
        self.network, self.weights, self.sizes = network, weights, dict(sizes)
        self.rooms = rooms
        self.forms = {name: Form.of(name, units.get(name, 1)) for name in rooms}
        """Forms of the sizes, by their names: how each follows from one of a run."""
        self.ends: dict[SSAValue, Ends] = {}
        self.instead: dict[SSAValue, SSAValue] = {}
        """Values that stand for results of operations that know no end, by these."""
        self.inside: dict[Hashable, SSAValue] = {}
        """Masks that are true before ends, by extents and sizes."""
        self.after: dict[Hashable, SSAValue] = {}
        """Values that are neutral after their ends, by these."""
        self.before: AnyOperation = network.output_op
        self.node = ""

    @property
    def period(self) -> dict[str, int]:
        """After how many sizes the remainders of all divisions repeat, by the run's sizes."""
        periods = dict.fromkeys(self.rooms, 1)
        for form in self.forms.values():
            periods[form.base] = lcm(periods[form.base], form.period)
        return periods

    def named(self, form: Form) -> str:
        """The name of a size that follows from a run's, which is known from here on."""
        known = [name for name, other in self.forms.items() if other == form]
        return known[0] if known else self._new(form)

    def _new(self, form: Form) -> str:
        name = fresh(form.name, list(self.forms))
        value = self.sizes[form.base]
        whole = Form.of(form.base, form.unit)
        if whole.steps and form.steps[: len(whole.steps)] != whole.steps:
            value = self._arithmetic("div", value, form.unit)
            steps = form.steps
        else:
            steps = form.steps[len(whole.steps) :]
        for times, more, by in steps:
            value = self._arithmetic("mul", value, times) if times != 1 else value
            value = self._arithmetic("add", value, more) if more else value
            value = self._arithmetic("div", value, by) if by != 1 else value
        self.forms[name], self.sizes[name] = form, value
        return name

    def _arithmetic(self, operation: str, value: SSAValue, number: int) -> SSAValue:
        return self.emit(operation, value, self.weight(np.array(number, np.int64), "size"))

    def one_size(self, ending: Ending) -> str | None:
        """The size of an axis that joins the rows of one size with others; None of several."""
        if isinstance(ending, str):
            return ending
        (_, first), *others = ending
        if not first or any(name for _, name in others):
            return None
        return self.named(self.forms[first].then(prod(extent for extent, _ in others), 0, 1))

    def _single(self, ends: Ends) -> dict[int, str]:
        """The sizes of axes none of which joins several."""
        sizes = {axis: self.one_size(ending) for axis, ending in ends.items()}
        return {axis: size for axis, size in sizes.items() if size is not None}

    def _extent(self, ending: Ending, sizes: Mapping[str, int]) -> int:
        """How far an axis goes at other sizes of a run."""
        parts = ((0, ending),) if isinstance(ending, str) else ending
        forms = [(extent, self.forms.get(name)) for extent, name in parts]
        return prod(form.at(sizes[form.base]) if form else extent for extent, form in forms)

    def refusal(self, reason: str) -> TilewrightError:
        """An error at the operation at hand."""
        return refuse(
            "onnx-shape", reason, f"node {self.node!r}",
            "where an input decides the size, give the input its value: --constant",
        )  # fmt: skip

    def _after(self, op: Operation) -> tuple[list[Use], AnyOperation]:
        """The uses of a result, and the operation after its own."""
        following = op.next_op
        assert following is not None
        return list(op.result.uses), following

    def _replace(self, op: Operation, uses: Sequence[Use], value: SSAValue) -> None:
        """Let what used a result use another value."""
        for use in uses:
            use.operation.operands[use.index] = value
        self.instead[op.result] = value

    def weight(self, array: Array, hint: str) -> SSAValue:
        """A constant before the operation at hand."""
        op = WeightOp.of(
            self.weights.add(array, hint), tensor(array.shape, element_of(array.dtype))
        )
        self._insert(op)
        return op.result

    def emit(self, operation: str, *inputs: SSAValue, **attributes: PythonValue) -> SSAValue:
        """An operation before the one at hand; it is for no node, whose result keeps its name."""
        return self.computed("", operation, inputs, attributes)

    def computed(
        self,
        node: str,
        operation: str,
        inputs: Sequence[SSAValue],
        attributes: dict[str, PythonValue],
    ) -> SSAValue:
        """An operation for a node, before the one at hand."""
        op = BY_NAME[operation].build_from(inputs, attributes, node=node)
        self._insert(op)
        return op.result

    def _insert(self, op: AnyOperation) -> None:
        block = self.before.parent
        assert block is not None
        block.insert_op_before(op, self.before)

    def within(self, shape: tuple[int, ...], sizes: Mapping[int, str]) -> SSAValue:
        """True at the indices of some axes before their ends."""
        lengths = [shape[axis] if axis in sizes else 1 for axis in range(len(shape))]
        key = (*lengths, *sorted(sizes.items()))
        if key not in self.inside:
            rows: list[SSAValue] = []
            for axis, size in sizes.items():
                wide = [extent if n == axis else 1 for n, extent in enumerate(shape)]
                places = self.weight(np.arange(shape[axis]).reshape(wide), f"{self.node}.places")
                rows.append(self.emit("less", places, self.size(size, len(shape))))
            self.inside[key] = rows[0] if len(rows) == 1 else self.emit("bit_and", *rows)
        return self.inside[key]

    def size(self, name: str, rank: int) -> SSAValue:
        """A size as a tensor of one element."""
        value = self.sizes[name]
        return self.emit("reshape", value, shape=(1,) * rank) if rank else value

    def _kept_integers(self, value: SSAValue, sizes: Mapping[int, str]) -> SSAValue | None:
        """A value that is 0 after its ends, made of integers that are their zero point there, so
        that they are multiplied as integers; None if it is made of none."""
        op = value.owner
        if not isinstance(op, Operation) or len(op.inputs) < 2 or shape_of(op.inputs[-1]):
            return None
        if isinstance(op, DequantiseLinearOp) and len(op.inputs) == 3:
            x, scale, zero = op.inputs
            kept = self.emit("select", self.within(shape_of(x), sizes), x, zero)
            return self.computed(op.node_name, op.operation, (kept, scale, zero), op.values)
        casts = [v.owner for v in op.inputs]
        if op.operation == "sub" and all(getattr(c, "operation", "") == "cast" for c in casts):
            x, zero = (c.operands[0] for c in casts if isinstance(c, Operation))
            if dtype_of(x) == dtype_of(zero):
                kept = self.emit("select", self.within(shape_of(x), sizes), x, zero)
                wide = self.emit("cast", kept, to=dtype_of(value).name)
                return self.computed(op.node_name, "sub", (wide, op.inputs[1]), op.values)
        return None

    def masked(self, op: Operation, number: int, sizes: Mapping[int, str], neutral: float) -> None:
        """Let an operand be ``neutral`` after the ends of some axes."""
        value = op.inputs[number]
        key = (value, *sorted(sizes.items()), neutral)
        if key not in self.after:
            kept = self._kept_integers(value, sizes) if neutral == 0 else None
            if kept is None:
                filler = self.weight(np.array(neutral, dtype_of(value)), f"{self.node}.neutral")
                inside = self.within(shape_of(value), sizes)
                kept = self.emit("select", inside, value, filler)
            self.ends[kept] = dict(self.ends.get(value, {}))
            self.after[key] = kept
        op.operands[number] = self.after[key]


def fresh(name: str, taken: list[str]) -> str:
    """Return a name that is not taken."""
    number, fresh = 2, name
    while fresh in taken:
        fresh, number = f"{name}{number}", number + 1
    return fresh
