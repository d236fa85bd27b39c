"""fuse-pools: a pool whose windows lie within its producer's tiles joins the producer's kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.graph.dialect import KernelOp, WeightOp, network_of
from tilewright.graph.operations import Operation
from tilewright.graph.operations.pooling import MaxPoolOp, PoolOperation
from tilewright.graph.passes.constraints import candidate, serving
from tilewright.graph.passes.editing import compiler, erase, only_user
from tilewright.graph.passes.enclosing import copied, enclose_with
from tilewright.graph.passes.fuse_pointwise import MAPS
from tilewright.graph.passes.reanchoring import anchor_operands
from tilewright.ir import Context, ModuleOp, ModulePass, bf16, f16, f32
from tilewright.ir.types import shape_of, tensor_type
from tilewright.machine import Machine
from tilewright.machine.fusions import fusion_of
from tilewright.planning.space.pooling import pooled
from tilewright.targets.cpu.planning.capabilities import own_of


@dataclass(frozen=True)
class FusePools(ModulePass):
    """Reduce the windows of a pool before the results that it reads are written.

    Before::

        %1 = graph.kernel "k0_conv1" (%x, %w, %s, %b) {
          %2 = graph.winograd_conv %x, %w, %s, %b {pads = [1, 1, 1, 1], tile = 4} ...
          %3 = graph.relu %2 : ... -> tensor<1x64x224x224xf32>
        %4 = graph.kernel "k1_pool1" (%1) {
          %5 = graph.max_pool %1 {kernel = [2, 2], strides = [2, 2]} ...

    After::

        %4 = graph.kernel "k0_conv1" (%x, %w, %s, %b) {
          %2 = graph.winograd_conv %x, %w, %s, %b {pads = [1, 1, 1, 1], tile = 4} ...
          %3 = graph.relu %2 : ... -> tensor<1x64x224x224xf32>
          %5 = graph.max_pool %3 {kernel = [2, 2], strides = [2, 2]} ...

    DNNVM fuses pools after convolutions in the same way (section 4.1.3). Where the machine has the
    pattern, it is done wherever it can be, as it takes nothing: the same sums and comparisons in
    the same order, one write and one read of the image less. It can be where a primitive reduces
    windows of its results (``CpuPrimitive.pools``), these are as far apart as they
    are wide, lie whole within its tiles and in the image, nothing else reads the image, all numbers
    are floats (of 32 bits for a mean), and the maps in between have constants per channel as their
    only other operands. So it comes after choose-methods, which decides on tiles.
    """

    name = "fuse-pools"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrite the module in place."""
        machine = compiler(ctx).machine
        for kernel in network_of(op).kernels:
            first = _front(kernel, machine)
            if first is not None:
                _join(first, kernel)


def _front(kernel: KernelOp, machine: Machine) -> KernelOp | None:
    """The kernel whose results a pool's kernel reduces, if both can be one."""
    pool = kernel.anchor
    if kernel.on_host or not isinstance(pool, PoolOperation):
        return None
    if fusion_of(machine, "conv", pool.operation) is None:
        return None
    image = anchor_operands(kernel)[0]
    first = image.owner
    if not isinstance(first, KernelOp) or first.on_host or only_user(image) is not kernel:
        return None
    return None if pool_objection(first, kernel, machine) else first


def pool_objection(first: KernelOp, kernel: KernelOp, machine: Machine) -> str:
    """The reason why the first kernel's tiles cannot reduce the windows of the pool that begins the
    second; "" if they can."""
    anchor, *maps = first.operations
    pool = kernel.anchor
    assert isinstance(anchor, Operation) and isinstance(pool, PoolOperation)
    if not _mapped_alone(first, maps):
        return "what follows the first one's results reads more than constants per channel"
    results = [*(op.result for op in first.operations), pool.result]
    # The largest of what is rounded to 16 bits is the same in 32; a mean would be rounded later.
    floats = (f32, f16, bf16) if isinstance(pool, MaxPoolOp) else (f32,)
    if any(tensor_type(value).element_type not in floats for value in results):
        return "not all numbers are floats of 32 bits"
    stages = [candidate(op).stage for op in (anchor, pool)]
    reduces = [pool.operation in own_of(p).pools for p in serving(candidate(anchor), machine)]
    if not reduces or not all(reduces):
        return f"no primitive for {candidate(anchor).operation} reduces windows of {pool.operation}"
    if None in stages or pooled(*stages) is None:  # type: ignore[arg-type]
        return "windows do not lie whole within its tiles, side by side"
    return ""


def _mapped_alone(kernel: KernelOp, maps: Sequence[object]) -> bool:
    """Return True if a kernel's maps have no other operands than constants per channel."""
    outer = kernel.outside
    for op in maps:
        if not isinstance(op, MAPS):
            return False
        for value in op.inputs:
            constant = outer.get(value)
            if constant is not None and not (
                isinstance(constant.owner, WeightOp)
                and all(extent == 1 for extent in (*shape_of(value)[:-3], *shape_of(value)[-2:]))
            ):
                return False
    return True


def _join(first: KernelOp, kernel: KernelOp) -> None:
    """Both kernels' operations as one kernel in the place of the second, under the first's name."""
    chain = copied(first.operations, first, {}, kernel)
    chain += copied(kernel.operations, kernel, {first.result: chain[-1].result}, kernel)
    joined = enclose_with(chain, first.properties)
    joined.result.name_hint = kernel.result.name_hint
    kernel.result.replace_all_uses_with(joined.result)
    erase(kernel)
    erase(first)
