"""A tile program taken apart: one chain of loops, the buffers with their depths, one compute."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.errors import refuse
from tilewright.tile.dialect import BufferOp, ComputeOp, LoopOp, MoveOp, ProgramOp, TensorOp


@dataclass(frozen=True)
class Filled:
    """A buffer that is filled, or whose tensor stays, and how many loops step through its boxes."""

    buffer: BufferOp
    depth: int


@dataclass
class Nest:
    """The loops, transfers and compute operation of a tile program."""

    program: ProgramOp
    loops: list[LoopOp] = field(default_factory=list[LoopOp])
    """Outermost first; loops that run once left out."""
    loads: list[Filled] = field(default_factory=list[Filled])
    """In program order; those whose tensors earlier kernels have left come first."""
    output: Filled | None = None
    compute: ComputeOp | None = None


def nest_of(program: ProgramOp) -> Nest:
    """Take a program apart; refuses (``lower-nest``) what is no single chain of loops."""
    nest = Nest(program)
    where = program.symbol.data
    block = program.body.block
    depths: dict[BufferOp, int] = {}
    stores: list[BufferOp] = []
    while True:
        inner: LoopOp | None = None
        for op in block.ops:
            if isinstance(op, TensorOp):
                continue
            if isinstance(op, BufferOp):
                depths[op] = len(nest.loops)
            elif isinstance(op, MoveOp):
                if op.loads:
                    nest.loads.append(Filled(op.buffer, depths[op.buffer]))
                else:
                    stores.append(op.buffer)
            elif isinstance(op, LoopOp) and inner is None and nest.compute is None:
                inner = op
            elif isinstance(op, ComputeOp) and nest.compute is None and inner is None:
                nest.compute = op
            else:
                raise refuse("lower-nest", f"{op.name} stands beside another loop", where)
        if inner is None:
            break
        around = [loop for loop in nest.loops if loop.dim == inner.dim]
        if inner.lower_bound or len(around) > 1 or any(map(_uneven, around, [inner])):
            raise refuse(
                "lower-nest", f"dim {inner.dim.data} has two loops", where,
                "plan the kernel with one level of tiles, or whole ones at the outer level",
            )  # fmt: skip
        nest.loops.append(inner)
        block = inner.body.block
    result = None if nest.compute is None else nest.compute.output.owner
    if isinstance(result, BufferOp) and result.stays is not None:
        stores.append(result)
    if nest.compute is None or len(stores) != 1:
        raise refuse("lower-nest", "a program has one compute and one result", where)
    for buffer in depths:
        if buffer.stays is not None:
            around = [n for n, loop in enumerate(nest.loops) if loop.dim.data in buffer.window.dims]
            depths[buffer] = max(around, default=-1) + 1
    (output,) = stores
    nest.output = Filled(output, depths[output])
    resident = [b for b in depths if b.stays is not None and b is not output]
    nest.loads[:0] = [Filled(buffer, depths[buffer]) for buffer in resident]
    return nest


def _uneven(outer: LoopOp, inner: LoopOp) -> bool:
    """Return True if the outer of two loops over one dim does not step by whole inner tiles."""
    return outer.step_size % inner.step_size > 0 or inner.upper_bound != outer.step_size
