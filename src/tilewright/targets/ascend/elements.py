"""Elementwise kernels as they are planned: over the dims that their operands need, and no others.

Operands of one shape and layout are taken as they lie in main memory, with what pads their blocks:
a row of elements e, or o rows of them that are whole blocks of memory. Of operands that broadcast,
the dims along which they do so alike become one. The last two that are left are rows and columns of
tiles, of matrices in Nz, too; of each outer one a tile has one index::

    x [8, 197, 100] + y [8, 197, 100]    e = 157600
    x [8, 197, 100] + y [100]            r = 1576, w = 100
    x [8, 197, 96] + y [8, 1, 96]        d0 = 8, r = 197, c = 96

Rows that are no whole blocks, w, are whole in a tile: each writes up to 30 bytes after its end. Of
rows l some operand has one element each, which is spread over a block. A single number is a block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from math import prod
from operator import itemgetter

from tilewright.codegen.nest.value import Value, least
from tilewright.planning.domain import Affine, Dim, Kernel, Operand, Stage, with_operands
from tilewright.planning.layout import Layout
from tilewright.targets.ascend.formats import image, matrices, padded
from tilewright.targets.ascend.isa import LANES
from tilewright.targets.ascend.kernels.folds import FOLD_OF
from tilewright.targets.ascend.machine import BLOCK, CUBE
from tilewright.targets.ascend.moves import MOVES, parts_of, planes
from tilewright.targets.ascend.program import LENGTH
from tilewright.targets.ascend.vector_primitives import (
    CHOICES,
    OUTER,
    POINTS,
    QUANTISED,
    SUMMED,
)

ELEMENTWISE = (*POINTS, "cast", *CHOICES, *QUANTISED)
"""Anchors of kernels that are computed element by element."""

NORMAL = ("softmax", "layer_norm")
"""Anchors of kernels that take whole rows, or columns."""

WALKED = (*ELEMENTWISE, *NORMAL, *FOLD_OF, *MOVES)
"""Anchors of the vector unit's kernels but pools."""

DIMS = frozenset((*OUTER, *SUMMED, *"oerlcwp", "axis"))
"""The dims over which kernels are planned."""

Shape = tuple[int, ...]

Forms = dict[str, tuple[Shape, str]]
"""Shape and layout of operands, by name."""


def is_flat(kernel: Kernel) -> bool:
    """Return True if a kernel takes its elements as they lie."""
    return "e" in kernel.anchor.extents


def is_ragged(kernel: Kernel) -> bool:
    """Return True if a kernel stores several rows, or parts of them, of no whole blocks: each
    writes a few bytes after its end."""
    out = kernel.output
    if kernel.anchor.operation not in WALKED or is_flat(kernel) or out.layout:
        return False
    several = [d for d in kernel.anchor.dims if d.kind == "parallel" and d.extent > 1]
    parts = parts_of(kernel)
    return len(several) > 1 and any(part * out.element_bytes % BLOCK for part in parts)


def as_elements(kernel: Kernel) -> Kernel:
    """An elementwise kernel over these dims; the kernel itself if it has another operation, or
    reads in other ways."""
    anchor, out = kernel.anchor, kernel.output
    if anchor.operation not in ELEMENTWISE or any(len(s.inputs) > 1 for s in kernel.stages[1:]):
        return kernel
    if not all(_aligned(operand, out) for operand in anchor.inputs):
        return kernel
    several = [o for o in anchor.inputs if prod(o.shape) > 1]
    if all(_form(operand) == _form(out) for operand in several):
        dims, forms = _flat([*several, out])
    elif all(_in_rows(operand) for operand in (*several, out)):
        dims, forms = _rows(several, out)
    elif all(_is_image(operand) and _in_planes(operand, out) for operand in (*several, out)):
        dims, forms = _planes([*several, out])
    else:
        return kernel
    return _restated(kernel, dims, forms)


