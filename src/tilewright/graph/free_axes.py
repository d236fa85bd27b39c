"""Axes of a network's values that end earlier in a run: those that a free dim of the inputs
becomes.

A network is compiled for the largest size of a free dim. A run has fewer indices, the first ones of
each axis that the dim becomes; what lies after them is of no value. That is right where no element
before the end reads one after it, which this pass proves operation by operation from the access
maps: an axis that ends early must be one dim of an operation, index for index, and so must be every
axis that this dim indexes. A dim that is summed needs a kernel that knows where it ends.

What the operations are must not depend on the size: ``same_but_for`` compares two networks. It
finds the constants that are as long as a size, too, such as positions and masks made of a shape:
their axes end early as those of inputs do.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import prod

import numpy as np

from tilewright.errors import TilewrightError, refuse
from tilewright.graph.dialect import KernelOp, NetworkOp, OutputOp, WeightOp
from tilewright.graph.kernels import kernel_of, operand_values
from tilewright.graph.operations.pooling import PoolOperation
from tilewright.graph.operations.views import ReshapeOp, SliceOp
from tilewright.graph.values import value_names
from tilewright.ir import Operation, SSAValue
from tilewright.ir.passes import WeightStore
from tilewright.ir.types import shape_of
from tilewright.planning.domain import Kernel

Axes = frozenset[int]
"""Axes of a value that end early."""

NONE: Axes = frozenset()

SUMMING = ("matmul", "attention")
"""Operations whose kernels on a core know where a dim ends that they sum."""


@dataclass(frozen=True)
class FreeAxes:
    """The axes of values and the dims of kernels that a free dim determines."""

    values: Mapping[SSAValue, Axes]
    dims: Mapping[str, frozenset[str]]
    """The dims of each kernel, by its symbol, that end early."""

    def outputs(self, network: NetworkOp) -> dict[str, tuple[int, ...]]:
        """The axes of outputs that end early."""
        return {name: tuple(sorted(self.values.get(v, NONE))) for name, v in network.outputs}


@dataclass(frozen=True)
class FreeSize:
    """The axes that a free dim is in a network compiled for its largest size."""

    inputs: Mapping[str, tuple[int, ...]]
    constants: Mapping[str, tuple[int, ...]]
    """By the constants' symbols before the network was placed, which others begin with."""


@dataclass(frozen=True)
class Sizes:
    """The dims and axes that end early in a run, with the names of the sizes at which they end."""

    dims: Mapping[str, Mapping[str, str]]
    """The size at which each dim of a kernel ends, by the kernel's symbol."""
    inputs: Mapping[str, Mapping[int, str]]
    outputs: Mapping[str, Mapping[int, str]]
    """The size at which each axis of an output ends; of an input likewise."""


def ends_of(
    network: NetworkOp,
    free: Mapping[str, FreeSize],
    summing: Collection[str] = SUMMING,
) -> Sizes:
    """Follow the axes that end early at several sizes: for each size its axes.

    Refuses (``length-kernel``) what ``free_axes`` does, and what ends at two sizes at once.
    """
    dims: dict[str, dict[str, str]] = {}
    sides: tuple[dict[str, dict[int, str]], ...] = {}, {}
    for size, axes_of_size in free.items():
        found = free_axes(network, axes_of_size, summing)
        for symbol, ended in found.dims.items():
            for dim in ended:
                if dims.setdefault(symbol, {}).setdefault(dim, size) != size:
                    other = dims[symbol][dim]
                    raise _refusal(symbol, f"{dim} would end at {size} and at {other}")
        ends = axes_of_size.inputs, found.outputs(network)
        for side, axes in zip(sides, ends, strict=True):
            for name, numbers in axes.items():
                side.setdefault(name, {}).update(dict.fromkeys(numbers, size))
    return Sizes(dims, *sides)


