"""A pool after a kernel's anchor: windows that lie whole within a tile are reduced there.

An anchor whose tiles have the results ``th*T + r`` along an axis, r < T, gives windows of P results
that are P apart one result each: ``th*(T/P) + pr`` with pr = r // P, if P divides T. So the pool
needs no element of another tile, and what it reads never leaves the registers. Results after the
last whole window are dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilewright.planning.domain import Affine, Dim, Stage


def windows_of(pool: Stage) -> tuple[int, ...] | None:
    """A pool's window along each axis, 1 where it has none.

    None if windows overlap, lie apart or reach into padding.
    """
    sizes: list[int] = []
    image, result = pool.inputs[0], pool.output
    for axis, (source, target) in enumerate(zip(image.access, result.access, strict=True)):
        terms = dict(source.terms)
        apart = terms.pop(target.dims[0], 0)
        window = 1
        for tap, step in terms.items():
            window *= pool.extents[tap] if step == 1 else 0
        inside = not source.offset and window * result.shape[axis] <= image.shape[axis]
        if window != apart or not inside:
            return None
        sizes.append(window)
    return tuple(sizes)


def pooled(anchor: Stage, pool: Stage) -> tuple[Stage, Stage] | None:
    """The anchor with the dims that a pool of its result has, and the pool over its dims.

    A dim ``r`` of results of a tile gets a dim ``pr`` of pooled ones beside it. Tiles that hold no
    whole window are left out. None where windows reach from one tile into another, and for anchors
    whose results do not come in tiles of a fixed extent.
    """
    windows = windows_of(pool)
    if windows is None:
        return None
    extents, added, access = dict(anchor.extents), list[Dim](), list[Affine]()
    for number, window in enumerate(windows):
        axis = anchor.output.access[number]
        if window == 1:
            access.append(axis)
            continue
        inner = _within_a_tile(axis, extents)
        each = extents.get(inner, 1) // window
        outer = tuple((name, step // window) for name, step in axis.terms if name != inner)
        if not each or any(step % window for name, step in axis.terms if name != inner):
            return None
        access.append(Affine((*outer, (f"p{inner}", 1))))
        added.append(Dim(f"p{inner}", each))
        (tiles, _), *_ = outer
        extents[tiles] = min(extents[tiles], -(-pool.output.shape[number] // each))
    dims = [replace(dim, extent=extents[dim.name]) for dim in anchor.dims]
    reductions = [dim for dim in dims if dim.kind == "reduction"]
    fresh = replace(anchor, dims=(*(d for d in dims if d not in reductions), *added, *reductions))
    return fresh, _restated(fresh, pool, tuple(access))


def _within_a_tile(axis: Affine, extents: Mapping[str, int]) -> str:
    """The dim of an axis ``tiles * T + dim`` with an extent of T; "" for any other axis."""
    match axis.terms:
        case ((_, step), (inner, 1)) if step == extents[inner] and not axis.offset:
            return inner
        case _:
            return ""


def _restated(anchor: Stage, pool: Stage, access: tuple[Affine, ...]) -> Stage:
    """The pool over the anchor's dims: what it reads is what the anchor has computed."""
    source = replace(pool.inputs[0], access=anchor.output.access)
    result = replace(pool.output, access=access)
    dims = [Dim(dim.name, dim.extent) for dim in anchor.dims if dim.name in result.dims]
    for dim in anchor.dims:
        if dim.name in source.dims - result.dims:
            dims.append(Dim(dim.name, dim.extent, "reduction"))
    return replace(pool, dims=tuple(dims), inputs=(source,), output=result)
