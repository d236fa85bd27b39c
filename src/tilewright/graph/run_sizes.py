"""Sizes that a run computes, followed through a network: where they end axes, and what that takes.

A value has room for the most elements that an axis may have; those after the end are any numbers.
Operations on elements, rows or windows of one index leave them where they are. Operations that put
elements together along such an axis read masked operands: zeros where they sum, the least number
where they look for the largest. What has no such mask is refused with the node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.errors import TilewrightError, refuse
from tilewright.graph.dialect import NetworkOp, OutputOp, WeightOp
from tilewright.graph.free_axes import Differing, reshaped_axes, sliced_axes
from tilewright.graph.operations import BY_NAME, Operation
from tilewright.graph.operations.views import ReshapeOp, SliceOp
from tilewright.graph.weights import Weights
from tilewright.ir import Operation as AnyOperation
from tilewright.ir import PythonValue, SSAValue, to_attribute
from tilewright.ir.types import Array, dtype_of, element_of, shape_of, tensor

Ends = dict[int, str]
"""The axes of a value that end early, each with the name of its size."""


@dataclass(frozen=True)
class OutputEnd:
    """The end of an axis of an output: a run has as many indices as another output says."""

    output: str
    axis: int
    size: str
    """The output of one int64 that is the size."""
    name: str
    """The name of the size, as ``--shape`` has it."""


def follow_sizes(
    network: NetworkOp,
    weights: Weights,
    sizes: Mapping[str, SSAValue],
    ends: Mapping[SSAValue, Ends],
    differing: Mapping[str, Differing],
) -> tuple[OutputEnd, ...]:
    """Mask what sums or searches along axes that end early; add the sizes of outputs' axes to the
    outputs, and return these.

    ``ends`` are the axes of the results that data give their sizes; ``differing`` are, for each
    size, the axes of the network that differ where it has another room, constants' among them.
    Refuses (``onnx-shape``) what cannot be masked, and what takes the size from no operand.
    """
    return _Following(network, weights, sizes, ends, differing).run()


class _Following:
    def __init__(
        self,
        network: NetworkOp,
        weights: Weights,
        sizes: Mapping[str, SSAValue],
        ends: Mapping[SSAValue, Ends],
        differing: Mapping[str, Differing],
    ) -> None:
        self.network, self.weights, self.sizes = network, weights, sizes
        self.begin, self.differing = ends, differing
        self.ends: dict[SSAValue, Ends] = {}
        self.before: AnyOperation = network.output_op
        self.node = ""

    def run(self) -> tuple[OutputEnd, ...]:
        for op in list(self.network.block.ops):
            if isinstance(op, OutputOp):
                break
            found = self._constant(op) if isinstance(op, WeightOp) else self._found(op)
            if op.results:
                self.ends[op.results[0]] = {**found, **self.begin.get(op.results[0], {})}
                self._compare(op)
        return self._outputs()

    def _constant(self, op: WeightOp) -> Ends:
        """The axes of a constant that are as long as a size: a ramp of its indices, say."""
        found: Ends = {}
        for name, differing in self.differing.items():
            found.update(dict.fromkeys(differing.axes.get(op.result, ()), name))
        return found

    def _found(self, op: AnyOperation) -> Ends:
        if not any(self.ends.get(value) for value in op.operands):
            return {}
        self.before, self.node = op, str(op.get_attr_or_prop("node") or op.name).strip('"')
        source = self.ends.get(op.operands[0], {})
        match op:
            case ReshapeOp() | SliceOp():
                found: Ends = {}
                for axis, name in source.items():
                    lone = frozenset((axis,))
                    moved = isinstance(op, ReshapeOp)
                    axes = reshaped_axes(op, lone) if moved else sliced_axes(op, lone)
                    found.update(dict.fromkeys(axes, name))
                return found
            case Operation():
                return self._computed(op)
            case _:
                raise self.refusal(f"{op.name} takes no values whose size a run decides")

    def refusal(self, reason: str) -> TilewrightError:
        return refuse(
            "onnx-shape", reason, f"node {self.node!r}",
            "where an input decides the size, give the input its value: --constant",
        )  # fmt: skip

    def _computed(self, op: Operation) -> Ends:
        """The axes of a result of a loop nest; masks operands where it folds indices."""
        names = [f"x{number}" for number in range(len(op.inputs))]
        stage = op.stage(names, "result")
        if stage is None:
            raise self.refusal(f"{op.operation} takes no values whose size a run decides")
        dims: dict[str, str] = {}
        for operand, value in zip(stage.inputs, op.inputs, strict=True):
            for axis, name in self.ends.get(value, {}).items():
                dim = operand.access[axis].lone
                if dim is None:
                    raise self.refusal(
                        f"{op.operation} reads [{operand.access[axis]}] of an axis whose size a "
                        "run decides"
                    )
                if dims.setdefault(dim, name) != name:
                    reason = f"{op.operation} joins the sizes {dims[dim]!r} and {name!r}"
                    raise self.refusal(f"{reason}, which a run may make different")
        for operand, value in zip(stage.inputs, op.inputs, strict=True):
            for axis, access in enumerate(operand.access):
                whole = axis not in self.ends.get(value, {})
                if whole and any(dim in dims for dim in access.dims):
                    reason = f"axis {axis} of an operand has one size, another's is a run's"
                    raise self.refusal(f"{op.operation}: {reason}")
        folded = [dim for dim in stage.reduction if dim in dims]
        for dim in folded:
            mask = _MASKS.get(op.operation)
            axes = [
                [n for n, access in enumerate(operand.access) if access.lone == dim]
                for operand in stage.inputs
            ]
            if mask is None:
                raise self.refusal(f"{op.operation} takes no axis whose size a run decides")
            mask(self, op, axes, dims[dim])
        found: Ends = {}
        for axis, access in enumerate(stage.output.access):
            if access.lone in dims:
                found[axis] = dims[access.lone]
            elif any(dim in dims for dim in access.dims):
                raise self.refusal(f"{op.operation} writes [{access}] where a run ends it")
        return found

    def _compare(self, op: AnyOperation) -> None:
        """Refuse a result whose axes are not those that differ where a size has another room."""
        value = op.results[0]
        for name, differing in self.differing.items():
            have = {axis for axis, size in self.ends[value].items() if size == name}
            if have != {*differing.axes.get(value, ())}:
                self.node = str(op.get_attr_or_prop("node") or op.name).strip('"')
                reason = f"its size follows from {name!r} by arithmetic that is not followed"
                raise self.refusal(reason)

    def _outputs(self) -> tuple[OutputEnd, ...]:
        """Add an output for each size that ends an axis of an output."""
        output, network = self.network.output_op, self.network
        names = [name for name, _ in network.outputs]
        places: dict[str, str] = {}
        found: list[OutputEnd] = []
        for name, value in network.outputs:
            for axis, size in sorted(self.ends.get(value, {}).items()):
                if size not in places:
                    places[size] = _fresh(f"{size}_size", names)
                    names.append(places[size])
                found.append(OutputEnd(name, axis, places[size], size))
        values = [*output.values, *(self.sizes[size] for size in places)]
        network.block.add_op(OutputOp.build(operands=[values]))
        output.detach()
        output.erase()
        network.properties["output_names"] = to_attribute([*names])
        return tuple(found)

    # What masks are made of

    def weight(self, array: Array, hint: str) -> SSAValue:
        op = WeightOp.of(
            self.weights.add(array, hint), tensor(array.shape, element_of(array.dtype))
        )
        self._insert(op)
        return op.result

    def emit(self, operation: str, *inputs: SSAValue, **attributes: PythonValue) -> SSAValue:
        op = BY_NAME[operation].build_from(inputs, attributes, node=self.node)
        self._insert(op)
        return op.result

    def _insert(self, op: AnyOperation) -> None:
        block = self.before.parent
        assert block is not None
        block.insert_op_before(op, self.before)

    def within(self, shape: tuple[int, ...], axis: int, size: str) -> SSAValue:
        """True at the indices of an axis before its end."""
        wide = [extent if n == axis else 1 for n, extent in enumerate(shape)]
        places = self.weight(np.arange(shape[axis]).reshape(wide), f"{self.node}.places")
        return self.emit("less", places, self.size(size, len(shape)))

    def size(self, name: str, rank: int) -> SSAValue:
        value = self.sizes[name]
        return self.emit("reshape", value, shape=(1,) * rank) if rank else value

    def masked(self, op: Operation, number: int, axis: int, size: str, neutral: float) -> None:
        """Let an operand be ``neutral`` after the end of an axis."""
        value = op.inputs[number]
        filler = self.weight(np.array(neutral, dtype_of(value)), f"{self.node}.neutral")
        kept = self.within(shape_of(value), axis, size)
        masked = self.emit("select", kept, value, filler)
        self.ends[masked] = dict(self.ends.get(value, {}))
        op.operands[number] = masked


def _fresh(name: str, taken: list[str]) -> str:
    number, fresh = 2, name
    while fresh in taken:
        fresh, number = f"{name}{number}", number + 1
    return fresh


Mask = Callable[[_Following, Operation, list[list[int]], str], None]


def _extreme(op: Operation, *, low: bool) -> float:
    """The least or the largest number of the first operand's elements."""
    dtype = dtype_of(op.inputs[0])
    if dtype.kind == "b":
        return not low
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return limits.min if low else limits.max
    return -np.inf if low else np.inf