def _restated(kernel: Kernel, dims: tuple[Dim, ...], forms: Forms) -> Kernel:
    """A kernel over other dims, with operands of these forms, the others like the result, or single
    numbers."""
    out = kernel.output
    names = tuple(Affine(((dim.name, 1),)) for dim in dims)

    def restated(operand: Operand) -> Operand:
        shape, layout = forms.get(operand.name, forms[out.name])
        if operand.name not in forms and prod(operand.shape) == 1 < prod(out.shape):
            shape, layout = (), ""
        skipped = len(dims) - len(shape) if shape else 0
        pairs = zip(shape, names[skipped:], dims[skipped:], strict=False)
        access = tuple(name if n == dim.extent else Affine() for n, name, dim in pairs)
        return replace(operand, shape=shape, access=access, layout=layout)

    stages = tuple(replace(stage, dims=dims) for stage in kernel.stages)
    return with_operands(replace(kernel, stages=stages), restated)


def as_rows(kernel: Kernel) -> Kernel:
    """A softmax or layer normalisation over rows r and their axis, or over columns of an axis of
    rows l; any other kernel as it is."""
    anchor, out = kernel.anchor, kernel.output
    if anchor.operation not in NORMAL or any(len(s.inputs) > 1 for s in kernel.stages[1:]):
        return kernel
    source, *lines = anchor.inputs
    shape, layout = _form(out)
    axis = next(n for n, access in enumerate(source.access) if "axis" in access.dims)
    before, extent, inner = shape[:axis], shape[axis], prod(shape[axis + 1 :])
    if _form(source) != (shape, layout):
        return kernel
    if _in_nz(out) and axis == len(shape) - 1:
        sizes = {"d0": prod(before[:-1]), "r": before[-1], "axis": extent}
    elif not layout.row_major:
        return kernel
    elif inner == 1:
        sizes = {"r": prod(before), "axis": extent}
    else:
        ragged = inner * out.element_bytes % BLOCK != 0
        sizes = {"d0": prod(before), "l": extent, "w" if ragged else "c": inner}
    reduced = {"axis", "l"}
    dims = tuple(Dim(n, e, "reduction" if n in reduced else "parallel") for n, e in sizes.items())
    form = tuple(sizes.values()), str(matrices(len(dims))) if _in_nz(out) else ""
    forms = dict.fromkeys((source.name, out.name), form)
    return _restated(kernel, dims, forms | {line.name: (line.shape, "") for line in lines})


