"""choose-methods: which convolutions are computed in several kernels."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.errors import refuse
from tilewright.graph.dialect import KernelOp
from tilewright.graph.operations.convolution import ConvOp
from tilewright.graph.passes.memory_room import NetworkMemory
from tilewright.graph.passes.methods import GAIN, MethodChoice, Priced, worthwhile
from tilewright.graph.passes.reanchoring import plain_kernel
from tilewright.ir.passes import CompilerContext
from tilewright.planning.canonical import canonical
from tilewright.targets.sunway.passes.staged_methods import method_names, priced_stages, staged


@dataclass(frozen=True)
class ChooseMethods(MethodChoice):
    """Compute convolutions by the method that the planner expects to be fastest.

    Before::

        %1 = graph.kernel "k0" (%x, %w, %b) {
          %2 = graph.conv %x, %w, %b {strides = [2, 2]} ...
          %3 = graph.relu %2

    After::

        %1 = graph.kernel "k0_windows" (%x) { graph.im2col %x {kernel = [3, 3], ...} ... }
        %2 = graph.reshape %1 : tensor<1x576x28x28xf32>
        %3 = graph.kernel "k0" (%2, %v, %b) {
          %4 = graph.conv %2, %v, %b : windows of one point
          %5 = graph.relu %4

    Winograd's method is three kernels and the explicit one two (staged_methods.py), each planned by
    the planner that plans the network (swATOP, section 3). Their tensors may not go beyond the
    memory to spare.
    """

    name = "choose-methods"

    def options(
        self, memory: NetworkMemory, context: CompilerContext, room: int
    ) -> dict[KernelOp, list[Priced]]:
        """The methods of every convolution that has a choice; those alike are asked about once."""
        names = method_names()
        for name in self.method:
            if name not in names:
                reason = f"{context.machine.name} computes no convolution by {name[:80]!r}"
                raise refuse("pass-method", reason, self.name, ", ".join(names))
        known: dict[object, list[Priced]] = {}
        options: dict[KernelOp, list[Priced]] = {}
        for kernel, live in memory.live.items():
            anchor = kernel.anchor
            alone = kernel.on_host or kernel.symbol.data in context.apart
            if alone or not isinstance(anchor, ConvOp):
                continue
            key = canonical(plain_kernel(kernel))[0], anchor.integers("pads")
            if key not in known:
                known[key] = priced_stages(kernel, context, None if self.method else GAIN)
            if not known[key]:
                continue
            direct, *others = known[key]
            spare = memory.activations - live + room
            faster = [
                other
                for other in others
                if self.method or (4 * other.scratch <= spare and worthwhile(other, direct, spare))
            ]
            if faster:
                options[kernel] = [direct, *faster]
        return options

    def rewrite(self, kernel: KernelOp, method: Priced, context: CompilerContext) -> None:
        """Put the kernels of a method in the place of a convolution's."""
        staged(kernel, method.form, context)