def _fold(neutral: Callable[[Operation], float]) -> Mask:
    """Every operand along the dim is neutral after its end."""

    def mask(at: _Following, op: Operation, axes: list[list[int]], size: str) -> None:
        for number, along in enumerate(axes):
            for axis in along:
                at.masked(op, number, axis, size, neutral(op))

    return mask


def _sorted(op: Operation) -> float:
    """What lies after all others in order; of equal ones the first comes first, and NaN is last."""
    descending = bool(op.get("descending", False))
    if dtype_of(op.inputs[0]).kind not in "iub" and not descending:
        return np.nan
    return _extreme(op, low=descending)


def _mean(at: _Following, op: Operation, axes: list[list[int]], size: str) -> None:
    """A mean as the sum of what is there, by the number of these."""
    values = op.values
    shape = shape_of(op.inputs[0])
    if {axis % len(shape) for axis in op.integers("axes")} != {*at.ends[op.inputs[0]]}:
        raise at.refusal("a mean over other axes than those whose size a run decides")
    at.masked(op, 0, axes[0][0], size, 0)
    total = at.emit("reduce_sum", op.inputs[0], **values)
    count = at.emit("cast", at.size(size, 0), to=dtype_of(total).name)
    op.result.replace_all_uses_with(at.emit("div", total, count))