def as_folds(kernel: Kernel) -> Kernel:
    """A reduction over runs of neighbouring axes, each one dim: of the last two, rows r and their
    axis, or an axis of rows l and columns; any other kernel as it is. Pools of whole images are
    reductions of their pixels."""
    anchor, out, source = kernel.anchor, kernel.output, kernel.anchor.inputs[0]
    if anchor.operation in ("max_pool", "average_pool") and _sees_all(anchor):
        maximum = anchor.operation == "max_pool"
        of = "reduce_max" if maximum else "reduce_mean"
        anchor = replace(anchor, operation=of, attributes=(("skips", maximum),))
        planes = out.shape[0] * (padded(out.shape[1]) // CUBE)
        runs = [(False, planes), (True, prod(source.shape[2:])), (False, CUBE)]
    elif anchor.operation in FOLD_OF and _form(source)[1].row_major and _form(out)[1].row_major:
        axes = zip(source.shape, source.access, strict=True)
        several = [(not {*axis.dims}.isdisjoint(anchor.reduction), n) for n, axis in axes if n > 1]
        runs = [(kind, prod(n for _, n in run)) for kind, run in groupby(several, itemgetter(0))]
    else:
        return kernel
    if not any(reduced for reduced, _ in runs):
        runs = [(True, 1), *(runs or [(False, 1)])]
    elif all(reduced for reduced, _ in runs):
        runs = [(False, 1), *runs]
    last = ("l", "c") if runs[-2][0] else ("r", "axis")
    free = {True: iter(SUMMED), False: iter(OUTER)}
    names = [*(next(free[reduced]) for reduced, _ in runs[:-2]), *last]
    dims = tuple(
        Dim(name, extent, "reduction" if reduced else "parallel")
        for name, (reduced, extent) in zip(names, runs, strict=True)
    )
    kept = tuple(dim for dim in dims if dim.kind == "parallel")

    def restated(operand: Operand) -> Operand:
        of = dims if operand.name == source.name else kept
        access = tuple(Affine(((dim.name, 1),)) for dim in of)
        shape = tuple(dim.extent for dim in of)
        return replace(operand, shape=shape, access=access, layout="")

    stages = replace(anchor, dims=dims), *(replace(s, dims=kept) for s in kernel.stages[1:])
    return with_operands(replace(kernel, stages=stages), restated)


def _sees_all(pool: Stage) -> bool:
    """Return True if the one window of a pool is the whole image."""
    source, pads = pool.inputs[0], pool.attribute("pads", ())
    padding = isinstance(pads, tuple) and any(pads)
    return pool.attribute("kernel") == source.shape[2:] and source.layout == image() and not padding


def _aligned(operand: Operand, result: Operand) -> bool:
    """Return True if axes are those of the result from the last on, or broadcast."""
    axes = zip(
        reversed(operand.shape), reversed(operand.access), reversed(result.access), strict=False
    )
    return all(extent == 1 or first == other for extent, first, other in axes)


def _form(operand: Operand) -> tuple[Shape, Layout]:
    return operand.shape, Layout.parse(operand.layout, len(operand.shape))


def _flat(operands: Sequence[Operand]) -> tuple[tuple[Dim, ...], Forms]:
    """The dims of operands of one form."""
    shape, layout = _form(operands[0])
    physical = layout.physical_shape(shape)
    # Rows of a matrix, or all pixels of a block of channels: what a length counts lies within.
    inner = prod(physical[-2:] if layout.row_major else physical[-3:])
    outer = prod(physical) // inner
    if any(inner * operand.element_bytes % BLOCK for operand in operands):
        outer, inner = 1, outer * inner
    dims = (Dim("o", outer), Dim("e", inner))[outer == 1 :]
    form = tuple(dim.extent for dim in dims), ""
    return dims, {operand.name: form for operand in operands}


def _in_nz(operand: Operand) -> bool:
    rank = len(operand.shape)
    layout = matrices(rank, element_bytes=operand.element_bytes) if rank > 1 else None
    return bool(operand.layout) and _form(operand)[1] == layout


def _is_image(operand: Operand) -> bool:
    layout = image(operand.element_bytes)
    return len(operand.shape) == 4 and _form(operand)[1] == Layout.parse(layout, 4)


def _in_planes(operand: Operand, out: Operand) -> bool:
    """Return True if an image has all channels of the result, and all of its pixels or one."""
    (_, channels, *sides), (_, of, *whole) = operand.shape, out.shape
    return channels == of and (sides == whole or prod(sides) == 1)


def _planes(operands: Sequence[Operand]) -> tuple[tuple[Dim, ...], Forms]:
    """The dims of images whose blocks of channels differ, or of which some broadcast: pixels are
    rows, and columns are channels with what pads their blocks, which a convolution reads, too."""
    shapes = [
        (count, prod(sides), padded(channels))
        for count, channels, *sides in (o.shape for o in operands)
    ]
    dims = tuple(Dim(*pair) for pair in zip(("d0", "r", "c"), shapes[-1], strict=True))
    forms = {
        o.name: (shape, str(planes(3, BLOCK // o.element_bytes)))
        for o, shape in zip(operands, shapes, strict=True)
    }
    return dims, forms


def _in_rows(operand: Operand) -> bool:
    """Return True if an operand lies row by row, or its matrices are in Nz, with columns."""
    return (_in_nz(operand) and operand.shape[-1] > 1) or _form(operand)[1].row_major


def _rows(operands: Sequence[Operand], out: Operand) -> tuple[tuple[Dim, ...], Forms]:
    """The dims of operands of several forms."""
    every = [*operands, out]
    blocks = any(map(_in_nz, every))
    extents, shapes = merged(out.shape, [o.shape for o in every], matrices=blocks)
    spread = any(shape[-1] < extents[-1] for shape in shapes)
    whole = not blocks and extents[-1] * out.element_bytes % BLOCK == 0
    outer = [f"d{number}" for number in range(len(extents) - 2)]
    names = (*outer, "l" if spread else "r", "c" if blocks or whole else "w")
    dims = tuple(Dim(*pair) for pair in zip(names, extents, strict=True))

    def layout(operand: Operand) -> str:
        of = matrices(len(dims), element_bytes=operand.element_bytes)
        return str(of) if _in_nz(operand) else ""

    return dims, {o.name: (shape, layout(o)) for o, shape in zip(every, shapes, strict=True)}


def merged(
    result: Shape, operands: Sequence[Shape], *, matrices: bool = False
) -> tuple[Shape, list[Shape]]:
    """Extents of as few dims as tell the operands' broadcasts; shapes all of one rank, two at
    least.

    The last two dims of ``matrices`` stay as they are.
    """
    rank = len(result)
    whole = [(1,) * (rank - len(shape)) + shape for shape in operands]
    kept = rank - 2 if matrices else rank
    extents: list[int] = []
    patterns: list[tuple[bool, ...]] = []
    for axis, extent in enumerate(result):
        pattern = tuple(shape[axis] == extent for shape in whole)
        if extent == 1 and axis < kept:
            continue
        if patterns and patterns[-1] == pattern and axis < kept:
            extents[-1] *= extent
        else:
            extents.append(extent)
            patterns.append(pattern)
    while len(extents) < 2:
        extents.insert(0, 1)
        patterns.insert(0, (True,) * len(operands))
    columns = zip(*patterns, strict=True)
    shapes = [
        tuple(extent if own else 1 for extent, own in zip(extents, column, strict=True))
        for column in columns
    ]
    return tuple(extents), shapes


def ended(kernel: Kernel, formed: Kernel, free: frozenset[str]) -> Mapping[str, Value]:
    """The number of indices that a launch has of dims of a formed kernel, where of dims ``free`` of
    the kernel it has ``LENGTH``; nothing where no dim says it, and all are computed."""
    out, extents = kernel.output, formed.anchor.extents
    axes = [axis for axis, access in enumerate(out.access) if free.intersection(access.dims)]
    shape, layout = _form(out)
    if len(axes) != 1 or kernel.anchor.operation in CHOICES:
        return {}
    (axis,) = axes
    if "r" in extents and kernel.anchor.operation == "convert_layout":
        # Tiles of rows of a matrix, as they become Nz or rows again.
        return {"r": LENGTH} if axis == len(shape) - 2 and "p" not in extents else {}
    if "r" in extents and kernel.anchor.operation in NORMAL:
        # Tiles are whole; those after the length are left out.
        if _in_nz(out):
            return {"r": LENGTH} if axis == len(shape) - 2 else {}
        alone = prod(shape[:axis]) == 1
        return {"r": LENGTH * prod(shape[axis + 1 : -1])} if alone and axis < len(shape) - 1 else {}
    if not is_flat(formed):
        return {}
    rows, longest = LENGTH, shape[axis]
    if layout.row_major:
        outer, inner = prod(shape[:axis]), prod(shape[axis + 1 :])
    elif _in_nz(out) and axis == len(shape) - 2:
        outer, inner = prod(layout.physical_shape(shape)[:-3]), CUBE
        rows, longest = (LENGTH + (CUBE - 1)) // CUBE * CUBE, padded(longest)
    else:
        return {}
    if extents["e"] == longest * inner:
        # Whole repeats: what lies after them is in the tensor, too.
        size = (rows * inner + (LANES - 1)) // LANES * LANES
        return {"e": least(size, extents["e"])}
    if outer == 1 and "o" in extents and inner % extents["e"] == 0 == extents["e"] % LANES:
        return {"o": rows * (inner // extents["e"])}
    return {}
