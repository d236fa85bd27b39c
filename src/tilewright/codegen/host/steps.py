"""Steps between the accelerator's kernels: host kernels, and operations at the borders.

Host kernels that compute are C. What only moves or converts elements, what the host compiler
refuses, and everything where there is no C compiler, runs by its meaning in NumPy.

A step reads its operands from the arenas, where their placements say, and writes its result there.
Whatever only renames addresses (a view that memory planning has resolved) is no step at all.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np

from tilewright.codegen.c.compiler import has_compiler
from tilewright.codegen.host.compiler import host_compiler
from tilewright.codegen.program.interface import Compilation, HostStep
from tilewright.errors import TilewrightError, refuse
from tilewright.graph.arenas import Arenas, read_value, write_value
from tilewright.graph.dialect import KernelOp, NetworkOp, YieldOp, network_of
from tilewright.graph.operation import Operation
from tilewright.graph.operations.loops import loop_in
from tilewright.graph.placement import placement_of
from tilewright.ir import Operation as AnyOperation
from tilewright.ir import SSAValue, VerifyException
from tilewright.ir.types import Array, element_size, layout_of, shape_of, tensor_type
from tilewright.numerics.operators import operators
from tilewright.planning.layout import Layout


def is_free(op: Operation) -> bool:
    """Return True if a host operation has nothing to do since its result is already in place.

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
    size = element_size(tensor_type(value).element_type)
    addresses: Array = np.full((), place.offset, np.int64)
    for extent, stride in zip(layout.physical_shape(shape), place.strides, strict=True):
        addresses = addresses[..., None] + np.arange(extent, dtype=np.int64) * stride * size
    return layout.unpack(addresses, shape)


MOVES = frozenset(f"graph.{name}" for name in (*operators("view", "join"), "convert_layout"))
"""Operations that may turn out free; others compute."""


def steps_of(network: NetworkOp) -> list[tuple[int, AnyOperation]]:
    """The kernels and the operations that are not free, with their places in the block."""
    steps: list[tuple[int, AnyOperation]] = []
    for number, op in enumerate(network.block.ops):
        if isinstance(op, KernelOp) or (
            isinstance(op, Operation) and not (op.name in MOVES and is_free(op))
        ):
            steps.append((number, op))
    return steps


def kernel_steps(network: NetworkOp, code: str) -> list[KernelOp]:
    """The steps of a network that has kernels alone; refuses (``code``) any other operation."""
    kernels: list[KernelOp] = []
    for _, op in steps_of(network):
        if not isinstance(op, KernelOp):
            where = op.node_name if isinstance(op, Operation) else ""
            raise refuse(code, f"no kernel computes {op.name}", where)
        kernels.append(op)
    return kernels


def interpreted(op: AnyOperation) -> HostStep:
    """A step that runs an operation, or the operations of a kernel, by their meaning."""
    if isinstance(op, KernelOp):
        return lambda arenas: _run_kernel(op, arenas)
    if isinstance(op, Operation):
        return lambda arenas: _run_operation(op, arenas)
    raise refuse("package-invalid", f"{op.name} is no step")


def _run_operation(op: Operation, arenas: Arenas) -> None:
    operands = [read_value(value, arenas) for value in op.inputs]
    with np.errstate(all="ignore"):
        write_value(op.result, arenas, op.evaluate(*operands))


def _run_kernel(op: KernelOp, arenas: Arenas) -> None:
    values: dict[SSAValue, Array] = {
        argument: read_value(value, arenas)
        for argument, value in zip(op.body.block.args, op.inputs, strict=True)
    }
    for inner in op.body.block.ops:
        if isinstance(inner, Operation):
            operands = [values[value] for value in inner.inputs]
            with np.errstate(all="ignore"):
                values[inner.result] = inner.evaluate(*operands)
        elif isinstance(inner, YieldOp):
            write_value(op.result, arenas, values[inner.values[0]])
            return
    raise VerifyException(f"kernel {op.symbol.data} yields nothing")


MOVED = MOVES | frozenset(
    f"graph.{name}"
    for name in (
        *("quantise", "dequantise", "requantise", "cast", "copy", "pad"),
        *("quantise_linear", "dequantise_linear", "look_up"),
    )
)
"""Operations that only move or convert elements: the runner does them in NumPy, exactly."""


def computes(op: AnyOperation) -> bool:
    """Return True if an operation or kernel does more than move and convert elements."""
    if isinstance(op, KernelOp):
        return any(inner.name not in MOVED for inner in op.operations)
    return op.name not in MOVED


def emit_kernels(compilation: Compilation, directory: Path) -> None:
    """Write the host's kernels as C, through the host compiler, as far as it computes them.

    Kernels that it refuses (fixed point, say) and those that only move elements are left to
    ``interpreted``.
    """
    network = network_of(compilation.network)
    ops = {op.symbol.data: op for op in network.kernels}
    kept = tuple(
        item
        for item in compilation.kernels
        if item.on_host and computes(op := ops[item.kernel.symbol]) and loop_in(op) is None
    )
    host = replace(compilation, kernels=kept)
    host_compiler().emit(host, directory, refused=lambda symbol: None)


def load_kernels(directory: Path) -> dict[str, HostStep]:
    """The host's kernels in C by symbol; none where there is neither a library nor a compiler."""
    try:
        return dict(host_compiler().load(directory))
    except TilewrightError:
        if has_compiler():
            raise
        return {}
