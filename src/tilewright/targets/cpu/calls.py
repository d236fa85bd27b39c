"""The call of a kernel's C, from its tile program."""

from __future__ import annotations

from math import prod

from tilewright.codegen.host.calls import KernelCall
from tilewright.codegen.program.interface import CompiledKernel
from tilewright.errors import refuse
from tilewright.ir.types import element_dtype, shape_of, tensor_type
from tilewright.targets.cpu.walk import kernel_source
from tilewright.tile.dialect import TensorOp, programs_of


def call_of(kernel: CompiledKernel, lanes: int) -> KernelCall:
    """Return the call of a kernel that has a tile program; ``lanes`` is the width of a vector.

    Raises TilewrightError.
    """
    if kernel.program is None:
        raise refuse("cpu-program", "has no tile program", kernel.kernel.symbol)
    source = kernel_source(kernel.program, lanes)
    tensors = programs_of(kernel.program)[0].tensors
    places = {
        name: (op.arena.data, op.offset.value.data)
        for name, op in tensors.items()
        if op.arena is not None and op.offset is not None
    }
    scratch = {name: _bytes(op) for name, op in tensors.items() if op.role.data == "scratch"}
    return KernelCall(kernel, source, places, scratch)


def _bytes(op: TensorOp) -> int:
    element = element_dtype(tensor_type(op.result).element_type)
    return prod(shape_of(op.result)) * element.itemsize
