"""Operations that rearrange elements: joins, reshape, transpose, slice, pad, channel shuffle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import ClassVar, cast

import numpy as np

from tilewright.graph.operation import MAXIMUM_ELEMENTS, Attributes, Operation, Type
from tilewright.graph.operations.base import STATED, definition
from tilewright.ir.types import Array, shape_of
from tilewright.planning.domain import Role, Stage


class JoinOperation(Operation):
    """An operation whose operands are parts of its result, each element of which is in one."""

    def parts(self) -> list[list[range]]:
        """The indices of the result along every axis that each operand gives."""
        raise NotImplementedError


@definition
class ConcatOp(JoinOperation):
    """The operands joined along ``axis``; all have one element type."""

    name = "graph.concat"
    DEFAULTS: ClassVar[Attributes] = {"axis": STATED}
    ARITY: ClassVar[tuple[int, int]] = (1, 2**16)

    def infer(self, types: Sequence[Type]) -> Type:
        """The operands' shape, with their extents along the axis added up."""
        shapes = [kind.get_shape() for kind in types]
        rank = len(shapes[0])
        self.need(rank >= 1, "takes rank 1 at least")
        axis = self.integer("axis", -rank, rank - 1) % rank
        for index, shape in enumerate(shapes):
            self.need(
                len(shape) == rank
                and all(i == axis or shape[i] == shapes[0][i] for i in range(rank)),
                f"operand {index} of shape {list(shape)} does not fit {list(shapes[0])} "
                f"along axis {axis}",
            )
        total = sum(shape[axis] for shape in shapes)
        result = (*shapes[0][:axis], total, *shapes[0][axis + 1 :])
        return self.result_of(result, self.common_element(types))

    def evaluate(self, *arrays: Array) -> Array:
        """Compute the result, which is exact."""
        return np.concatenate(arrays, axis=self.counted_axis)

    def stage(self, operands: Sequence[str], result: str) -> Stage | None:
        """Dims d0.. of the other axes | axis, of which each operand has some indices, and the
        operands: every element of the result is in one of them."""
        shape, axis = shape_of(self.result), self.counted_axis
        names = ["axis" if i == axis else f"d{i}" for i in range(len(shape))]
        reads = [
            " ".join(f"axis-{part[axis].start}" if name == "axis" else name for name in names)
            for part in self.parts()
        ]
        extents = {"axis": shape[axis], "parts": len(self.inputs)}
        order = [*(name for name in names if name != "axis"), *extents]
        notation = f"{', '.join(reads)} -> {' '.join(names)}"
        return self.nest(operands, result, notation, extents, order=" ".join(order))

    def parts(self) -> list[list[range]]:
        """Neighbouring ranges along the axis."""
        shape, axis = shape_of(self.result), self.counted_axis
        parts, start = list[list[range]](), 0
        for value in self.inputs:
            extent = shape_of(value)[axis]
            parts.append([range(whole) for whole in shape])
            parts[-1][axis] = range(start, start + extent)
            start += extent
        return parts


