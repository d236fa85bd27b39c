"""Sizes of a run, followed through a network: where they end axes, and what that takes.

They are computed by the network (``follow_sizes``), or those of its inputs (``end_inputs``).

A value has room for the most elements that an axis may have; those after the end are any numbers.
Operations on elements, rows or windows of one index leave them where they are. Operations that put
elements together along such an axis read masked operands: zeros where they sum, the least number
where they look for the largest; so do windows that reach beyond an image, whose rows end at a size
that follows from the image's (graph/derived_sizes.py). What has no such mask is refused with the
node. Every extent is compared with those of the same network at other sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from tilewright.graph.dialect import NetworkOp, OutputOp, WeightOp
from tilewright.graph.end_masks import MASKS, NEUTRAL, REDUCTIONS
from tilewright.graph.free_axes import Differing, sliced_axes
from tilewright.graph.joined_axes import Ending, Ends, reshaped_ends
from tilewright.graph.names import value_hint
from tilewright.graph.operations import Operation
from tilewright.graph.operations.pooling import PoolOperation
from tilewright.graph.operations.views import ConcatOp, PadOp, ReshapeOp, SliceOp
from tilewright.graph.operations.windows import WindowOperation
from tilewright.graph.sized_network import SizedNetwork, fresh
from tilewright.graph.weights import Weights
from tilewright.ir import Operation as AnyOperation
from tilewright.ir import PythonValue, SSAValue, to_attribute
from tilewright.ir.types import dtype_of, element_of, shape_of, tensor


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


@dataclass(frozen=True)
class Sample:
    """The same network where some sizes are others."""

    sizes: Mapping[str, int]
    differing: Differing


def follow_sizes(
    network: NetworkOp,
    weights: Weights,
    sizes: Mapping[str, SSAValue],
    ends: Mapping[SSAValue, Ends],
    rooms: Mapping[str, int],
    samples: Sequence[Sample],
    stated: Mapping[str, int] = MappingProxyType({}),
) -> tuple[OutputEnd, ...]:
    """Mask what sums or searches along axes that end early; add the sizes of outputs' axes to the
    outputs, and return these.

    ``ends`` are the axes of inputs and results that end early, ``rooms`` the sizes of the network,
    and ``samples`` some of its others. ``stated`` has the room of sizes that may be larger: these
    are outputs, too. Refuses (``onnx-shape``) what cannot be masked, and what takes the size from
    no operand.
    """
    following = Following(network, weights, sizes, ends, rooms, samples)
    following.strided = False  # That would take as many samples as there are remainders.
    return following.run(stated)


def end_inputs(
    network: NetworkOp,
    weights: Weights,
    sizes: Mapping[str, int],
    axes: Mapping[str, Mapping[str, tuple[int, ...]]],
    samples: Sequence[Sample],
    units: Mapping[str, int] = MappingProxyType({}),
) -> Following:
    """Axes of inputs that end at sizes that are further inputs, ``size_NAME`` of one int64 each, in
    the order of ``sizes``; see ``follow_sizes``.

    ``sizes`` has the largest of each, and ``axes`` the axes of inputs, by their names. Sizes that
    no sample has smaller are always the largest. ``units`` are what sizes are multiples of.
    """
    ends = dict[SSAValue, Ends]()
    values = dict[str, SSAValue]()
    inputs = dict(network.inputs)
    names = list(inputs)
    for name in sizes:
        varies = any(sample.sizes[name] != sizes[name] for sample in samples)
        for tensor_name, numbers in axes[name].items() if varies else ():
            ends.setdefault(inputs[tensor_name], {}).update(dict.fromkeys(numbers, name))
        names.append(fresh(f"size_{name}", names))
        kind = tensor((), element_of(np.dtype(np.int64)))
        values[name] = network.block.insert_arg(kind, len(network.block.args))
        values[name].name_hint = value_hint(names[-1])
    network.properties["input_names"] = to_attribute([*names])
    added = zip(names[len(inputs) :], sizes.values(), strict=True)
    network.properties["size_inputs"] = to_attribute([[*each] for each in added])
    return Following(network, weights, values, ends, sizes, samples, units)


class Following(SizedNetwork):
    """Sizes on their way through one network."""

    def __init__(
        self,
        network: NetworkOp,
        weights: Weights,
        sizes: Mapping[str, SSAValue],
        ends: Mapping[SSAValue, Ends],
        rooms: Mapping[str, int],
        samples: Sequence[Sample],
        units: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        super().__init__(network, weights, sizes, rooms, units)
        self.begin, self.samples = ends, samples
        self.strided = True
        """True if windows may move by more than one along an axis that ends."""

    def run(self, stated: Mapping[str, int] = MappingProxyType({})) -> tuple[OutputEnd, ...]:
        """Mask what reads after ends, and add the outputs' sizes; see ``follow_sizes``."""
        self.ends.update({v: self.begin[v] for v in self.network.block.args if v in self.begin})
        for op in list(self.network.block.ops):
            if isinstance(op, OutputOp):
                break
            self.before, self.node = op, str(op.get_attr_or_prop("node") or op.name).strip('"')
            found = self._constant(op) if isinstance(op, WeightOp) else self._found(op)
            if op.results:
                result = op.results[0]
                self.ends[result] = {**found, **self.begin.get(result, {})}
                self.ends[self.instead.get(result, result)] = self.ends[result]
                self._compare(op)
        return self._outputs(stated)

    def _constant(self, op: WeightOp) -> Ends:
        """The axes of a constant that are as long as a size, or as some of it repeated: a ramp of
        its indices, say."""
        shape, found = shape_of(op.result), Ends()
        others = [(each, each.differing.shapes.get(op.result, shape)) for each in self.samples]
        for axis, extent in enumerate(shape):
            if all(other[axis] == extent for _, other in others):
                continue
            for form in list(self.forms.values()):
                here = form.at(self.rooms[form.base])
                if not extent % here and all(
                    other[axis] == form.at(each.sizes[form.base]) * (extent // here)
                    for each, other in others
                ):
                    found[axis] = self.named(form.then(extent // here, 0, 1))
                    break
        return found

    def _found(self, op: AnyOperation) -> Ends:
        if not any(self.ends.get(value) for value in op.operands):
            return {}
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
            case ConcatOp():
                return self._joined(op)
            case PoolOperation():
                return self._pooled(op)
            case Operation():
                return self._computed(op)
            case _:
                raise self.refusal(f"{op.name} takes no values whose size a run decides")

    def _computed(self, op: Operation) -> Ends:
        """The axes of a result of a loop nest; masks operands where it folds indices."""
        names = [f"x{number}" for number in range(len(op.inputs))]
        stage = op.stage(names, "result")
        if stage is None:
            raise self.refusal(f"{op.operation} takes no values whose size a run decides")
        dims: dict[str, Ending] = {}
        beyond: dict[int, str] = {}
        for operand, value in zip(stage.inputs, op.inputs, strict=True):
            for axis, ending in self.ends.get(value, {}).items():
                dim = operand.access[axis].lone
                if dim is None:
                    dim, ending = self._windows(op, axis, ending, beyond)
                known = dims.setdefault(dim, ending)
                if known != ending:
                    one, other = self.one_size(known), self.one_size(ending)
                    if one is None or one != other:
                        reason = f"{op.operation} joins the sizes {known!r} and {ending!r}"
                        raise self.refusal(f"{reason}, which a run may make different")
                    dims[dim] = one
        for operand, value in zip(stage.inputs, op.inputs, strict=True):
            for axis, access in enumerate(operand.access):
                whole = axis not in self.ends.get(value, {})
                if whole and any(dim in dims for dim in access.dims):
                    reason = f"axis {axis} of an operand has one size, another's is a run's"
                    raise self.refusal(f"{op.operation}: {reason}")
        if beyond:
            self.masked(op, 0, beyond, NEUTRAL[op.operation](op))
        folded = [dim for dim in stage.reduction if dim in dims]
        for dim in folded:
            mask = MASKS.get(op.operation)
            axes = [
                [n for n, access in enumerate(operand.access) if access.lone == dim]
                for operand in stage.inputs
            ]
            size = self.one_size(dims[dim])
            if mask is None or size is None:
                raise self.refusal(f"{op.operation} takes no axis whose size a run decides")
            mask(self, op, axes, size)
        found: Ends = {}
        for axis, access in enumerate(stage.output.access):
            if access.lone in dims:
                found[axis] = dims[access.lone]
            elif any(dim in dims for dim in access.dims):
                raise self.refusal(f"{op.operation} writes [{access}] where a run ends it")
        return found

    def _pooled(self, op: PoolOperation) -> Ends:
        """The axes of a pool's result; of all pixels it is a reduction, and a mean that leaves out
        the padding is divided by what there is of each window."""
        name, x = op.operation, op.inputs[0]
        if any(op in each.differing.operations for each in self.samples):
            if op.integers("kernel") != shape_of(x)[2:] or name not in REDUCTIONS:
                raise self.refusal(f"{name} has a window that follows from a size of a run")
            attributes: dict[str, PythonValue] = {"axes": (2, 3), "keep_dims": True}
            whole = self.computed(self.node, REDUCTIONS[name], (x,), attributes)
            op.result.replace_all_uses_with(whole)
            assert isinstance(whole.owner, Operation)
            self.before = whole.owner
            found = self._computed(whole.owner)
            self.instead[op.result] = self.instead.get(whole, whole)
            return found
        ended = [axis for axis in (2, 3) if axis in self.ends.get(x, {})]
        sizes = self._single({axis: self.ends[x][axis] for axis in ended})
        found, pads = self._computed(op), op.integers("pads", 4, 0)
        beyond = {axis: found[axis] for axis in ended if pads[axis]}
        if name == "max_pool" and beyond:
            # Windows after the end have found the least number, which others would multiply.
            self._cleared(op, beyond)
        counted = op.integers("counted", 4, 0) if name == "average_pool" else pads
        if all(counted[axis] == pads[axis] for axis in ended):
            return found
        if any(counted):
            raise self.refusal(f"{name} counts some of its padding, of images that end in a run")
        values = {**op.values, "counted": tuple(pads)}
        total = self.emit(name, op.inputs[0], **values)
        shape, dtype = (1, 1, *shape_of(x)[2:]), dtype_of(x)
        ones = self.weight(np.ones(shape, dtype), f"{self.node}.ones")
        inside = self.emit("cast", self.within(shape, sizes), to=dtype.name)
        ones = self.emit("mul", ones, inside)
        mean = self.computed(self.node, "div", (total, self.emit(name, ones, **values)), {})
        op.result.replace_all_uses_with(mean)
        self.instead[op.result] = mean
        return found

    def _joined(self, op: ConcatOp) -> Ends:
        """The axes of joined values; what is joined after an end is read from there on."""
        rank = len(shape_of(op.result))
        axis = op.integer("axis", -rank, rank - 1) % rank
        ended = [number for number, v in enumerate(op.inputs) if axis in self.ends.get(v, {})]
        if not ended:
            return self._computed(op)
        (number, *more), extents = ended, [shape_of(value)[axis] for value in op.inputs]
        size = self.one_size(self.ends[op.inputs[number]][axis])
        others = [{k: v for k, v in self.ends.get(x, {}).items() if k != axis} for x in op.inputs]
        if more or size is None or any(other != others[0] for other in others):
            raise self.refusal(f"{op.operation} joins sizes which a run may make different")
        form, (before, after) = (
            self.forms[size],
            (sum(extents[:number]), sum(extents[number + 1 :])),
        )
        found = {**others[0], axis: self.named(form.then(1, before + after, 1))}
        if after:
            uses, self.before = self._after(op)
            places = self.weight(np.arange(sum(extents)), f"{self.node}.places")
            whole = self.weight(np.array(extents[number]), f"{self.node}.whole")
            shift = self.emit("sub", whole, self.size(size, 0))
            beyond = self.emit("add", places, self.emit("reshape", shift, shape=(1,)))
            first = self.emit("less", places, self.size(self.named(form.then(1, before, 1)), 1))
            indices = self.emit("select", first, places, beyond)
            self._replace(op, uses, self.emit("gather", op.result, indices, axis=axis))
        return found

    def _cleared(self, op: Operation, ends: Ends) -> None:
        """Let a result be 0 after its ends."""
        uses, self.before = self._after(op)
        zero = self.weight(np.array(0, dtype_of(op.result)), f"{self.node}.zero")
        inside = self.within(shape_of(op.result), self._single(ends))
        self._replace(op, uses, self.emit("select", inside, op.result, zero))

    def _windows(
        self, op: Operation, axis: int, ending: Ending, beyond: dict[int, str]
    ) -> tuple[str, str]:
        """The dim of windows along an axis that ends, and where these end; adds the axis to those
        ``beyond`` whose end they read."""
        size = self.one_size(ending)
        if isinstance(op, PadOp) and size is not None:
            pads = op.integers("pads")
            before, after = pads[axis], pads[len(pads) // 2 + axis]
            if after and len(op.inputs) == 1:
                beyond[axis] = size
            if not after or len(op.inputs) == 1:
                return f"d{axis}", self.named(self.forms[size].then(1, before + after, 1))
        if isinstance(op, WindowOperation) and axis >= 2 and size is not None:
            (strides, pads, dilations), side = op.slide, axis - 2
            pool = isinstance(op, PoolOperation)
            taps = op.integers("kernel") if pool else shape_of(op.inputs[1])[2:]
            reach = (taps[side] - 1) * dilations[side] + 1
            padded = pads[side] + pads[2 + side]
            if pads[2 + side] and op.operation in NEUTRAL:
                beyond[axis] = size
            if not pads[2 + side] or op.operation in NEUTRAL:
                stride = strides[side]
                if stride > 1 and not self.strided:
                    raise self.refusal("windows move by more than one where data decide the size")
                form = self.forms[size].then(1, padded - reach + stride, stride)
                return ("oh", "ow")[side], self.named(form)
        raise self.refusal(f"{op.operation} reads windows of an axis whose size a run decides")

    def _compare(self, op: AnyOperation) -> None:
        """Refuse a result whose extents are others than those that are followed."""
        value = op.results[0]
        shape, ends = shape_of(value), self.ends[value]
        for sizes, extents in (
            (self.rooms, shape),
            *((each.sizes, each.differing.shapes.get(value, shape)) for each in self.samples),
        ):
            for axis, extent in enumerate(extents):
                followed = self._extent(ends[axis], sizes) if axis in ends else shape[axis]
                if followed != extent:
                    reason = "its size follows from a run's by arithmetic that is not followed"
                    raise self.refusal(reason)

    def _outputs(self, stated: Mapping[str, int]) -> tuple[OutputEnd, ...]:
        """Add an output for each size that ends an axis of an output, or may be too large."""
        output, network = self.network.output_op, self.network
        names, self.before = [name for name, _ in network.outputs], output
        places: dict[str, str] = {}
        found: list[OutputEnd] = []
        for name, value in network.outputs:
            for axis, size in sorted(self.ends.get(value, {}).items()):
                size = self.one_size(size)
                if size is None:
                    raise self.refusal(f"output {name!r} joins axes whose sizes a run decides")
                if size not in places:
                    places[size] = fresh(f"{size}_size", names)
                    names.append(places[size])
                found.append(OutputEnd(name, axis, places[size], size, shape_of(value)[axis]))
        for size in (size for size in stated if size not in places):
            places[size] = fresh(f"{size}_size", names)
            names.append(places[size])
            found.append(OutputEnd("", 0, places[size], size, stated[size]))
        values = [*output.values, *(self.sizes[size] for size in places)]
        network.block.add_op(OutputOp.build(operands=[values]))
        output.detach()
        output.erase()
        network.properties["output_names"] = to_attribute([*names])
        return tuple(found)