def free_axes(
    network: NetworkOp,
    free: FreeSize,
    summing: Collection[str] = SUMMING,
) -> FreeAxes:
    """Follow the axes of inputs and constants that end early, after one index at least;
    ``summing`` are the operations with kernels that know where a dim ends that they sum.

    Refuses (``length-kernel``), with the node, what would read elements after the end.
    """
    names = value_names(network)
    values: dict[SSAValue, Axes] = {
        value: frozenset(free.inputs.get(name, ())) for name, value in network.inputs
    }
    values |= _constants(network, free.constants)
    dims: dict[str, frozenset[str]] = {}
    for op in network.block.ops:
        if isinstance(op, KernelOp):
            kernel = kernel_of(op, names)
            known = operand_values(op, names)
            axes = {
                name: values.get(value, None if isinstance(value.owner, WeightOp) else NONE)
                for name, value in known.items()
            }
            hosted = op.engine is not None and op.engine.data == "host"
            ends = () if hosted else summing
            dims[kernel.symbol], values[op.result] = _of_kernel(kernel, axes, ends, hosted=hosted)
        elif isinstance(op, ReshapeOp):
            values[op.results[0]] = reshaped_axes(op, values.get(op.operands[0], NONE))
        elif isinstance(op, SliceOp):
            values[op.results[0]] = sliced_axes(op, values.get(op.operands[0], NONE))
        elif not isinstance(op, OutputOp) and any(values.get(v, NONE) for v in op.operands):
            raise _refusal(str(op.get_attr_or_prop("node") or op.name), f"{op.name} has no rule")
    return FreeAxes(values, dims)


def _constants(
    network: NetworkOp, constants: Mapping[str, tuple[int, ...]]
) -> dict[SSAValue, Axes]:
    """The constants that end early; refuses them where they are not those of the network."""
    weights = [op for op in network.block.ops if isinstance(op, WeightOp)]
    found: dict[SSAValue, Axes] = {}
    for symbol, axes in constants.items():
        # Constants in other numbers or layouts have a digest after the symbol.
        same = [op for op in weights if f"{op.symbol.data}_".startswith(f"{symbol}_")]
        if not same:
            raise _refusal(symbol, "a constant that is as long as the size was changed by a pass")
        found |= dict.fromkeys((op.results[0] for op in same), frozenset(axes))
    return found


def _refusal(node: str, reason: str) -> TilewrightError:
    return refuse("length-kernel", reason, node, "give the dim a size: each size is then compiled")


def _of_kernel(
    kernel: Kernel, axes: Mapping[str, Axes | None], summing: Collection[str], *, hosted: bool
) -> tuple[frozenset[str], Axes]:
    """The dims of a kernel that end early, and the axes of its result; ``axes`` are those of its
    operands, None for constants."""
    node = ", ".join(kernel.nodes) or kernel.symbol
    free: set[str] = set()
    stages = [stage for part in (*kernel.producers, kernel) for stage in part.stages]
    input_axes = {operand.name: axes[operand.name] for operand in kernel.inputs}
    for stage in stages:
        for operand in stage.inputs:
            for axis in input_axes.get(operand.name) or ():
                access = operand.access[axis]
                if access.lone is not None:
                    free.add(access.lone)
                elif access.dims or access.offset:
                    reason = f"{stage.operation} reads [{access}] of an axis that ends early"
                    raise _refusal(node, reason)
    for stage in stages:
        for operand in (*stage.inputs, stage.output):
            ends = input_axes.get(operand.name)
            for axis, access in enumerate(operand.access):
                if not free.intersection(access.dims):
                    continue
                if access.lone is None:
                    raise _refusal(node, f"{stage.operation} takes [{access}] where it ends early")
                if operand.name in input_axes and ends is not None and axis not in ends:
                    reason = f"axis {axis} of {operand.name} does not end early, and others do"
                    raise _refusal(node, reason)
        summed = free.intersection(stage.reduction)
        if summed and stage.operation not in summing:
            where = "on the host" if hosted else "here"
            reason = f"no kernel {where} ends {stage.operation} along {', '.join(sorted(summed))}"
            raise _refusal(node, f"{reason} at a length known when it runs")
    output = kernel.output
    ends = [n for n, access in enumerate(output.access) if free.intersection(access.dims)]
    return frozenset(free), frozenset(ends)