@definition
class InterleaveOp(JoinOperation):
    """Images joined pixel by pixel, ``steps`` of them along the rows and along the pixels of a row.

    With steps [s, t], operand a * t + b is rows a, a + s, ... of the result [..., rows, pixels],
    and of these pixels b, b + t, ...: the first ones may have a row, or a pixel, more than others.
    """

    name = "graph.interleave"
    DEFAULTS: ClassVar[Attributes] = {"steps": STATED}
    ARITY: ClassVar[tuple[int, int]] = (1, 2**16)

    def infer(self, types: Sequence[Type]) -> Type:
        """As many rows and pixels as the operands have together."""
        shapes = [kind.get_shape() for kind in types]
        down, along_row = self.integers("steps", 2, 1)
        self.need(
            down * along_row == len(types), f"steps {[down, along_row]} ask for other operands"
        )
        self.need(len(shapes[0]) >= 2, "takes rank 2 at least")
        rows = sum(shape[-2] for shape in shapes[::along_row] if len(shape) >= 2)
        pixels = sum(shape[-1] for shape in shapes[:along_row] if len(shape) >= 2)
        result = (*shapes[0][:-2], rows, pixels)
        for index, (shape, part) in enumerate(zip(shapes, self._parts(result), strict=True)):
            self.need(
                shape == tuple(len(taken) for taken in part),
                f"operand {index} of shape {list(shape)} does not fit {list(result)}",
            )
        return self.result_of(result, self.common_element(types))

    def evaluate(self, *arrays: Array) -> Array:
        """Compute the result, which is exact."""
        result = np.empty(shape_of(self.result), arrays[0].dtype)
        down, along_row = self.integers("steps")
        for index, array in enumerate(arrays):
            result[..., index // along_row :: down, index % along_row :: along_row] = array
        return result

    def parts(self) -> list[list[range]]:
        """Ranges of each input's elements in the result: every n-th row, and every m-th pixel."""
        return self._parts(shape_of(self.result))

    def _parts(self, shape: Sequence[int]) -> list[list[range]]:
        down, along_row = self.integers("steps")
        before = [range(extent) for extent in shape[:-2]]
        return [
            [*before, range(row, shape[-2], down), range(pixel, shape[-1], along_row)]
            for row in range(down)
            for pixel in range(along_row)
        ]


@definition
class ReshapeOp(Operation):
    """The same elements in row-major order, in another shape."""

    name = "graph.reshape"
    DEFAULTS: ClassVar[Attributes] = {"shape": STATED}

    def infer(self, types: Sequence[Type]) -> Type:
        """The ``shape`` attribute, every extent given."""
        value = self.get("shape")
        self.need(
            isinstance(value, tuple)
            and all(
                type(extent) is int and 0 <= extent <= MAXIMUM_ELEMENTS
                for extent in cast("tuple[object, ...]", value)
            ),
            f"shape {value} must be a list of extents",
        )
        shape = cast("tuple[int, ...]", value)
        source = types[0].get_shape()
        self.need(
            prod(shape) == prod(source),
            f"{list(source)} has {prod(source)} elements, {list(shape)} has {prod(shape)}",
        )
        return self.result_of(shape, types[0].element_type)

    def evaluate(self, *arrays: Array) -> Array:
        """Compute the result, which is exact."""
        return arrays[0].reshape(shape_of(self.result))


@definition
class TransposeOp(Operation):
    """Axis i of the result is axis ``permutation[i]`` of the operand."""

    name = "graph.transpose"
    DEFAULTS: ClassVar[Attributes] = {"permutation": STATED}

    def infer(self, types: Sequence[Type]) -> Type:
        """Return the type of the permuted shape."""
        shape = types[0].get_shape()
        order = self.integers("permutation", len(shape), 0)
        self.need(
            sorted(order) == list(range(len(shape))),
            f"{list(order)} is no permutation of the axes of {list(shape)}",
        )
        return self.result_of([shape[axis] for axis in order], types[0].element_type)

    def evaluate(self, *arrays: Array) -> Array:
        """Compute the result, which is exact."""
        return np.asarray(arrays[0].transpose(self.integers("permutation")), order="C")

    def stage(self, operands: Sequence[str], result: str) -> Stage | None:
        """Dims d0..dk of the result."""
        order = self.integers("permutation")
        access = [f"d{order.index(axis)}" for axis in range(len(order))]
        target = [f"d{axis}" for axis in range(len(order))]
        return self.nest(operands, result, f"{' '.join(access)} -> {' '.join(target)}")


@definition
class SliceOp(Operation):
    """Elements starts[i], starts[i] + steps[i], ... before ends[i] along axes[i].

    Negative starts and ends count from the end of the axis; both are then cut to the axis, as
    ONNX has it. ``axes`` defaults to the first ones, ``steps`` to 1.
    """

    name = "graph.slice"
    DEFAULTS: ClassVar[Attributes] = {"starts": STATED, "ends": STATED, "steps": None, "axes": None}

    def ranges(self, shape: Sequence[int]) -> list[range]:
        """The indices taken along every axis; raises VerifyException."""
        limit, rank = 2**63, len(shape)
        starts, ends = self.get("starts"), self.get("ends")
        count = len(starts) if isinstance(starts, tuple) else 0
        axes = self.get("axes", tuple(range(count)))
        steps = self.get("steps", (1,) * count)
        for name, items in (("starts", starts), ("ends", ends), ("axes", axes), ("steps", steps)):
            self.need(
                isinstance(items, tuple)
                and len(cast("tuple[object, ...]", items)) == count
                and all(
                    type(item) is int and -limit <= item < limit
                    for item in cast("tuple[object, ...]", items)
                ),
                f"{name} must be a list of {count} integers, is {items}",
            )
        self.need(
            all(-rank <= axis < rank for axis in axes)
            and len({axis % rank for axis in axes}) == count,
            f"axes {list(axes)} must name distinct axes of rank {rank}",
        )
        self.need(0 not in steps, "a step is 0")
        ranges = [range(extent) for extent in shape]
        for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
            ranges[axis % rank] = range(*slice_bounds(start, end, step, shape[axis]))
        return ranges

    def infer(self, types: Sequence[Type]) -> Type:
        """The number of indices taken along every axis."""
        shape = [len(indices) for indices in self.ranges(types[0].get_shape())]
        return self.result_of(shape, types[0].element_type)

    def evaluate(self, *arrays: Array) -> Array:
        """Compute the result, which is exact."""
        index = [
            slice(r.start, r.stop if r.stop >= 0 else None, r.step) if len(r) else slice(0, 0)
            for r in self.ranges(arrays[0].shape)
        ]
        return arrays[0][tuple(index)]

    def stage(self, operands: Sequence[str], result: str) -> Stage | None:
        """Dims d0..dk of the result."""
        ranges = self.ranges(shape_of(self.inputs[0]))
        access = [f"{taken.step}*d{axis}+{taken.start}" for axis, taken in enumerate(ranges)]
        target = [f"d{axis}" for axis in range(len(ranges))]
        return self.nest(operands, result, f"{' '.join(access)} -> {' '.join(target)}")


def slice_bounds(start: int, end: int, step: int, extent: int) -> tuple[int, int, int]:
    """ONNX's reading of a slice of an axis, as the arguments of ``range``."""
    start, end = (bound + extent if bound < 0 else bound for bound in (start, end))
    low, high = (0, extent) if step > 0 else (-1, extent - 1)
    start = min(max(start, 0), high)
    return start, min(max(end, low), high if step < 0 else extent), step


PAD_MODES: Mapping[str, str] = {"constant": "constant", "reflect": "reflect", "edge": "edge"}


@definition
class PadOp(Operation):
    """The operand surrounded by ``pads`` elements: before each axis, then after each axis.

    ``mode`` is constant (of ``value``; in fixed point rounded to the binary point), reflect
    (without repeating the edge) or edge. Where a second operand of one element stands, a constant
    is that.
    """

    name = "graph.pad"
    DEFAULTS: ClassVar[Attributes] = {"pads": STATED, "mode": "constant", "value": 0.0}
    ARITY: ClassVar[tuple[int, int]] = (1, 2)
    ROLES: ClassVar[tuple[Role, ...]] = ("input", "residual")

    def infer(self, types: Sequence[Type]) -> Type:
        """Every extent plus its pads."""
        if len(types) == 2:
            element, computed = types[0].element_type, types[1]
            alone = computed.element_type == element and not computed.get_shape()
            self.need(alone, "what it is padded with is one element of the same type")
            stated = self.get("mode", "constant") != "constant" or self.get("value", 0.0) != 0.0
            self.need(not stated, "its value is an operand or an attribute")
        shape = types[0].get_shape()
        rank = len(shape)
        pads = self.integers("pads", 2 * rank, 0)
        mode = self.get("mode", "constant")
        self.need(
            isinstance(mode, str) and mode in PAD_MODES,
            f"mode must be one of {', '.join(PAD_MODES)}, is {mode}",
        )
        for axis, extent in enumerate(shape):
            widest = max(pads[axis], pads[rank + axis])
            self.need(
                mode == "constant"
                or widest == 0
                or (extent >= 1 if mode == "edge" else widest < extent),
                f"mode {mode} cannot pad an axis of {extent} by {widest}",
            )
        value = self.get("value", 0.0)
        endless = isinstance(value, float) and value in (float("inf"), float("-inf"))
        self.need(not (endless and self.is_fixed), f"fixed point has no {value}")
        if not endless:
            _ = self.number("value")
        result = [extent + pads[axis] + pads[rank + axis] for axis, extent in enumerate(shape)]
        return self.result_of(result, types[0].element_type)

    def evaluate(self, *arrays: Array) -> Array:
        """Compute the result, which is exact."""
        pads, x = self.integers("pads"), arrays[0]
        widths = list(zip(pads[: x.ndim], pads[x.ndim :], strict=True))
        mode = self.get("mode", "constant")
        if mode == "reflect":
            return np.pad(x, widths, mode="reflect")
        if mode == "edge":
            return np.pad(x, widths, mode="edge")
        if len(arrays) == 2:
            return np.pad(x, widths, mode="constant", constant_values=arrays[1])
        value: float = self.get("value", 0.0)
        if self.is_fixed:
            limits = np.iinfo(x.dtype)
            scaled = round(value * 2.0 ** self.fractions[0])
            value = min(max(scaled, limits.min), limits.max)
        return np.pad(x, widths, mode="constant", constant_values=x.dtype.type(value))

    def stage(self, operands: Sequence[str], result: str) -> Stage | None:
        """Dims d0..dk of the result (mode constant only); outside the operand lies ``value``."""
        if self.get("mode", "constant") != "constant":
            return None
        pads, target = self.integers("pads"), range(len(shape_of(self.result)))
        access = " ".join(f"d{axis}-{pads[axis]}" for axis in target)
        notation = f"{access}, -> {' '.join(f'd{axis}' for axis in target)}"
        return self.nest(operands, result, notation)


@definition
class ChannelShuffleOp(Operation):
    """Channel ``a * groups + b`` of the result is channel ``b * (c / groups) + a`` of x [n,c,h,w].

    Zhang et al., "ShuffleNet", 2018, section 3.1. Simplify makes it of a reshape, a transpose and
    a reshape, for machines that compute it at once.
    """

    name = "graph.channel_shuffle"
    DEFAULTS: ClassVar[Attributes] = {"groups": STATED}

    def infer(self, types: Sequence[Type]) -> Type:
        """The shape of x."""
        shape = types[0].get_shape()
        self.need(len(shape) == 4, f"images must have rank 4, have shape {list(shape)}")
        groups = self.integer("groups", 1, 2**24)
        self.need(shape[1] % groups == 0, f"{shape[1]} channels do not divide into {groups} groups")
        return self.result_of(shape, types[0].element_type)

    def evaluate(self, *arrays: Array) -> Array:
        """Compute the result, which is exact."""
        n, c, h, w = arrays[0].shape
        groups = self.integer("groups", 1, 2**24)
        grouped = arrays[0].reshape(n, groups, c // groups, h, w)
        return np.ascontiguousarray(grouped.swapaxes(1, 2)).reshape(n, c, h, w)

    def stage(self, operands: Sequence[str], result: str) -> Stage | None:
        """Dims n, a, b, h, w."""
        groups = self.integer("groups", 1, 2**24)
        each = shape_of(self.result)[1] // groups
        notation = f"n b*{each}+a h w -> n a*{groups}+b h w"
        return self.nest(operands, result, notation, {"a": each, "b": groups})
