"""Launches of products and convolutions: one kernel of the cube, from the tile program."""

from __future__ import annotations

import numpy as np

from tilewright.ir.types import Array
from tilewright.planning.chains.plans import kernels_of
from tilewright.planning.domain import Operand
from tilewright.targets.ascend.attention import LAST_DIMS, WEIGHTS
from tilewright.targets.ascend.formats import padded
from tilewright.targets.ascend.lowering.cube import cube_kernel
from tilewright.targets.ascend.lowering.depthwise import diagonals
from tilewright.targets.ascend.lowering.launches import Launches, Value
from tilewright.tile.dialect import ProgramOp

LARGEST = 65_504.0
"""The largest number of half precision."""

DEPTHWISE = ("depthwise_conv",)
"""The operations whose weights are diagonals."""


def product(launches: Launches, program: ProgramOp) -> None:
    """The launches of a kernel whose anchor the cube computes, with all that follows it."""
    kernel = launches.kernel
    anchors = [each.anchor for each in kernels_of(kernel)]
    operands = {operand.name: operand for operand in kernel.inputs}
    diagonal = {o.name for each in anchors if each.operation in DEPTHWISE for o in each.inputs}
    masks = {o.name for each in anchors if each.operation == WEIGHTS for o in each.inputs}
    check_weights(launches)
    values: list[Value] = []
    for symbol, tensor in program.tensors.items():
        operand = operands.get(symbol)
        if tensor.role.data == "internal":
            continue
        if operand is None:
            values.append(launches.result())
        elif operand.role == "bias" and operand.element != "int32" and symbol not in masks:
            values.append(_row(launches, operand, np.float16))
        elif operand.element in ("int32", "float32"):
            values.append(_row(launches, operand))
        elif operand.role == "weight" and symbol in diagonal:
            values.append(launches.constant(diagonals(_constant(launches, operand))))
        else:
            values.append(launches.operand(operand))
    name = launches.name("_".join(anchor.operation for anchor in anchors))
    free = launches.free
    if masks:
        free = frozenset(LAST_DIMS.get(dim, dim) for dim in free)
    launches.launch(cube_kernel(program, launches.core, name, free=free), *values)


def _constant(launches: Launches, operand: Operand) -> Array:
    """The elements of an operand, which has to be one of the network's constants."""
    data = launches.known.get(operand.name)
    if data is None:
        raise launches.refusal(f"{operand.name} is computed, and has to be constant here")
    return data


def _row(launches: Launches, operand: Operand, kind: type[np.float16] | None = None) -> Value:
    """A number for each column, padded to whole blocks with zeros; of another ``kind``, if one is
    given."""
    data = _constant(launches, operand)
    row = np.zeros(padded(data.size), kind or data.dtype)
    row[: data.size] = data.ravel()
    return launches.constant(row)


def check_weights(launches: Launches) -> None:
    """Refuse constants that half precision does not hold; those of products were cut at its largest
    number when they were converted."""
    for operand in (o for each in kernels_of(launches.kernel) for o in each.anchor.inputs):
        data = launches.known.get(operand.name)
        if data is None or np.issubdtype(data.dtype, np.integer):
            continue
        largest = np.abs(data.astype(np.float32)).max(initial=0)
        if largest >= LARGEST:
            raise launches.refusal(
                f"weights {operand.name} are as large as {largest:g} or larger; half precision "
                f"ends at {LARGEST:g}",
                "scale the weights down and the results up (a Mul after the product)",
            )
