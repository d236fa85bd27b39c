"""Sizes of a run, followed through a network: where they end axes, and what that takes.

They are computed by the network (``follow_sizes``), or those of its inputs (``end_inputs``).

A value has room for the most elements that an axis may have; those after the end are any numbers.
Operations on elements, rows or windows of one index leave them where they are. Operations that put
elements together along such an axis read masked operands: zeros where they sum, the least number
where they look for the largest. What has no such mask is refused with the node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from tilewright.errors import TilewrightError, refuse
from tilewright.graph.dialect import NetworkOp, OutputOp, WeightOp
from tilewright.graph.free_axes import Differing, sliced_axes
from tilewright.graph.joined_axes import Ending, Ends, reshaped_ends, sizes_in
from tilewright.graph.names import value_hint
from tilewright.graph.operations import BY_NAME, Operation
from tilewright.graph.operations.views import ReshapeOp, SliceOp
from tilewright.graph.weights import Weights
from tilewright.ir import Operation as AnyOperation
from tilewright.ir import PythonValue, SSAValue, to_attribute
from tilewright.ir.types import Array, dtype_of, element_of, shape_of, tensor


@dataclass(frozen=True)
class OutputEnd:
    """The end of an axis of an output: a run has as many indices as another output says."""

    output: str
    """The output that ends there; empty where the size ends values within the network alone."""
    axis: int
    size: str
    """The output of one int64 that is the size."""
    name: str
    """The name of the size, as ``--shape`` has it."""
    room: int
    """The most indices that there is room for."""


def follow_sizes(
    network: NetworkOp,
    weights: Weights,
    sizes: Mapping[str, SSAValue],
    ends: Mapping[SSAValue, Ends],
    differing: Mapping[str, Differing],
    stated: Mapping[str, int] = MappingProxyType({}),
) -> tuple[OutputEnd, ...]:
    """Mask what sums or searches along axes that end early; add the sizes of outputs' axes to the
    outputs, and return these.

    ``ends`` are the axes of inputs and results that end early; ``differing`` are, for each
    size, the axes of the network that differ where it has another room, constants' among them.
    ``stated`` has the room of sizes that may be larger: these are outputs, too.
    Refuses (``onnx-shape``) what cannot be masked, and what takes the size from no operand.
    """
    following = _Following(network, weights, sizes, ends, differing)
    return following.run(stated)


def end_inputs(
    network: NetworkOp,
    weights: Weights,
    sizes: Mapping[str, int],
    axes: Mapping[str, Mapping[str, tuple[int, ...]]],
    differing: Mapping[str, Differing],
) -> tuple[OutputEnd, ...]:
    """Let axes of inputs end at sizes that are further inputs, ``size_NAME`` of one int64 each, in
    the order of ``sizes``; see ``follow_sizes``.

    ``sizes`` has the largest of each, and ``axes`` the axes of inputs, by their names. Sizes that
    ``differing`` leaves out are always the largest.
    """
    ends = dict[SSAValue, Ends]()
    values = dict[str, SSAValue]()
    inputs = dict(network.inputs)
    names = list(inputs)
    for name in sizes:
        for tensor_name, numbers in axes[name].items() if name in differing else ():
            ends.setdefault(inputs[tensor_name], {}).update(dict.fromkeys(numbers, name))
        names.append(_fresh(f"size_{name}", names))
        kind = tensor((), element_of(np.dtype(np.int64)))
        values[name] = network.block.insert_arg(kind, len(network.block.args))
        values[name].name_hint = value_hint(names[-1])
    network.properties["input_names"] = to_attribute([*names])
    added = zip(names[len(inputs) :], sizes.values(), strict=True)
    network.properties["size_inputs"] = to_attribute([[*each] for each in added])
    return follow_sizes(network, weights, values, ends, differing)


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
        self.instead: dict[SSAValue, SSAValue] = {}
        """Results of a mean over what is there, by those of the mean over all."""
        self.before: AnyOperation = network.output_op
        self.node = ""

    def run(self, stated: Mapping[str, int]) -> tuple[OutputEnd, ...]:
        self.ends.update({v: self.begin[v] for v in self.network.block.args if v in self.begin})
        for op in list(self.network.block.ops):
            if isinstance(op, OutputOp):
                break
            found = self._constant(op) if isinstance(op, WeightOp) else self._found(op)
            if op.results:
                result = op.results[0]
                self.ends[result] = {**found, **self.begin.get(result, {})}
                self.ends[self.instead.get(result, result)] = self.ends[result]
                self._compare(op)
        return self._outputs(stated)

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
            case ReshapeOp():
                before, after = shape_of(op.operands[0]), shape_of(op.results[0])
                ends = reshaped_ends(before, after, source)
                if ends is None:
                    reason = f"{list(before)} as {list(after)} splits an axis"
                    raise self.refusal(f"{reason} whose size a run decides")
                return ends
            case SliceOp():
                found: Ends = {}
                for axis, ending in source.items():
                    found.update(dict.fromkeys(sliced_axes(op, frozenset((axis,))), ending))
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
        dims: dict[str, Ending] = {}
        for operand, value in zip(stage.inputs, op.inputs, strict=True):
            for axis, ending in self.ends.get(value, {}).items():
                dim = operand.access[axis].lone
                if dim is None:
                    raise self.refusal(
                        f"{op.operation} reads [{operand.access[axis]}] of an axis whose size a "
                        "run decides"
                    )
                if dims.setdefault(dim, ending) != ending:
                    reason = f"{op.operation} joins the sizes {dims[dim]!r} and {ending!r}"
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
            size = dims[dim]
            if mask is None or not isinstance(size, str):
                raise self.refusal(f"{op.operation} takes no axis whose size a run decides")
            mask(self, op, axes, size)
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
            have = {axis for axis, end in self.ends[value].items() if name in sizes_in(end)}
            if have != {*differing.axes.get(value, ())}:
                self.node = str(op.get_attr_or_prop("node") or op.name).strip('"')
                reason = f"its size follows from {name!r} by arithmetic that is not followed"
                raise self.refusal(reason)

    def _outputs(self, stated: Mapping[str, int]) -> tuple[OutputEnd, ...]:
        """Add an output for each size that ends an axis of an output, or may be too large."""
        output, network = self.network.output_op, self.network
        names = [name for name, _ in network.outputs]
        places: dict[str, str] = {}
        found: list[OutputEnd] = []
        for name, value in network.outputs:
            for axis, size in sorted(self.ends.get(value, {}).items()):
                if not isinstance(size, str):
                    raise self.refusal(f"output {name!r} joins axes whose sizes a run decides")
                if size not in places:
                    places[size] = _fresh(f"{size}_size", names)
                    names.append(places[size])
                found.append(OutputEnd(name, axis, places[size], size, shape_of(value)[axis]))
        for size in (size for size in stated if size not in places):
            places[size] = _fresh(f"{size}_size", names)
            names.append(places[size])
            found.append(OutputEnd("", 0, places[size], size, stated[size]))
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
    if op.result in at.instead:
        return  # It ends along another axis, too.
    shape, ends = shape_of(op.inputs[0]), at.ends[op.inputs[0]]
    folded = [axis % len(shape) for axis in op.integers("axes")]
    others = np.prod([shape[axis] for axis in folded if axis not in ends], dtype=np.int64)
    count = at.weight(np.array(others), f"{at.node}.count")
    for axis in set(folded) & {*ends}:
        if not isinstance(end := ends[axis], str):
            raise at.refusal("a mean along an axis that joins others whose sizes a run decides")
        at.masked(op, 0, axis, end, 0)
        count = at.emit("mul", count, at.size(end, 0))
    total = at.emit("reduce_sum", op.inputs[0], **op.values)
    whole = at.emit("cast", count, to=dtype_of(total).name)
    mean = at.computed(at.node, "div", (total, whole), {})
    op.result.replace_all_uses_with(mean)
    at.instead[op.result] = mean


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
