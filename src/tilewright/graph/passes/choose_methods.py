"""choose-methods: which of a machine's methods computes each convolution."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.graph.dialect import KernelOp, ScratchOp, WeightOp, network_of
from tilewright.graph.operations import Operation
from tilewright.graph.operations.base import is_float
from tilewright.graph.operations.convolution import ConvOp
from tilewright.graph.passes.constraints import candidate, serving
from tilewright.graph.passes.editing import compiler, erase, insert, sweep
from tilewright.graph.passes.reanchoring import plain_kernel, reanchored, with_layouts
from tilewright.ir import Context, ModuleOp, ModulePass, PythonValue
from tilewright.machine import Machine, Primitive
from tilewright.numerics.winograd import TAPS, TRANSFORMS, transform_weights
from tilewright.passes import CompilerContext
from tilewright.planning.cached import plan_cached
from tilewright.planning.cached_blocks import scratch_elements
from tilewright.planning.cached_cost import cache_levels
from tilewright.planning.canonical import canonical
from tilewright.planning.domain import Kernel
from tilewright.types import shape_of, tensor, tensor_type

GAIN = 0.9
"""Part of the direct method's cycles that another one must stay below to be taken."""

SCRATCH_CACHES = 4
"""Scratch may be so many times as large as the cache before the last one."""

_METHOD = tuple[int, int]
"""Extent of the tiles, and elements of scratch; (0, 0) is the direct method."""


@dataclass(frozen=True)
class ChooseMethods(ModulePass):
    """Compute 3x3 convolutions by Winograd's method where the planner expects it to be faster.

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

    swATOP (section 3) chooses among its methods in the same way: by predicted time. Every size of
    tile that a primitive of the machine serves is planned, each with the layouts that the
    primitive asks for, and the best is taken if it is faster than the direct method by a margin.
    Weights are transformed here, in float64. Machines without a primitive for ``winograd_conv``
    are left alone, and so are convolutions with another window, strides, groups, or computed
    weights.
    """

    name = "choose-methods"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrite the module in place."""
        context = compiler(ctx)
        network = network_of(op)
        known: dict[tuple[Kernel, tuple[int, ...]], _METHOD] = {}
        for kernel in [k for k in network.block.ops if isinstance(k, KernelOp)]:
            if not _eligible(kernel, context.machine):
                continue
            anchor = kernel.operations[0]
            assert isinstance(anchor, ConvOp)
            key = canonical(plain_kernel(kernel))[0], anchor.integers("pads")
            if key not in known:
                known[key] = _choice(kernel, context.machine)
            tile, elements = known[key]
            if tile:
                _rewritten(kernel, tile, elements, context)
        sweep(network)


def _eligible(kernel: KernelOp, machine: Machine) -> bool:
    """Whether the method is defined for a kernel's anchor."""
    anchor = kernel.operations[0] if kernel.operations else None
    if kernel.on_host or not isinstance(anchor, ConvOp) or anchor.is_fixed:
        return False
    values = kernel.inputs
    weight = values[list(kernel.body.block.args).index(anchor.inputs[1])]  # type: ignore[arg-type]
    return (
        isinstance(weight.owner, WeightOp)
        and is_float(tensor_type(weight).element_type)
        and shape_of(weight)[2:] == (TAPS, TAPS)
        and anchor.integers("strides") == (1, 1)
        and anchor.integers("dilations") == (1, 1)
        and anchor.integer("group", 1, 2**24) == 1
    )


@dataclass(frozen=True)
class Method:
    """One way to compute a convolution: the kernel that it asks for, and what computes that."""

    tile: int
    """Extent of the tiles of Winograd's method; 0 is the direct method."""
    kernel: Kernel
    """With the primitive's layouts, and room for as much scratch as is ever granted."""
    primitive: Primitive


def methods_of(kernel: KernelOp, machine: Machine) -> Iterator[Method]:
    """Every method that a machine has for a kernel whose anchor is a convolution, direct first."""
    anchor = kernel.operations[0]
    assert isinstance(anchor, Operation)
    direct = serving(candidate(anchor), machine)[0]
    yield Method(0, with_layouts(plain_kernel(kernel), machine, direct), direct)
    if not direct.multiples or not _eligible(kernel, machine):
        return
    levels = cache_levels(machine)
    room = SCRATCH_CACHES * levels[max(len(levels) - 2, 0)][0] // 4
    for tile in TRANSFORMS:
        trial = _rewritten(kernel, tile, room, None)
        inner = trial.operations[0]
        assert isinstance(inner, Operation)
        found = [
            Method(tile, with_layouts(plain_kernel(trial), machine, primitive), primitive)
            for primitive in serving(candidate(inner), machine)[:1]
        ]
        _forget(trial)
        yield from found


def _choice(kernel: KernelOp, machine: Machine) -> _METHOD:
    """The method of least predicted time."""
    least, best = float("inf"), (0, 0)
    for method in methods_of(kernel, machine):
        found = plan_cached(method.kernel, machine)
        if not method.tile:
            least = GAIN * found.predicted_cycles
        elif found.predicted_cycles < least:
            least = found.predicted_cycles
            elements = scratch_elements(method.primitive, found.schedule, method.kernel)
            best = method.tile, elements
    return best


def _rewritten(
    kernel: KernelOp, tile: int, elements: int, context: CompilerContext | None
) -> KernelOp:
    """The kernel by Winograd's method, in place of the old one.

    Without a context it stands beside the old one, with weights that do not exist: a trial.
    """
    anchor = kernel.operations[0]
    assert isinstance(anchor, ConvOp)
    outer = dict(zip(kernel.body.block.args, kernel.inputs, strict=True))
    image, weight, *bias = [outer[value] for value in anchor.inputs]  # type: ignore[index]
    owner = weight.owner
    assert isinstance(owner, WeightOp)
    shape = (*shape_of(weight)[:2], tile + 2, tile + 2)
    symbol = "trial"
    if context is not None:
        array = transform_weights(context.weights.get(owner.symbol.data), tile)
        symbol = context.weights.add(array, "winograd")
    transformed, scratch = WeightOp.of(symbol, tensor(shape)), ScratchOp.of(elements)
    insert(transformed, kernel)
    insert(scratch, kernel)
    attributes: dict[str, PythonValue] = {"pads": anchor.integers("pads"), "tile": tile}
    return reanchored(
        kernel,
        "winograd_conv",
        [image, transformed.result, scratch.result, *bias],
        attributes,
        replace=context is not None,
    )


def _forget(trial: KernelOp) -> None:
    """Erase a trial with its weights and scratch."""
    made = [value.owner for value in trial.inputs]
    erase(trial)
    for op in made:
        if isinstance(op, ScratchOp) or (isinstance(op, WeightOp) and op.symbol.data == "trial"):
            erase(op)
