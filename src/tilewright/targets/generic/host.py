"""Steps between the accelerator's kernels: host kernels, and operations at the borders.

A step reads its operands from the arenas, where their placements say, and writes its result there.
Whatever only renames addresses (a view that memory planning has resolved) is no step at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from tilewright.errors import refuse
from tilewright.graph.dialect import GraphOperation, KernelOp, NetworkOp, YieldOp
from tilewright.graph.placement import Placement, placement_of
from tilewright.ir import Operation, SSAValue, VerifyException
from tilewright.planning.layout import Layout
from tilewright.targets.base import Arenas, HostStep
from tilewright.types import Array, element_dtype, layout_of, shape_of, tensor_type


def strided(value: SSAValue, arenas: Arenas) -> tuple[Array, Layout]:
    """The physical array of a value, sharing the arena's bytes, and its layout."""
    place: Placement = placement_of(value)
    shape = shape_of(value)
    layout = Layout.parse(layout_of(value), len(shape))
    dtype = element_dtype(tensor_type(value).element_type)
    data = arenas.get(place.arena)
    if data is None:
        raise refuse("package-invalid", f"a value lies in the unknown arena {place.arena}")
    strides = [stride * dtype.itemsize for stride in place.strides]
    try:
        view: Array = np.ndarray(
            layout.physical_shape(shape), dtype, data.data, place.offset, strides
        )
    except (ValueError, TypeError) as error:
        raise refuse("package-invalid", f"a value lies outside {place.arena}: {error}") from error
    return view, layout


def read_value(value: SSAValue, arenas: Arenas) -> Array:
    """The logical array of a value."""
    view, layout = strided(value, arenas)
    return layout.unpack(view, shape_of(value))


def write_value(value: SSAValue, arenas: Arenas, array: Array) -> None:
    """Store the logical array of a value."""
    view, layout = strided(value, arenas)
    view[...] = layout.pack(array)


def is_free(op: GraphOperation) -> bool:
    """Whether an operation outside the kernels has nothing to do: its result is there already.

    That is so when the addresses of the operands' elements, put through the operation, are the
    addresses of the result's elements.
    """
    kinds = [tensor_type(value).element_type for value in (*op.inputs, op.result)]
    arenas = {placement_of(value).arena for value in (*op.inputs, op.result)}
    if len(arenas) != 1 or any(kind != kinds[0] for kind in kinds):
        return False
    if prod(shape_of(op.result)) == 0:
        return True
    moved = op.evaluate(*(_addresses(value) for value in op.inputs))
    return np.array_equal(moved, _addresses(op.result))


def _addresses(value: SSAValue) -> Array:
    """The byte address of every element."""
    place, shape = placement_of(value), shape_of(value)
    layout = Layout.parse(layout_of(value), len(shape))
    size = element_dtype(tensor_type(value).element_type).itemsize
    found: Array = np.full((), place.offset, np.int64)
    for extent, stride in zip(layout.physical_shape(shape), place.strides, strict=True):
        found = found[..., None] + np.arange(extent, dtype=np.int64) * stride * size
    return layout.unpack(found, shape)


MOVES = frozenset(
    f"graph.{name}" for name in ("reshape", "transpose", "slice", "concat", "convert_layout")
)
"""Operations that may turn out free; others compute."""


def steps_of(network: NetworkOp) -> list[tuple[int, Operation]]:
    """The kernels and the operations that are not free, with their places in the block."""
    found: list[tuple[int, Operation]] = []
    for number, op in enumerate(network.block.ops):
        if isinstance(op, KernelOp) or (
            isinstance(op, GraphOperation) and not (op.name in MOVES and is_free(op))
        ):
            found.append((number, op))
    return found


def interpreted(op: Operation) -> HostStep:
    """A step that runs an operation, or the operations of a kernel, by their meaning."""
    if isinstance(op, KernelOp):
        return lambda arenas: _run_kernel(op, arenas)
    if isinstance(op, GraphOperation):
        return lambda arenas: _run_operation(op, arenas)
    raise refuse("package-invalid", f"{op.name} is no step")


def _run_operation(op: GraphOperation, arenas: Arenas) -> None:
    operands = [read_value(value, arenas) for value in op.inputs]
    with np.errstate(all="ignore"):
        write_value(op.result, arenas, op.evaluate(*operands))


def _run_kernel(op: KernelOp, arenas: Arenas) -> None:
    values: dict[SSAValue, Array] = {
        argument: read_value(value, arenas)
        for argument, value in zip(op.body.block.args, op.inputs, strict=True)
    }
    for inner in op.body.block.ops:
        if isinstance(inner, GraphOperation):
            operands = [values[value] for value in inner.inputs]
            with np.errstate(all="ignore"):
                values[inner.result] = inner.evaluate(*operands)
        elif isinstance(inner, YieldOp):
            write_value(op.result, arenas, values[inner.values[0]])
            return
    raise VerifyException(f"kernel {op.symbol.data} yields nothing")


HostBuilder = Callable[[Mapping[int, Operation]], Mapping[int, HostStep]]
"""Makes the steps of operations, by their place in the network's block."""


def build_steps(ops: Mapping[int, Any]) -> dict[int, HostStep]:
    """The steps of some operations."""
    return {number: interpreted(op) for number, op in ops.items()}
