"""fuse-separable: a depthwise convolution and the 1x1 convolution after it become one kernel."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from tilewright.graph.dialect import KernelOp, ScratchOp, WeightOp, network_of
from tilewright.graph.operations.convolution import ConvOp
from tilewright.graph.operations.separable import BETWEEN
from tilewright.graph.passes.constraints import candidate, serving
from tilewright.graph.passes.editing import add_weight, compiler, erase, insert, only_user, sweep
from tilewright.graph.passes.methods import TRIAL
from tilewright.graph.passes.reanchoring import (
    anchor_operands,
    plain_kernel,
    reanchored,
    with_layouts,
)
from tilewright.ir import (
    ArrayAttr,
    Context,
    ModuleOp,
    ModulePass,
    PythonValue,
    SSAValue,
    StringAttr,
    f32,
)
from tilewright.ir.passes import CompilerContext
from tilewright.ir.types import shape_of, tensor, tensor_type
from tilewright.machine import Machine
from tilewright.machine.fusions import fusion_of
from tilewright.planning.canonical import canonical
from tilewright.planning.planners.caches import in_place_planning
from tilewright.targets.cpu.passes.methods import (
    forget,
    methods_of,
    most_scratch,
    priced_methods,
    scratch_of,
)
from tilewright.targets.cpu.planning.cost import near_bytes

OPERATION = "separable_conv"
"""The pair's operation, as primitives list it."""

ROOM = 0.5
"""Part of the cache before the last one that a block of the depthwise result may take."""


@dataclass(frozen=True)
class FuseSeparable(ModulePass):
    """Keep what a depthwise convolution hands to the 1x1 convolution after it in a near cache.

    Before::

        %1 = graph.kernel "k0" (%x, %v, %a) {
          %2 = graph.conv %x, %v, %a {group = 96, pads = [1, 1, 1, 1]} ...
          %3 = graph.clip %2 {maximum = 6.0, minimum = 0.0}
        %4 = graph.kernel "k1" (%1, %w, %b) {
          %5 = graph.conv %1, %w, %b ...

    After::

        %s = graph.scratch : tensor<43008xf32>
        %4 = graph.kernel "k1" (%x, %v, %w, %s, %a, %b) {
          %5 = graph.separable_conv %x, %v, %w, %s, %a, %b {between = "clip", ...} ...

    The one kernel computes the depthwise result a block of rows at a time into scratch and
    multiplies it from there (MobileNets' blocks; Howard et al., 2017). Both parts sum in the order
    of the kernels that they replace. Where the machine has the pattern, a pair is fused if the
    planner predicts less time for it than for both kernels one after the other, by the pattern's
    ``gain``; ``always`` fuses every pair that can be, for comparisons. It can be where nothing else
    reads the image between them, a map of one operand at most lies there, all numbers are float32,
    weights are constants, and the chain after the 1x1 convolution does not read the depthwise
    one's image.
    """

    name = "fuse-separable"
    always: bool = False

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrite the module in place."""
        context = compiler(ctx)
        fusion = fusion_of(context.machine, "depthwise_conv", "conv")
        if fusion is None and not self.always:
            return
        gain = inf if self.always or fusion is None else fusion.gain
        network = network_of(op)
        known: dict[object, int] = {}
        for kernel in network.kernels:
            first = _front(kernel)
            if first is None:
                continue
            key = canonical(plain_kernel(first))[0], canonical(plain_kernel(kernel))[0]
            if key not in known:
                known[key] = _scratch(first, kernel, context, gain)
            if known[key]:
                _fused(first, kernel, known[key], context)
                erase(first)
        sweep(network)


def _scratch(first: KernelOp, kernel: KernelOp, context: CompilerContext, gain: float) -> int:
    """Elements of scratch with which a pair is computed as one; 0 where that takes not less than
    ``gain`` of the cycles of two kernels."""
    machine = context.machine
    trial = trial_pair(first, kernel, machine)
    primitive = next(iter(serving(candidate(trial.anchor), machine)), None)
    elements = 0
    if primitive is not None:
        described = with_layouts(plain_kernel(trial), machine, primitive)
        own = in_place_planning(machine)
        if next(own.schedules(described, machine, primitive), None) is not None:
            plan = own.plan(described, machine)
            # Matrix tiles may multiply faster what is a kernel of its own.
            product = priced_methods(kernel, machine, most_scratch(machine))
            depthwise = own.plan(next(methods_of(first, machine)).kernel, machine)
            apart = depthwise.predicted_cycles + min(method.cycles for method in product)
            if plan.predicted_cycles < gain * apart:
                elements = scratch_of(primitive, plan.schedule, described)
    forget(trial)
    return elements


def trial_pair(first: KernelOp, kernel: KernelOp, machine: Machine) -> KernelOp:
    """The pair as one kernel beside both, with as much scratch as there may be."""
    room = int(ROOM * near_bytes(machine)) // 4
    return _fused(first, kernel, room, None)


def _front(kernel: KernelOp) -> KernelOp | None:
    """The depthwise convolution's kernel before a 1x1 convolution's, if both can be one."""
    anchor = kernel.anchor
    if kernel.on_host or not isinstance(anchor, ConvOp):
        return None
    image = anchor_operands(kernel)[0]
    first = image.owner
    if not isinstance(first, KernelOp) or first.on_host or only_user(image) is not kernel:
        return None
    return None if pair_objection(first, kernel) else first


def pair_objection(first: KernelOp, kernel: KernelOp) -> str:
    """Reason why a kernel and the one that reads its result are no such pair; "" if they are."""
    depthwise, *maps = first.operations
    anchor = kernel.anchor
    if not isinstance(depthwise, ConvOp) or not isinstance(anchor, ConvOp):
        return "they are not two convolutions"
    if not _plain(kernel) or not _plain(first):
        return "not all numbers are float32, or weights are computed"
    _, weight, *_ = anchor_operands(kernel)
    point = shape_of(weight)[2:] == (1, 1) and anchor.integer("group", 1, 2**24) == 1
    if not point or anchor.integers("strides") != (1, 1) or any(anchor.integers("pads")):
        return "the second one is no convolution of single points without groups"
    x, windows, *_ = anchor_operands(first)
    channels = shape_of(x)[1]
    if shape_of(windows)[:2] != (channels, 1) or depthwise.integer("group", 1, 2**24) != channels:
        return "the first one is not depthwise"
    between = {op.operation for op in maps}
    if channels == 1 or len(maps) > 1 or not between.issubset(BETWEEN):
        return f"between them lies more than one of {', '.join(BETWEEN)}"
    return "" if x not in kernel.inputs else "the second one reads the first one's image, too"


def _plain(kernel: KernelOp) -> bool:
    """Return True if the anchor's weights are constants, and all values float32."""
    _, weight, *_ = anchor_operands(kernel)
    values = (*kernel.inputs, *(op.result for op in kernel.operations))
    return isinstance(weight.owner, WeightOp) and all(
        tensor_type(value).element_type == f32 for value in values
    )


