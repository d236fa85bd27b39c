"""Kernels that move elements, as they are planned: over the dims that both orders need.

An operand lies row by row, or as matrices in blocks of 16 columns: Nz, its transpose, heads, or the
planes of an image, whose rows are pixels and whose columns are channels. Axes that are neighbours
in both orders become one. The innermost dim of the result is c, or w where its rows are no whole
blocks of memory; of each outer dim a tile has one index. Where the source has the same innermost
dim, tiles are rows r of it, which are copied; where it has another, p, tiles are transposed::

    x [8, 197, 96] to Nz              d0 = 8, r = 197, c = 96        copied
    x [197, 96] transposed            p = 96, w = 197                transposed
    x [2, 20, 9, 9] to NC1HWC0        d0 = 2, p = 81, c = 20         transposed

What has no such dims (a step along the last axis, short rows in another order) is moved element by
element: rows of one. A look-up is planned as a copy of the rows that it takes, and a padding in
runs w of what its last padded axis and those within it make.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from tilewright.planning.domain import Affine, Dim, Kernel, Operand, with_operands
from tilewright.planning.layout import Factor, Layout
from tilewright.targets.ascend.formats import heads, image, matrices
from tilewright.targets.ascend.machine import BLOCK, CUBE
from tilewright.targets.ascend.vector_primitives import OUTER

MOVES = ("transpose", "slice", "convert_layout", "gather", "pad")
"""Anchors of kernels that move elements."""

MOST_COPIES = 1 << 16
"""Elements that a kernel moves one by one."""

ELEMENT = "element"
"""The dim of one index along which single elements are rows."""


@dataclass(frozen=True)
class Axis:
    """An axis of an operand: the index ``step * dim + offset``, out of ``extent``."""

    dim: str
    extent: int
    step: int = 1
    offset: int = 0


@dataclass
class View:
    """The axes of an operand as they lie in memory, the outermost first."""

    axes: list[Axis]
    kind: str = "rows"
    """``rows``, ``matrices`` in blocks, an ``image``, or the ``planes`` of one, whose rows and
    columns are one axis."""

    def joins(self, number: int) -> bool:
        """Return True if an axis and the next may be one."""
        within = {"rows": 0, "matrices": 2, "planes": 2, "image": 3}[self.kind]
        pixels = self.kind == "image" and number == len(self.axes) - 3
        return pixels or number + 1 < len(self.axes) - within

    def join(self, number: int) -> None:
        """Make one of an axis and the next."""
        if self.kind == "image" and number == len(self.axes) - 3:
            self.kind = "planes"
        outer, inner = self.axes[number : number + 2]
        joined = Axis(outer.dim, outer.extent * inner.extent, 1, outer.offset * inner.extent)
        self.axes[number : number + 2] = [joined]

    def layout(self, width: int) -> str:
        """The layout of an operand with these axes, of elements of ``width`` bytes."""
        rank, rows = len(self.axes), 2 if self.kind == "image" else 1
        if self.kind == "rows":
            return ""
        if self.kind == "matrices":
            return str(matrices(rank, element_bytes=width))
        return str(planes(rank, BLOCK // width, rows))


def planes(rank: int, block: int = CUBE, rows: int = 1) -> Layout:
    """Columns in blocks, each of which has ``rows`` axes of rows, not padded: [c / 16][h w][16]."""
    outer = tuple(Factor(axis) for axis in range(rank - 1 - rows))
    inner = tuple(Factor(axis) for axis in range(rank - 1 - rows, rank - 1))
    return Layout(rank, (*outer, Factor(rank - 1, block), *inner, Factor(rank - 1, 1, block)))


def as_moves(kernel: Kernel) -> Kernel:
    """A kernel that moves elements over these dims; the kernel itself if it moves no elements, or
    has none of these orders."""
    anchor, out = kernel.anchor, kernel.output
    if anchor.operation not in MOVES or any(len(s.inputs) > 1 for s in kernel.stages[1:]):
        return kernel
    if anchor.operation == "gather":
        return _look_up(kernel)
    pads = anchor.attribute("pads", ())
    if isinstance(pads, tuple) and any(pads):
        return _padded(kernel, [int(pad) for pad in pads])
    source, target = (_view(each, anchor.extents) for each in (anchor.inputs[0], out))
    if source is None or target is None:
        return kernel
    _join(source, target)
    same = source.kind == "rows" and source.axes[-1].dim == target.axes[-1].dim
    if target.kind in ("image", "planes") and target.axes[-1].extent % CUBE and same:
        # A copy of the one pixel would bring what lies after its channels; a transpose adds zeros.
        source.axes.append(target.axes[-2])
    return _named(kernel, source, target)


def _outer(axes: Sequence[Axis], kept: int) -> list[Axis]:
    """Axes without those of one index outside of the last ones."""
    split = len(axes) - kept
    return [*(axis for axis in axes[:split] if axis.extent > 1), *axes[split:]]


def _view(operand: Operand, extents: Mapping[str, int]) -> View | None:
    """The view of an operand's axes and layout; None for one that moves do not take."""
    rank, width = len(operand.shape), operand.element_bytes
    axes: list[Axis] = []
    for access, extent in zip(operand.access, operand.shape, strict=True):
        if len(access.terms) > 1:
            return None
        dim, step = access.terms[0] if access.terms else ("", 1)
        alone = extents.get(dim) == 1 < extent
        axes.append(Axis("" if alone else dim, extent, step, access.offset))
    layout = Layout.parse(operand.layout, rank)
    if layout.row_major:
        return View(_outer(axes, 0) or [Axis("", 1)])
    if rank > 1 and layout == matrices(rank, element_bytes=width):
        return View(_outer(axes, 2), "matrices")
    if width == 2 and rank > 1 and layout == matrices(rank, turned=True):
        return View(_outer([*axes[:-2], axes[-1], axes[-2]], 2), "matrices")
    if width == 2 and rank == 4 and layout == Layout.parse(heads(), rank):
        return View(_outer([axes[number] for number in (0, 2, 1, 3)], 2), "matrices")
    if width == 2 and rank == 4 and layout == Layout.parse(image(), rank):
        pixels = _outer(axes[2:], 0) or axes[3:]
        kind = "image" if len(pixels) > 1 else "planes"
        return View([*_outer(axes[:1], 0), *pixels, axes[1]], kind)
    return None


