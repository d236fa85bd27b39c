"""choose-methods: which of a machine's methods computes each convolution, and each product."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.errors import refuse
from tilewright.graph.dialect import KernelOp, WeightOp, network_of
from tilewright.graph.operations.convolution import ConvOp
from tilewright.graph.operations.matrix import MatMulOp
from tilewright.graph.passes.editing import compiler, sweep
from tilewright.graph.passes.memory_room import NetworkMemory
from tilewright.graph.passes.methods import (
    SCRATCH_CACHES,
    Priced,
    methods_of,
    most_scratch,
    priced_methods,
)
from tilewright.graph.passes.reanchoring import plain_kernel
from tilewright.graph.passes.rewrite_method import rewritten
from tilewright.graph.passes.staged_methods import (
    method_names,
    priced_stages,
    staged,
    stages_methods,
)
from tilewright.ir import Context, ModuleOp, ModulePass
from tilewright.ir.passes import CompilerContext
from tilewright.machine import Machine
from tilewright.planning import planner_in
from tilewright.planning.caches import in_place_planning
from tilewright.planning.canonical import canonical

__all__ = ["ChooseMethods", "methods_of", "select"]

GAIN = 0.9
"""Part of the direct method's cycles that another one must stay below to be taken."""

BEYOND = 0.75
"""The same of a method whose scratch goes beyond all memory to spare."""

WORTH = 0.03
"""Part of a kernel's cycles that more bytes of weights must save if they take all room; those that
take less must save less in proportion, for nothing else could have had them."""

SCRATCH_SHARE = 0.25
"""Part of the memory to spare that scratch may take at most; weights have what it leaves."""


@dataclass(frozen=True)
class ChooseMethods(ModulePass):
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
    here, in float64, are up to seven times as many bytes, so the choice is the network's: starting
    with the fastest forms that keep the weights as they are, those are changed that gain most for
    their bytes, as long as all memory stays below the machine's ``memory_growth`` times the weights
    and the most activations that live at once. Scratch as large as the cache before the last one
    may go beyond that in small networks, where it gains much.

    The explicit method (``graph.explicit_conv``) lays out windows in scratch; it takes any window
    larger than one point, strides and dilations. Where a machine has matrix tiles, convolutions
    without groups, and matrix products, may be in pieces of bfloat16 (``graph.piece_conv``,
    ``graph.piece_matmul``): in three, as exact as float32, or, where the machine allows it, in
    two, on weights that are split here. Convolutions
    with computed weights are left alone, and those of machines that have primitives for none of
    these. ``method`` names primitives of which one is taken wherever it serves, whatever it takes:
    for comparisons.

    Where software manages the memories, Winograd's method is three kernels and the explicit one two
    (staged_methods.py), each planned by the planner that plans the network; their tensors count as
    scratch does, and may not go beyond the memory to spare.
    """

    name = "choose-methods"
    method: tuple[str, ...] = ()

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrite the module in place."""
        context = compiler(ctx)
        network = network_of(op)
        apart = stages_methods(context.machine)
        if apart:
            self._check(context.machine)
        memory = NetworkMemory(network, context.machine)
        least = memory.weights + memory.activations
        room = int((context.machine.memory_growth - 1) * least) - memory.padding
        most = context.machine.memory(context.machine.main).room
        if most is not None:
            room = min(room, most - least - memory.padding)
        options = (self._staged if apart else self._options)(memory, context, max(room, 0))
        if self.method:
            chosen = {
                kernel: next((m for m in methods if m.primitive in self.method), methods[0])
                for kernel, methods in options.items()
            }
        elif apart:
            chosen = select(options, room)
        else:
            scratch = 4 * most_scratch(context.machine)
            chosen = select(options, room - min(int(SCRATCH_SHARE * max(room, 0)), scratch))
        for kernel, method in chosen.items():
            if method.form.direct:
                continue
            if apart:
                staged(kernel, method.form, context)
            else:
                rewritten(kernel, method.form, method.scratch, context)
        sweep(network)

    def _options(
        self, memory: NetworkMemory, context: CompilerContext, room: int
    ) -> dict[KernelOp, list[Priced]]:
        """The methods of every kernel that has a choice; kernels alike are asked about once."""
        machine = context.machine
        most = 4 * most_scratch(machine)
        near = most // SCRATCH_CACHES
        tiles = in_place_planning(machine).piece_counts(machine, rough=True)
        anchors = (ConvOp, MatMulOp) if tiles else (ConvOp,)
        planner = planner_in(context).by_cost()
        known: dict[object, list[Priced]] = {}
        options: dict[KernelOp, list[Priced]] = {}
        for kernel, live in memory.live.items():
            anchor = kernel.operations[0] if kernel.operations else None
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

    def _staged(
        self, memory: NetworkMemory, context: CompilerContext, room: int
    ) -> dict[KernelOp, list[Priced]]:
        """The same where each step of a method is a kernel."""
        known: dict[object, list[Priced]] = {}
        options: dict[KernelOp, list[Priced]] = {}
        for kernel, live in memory.live.items():
            anchor = kernel.operations[0] if kernel.operations else None
            if kernel.on_host or not isinstance(anchor, ConvOp):
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

    def _check(self, machine: Machine) -> None:
        """Refuse methods that no convolution has on a machine that stages them."""
        known = method_names()
        for name in self.method:
            if name not in known:
                reason = f"{machine.name} computes no convolution by {name[:80]!r}"
                raise refuse("pass-method", reason, self.name, ", ".join(known))


