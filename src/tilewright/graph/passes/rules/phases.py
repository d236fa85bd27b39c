"""Transposed convolutions by one convolution for each phase, put together by addresses alone.

Front-ends import a transposed convolution as one convolution of all phases, whose result a
transpose puts together (frontends/phases.py); exporters write the same for upscaling by subpixels.
Machines that write parts of an image where they belong need no transpose, nor the taps that a phase
has not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from tilewright.graph.operations import Operation
from tilewright.graph.operations.convolution import ConvOp
from tilewright.graph.operations.pointwise import PointwiseOperation
from tilewright.graph.operations.views import InterleaveOp, ReshapeOp, SliceOp, TransposeOp
from tilewright.graph.passes.editing import Rewriter, only_user, per_channel
from tilewright.graph.passes.rules.convolution import Axis, along
from tilewright.graph.passes.strides import dense_box, slice_box
from tilewright.ir import SSAValue
from tilewright.ir.types import Array, shape_of, tensor_type
from tilewright.machine import Machine
from tilewright.memory.alignment import ceil_div

MOST_PHASES = 64
"""Phases that become convolutions of their own."""

AFFINE = ("batch_norm", "add", "sub", "mul", "div")
"""Operations that join a convolution's weights where their other operands are constant."""


@dataclass(frozen=True)
class Phases:
    """A convolution whose channels are the phases of an image."""

    conv: Operation
    steps: tuple[int, int]
    """Phases along the rows and along the pixels of a row."""
    outer: int
    """Channels outside of the phases in the convolution's result, [n, outer, s, t, inner, h, w]."""
    image: tuple[int, int, int, int]
    """The shape of the interleaved image, [n, channels, rows, pixels]."""
    chain: tuple[Operation, ...]
    """The operations that interleave it, first to last."""


def split_phases(op: Operation, at: Rewriter) -> bool:
    """One convolution for each phase, where the machine writes pixels at a distance.

    Before::

        %1 = graph.conv %x, %w {pads = [1, 1, 1, 1]}       // %w: [4 * 16, 8, 3, 3]
        %2 = graph.reshape %1 {shape = [1, 2, 2, 16, 5, 6]}
        %3 = graph.transpose %2 {permutation = [0, 3, 4, 1, 5, 2]}
        %4 = graph.reshape %3 {shape = [1, 16, 10, 12]}

    After::

        %1 = graph.conv %x, %w0 {pads = [1, 1, 0, 0]}      // %w0: [16, 8, 2, 2]
        %2 = graph.conv %x, %w1 {pads = [1, 0, 0, 1]}
        %3 = graph.conv %x, %w2 {pads = [0, 1, 1, 0]}
        %4 = graph.conv %x, %w3 {pads = [0, 0, 1, 1]}
        %5 = graph.interleave %1, %2, %3, %4 {steps = [2, 2]}

    Rows of taps at the edges that are zero go; a phase all of whose taps would read nothing but
    padding somewhere keeps as many of them that every window meets the image, as most machines
    want it. A slice after it takes rows or pixels off the last phases.
    """
    phases = _phases_of(op)
    if phases is None or not _writes_apart(phases, at.machine):
        return False
    conv = phases.conv
    arrays = [at.constant(value) for value in conv.inputs[1:]]
    known = [a for a in arrays if a is not None and np.issubdtype(a.dtype, np.floating)]
    if len(known) < len(arrays):
        return False
    (down, along), (_, channels, *extents) = phases.steps, phases.image
    inner = channels // phases.outer
    parts: list[SSAValue] = []
    for row in range(down):
        for pixel in range(along):
            phase_weights = [
                np.ascontiguousarray(
                    a.reshape(phases.outer, down, along, inner, *a.shape[1:])[:, row, pixel]
                ).reshape(channels, *a.shape[1:])
                for a in known
            ]
            sizes = [len(range(row, extents[0], down)), len(range(pixel, extents[1], along))]
            parts.append(_phase(conv, phase_weights, sizes, at))
    value = at.make("interleave", *parts, steps=phases.steps)
    shape = shape_of(op.result)
    whole = at.reshaped(value, shape) if len(shape) < 4 else value
    return at.replace(whole, *reversed([conv, *phases.chain[:-1]]))