def _join(source: View, target: View) -> None:
    """Make one of axes that are neighbours in both."""
    number = 0
    while number + 1 < len(target.axes):
        outer, inner = target.axes[number : number + 2]
        at = next((n for n, axis in enumerate(source.axes[:-1]) if axis.dim == outer.dim), -1)
        whole = at >= 0 and source.axes[at].step == 1 and source.axes[at + 1] == inner
        if whole and outer.dim and target.joins(number) and source.joins(at):
            target.join(number)
            source.join(at)
            number = max(number - 1, 0)
        else:
            number += 1


def _named(kernel: Kernel, source: View, target: View) -> Kernel:
    """The kernel over the dims of these axes; the kernel as it is where its tiles are neither
    copied nor transposed."""
    width = kernel.output.element_bytes
    blocked = [view.axes[-2].dim for view in (target, source) if view.kind != "rows"]
    names: dict[str, str] = {}
    ragged = _is_ragged(target, width)
    near = target.axes[-2].dim if len(target.axes) > 1 else ""
    last, other = target.axes[-1], source.axes[-1]
    copied = (last.dim, 1) == (other.dim, other.step)
    turned = (
        (not copied and other.step == 1 and width in (2, 4) and bool(last.dim and other.dim))
        and (not ragged or near == other.dim)
        and (target.kind == "rows" or near == other.dim)
        and (source.kind == "rows" or source.axes[-2].dim == last.dim)
    )
    if copied:
        row = blocked[0] if blocked else near
        if any(other != row for other in blocked):
            return kernel
        names |= {row: "r"} if row and (not ragged or row == near) else {}
    elif turned:
        names[other.dim] = "p"
        for view, dim in ((source, last.dim), (target, other.dim)):
            if all(axis.dim != dim for axis in view.axes):
                view.axes.insert(-1, Axis(dim, 1))
    elif blocked or prod(axis.extent for axis in target.axes) > MOST_COPIES:
        return kernel
    else:
        names |= {last.dim: "r", ELEMENT: "c"}
        for view in (source, target):
            view.axes.append(Axis(ELEMENT, 1))
    names.setdefault(last.dim, "w" if ragged else "c")
    return _restated(kernel, source, target, names)