def worthwhile(method: Priced, direct: Priced, spare: int) -> bool:
    """Whether a method is faster than the direct one by enough, with so many bytes to spare."""
    return method.cycles < (GAIN if 4 * method.scratch <= spare else BEYOND) * direct.cycles


def select(options: Mapping[KernelOp, list[Priced]], room: int) -> dict[KernelOp, Priced]:
    """A method for every kernel: the least cycles found with at most ``room`` bytes more.

    Starts with the fastest of each kernel that take no bytes more than its first one, then again
    and again makes the change that gains the most cycles for a byte, and enough of them.
    """
    chosen = {
        kernel: min(
            (m for m in methods if m.weight_bytes <= methods[0].weight_bytes),
            key=lambda method: method.cycles,
        )
        for kernel, methods in options.items()
    }
    symbols = {kernel: _symbol(kernel) for kernel in options}

    def bytes_with(changed: Mapping[KernelOp, Priced]) -> int:
        """Bytes of all weights; those that several kernels take in one form count once."""
        forms = {
            (symbols[kernel], m.form if not m.form.plain else None): m.weight_bytes
            for kernel, m in changed.items()
        }
        return sum(forms.values())

    limit = room + bytes_with({kernel: methods[0] for kernel, methods in options.items()})
    price = WORTH / max(room, 1)
    while True:
        now = bytes_with(chosen)
        best: tuple[float, KernelOp, Priced] | None = None
        for kernel, methods in options.items():
            for method in methods:
                gain = chosen[kernel].cycles - method.cycles
                if gain <= 0:
                    continue
                after = bytes_with({**chosen, kernel: method})
                if gain <= price * (after - now) * chosen[kernel].cycles:
                    continue
                worth = gain / max(after - now, 1)
                if after <= limit and (best is None or worth > best[0]):
                    best = worth, kernel, method
        if best is None:
            return chosen
        chosen[best[1]] = best[2]


def _symbol(kernel: KernelOp) -> str:
    """The symbol of the weights that a kernel's convolution takes."""
    outer = dict(zip(kernel.body.block.args, kernel.inputs, strict=True))
    owner = outer[kernel.operations[0].operands[1]].owner  # type: ignore[index]
    assert isinstance(owner, WeightOp)
    return owner.symbol.data
