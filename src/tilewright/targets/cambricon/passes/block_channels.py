"""block-channels: which images keep their channels block by block in main memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tilewright.graph.dialect import KernelOp, network_of
from tilewright.graph.operations.convolution import ConvOp
from tilewright.graph.operations.pooling import AveragePoolOp, PoolOperation
from tilewright.graph.passes.assign_layouts import retype_kernel
from tilewright.graph.passes.editing import compiler
from tilewright.graph.passes.layout_choices import operand_roles
from tilewright.graph.passes.reanchoring import plain_kernel
from tilewright.ir import Context, ModuleOp, ModulePass
from tilewright.ir.types import layout_of, shape_of
from tilewright.machine import Machine
from tilewright.planning import Planner
from tilewright.planning.cost.bounds import granule_bound
from tilewright.planning.planners.schedules import agreeing
from tilewright.planning.space.join_pixels import join_pixels, moves_blocks
from tilewright.targets.cambricon.planning.channel_blocks import by_channel_blocks, layout_of_blocks

PARTS = (2, 4, 8, 16)
"""Into how many blocks channels are cut."""

LEAST = 2
"""Granules of channels in a block at least: shorter products hide no scalar instructions."""

FAR = 1.05
"""Times their granule bounds, what kernels take together that are worth a look."""

GAIN = 0.99
"""Part of the cycles that blocks must leave to be taken."""


@dataclass(frozen=True)
class BlockChannels(ModulePass):
    """Keep the channels of an image in blocks where its tiles are fewer transfers then.

    Before::

        %1 = graph.kernel "k0" (%x, %w) { graph.conv ... } : ... -> tensor<1x1024x14x14, "NHWC">
        %2 = graph.kernel "k1" (%1, %v) { graph.conv, 1 x 1 }

    After::

        %1 = graph.kernel "k0" (%x, %w) : ... -> tensor<1x1024x14x14, "NCHW256c">

    Where every contiguous block of a tile is a transfer of its own (``CambriconMove.linear``), a
    part of the channels of many pixels is a transfer for each pixel, unless these channels lie
    together. Convolutions give their results so (planning/channel_blocks.py), and those with
    windows of one pixel, and means of whole images, read them. A residual lies as the result does
    that it is added to. So images form groups that are laid out alike, or not at all if something
    else reads or writes one of them. Each group gets the blocks with which the planner expects its
    kernels to take the fewest cycles together, if these are fewer by a margin.
    """

    name = "block-channels"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrite the module in place."""
        machine = compiler(ctx).machine
        if not moves_blocks(machine):
            return
        pricing = _Pricing(machine)
        for writers in _groups(network_of(op).kernels):
            pricing.choose(writers)


@dataclass
class _Pricing:
    """Cycles of kernels as the planner expects them."""

    machine: Machine

    def __post_init__(self) -> None:
        self.planner = Planner(self.machine)

    def choose(self, writers: list[KernelOp]) -> None:
        """Lay out the results of a group of kernels, or leave them as they are."""
        plain, sizes = layout_of(writers[0].result), self._sizes(shape_of(writers[0].result)[1])
        if not sizes:
            return
        kernels = _around(writers)
        least, bound = self._cycles(kernels), self._bound(kernels)
        if least < FAR * bound:
            return
        least, best = GAIN * least, plain
        for size in sizes:
            _lay(writers, layout_of_blocks(size))
            cycles = self._cycles(kernels)
            if cycles < least:
                least, best = cycles, layout_of_blocks(size)
        _lay(writers, best)

    def _sizes(self, channels: int) -> list[int]:
        granules = [
            primitive.multiples.get("co", 1) for primitive in self.machine.primitives_for("conv")
        ]
        granule = max(granules, default=1)
        sizes = [channels // parts for parts in PARTS if channels % parts == 0]
        return [size for size in sizes if size % granule == 0 and size >= LEAST * granule]

    def _cycles(self, kernels: Iterable[KernelOp]) -> float:
        described = (by_channel_blocks(plain_kernel(kernel)) for kernel in kernels)
        return sum(self.planner.cycles(join_pixels(each, self.machine)) for each in described)

    def _bound(self, kernels: Iterable[KernelOp]) -> float:
        described = [plain_kernel(kernel) for kernel in kernels]
        return sum(
            min(
                granule_bound(described_kernel, self.machine, part)
                for part in agreeing(described_kernel, self.machine)
            )
            for described_kernel in described
        )


def _around(writers: Iterable[KernelOp]) -> list[KernelOp]:
    """These kernels, and those that read their results."""
    around: dict[KernelOp, None] = {}
    for kernel in writers:
        for neighbour in (kernel, *(use.operation for use in kernel.result.uses)):
            assert isinstance(neighbour, KernelOp)
            around[neighbour] = None
    return list(around)


def _lay(writers: Iterable[KernelOp], layout: str) -> None:
    """Give the results of kernels a layout, and what they and their readers have of them."""
    for kernel in writers:
        retype_kernel(kernel, layout)
    for kernel in _around(writers):
        retype_kernel(kernel, layout_of(kernel.result))


def _groups(kernels: Iterable[KernelOp]) -> list[list[KernelOp]]:
    """Kernels whose results must lie alike, and may lie in blocks, in the network's order."""
    allowed: dict[KernelOp, bool] = {}
    leader: dict[KernelOp, KernelOp] = {}

    def first(kernel: KernelOp) -> KernelOp:
        while kernel in leader:
            kernel = leader[kernel]
        return kernel

    for kernel in kernels:
        allowed[kernel] = _writes_blocks(kernel) and all(
            isinstance(use.operation, KernelOp) and _reads_blocks(use.operation, use.index)
            for use in kernel.result.uses
        )
        for value, roles in zip(kernel.inputs, operand_roles(kernel), strict=True):
            if "residual" not in roles:
                continue
            if not isinstance(value.owner, KernelOp):
                allowed[kernel] = False
            elif (ahead := first(value.owner)) is not (reader := first(kernel)):
                leader[reader] = ahead
    groups: dict[KernelOp, list[KernelOp]] = {}
    for kernel in allowed:
        groups.setdefault(first(kernel), []).append(kernel)
    return [group for group in groups.values() if all(allowed[member] for member in group)]


def _writes_blocks(kernel: KernelOp) -> bool:
    """Return True if a kernel may write its result in blocks of channels."""
    anchor, *maps = kernel.operations
    shape = shape_of(kernel.result)
    return (
        not kernel.on_host
        and isinstance(anchor, ConvOp)
        and anchor.integer("group", 1, 2**24) == 1
        and not any(isinstance(step, PoolOperation) for step in maps)
        and len(shape) == 4
        and layout_of(kernel.result) == "NHWC"
        and shape[2] * shape[3] > 1
    )


def _reads_blocks(kernel: KernelOp, index: int) -> bool:
    """Return True if a kernel may read an operand in blocks of channels."""
    if kernel.on_host:
        return False
    anchor, image = kernel.operations[0], shape_of(kernel.inputs[index])
    roles = operand_roles(kernel)[index]
    if roles == ["residual"]:
        return _writes_blocks(kernel) and shape_of(kernel.result) == image
    if roles != ["input"]:
        return False
    if isinstance(anchor, ConvOp):
        points = shape_of(anchor.inputs[1])[2:] == (1, 1) and not any(anchor.integers("pads"))
        return points and anchor.integer("group", 1, 2**24) == 1
    if isinstance(anchor, AveragePoolOp):
        whole = anchor.integers("kernel") == image[2:] and not any(anchor.integers("pads"))
        return whole and shape_of(kernel.result)[2:] == (1, 1)
    return False