def reshaped_axes(op: Operation, axes: Axes) -> Axes:
    """The same axes of the new shape: with as many elements before them, and of the same size."""
    source, target = (shape_of(value) for value in (op.operands[0], op.results[0]))
    kept: set[int] = set()
    for axis in axes:
        before = prod(source[:axis])
        same = [
            n
            for n, extent in enumerate(target)
            if extent == source[axis] > 1 and prod(target[:n]) == before
        ]
        if not same:
            reason = f"{list(source)} as {list(target)} joins or splits an axis that ends early"
            raise _refusal(str(op.get_attr_or_prop("node") or op.name), reason)
        kept.add(same[0])
    return frozenset(kept)


def sliced_axes(op: SliceOp, axes: Axes) -> Axes:
    """The axes that are taken whole; of others the first index alone, which every run has."""
    shape = shape_of(op.operands[0])
    whole: set[int] = set()
    for axis, taken in enumerate(op.ranges(shape)):
        if axis not in axes or taken == range(1):
            continue
        if taken != range(shape[axis]):
            reason = f"takes {taken} of an axis that ends early"
            raise _refusal(str(op.get_attr_or_prop("node") or op.name), reason)
        whole.add(axis)
    return frozenset(whole)


Pair = tuple[int, int]
"""A size of a network, and the same size of another."""


@dataclass(frozen=True)
class Differing:
    """The axes in which one network differs from another."""

    axes: Mapping[SSAValue, Axes]
    """The axes of other extents, of values that have some."""
    operations: Collection[Operation]
    """Operations with other attributes."""
    shapes: Mapping[SSAValue, tuple[int, ...]] = field(
        default_factory=dict[SSAValue, "tuple[int, ...]"]
    )
    """The shapes in the other network of the values that have other extents there."""

    def constants(self) -> dict[str, tuple[int, ...]]:
        """The axes of constants, by symbol."""
        return {
            value.owner.symbol.data: tuple(sorted(axes))
            for value, axes in self.axes.items()
            if isinstance(value.owner, WeightOp)
        }

    def check(self, network: NetworkOp) -> None:
        """Refuse (``length-kernel``) operations that make an axis of the size, or move it to
        another place than is followed: their size is the model's arithmetic on shapes."""
        for op in self.operations:
            if isinstance(op, NetworkOp):
                continue
            axes = self.axes.get(op.operands[0], NONE) if op.operands else NONE
            found = self.axes.get(op.results[0], NONE) if op.results else NONE
            if isinstance(op, ReshapeOp) and reshaped_axes(op, axes) == found:
                continue
            if isinstance(op, SliceOp) and sliced_axes(op, axes) == found:
                continue
            node = str(op.get_attr_or_prop("node") or op.name).strip('"')
            reason = f"{op.name} depends on the size, which no axis of its operand tells"
            raise _refusal(node, reason)
        for name, value in network.outputs:
            if isinstance(value.owner, WeightOp) and self.axes.get(value):
                raise _refusal(name, "an output is a constant that is as long as the size")


