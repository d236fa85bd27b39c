"""Moves that gather windows to their instructions."""

from __future__ import annotations

from typing import Any

from tilewright.codegen.program.locations import BufferPlace, TensorPlace, dim_stride
from tilewright.errors import refuse
from tilewright.targets.generic.families.gather import POINTS
from tilewright.tile.iteration import Order
from tilewright.tile.operations import BufferOp, ComputeOp, MoveOp

_SPATIAL = (("h", "oh", "kh", "row", "rows"), ("w", "ow", "kw", "column", "columns"))


def gather_columns(
    move: MoveOp, order: Order, buffer: BufferPlace, outer: TensorPlace | BufferPlace
) -> dict[str, Any]:
    """The fields of every execution of a move that gathers windows of ``outer``."""
    window, rows = buffer.op.outer_window, order.rows(move)
    image, gathered = buffer.read_by(move), buffer.seen_by(move)
    columns: dict[str, Any] = {"element": buffer.element}
    if buffer.op.fill is not None:
        columns["fill"] = buffer.op.padding
    known, named = buffer.op.window.dims, _names(buffer.op)
    unknown = sorted(known - set(named.values()))
    if unknown:
        raise refuse("lower-rank", f"img2col has no dims {', '.join(unknown)}", buffer.name)
    columns |= {dim: rows.size(name) if name in known else 1 for dim, name in named.items()}

    def stride(access: Any, strides: Any, point: str) -> int:
        dim = named[point]
        single = dim not in known or int(rows.size(dim).max(initial=1)) <= 1
        return 0 if single else dim_stride(access, strides, dim)

    spatial: list[int] = []
    for axis, point, window_point, low, extent in _SPATIAL:
        out, tap = named[point], named[window_point]
        place = next((n for n, index in enumerate(window) if {out, tap} & set(index.dims)), None)
        if place is None:
            continue
        spatial.append(place)
        terms = dict(window[place].terms)
        columns[f"stride.{axis}"] = terms.get(out, 1)
        columns[f"dilation.{axis}"] = terms.get(tap, 1)
        columns[f"source.{axis}"] = outer.strides[place]
        first: Any = 0
        columns[extent] = buffer.op.outer_shape[place]
        if isinstance(outer, BufferPlace):
            seen = outer.seen_by(move)
            first, columns[extent] = seen.start[place], seen.lengths[place]
        columns[low] = image.start[place] - first
    for axis, dim in (("n", "n"), ("g", "g"), ("c", "ci")):
        columns[f"source.{axis}"] = stride(window, outer.strides, dim)
    if isinstance(outer, BufferPlace):
        if outer.op.circular is not None:
            raise refuse("lower-place", "img2col does not support circular buffers", outer.name)
        columns["source.address"] = outer.seen_by(move).address(image, skip=spatial)
    else:
        columns["source.address"] = outer.address + sum(
            image.clamped_start[axis] * step
            for axis, step in enumerate(outer.strides)
            if axis not in spatial
        )
    columns["target.address"] = gathered.address(buffer.moved_by(move))
    for dim in POINTS:
        columns[f"target.{dim}"] = stride(buffer.op.window.data, buffer.strides, dim)
    return columns


def _names(buffer: BufferOp) -> dict[str, str]:
    """The program's names of the dims of windows: those of chains differ from the primitive's."""
    computes = [use.operation.parent_op() for use in buffer.result.uses]
    compute = next((op for op in computes if isinstance(op, ComputeOp)), None)
    names = {} if compute is None else compute.dim_names
    return {dim: names.get(dim, dim) for dim in POINTS}
