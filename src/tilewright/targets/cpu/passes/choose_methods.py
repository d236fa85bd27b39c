"""choose-methods: which of a processor's methods computes each convolution, and each product."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.graph.dialect import KernelOp
from tilewright.graph.operations.convolution import ConvOp
from tilewright.graph.operations.matrix import MatMulOp
from tilewright.graph.passes.memory_room import NetworkMemory
from tilewright.graph.passes.methods import MethodChoice, Priced, worthwhile
from tilewright.graph.passes.reanchoring import plain_kernel
from tilewright.ir.passes import CompilerContext
from tilewright.planning import planner_in
from tilewright.planning.canonical import canonical
from tilewright.targets.cpu.passes.methods import (
    SCRATCH_CACHES,
    most_scratch,
    piece_counts,
    priced_methods,
    rewritten,
)

SCRATCH_SHARE = 0.25
"""Part of the memory to spare that scratch may take at most; weights have what it leaves."""


@dataclass(frozen=True)
class ChooseMethods(MethodChoice):
    """Compute convolutions by the method that the planner expects to be fastest.

    Before::

        %1 = graph.kernel "k0" (%x, %w, %b) {
          %2 = graph.conv %x, %w, %b {pads = [1, 1, 1, 1]} ...
          %3 = graph.relu %2

    After::

        %u = graph.weight ... : tensor<64x64x6x6xf32>
        %s = graph.scratch : tensor<70000xf32>
        %1 = graph.kernel "k0" (%x, %u, %b, %s) {
          %2 = graph.winograd_conv %x, %u, %s, %b {pads = [1, 1, 1, 1], tile = 4} ...
          %3 = graph.relu %2

    swATOP (section 3) chooses among its methods in the same way: by predicted time. Every form that
    a primitive of the machine serves is planned, with the layouts that the primitive asks for, and
    is a choice if it is faster than the direct method by a margin. Weights that are transformed
    here, in float64, are up to seven times as many bytes. Scratch as large as the cache before the
    last one may go beyond the memory to spare in small networks, where it gains much.

    Where a machine has matrix tiles, convolutions without groups, and matrix products, may be in
    pieces of bfloat16 (``graph.piece_conv``, ``graph.piece_matmul``): in three, as exact as
    float32, or, where the machine allows it, in two, on weights that are split here. Convolutions
    with computed weights are left alone, and those of machines that have primitives for neither.
    """

    name = "choose-methods"

    def options(
        self, memory: NetworkMemory, context: CompilerContext, room: int
    ) -> dict[KernelOp, list[Priced]]:
        """The methods of every kernel that has a choice; kernels alike are asked about once."""
        machine = context.machine
        most = 4 * most_scratch(machine)
        near = most // SCRATCH_CACHES
        tiles = piece_counts(machine, rough=True)
        anchors = (ConvOp, MatMulOp) if tiles else (ConvOp,)
        planner = planner_in(context).by_cost()
        known: dict[object, list[Priced]] = {}
        options: dict[KernelOp, list[Priced]] = {}
        for kernel, live in memory.live.items():
            anchor = kernel.anchor
            if kernel.on_host or not isinstance(anchor, anchors):
                continue
            unused = memory.activations - live
            spare = unused + int(SCRATCH_SHARE * room)
            elements = min(most, max(spare, near) if not self.method else most) // 4
            pads = anchor.integers("pads") if isinstance(anchor, ConvOp) else ()
            key = canonical(plain_kernel(kernel))[0], pads, elements
            if key not in known:
                known[key] = priced_methods(kernel, machine, elements, planner)
            direct, *others = known[key]
            faster = [m for m in others if self.method or worthwhile(m, direct, unused + room)]
            if faster:
                options[kernel] = [direct, *faster]
        return options

    def rewrite(self, kernel: KernelOp, method: Priced, context: CompilerContext) -> None:
        """Rewrite the kernel in place into the form of the method."""
        rewritten(kernel, method.form, method.scratch, context)

    def weight_room(self, context: CompilerContext, room: int) -> int:
        """Return the bytes that scratch leaves for weights of the given room."""
        scratch = 4 * most_scratch(context.machine)
        return room - min(int(SCRATCH_SHARE * max(room, 0)), scratch)