def _is_ragged(view: View, width: int) -> bool:
    """Return True if a result has several rows, which are no whole blocks."""
    *outer, inner = view.axes
    several = prod(axis.extent for axis in outer) > 1
    return view.kind == "rows" and several and inner.extent * width % BLOCK > 0


def _restated(kernel: Kernel, source: View, target: View, names: Mapping[str, str]) -> Kernel:
    """The kernel over dims of these names; others are outer ones."""
    free = iter(OUTER)
    kept = [axis for axis in target.axes if axis.dim]
    known = {axis.dim: names.get(axis.dim) or next(free, "") for axis in kept}
    if "" in known.values():
        return kernel
    dims = tuple(Dim(known[axis.dim], axis.extent) for axis in kept)
    anchor = replace(kernel.anchor, inputs=kernel.anchor.inputs[:1])

    def restated(operand: Operand) -> Operand:
        view = source if operand.name == anchor.inputs[0].name else target
        access = tuple(
            Affine(((known[axis.dim], axis.step),) if axis.dim in known else (), axis.offset)
            for axis in view.axes
        )
        shape = tuple(axis.extent for axis in view.axes)
        layout = view.layout(operand.element_bytes)
        return replace(operand, shape=shape, access=access, layout=layout)

    stages = (anchor, *kernel.stages[1:])
    stages = tuple(replace(stage, dims=dims or (Dim("r", 1),)) for stage in stages)
    return with_operands(replace(kernel, stages=stages), restated)


def parts_of(kernel: Kernel) -> tuple[int, ...]:
    """The parts in which a kernel over dims of its own stores a row of its result: the row, or of
    one that is padded what lies around it, too."""
    out, source = kernel.output, kernel.anchor.inputs[0]
    whole = out.shape[-1]
    if kernel.anchor.operation != "pad" or not any(axis.offset for axis in source.access):
        return (whole,)
    first, count = -source.access[-1].offset, source.shape[-1]
    return first, count, whole - first - count


def _padded(kernel: Kernel, amounts: Sequence[int]) -> Kernel:
    """A padding in runs of what its last padded axis and those within it make."""
    source, out = kernel.anchor.inputs[0], kernel.output
    rank = len(out.shape)
    last = max(axis for axis in range(rank) if amounts[axis] or amounts[rank + axis])
    views = View([]), View([])
    for view, operand, sign in zip(views, (source, out), (-1, 0), strict=True):
        if operand.layout:
            return kernel
        for axis in range(last):
            if out.shape[axis] > 1:
                offset = sign * amounts[axis]
                view.axes.append(Axis(str(axis), operand.shape[axis], 1, offset))
        inner = prod(operand.shape[last + 1 :])
        extent, offset = operand.shape[last] * inner, sign * amounts[last] * inner
        view.axes.append(Axis(str(last), extent, 1, offset))
    return _restated(kernel, *views, {str(last): "w"})


def _look_up(kernel: Kernel) -> Kernel:
    """A look-up as a copy of the rows that it takes."""
    table, out = kernel.anchor.inputs[0], kernel.output
    indices = len(kernel.anchor.inputs[1].shape)
    reduced = kernel.anchor.reduction
    at = next(n for n, access in enumerate(table.access) if {*access.dims} & {*reduced})
    parts = out.shape[:at], out.shape[at : at + indices], out.shape[at + indices :]
    axes = [Axis(str(number), prod(part)) for number, part in enumerate(parts)]
    if table.layout or out.layout or table.element_bytes not in (1, 2, 4):
        return kernel
    axes = [*(axis for axis in axes[:1] if axis.extent > 1), *axes[1:]]
    return _named(kernel, View(axes), View([*axes]))