def _fused(
    first: KernelOp, kernel: KernelOp, elements: int, context: CompilerContext | None
) -> KernelOp:
    """The pair as one kernel in the second one's place; without a context, a trial beside it."""
    depthwise, *maps = first.operations
    assert isinstance(depthwise, ConvOp)
    names = ("strides", "pads", "dilations")
    attributes: dict[str, PythonValue] = {name: depthwise.integers(name) for name in names}
    for op in maps:
        attributes |= {"between": op.operation, **op.values}
    scratch = ScratchOp.of(elements)
    insert(scratch, kernel)
    x, windows, *first_bias = anchor_operands(first)
    _, weights, *second_bias = anchor_operands(kernel)
    biases = [
        bias[0] if bias else _zeros(shape_of(weight)[0], kernel, context)
        for bias, weight in ((first_bias, windows), (second_bias, weights))
    ]
    inputs = [x, windows, weights, scratch.result, *biases]
    fused = reanchored(kernel, OPERATION, inputs, attributes, replace=context is not None)
    # The first node gives its name, the last one its result.
    anchor = fused.anchor
    nodes = [
        name for op in (*first.operations, anchor) for name in (op.node_name, *op.merged_nodes)
    ]
    nodes = [name for name in dict.fromkeys(nodes) if name]
    if nodes:
        anchor.node = StringAttr(nodes[0])
        anchor.merged = ArrayAttr([StringAttr(name) for name in nodes[1:]]) if nodes[1:] else None
    return fused


def _zeros(channels: int, before: KernelOp, context: CompilerContext | None) -> SSAValue:
    """A bias that adds nothing."""
    array = np.zeros(channels, np.float32)
    if context is not None:
        return add_weight(context, array, before, "no_bias")
    op = WeightOp.of(TRIAL, tensor((channels,)))
    insert(op, before)
    return op.result