def _gather(at: _Following, op: Operation, axes: list[list[int]], size: str) -> None:
    """Negative indices count from where the axis ends."""
    places = op.inputs[1]
    rank = len(shape_of(places))
    wide = places if dtype_of(places) == np.int64 else at.emit("cast", places, to="int64")
    zero = at.weight(np.array(0, np.int64), f"{at.node}.zero")
    end = at.emit("add", wide, at.size(size, rank))
    wrapped = at.emit("select", at.emit("less", wide, zero), end, wide)
    at.ends[wrapped] = dict(at.ends.get(places, {}))
    op.operands[1] = wrapped


def _suppressed(at: _Following, op: Operation, axes: list[list[int]], size: str) -> None:
    """Boxes after the end have no score."""
    at.masked(op, 1, axes[1][0], size, -np.inf)


def _scatter(at: _Following, op: Operation, axes: list[list[int]], size: str) -> None:
    """Updates after the end are for a row that does not exist."""
    if axes[0]:
        raise at.refusal("scatter into rows whose number a run decides")
    at.masked(op, 1, axes[1][0], size, shape_of(op.inputs[0])[0])


_MASKS: Mapping[str, Mask] = {
    "reduce_sum": _fold(lambda op: 0),
    "reduce_product": _fold(lambda op: 1),
    "reduce_max": _fold(lambda op: _extreme(op, low=True)),
    "reduce_min": _fold(lambda op: _extreme(op, low=False)),
    "reduce_mean": _mean,
    "arg_max": _fold(lambda op: _extreme(op, low=True)),
    "arg_min": _fold(lambda op: _extreme(op, low=False)),
    "arg_sort": _fold(_sorted),
    "softmax": _fold(lambda op: -np.inf),
    "matmul": _fold(lambda op: 0),
    "running_sum": lambda at, op, axes, size: None,
    "running_product": lambda at, op, axes, size: None,
    "gather": _gather,
    "scatter": _scatter,
    "non_max_suppression": _suppressed,
}
"""The mask of each operation that folds indices of an axis: what it takes in place of those after
the end."""
