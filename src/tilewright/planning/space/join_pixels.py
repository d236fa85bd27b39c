"""Kernels whose pixels need not be told apart by rows: one dim for two where that says the same.

A convolution with windows of one pixel treats an image as a row of pixels. Where the rows lie
one after another in main memory, a tile of it may begin and end in the middle of a row, and is one
contiguous block still::

    56 x 56 pixels, by rows:   tiles of 56, or of parts of a row: 28, 19, 14, ...
    one row of 3136 pixels:    tiles of any size

That is of use where every contiguous block of a tile is a transfer of its own
(``MoveRecord.block_by_block``): tiles fill the memory, and fewer of them pay a latency. It is so
too where tiles may have any number of pixels, as they take as many cycles whatever their rows are;
but for images that the machine's cores divide by rows and columns alone
(``own.StartsCores``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tilewright.machine import Machine, Primitive
from tilewright.machine.expression import parse_expression
from tilewright.planning.domain import Dim, Kernel, Operand, Stage
from tilewright.planning.layout import Layout
from tilewright.planning.own import StartsCores

ROWS, COLUMNS = "oh", "ow"
"""The dims of a convolution's pixels."""


def join_pixels(
    kernel: Kernel, machine: Machine, strides: Mapping[str, Sequence[int]] | None = None
) -> Kernel:
    """The kernel over one row of all pixels; itself where that is not possible, or of no use.

    ``strides`` has, by operand name, those of the physical axes in main memory, in elements; an
    operand that it leaves out is dense. They hold for the joined kernel, too.
    """
    extents = kernel.anchor.extents
    several = extents.get(ROWS, 1) > 1 and extents.get(COLUMNS, 1) > 1
    operands = {
        operand.name: operand
        for stage in kernel.stages
        for operand in (*stage.inputs, stage.output)
    }
    if kernel.anchor.operation != "conv" or not several or not joins_rows(machine):
        return kernel
    own = machine.own
    if isinstance(own, StartsCores) and not own.joins_pixels(extents[ROWS], extents[COLUMNS]):
        return kernel
    known = strides or {}
    if not all(_joins(operand, extents, known.get(operand.name)) for operand in operands.values()):
        return kernel
    return replace(kernel, stages=tuple(_joined(stage, extents) for stage in kernel.stages))


def joins_rows(machine: Machine) -> bool:
    """Return True if convolutions gain by one row of all pixels: where blocks move one by one, or
    the time of a tile depends only on its number of pixels."""
    return moves_blocks(machine) or all(
        _counts_pixels(primitive, machine) for primitive in machine.primitives_for("conv")
    )


def _counts_pixels(primitive: Primitive, machine: Machine) -> bool:
    """Return True if a primitive reads images on the chip, and only the number of its pixels
    matters."""
    image = primitive.operands.get("input")
    if image is None or image.memory == machine.main:
        return False
    asked = {*primitive.multiples, *primitive.limits, *primitive.whole, *primitive.extents}
    if asked & {ROWS, COLUMNS} or primitive.sizes == "fixed":
        return False
    cycles = parse_expression(primitive.cycles)
    apart, joined = (
        cycles.evaluate({**dict.fromkeys(cycles.names, 1), ROWS: rows, COLUMNS: columns})
        for rows, columns in ((3, 37), (1, 111))
    )
    return apart == joined


def moves_blocks(machine: Machine) -> bool:
    """Return True if images of convolutions move by transfers of one contiguous block each."""
    blocks = [
        storage.memory
        for primitive in machine.primitives
        if "conv" in primitive.operations and (storage := primitive.operands.get("input"))
    ]
    return bool(blocks) and all(
        memory != machine.main and machine.path(machine.main, memory)[0].own.block_by_block()
        for memory in blocks
    )


def _axes(operand: Operand) -> tuple[int | None, int | None]:
    """The axes along which an operand's pixels lie."""
    rows, columns = (
        next(
            (axis for axis, expression in enumerate(operand.access) if dim in expression.dims), None
        )
        for dim in (ROWS, COLUMNS)
    )
    return rows, columns


def _joins(operand: Operand, extents: Mapping[str, int], strides: Sequence[int] | None) -> bool:
    """Return True if an operand's pixels are all contiguous, or it is the same for each of them."""
    rows, columns = _axes(operand)
    if rows is None and columns is None:
        return True
    if rows is None or columns is None or rows == columns:
        return False
    for dim, axis in ((ROWS, rows), (COLUMNS, columns)):
        terms = [term for term in operand.access[axis].terms if extents.get(term[0], 1) > 1]
        if terms != [(dim, 1)] or operand.access[axis].offset:
            return False
        if operand.shape[axis] != extents[dim]:
            return False
    layout = Layout.parse(operand.layout, len(operand.shape))
    if any(factor.modulus or factor.divisor != 1 for factor in layout.factors):
        return False
    apart = dict(
        zip(
            (factor.axis for factor in layout.factors),
            layout.strides(operand.shape) if strides is None else strides,
            strict=True,
        )
    )
    return apart[rows] == apart[columns] * operand.shape[columns]


def _joined(stage: Stage, extents: Mapping[str, int]) -> Stage:
    """A stage whose columns are all pixels."""
    sizes = {ROWS: 1, COLUMNS: extents[ROWS] * extents[COLUMNS]}
    return replace(
        stage,
        dims=tuple(Dim(dim.name, sizes.get(dim.name, dim.extent), dim.kind) for dim in stage.dims),
        inputs=tuple(_flat(read, sizes) for read in stage.inputs),
        output=_flat(stage.output, sizes),
    )


def _flat(operand: Operand, sizes: Mapping[str, int]) -> Operand:
    """An operand of one row of pixels."""
    rows, columns = _axes(operand)
    if rows is None or columns is None:
        return operand
    shape = list(operand.shape)
    shape[rows], shape[columns] = sizes[ROWS], sizes[COLUMNS]
    return replace(operand, shape=tuple(shape))
