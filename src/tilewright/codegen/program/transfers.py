"""Moves as transfers of strided boxes: the columns of addresses, sizes and strides."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.codegen.program.locations import BufferPlace, TensorPlace
from tilewright.codegen.words import Column
from tilewright.errors import refuse
from tilewright.tile.boxes import Boxes
from tilewright.tile.iteration import Order
from tilewright.tile.operations import MoveOp

AXES = 4
"""Axes of the box of a transfer."""

Place = TensorPlace | BufferPlace
"""An end of a move."""


def transfer_columns(
    move: MoveOp,
    order: Order,
    buffer: BufferPlace,
    outer: Place,
    joined: tuple[MoveOp, BufferPlace, Place] | None,
) -> dict[str, Any]:
    """The fields of every execution of a move between a buffer and what it is of, ``outer``, and of
    the move that travels with it."""
    for place in (buffer, outer):
        if isinstance(place, BufferPlace) and place.op.circular is not None:
            raise refuse("lower-place", "transfers do not support circular buffers", place.name)
    seen, boxes = buffer.seen_by(move), buffer.moved_by(move)
    columns: dict[str, Any] = {"element": buffer.element}
    ends = ("source", "target") if move.loads else ("target", "source")
    columns[f"{ends[0]}.address"] = _address(outer, move, boxes)
    columns[f"{ends[1]}.address"] = seen.address(boxes)
    axes = _axes(buffer, outer, boxes.clamped_size)
    for number, (size, outwards, inwards) in enumerate(axes):
        columns[f"size{number}"] = size
        columns[f"{ends[0]}.stride{number}"] = outwards
        columns[f"{ends[1]}.stride{number}"] = inwards
    if joined is not None:
        other, place, source = joined
        _second_run(columns, ends, other, order, place, source)
    return columns


def _address(place: Place, move: MoveOp, boxes: Boxes) -> Column:
    """Address of the first index of boxes, in main memory or in a buffer on the way to it."""
    if isinstance(place, BufferPlace):
        return place.seen_by(move).address(boxes)
    address: Column = np.full(boxes.clamped_start.shape[1], place.address, np.int64)
    for axis, stride in enumerate(place.strides):
        address = address + boxes.clamped_start[axis] * stride
    return address


def _axes(buffer: BufferPlace, outer: Place, lengths: Any) -> list[tuple[Any, int, int]]:
    """Size, stride further out and stride in the buffer, outermost first; at most AXES."""
    shape = buffer.op.tensor_shape
    ranked = sorted(range(len(shape)), key=lambda a: (-outer.strides[a], a))
    axes = [(lengths[a], outer.strides[a], buffer.strides[a]) for a in ranked if shape[a] != 1]
    if len(axes) > AXES:  # one index at a time needs no axis
        axes = [axis for axis in axes if np.max(axis[0], initial=1) > 1]
    merged: list[tuple[Any, int, int]] = []
    for size, outwards, inwards in axes:
        if merged:
            before, outwards_before, inwards_before = merged[-1]
            # Two axes are one where the inner is always whole and the outer follows it.
            whole = int(size.min(initial=1)) == int(size.max(initial=1))
            extent = int(size[0]) if size.size else 1
            follows = outwards_before == outwards * extent and inwards_before == inwards * extent
            if whole and follows and len(axes) > AXES:
                merged[-1] = (before * size, outwards, inwards)
                continue
        merged.append((size, outwards, inwards))
    if len(merged) > AXES:
        raise refuse(
            "lower-rank",
            f"a box of {len(merged)} axes; transfers have {AXES}",
            buffer.name,
        )
    empty = np.ones(lengths.shape[1], np.int64)
    # A box that lies wholly outside has size 0 along an axis that may be left out.
    nothing = (lengths == 0).any(axis=0)
    if not merged:
        return [(np.where(nothing, 0, empty), 0, 0)]
    size, outwards, inwards = merged[0]
    merged[0] = (np.where(nothing, 0, size), outwards, inwards)
    return merged


def _second_run(
    columns: dict[str, Any],
    ends: tuple[str, str],
    move: MoveOp,
    order: Order,
    place: BufferPlace,
    outer: Place,
) -> None:
    """The joined move's box, which must be one run of bytes."""
    seen = place.seen_by(move)
    lengths, shape = seen.lengths, place.op.tensor_shape
    run = place.element
    length = np.full(lengths.shape[1], place.element, np.int64)
    several = 0
    for axis, stride in enumerate(outer.strides):
        length = length * lengths[axis]
        if shape[axis] != 1:
            several += 1
            if stride != run or place.strides[axis] != run:
                several = 2
    if several > 1:
        raise refuse("lower-joined", "is moved with another but is not contiguous", place.name)
    columns["extra.bytes"] = length
    columns[f"extra.{ends[0]}"] = _address(outer, move, place.moved_by(move))
    columns[f"extra.{ends[1]}"] = seen.base
