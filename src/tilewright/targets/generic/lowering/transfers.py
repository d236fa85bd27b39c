"""Moves to transfer instructions."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.errors import refuse
from tilewright.targets.generic.families.transfer import AXES
from tilewright.targets.generic.fields import Column
from tilewright.targets.generic.lowering.locations import BufferPlace, TensorPlace
from tilewright.tile.iteration import Order
from tilewright.tile.operations import MoveOp


def transfer_columns(
    move: MoveOp,
    order: Order,
    buffer: BufferPlace,
    tensor: TensorPlace,
    joined: tuple[MoveOp, BufferPlace, TensorPlace] | None,
) -> dict[str, Any]:
    """The fields of every execution of a move, and of the move that travels with it."""
    rows = order.rows(move)
    seen, boxes = buffer.seen_by(move), buffer.moved_by(move)
    start, held = boxes.clamped_start, boxes.clamped_size
    main: Column = np.full(rows.count, tensor.address, np.int64)
    for axis, stride in enumerate(tensor.strides):
        main = main + start[axis] * stride
    columns: dict[str, Any] = {"element": buffer.element}
    ends = ("source", "target") if move.loads else ("target", "source")
    columns[f"{ends[0]}.address"] = main
    columns[f"{ends[1]}.address"] = seen.address(boxes)
    axes = _axes(buffer, tensor, held)
    for number, (size, outer, inner) in enumerate(axes):
        columns[f"size{number}"] = size
        columns[f"{ends[0]}.stride{number}"] = outer
        columns[f"{ends[1]}.stride{number}"] = inner
    if joined is not None:
        other, place, source = joined
        _second_run(columns, ends, other, order, place, source)
    return columns


def _axes(buffer: BufferPlace, tensor: TensorPlace, held: Any) -> list[tuple[Any, int, int]]:
    """Size, stride in main memory and stride in the buffer, outermost first; at most AXES."""
    ranked = sorted(range(len(tensor.shape)), key=lambda a: (-tensor.strides[a], a))
    axes = [(held[a], tensor.strides[a], buffer.strides[a]) for a in ranked if tensor.shape[a] != 1]
    if len(axes) > AXES:  # one index at a time needs no axis
        axes = [axis for axis in axes if np.max(axis[0], initial=1) > 1]
    merged: list[tuple[Any, int, int]] = []
    for size, outer, inner in axes:
        if merged:
            before, outer_before, inner_before = merged[-1]
            # Two axes are one where the inner is always whole and the outer follows it.
            whole = int(size.min(initial=1)) == int(size.max(initial=1))
            extent = int(size[0]) if size.size else 1
            follows = outer_before == outer * extent and inner_before == inner * extent
            if whole and follows and len(axes) > AXES:
                merged[-1] = (before * size, outer, inner)
                continue
        merged.append((size, outer, inner))
    if len(merged) > AXES:
        raise refuse(
            "lower-rank",
            f"a box of {len(merged)} axes; transfers have {AXES}",
            buffer.name,
        )
    empty = np.ones(held.shape[1], np.int64)
    # A box that lies wholly outside has size 0 along an axis that may be left out.
    nothing = (held == 0).any(axis=0)
    if not merged:
        return [(np.where(nothing, 0, empty), 0, 0)]
    size, outer, inner = merged[0]
    merged[0] = (np.where(nothing, 0, size), outer, inner)
    return merged


def _second_run(
    columns: dict[str, Any],
    ends: tuple[str, str],
    move: MoveOp,
    order: Order,
    place: BufferPlace,
    tensor: TensorPlace,
) -> None:
    """The joined move's box, which must be one run of bytes."""
    seen = place.seen_by(move)
    start, held = seen.start, seen.held
    main: Column = np.full(held.shape[1], tensor.address, np.int64)
    run = place.element
    length = np.full(held.shape[1], place.element, np.int64)
    several = 0
    for axis, stride in enumerate(tensor.strides):
        main = main + start[axis] * stride
        length = length * held[axis]
        if tensor.shape[axis] != 1:
            several += 1
            if stride != run or place.strides[axis] != run:
                several = 2
    if several > 1:
        raise refuse("lower-joined", "travels with another move but is not one run", place.name)
    columns["extra.bytes"] = length
    columns[f"extra.{ends[0]}"] = main
    columns[f"extra.{ends[1]}"] = seen.base
