"""Kernels as they are planned: over a machine's own dims, their operands where they lie.

Operands may be parts of larger tensors in main memory. What is written straight into a
concatenation, or read out of a slice, is not contiguous: in NHWC the channels of a part are one
block for each pixel. Where a machine's moves price blocks (``Move.prices_blocks``), planning is
told so by the strides of the operand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tilewright.machine import Machine
from tilewright.planning.domain import Kernel, Operand, with_operands
from tilewright.planning.layout import Layout
from tilewright.planning.own import FormsKernels
from tilewright.planning.space.join_pixels import join_pixels


def as_planned(
    kernel: Kernel, machine: Machine, strides: Mapping[str, Sequence[int]] | None = None
) -> Kernel:
    """The kernel with the dims that the machine cuts it along, one for all pixels where the machine
    gains by that, and the strides of operands that are not dense.

    ``strides`` is as ``as_parts`` takes it.
    """
    strides, own = strides or {}, machine.own
    if not kernel.producers:
        kernel = own.formed(kernel, machine) if isinstance(own, FormsKernels) else kernel
        kernel = join_pixels(kernel, machine, strides)
    return as_parts(kernel, strides, machine)


def as_parts(kernel: Kernel, strides: Mapping[str, Sequence[int]], machine: Machine) -> Kernel:
    """The kernel with the strides of its operands that are not dense; itself where no move prices
    blocks.

    ``strides`` has, by operand name, those of the layout's axes in main memory, in elements; an
    operand that it leaves out is dense, and so is one that the kernel has with other axes.
    """
    if not any(move.prices_blocks for move in machine.moves):
        return kernel

    def operand(plain: Operand) -> Operand:
        given = tuple(strides.get(plain.name, ()))
        if len(given) != len(Layout.parse(plain.layout, len(plain.shape)).factors):
            return plain
        return plain if not given or is_dense(plain, given) else replace(plain, strides=given)

    return with_operands(kernel, operand)


def is_dense(operand: Operand, strides: Sequence[int]) -> bool:
    """Return True if strides are those of a tensor of its own; axes of one index do not matter."""
    layout = Layout.parse(operand.layout, len(operand.shape))
    extents, dense = layout.physical_shape(operand.shape), layout.strides(operand.shape)
    return all(
        extent == 1 or given == expected
        for extent, given, expected in zip(extents, strides, dense, strict=True)
    )