def same_but_for(
    one: tuple[NetworkOp, WeightStore],
    other: tuple[NetworkOp, WeightStore],
    sizes: Collection[Pair],
    *,
    any_extents: bool = False,
) -> Differing:
    """The axes in which a network differs from another. Refuses (``length-structure``) two that
    differ in more than some sizes.

    Operations are the same, one by one; where extents and attributes differ, they are a size of the
    one here and the same size of the other there, or, with ``any_extents``, whatever they are of
    shapes and of windows as large as an image; the longer constants begin with the shorter ones.
    """
    allowed = _Allowed(sizes, any_extents)
    axes: dict[SSAValue, Axes] = {}
    shapes: dict[SSAValue, tuple[int, ...]] = {}
    changed: list[Operation] = []
    numbers: dict[SSAValue, int] = {}
    others: dict[SSAValue, int] = {}
    pairs = [list(network.walk()) for network, _ in (one, other)]
    count = min(map(len, pairs))
    for number in range(max(map(len, pairs))):
        if number >= count:
            raise _differs(pairs[len(pairs[1]) > count][number], sizes, "is there for one alone")
        op, counterpart = (ops[number] for ops in pairs)
        if op.name != counterpart.name:
            raise _differs(op, sizes, f"is {op.name} for one and {counterpart.name} for the other")
        if [numbers.get(v) for v in op.operands] != [others.get(v) for v in counterpart.operands]:
            raise _differs(op, sizes, "has other operands")
        for place, (a, b) in enumerate(zip(op.results, counterpart.results, strict=True)):
            numbers[a] = others[b] = number * 16 + place
            if ends := _compare_extents(op, shape_of(a), shape_of(b), allowed):
                axes[a], shapes[a] = ends, shape_of(b)
        for a, b in zip(op.regions, counterpart.regions, strict=True):
            for first, second in zip(a.blocks, b.blocks, strict=True):
                for place, (x, y) in enumerate(zip(first.args, second.args, strict=True)):
                    numbers[x] = others[y] = -(number * 64 + place + 1)
                    if ends := _compare_extents(op, shape_of(x), shape_of(y), allowed):
                        axes[x], shapes[x] = ends, shape_of(y)
        if isinstance(op, WeightOp) and isinstance(counterpart, WeightOp):
            a, b = one[1].get(op.symbol.data), other[1].get(counterpart.symbol.data)
            begin = tuple(map(slice, map(min, a.shape, b.shape)))
            if not np.array_equal(a[begin], b[begin], equal_nan=a.dtype.kind == "f"):
                raise _differs(op, sizes, "is a constant of other numbers")
        elif not isinstance(op, NetworkOp):
            free = isinstance(op, ReshapeOp | SliceOp | PoolOperation)
            numbers_of = allowed if free else _Allowed(sizes)
            if _compare_attributes(op, counterpart, numbers_of):
                changed.append(op)
    return Differing(axes, changed, shapes)


@dataclass(frozen=True)
class _Allowed:
    """The numbers in which two networks may differ."""

    pairs: Collection[Pair]
    all: bool = False

    def __call__(self, a: int, b: int) -> bool:
        return self.all or (a, b) in self.pairs


def _differs(op: Operation, sizes: Collection[Pair], reason: str) -> TilewrightError:
    changed = [f"{a} and {b}" for a, b in sizes if a != b]
    where = op.get_attr_or_prop("node") or op.get_attr_or_prop("symbol") or op.name
    return refuse(
        "length-structure",
        f"{reason} (sizes {', '.join(sorted(changed))})",
        str(where).strip('"'),
        "give the dim a size: each size is then compiled",
    )


def _compare_extents(
    op: Operation, left: tuple[int, ...], right: tuple[int, ...], allowed: _Allowed
) -> Axes:
    """The axes of other extents; refuses those that are not sizes."""
    if len(left) != len(right) or any(
        a != b and not allowed(a, b) for a, b in zip(left, right, strict=True)
    ):
        raise _differs(
            op, allowed.pairs, f"has shape {list(left)} for one and {list(right)} for the other"
        )
    return frozenset(axis for axis, (a, b) in enumerate(zip(left, right, strict=True)) if a != b)


def _compare_attributes(op: Operation, counterpart: Operation, allowed: _Allowed) -> bool:
    """Return True if some differ; refuses those that differ in more than sizes."""
    found = False
    left, right = (each.properties | each.attributes for each in (op, counterpart))
    for name in {*left, *right}:
        texts = [str(part.get(name)) for part in (left, right)]
        if texts[0] == texts[1]:
            continue
        words = [_WORDS.findall(text) for text in texts]
        if len(words[0]) != len(words[1]) or any(
            a != b and not (a.isdigit() and b.isdigit() and allowed(int(a), int(b)))
            for a, b in zip(*words, strict=True)
        ):
            reason = f"has {name} {texts[0]} for one and {texts[1]} for the other"
            raise _differs(op, allowed.pairs, reason)
        found = True
    return found


_WORDS = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?|[^\d\s-]+|-")
"""Numbers of an attribute's text, and what stands between them."""
