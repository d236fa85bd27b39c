"""Images whose channels lie block by block: the blocks as dims of their own.

A layout such as ``NCHW256c`` keeps 256 channels of all pixels together, then the next 256. Where
every contiguous block of a tile is a transfer of its own (``CambriconMove.linear``), a part of the
channels of many pixels is one transfer then, and not one for each pixel. Lowerings that address
whole axes see such an image as one of an axis more, row-major::

    result [n, co, oh, ow] in NCHW256c:  [n, g, oh, ow, co], with blocks g and 256 channels co
    input  [n, ci, oh, ow] of 1 x 1:     [n, kh, oh, ow, ci], with blocks kh and 256 channels ci

Blocks of results are like groups of a convolution that all read the same channels; blocks of
inputs are like rows of its kernel, one for each block: the weights lie the same as before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilewright.errors import refuse
from tilewright.planning.domain import Affine, Dim, Kernel, Operand, Stage, substitute
from tilewright.planning.layout import Layout

PARALLEL, REDUCED = "g", "kh"
"""The dims of blocks of results, and of blocks that are added up."""

CHANNELS = 1
"""The axis of an image's channels."""

Cuts = dict[str, tuple[str, int]]
"""For each dim that is cut: the dim of its blocks, and channels in a block."""


def layout_of_blocks(size: int) -> str:
    """The layout of images with ``size`` channels in a block."""
    return f"NCHW{size}c"


def block_of(operand: Operand) -> int:
    """Channels in a block of an image; 0 where they are not cut into blocks."""
    factors = Layout.parse(operand.layout, len(operand.shape)).factors
    cut = next((factor.modulus for factor in factors if factor.modulus), 0)
    return cut if cut and operand.layout == layout_of_blocks(cut) else 0


def by_channel_blocks(kernel: Kernel) -> Kernel:
    """The kernel with a dim for the blocks of each image that has some; itself without them.

    Raises TilewrightError (``plan-operand``) where an operand's windows do not allow that.
    """
    cuts: Cuts = {}
    for stage in kernel.stages:
        for operand in (*stage.inputs, stage.output):
            if size := block_of(operand):
                dim = _dim_of(operand, kernel)
                outer = REDUCED if dim in kernel.anchor.reduction else PARALLEL
                if cuts.setdefault(dim, (outer, size)) != (outer, size):
                    raise refuse("plan-operand", f"blocks of two sizes along {dim}", kernel.symbol)
    extents = kernel.anchor.extents
    if any(extents.get(outer, 1) > 1 for outer, _ in cuts.values()):
        raise refuse("plan-operand", "blocks of channels beside groups or rows", kernel.symbol)
    if not cuts:
        return kernel
    return replace(kernel, stages=tuple(_cut(stage, cuts) for stage in kernel.stages))


def _dim_of(operand: Operand, kernel: Kernel) -> str:
    """The dim along an image's channels."""
    access, size = operand.access[CHANNELS], block_of(operand)
    if len(access.terms) != 1 or access.offset or access.terms[0][1] != 1:
        raise refuse("plan-operand", f"channels {access} in blocks", kernel.symbol)
    if operand.shape[CHANNELS] % size:
        raise refuse("plan-operand", f"no whole blocks of {size} channels", kernel.symbol)
    return access.terms[0][0]


def _cut(stage: Stage, cuts: Cuts) -> Stage:
    """A stage over the blocks and what is within them."""
    meaning = {outer: Affine() for outer, _ in cuts.values()}
    meaning |= {dim: Affine(((outer, size), (dim, 1))) for dim, (outer, size) in cuts.items()}
    blocks = {outer: (dim, size) for dim, (outer, size) in cuts.items()}
    dims: list[Dim] = []
    for dim in stage.dims:
        if dim.name in blocks:
            continue
        if dim.name in cuts:
            outer, size = cuts[dim.name]
            dims += [Dim(outer, dim.extent // size, dim.kind), Dim(dim.name, size, dim.kind)]
        else:
            dims.append(dim)
    return replace(
        stage,
        dims=tuple(dims),
        inputs=tuple(_apart(operand, meaning, cuts) for operand in stage.inputs),
        output=_apart(stage.output, meaning, cuts),
    )


def _apart(operand: Operand, meaning: Mapping[str, Affine], cuts: Cuts) -> Operand:
    """An operand over the blocks."""
    size, shape = block_of(operand), operand.shape
    access = tuple(substitute(axis, meaning) for axis in operand.access)
    if size:
        ((dim, _),) = operand.access[CHANNELS].terms
        outer = Affine(((cuts[dim][0], 1),))
        return replace(
            operand,
            shape=(shape[0], shape[CHANNELS] // size, *shape[2:], size),
            access=(access[0], outer, *access[2:], Affine(((dim, 1),))),
            layout="",
        )
    dim = next((name for name, (outer, _) in cuts.items() if outer == REDUCED), "")
    if operand.role == "weight" and dim in operand.access[CHANNELS].dims:
        # The same elements in the same places: a row of the kernel for each block.
        size = cuts[dim][1]
        rows = Affine(((REDUCED, 1),))
        shape = (shape[0], size, shape[CHANNELS] // size, *shape[3:])
        access = (access[0], Affine(((dim, 1),)), rows, *access[3:])
    return replace(operand, shape=shape, access=access)