def _phases_of(op: Operation) -> Phases | None:
    """Return the phases of the convolution whose phases ``op`` puts together; None for others."""
    last: object = op
    if isinstance(op, SliceOp):
        last = op.inputs[0].owner
    elif isinstance(user := only_user(op.result), SliceOp) and _phases_of(user) is not None:
        return None  # the slice's turn comes
    if not isinstance(last, ReshapeOp) or (last is not op and not _cuts_end(op)):
        return None
    swap = last.inputs[0].owner
    split = swap.inputs[0].owner if isinstance(swap, TransposeOp) else None
    conv = split.inputs[0].owner if isinstance(split, ReshapeOp) else None
    if not (isinstance(swap, TransposeOp) and isinstance(split, ReshapeOp)):
        return None
    if not isinstance(conv, ConvOp):
        return None
    chain = (split, swap, last) if last is op else (split, swap, last, op)
    if any(
        only_user(before.result) is not step
        for before, step in zip((conv, *chain), chain, strict=False)
    ):
        return None
    result, whole = shape_of(conv.result), _as_image(shape_of(last.result))
    cut = _as_image(shape_of(op.result))
    if whole is None or cut is None or whole[0] != result[0] or whole[1] < 2:
        return None
    steps = (whole[2] // result[2], whole[3] // result[3])
    if not 1 < prod(steps) <= MOST_PHASES:
        return None
    if whole != (result[0], result[1] // prod(steps), result[2] * steps[0], result[3] * steps[1]):
        return None
    for extent, size, step in zip(cut[2:], whole[2:], steps, strict=True):
        if extent < step or extent <= size - step:
            return None  # a phase without a row, or with fewer than the slice takes off
    group = conv.integer("group", 1, 2**24)
    for outer in dict.fromkeys((1, group, whole[1])):
        if outer % group or whole[1] % outer:
            continue
        if _orders(split, swap, steps, outer):
            return Phases(conv, steps, outer, cut, chain)
    return None


def _as_image(shape: tuple[int, ...]) -> tuple[int, int, int, int] | None:
    """A shape with rows and pixels; sequences [n, channels, pixels] are images of one row."""
    if len(shape) == 3:
        return shape[0], shape[1], 1, shape[2]
    return (shape[0], shape[1], shape[2], shape[3]) if len(shape) == 4 else None


def _cuts_end(op: Operation) -> bool:
    """Return True if a slice takes nothing but the ends off rows and pixels."""
    assert isinstance(op, SliceOp)
    shape = shape_of(op.inputs[0])
    ranges = op.ranges(shape)
    return all(taken == range(taken.stop) and len(taken) for taken in ranges) and all(
        len(taken) == extent for taken, extent in zip(ranges[:2], shape, strict=False)
    )


def _orders(split: Operation, swap: Operation, steps: tuple[int, int], outer: int) -> bool:
    """Return True if a reshape and a transpose bring phases from the channels to rows and
    pixels."""
    n, channels, rows, pixels = shape_of(split.inputs[0])
    inner = channels // prod(steps) // outer
    parts = {"n": n, "outer": outer, "s": steps[0], "t": steps[1], "inner": inner}
    parts |= {"rows": rows, "pixels": pixels}
    wanted = ("n", "outer", "inner", "rows", "s", "pixels", "t")
    shape, order = shape_of(split.result), swap.integers("permutation")
    wide = [name for name, extent in parts.items() if extent > 1]
    axes = [axis for axis, extent in enumerate(shape) if extent > 1]
    if [shape[axis] for axis in axes] != [parts[name] for name in wide]:
        return False
    names = dict(zip(axes, wide, strict=True))
    return [names[axis] for axis in order if axis in names] == [w for w in wanted if w in wide]


def _writes_apart(phases: Phases, machine: Machine) -> bool:
    """Return True if every primitive for convolutions can write each phase where it belongs.

    A transfer of one contiguous block (``MoveRecord.block_by_block``) would move one pixel.
    """
    (down, along), shape = phases.steps, phases.image
    primitives = [p for p in machine.primitives if {"conv", "depthwise_conv"} & set(p.operations)]
    for primitive in primitives:
        storage = primitive.operands.get("output")
        layout = machine.layout_of(primitive, "output", 4)
        if storage is None or storage.memory == machine.main or layout == "any":
            return False
        if any(move.own.block_by_block() for move in machine.path(storage.memory, machine.main)):
            return False
        whole = [range(extent) for extent in shape[:2]]
        part = [*whole, range(0, shape[2], down), range(0, shape[3], along)]
        if slice_box(dense_box(layout, shape), part) is None:
            return False
    return bool(primitives)


def _phase(conv: Operation, arrays: Sequence[Array], sizes: list[int], at: Rewriter) -> SSAValue:
    """A phase of ``sizes`` rows and pixels: [channels, ci / group, taps...] weights, and a bias."""
    strides, dilations, pads = (conv.integers(name) for name in ("strides", "dilations", "pads"))
    weight, axes = arrays[0], list[Axis]()
    for i in range(2):
        extent = shape_of(conv.inputs[0])[2 + i]
        alive = np.flatnonzero(
            np.moveaxis(weight, 2 + i, 0).reshape(weight.shape[2 + i], -1).any(1)
        )
        taps = range(int(alive[0]), int(alive[-1]) + 1) if alive.size else range(1)
        axis = fitted(taps, dilations[i], pads[i], extent, sizes[i], strides[i])
        axes.append(axis)
        widths = [(0, 0)] * 4
        widths[2 + i] = (max(0, -axis.taps.start), max(0, axis.taps.stop - weight.shape[2 + i]))
        weight = np.pad(weight, widths)
        kept = [slice(None)] * 4
        first = max(0, axis.taps.start)
        kept[2 + i] = slice(first, first + len(axis.taps))
        weight = weight[tuple(kept)]
    element = tensor_type(conv.result).element_type
    constants = [
        at.of(conv).weight(array, hint, element)
        for array, hint in zip((weight, *arrays[1:]), (".weight", ".bias"), strict=False)
    ]
    return along(conv, axes, constants, at.of(conv))


def fitted(taps: range, dilation: int, above: int, extent: int, results: int, stride: int) -> Axis:
    """An axis of a convolution of these taps alone, with those that it takes for windows that meet
    the image: ``above`` rows of padding lie before an image of ``extent`` rows, and ``results``
    windows are computed. Taps outside of the kernel are zeros.
    """
    first = taps.start * dilation - above  # the row that the first tap of the first window reads
    last = first + (len(taps) - 1) * dilation
    below = first + (results - 1) * stride
    more = max(0, -(last // dilation)) if last < 0 else 0
    fewer = max(0, ceil_div(below - extent + 1, dilation))
    taps = range(taps.start - fewer, taps.stop + more)
    first -= fewer * dilation
    end = first + (results - 1) * stride + (len(taps) - 1) * dilation + 1
    image = range(max(0, first), min(extent, end))
    dilation = dilation if len(taps) > 1 else 1
    return Axis(taps, dilation, (max(0, -first), max(0, end - extent)), image)


def sink_interleave(op: Operation, at: Rewriter) -> bool:
    """map(interleave(x, ...)) = interleave(map(x), ...), so that maps join what computes the parts.

    Other operands of the map are constant along rows and pixels.
    """
    if not isinstance(op, PointwiseOperation) and op.operation != "batch_norm":
        return False
    if not _joins_convolutions(op, at.machine):
        return False
    for index, value in enumerate(op.inputs):
        last, shape = value.owner, shape_of(value)
        join = last
        if isinstance(last, ReshapeOp) and only_user(last.inputs[0]) is last and len(shape) == 3:
            join = last.inputs[0].owner
        if not isinstance(join, InterleaveOp) or only_user(value) is not op:
            continue
        if _as_image(shape) != shape_of(join.result) or shape_of(op.result) != shape:
            continue
        others = _constants(op, index, at)
        if others is None:
            continue
        parts = [
            at.make(op.operation, *others[:index], part, *others[index:], **op.values)
            for part in join.inputs
        ]
        joined = at.make("interleave", *parts, **join.values)
        whole = at.reshaped(joined, shape) if len(shape) == 3 else joined
        unused = [last] if isinstance(last, ReshapeOp) else []
        return at.replace(whole, *unused, join)
    return False


def _joins_convolutions(op: Operation, machine: Machine) -> bool:
    """Return True if a map becomes a part of convolutions whose results it reads."""
    return op.operation in AFFINE or any(
        primitive.epilogue_any or any(op.operation in group for group in primitive.epilogue)
        for primitive in machine.primitives_for("conv")
    )


def _constants(op: Operation, index: int, at: Rewriter) -> list[SSAValue] | None:
    """A map's operands but one, for images; None if they vary along rows or pixels."""
    if op.operation == "batch_norm":
        return list(op.inputs[1:]) if index == 0 else None
    others: list[SSAValue] = []
    for value in [v for i, v in enumerate(op.inputs) if i != index]:
        array = at.constant(value)
        if array is None or per_channel(array, shape_of(op.result), 1) is None:
            return None
        others.append(at.weight(array.reshape(1, -1, 1, 1), ".constant"))
    return others
