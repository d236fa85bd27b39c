"""compress-weights: products whose weights are sparse enough read them compressed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tilewright.errors import TilewrightError
from tilewright.graph.dialect import KernelOp, WeightOp, network_of
from tilewright.graph.operations import Operation
from tilewright.graph.operations.convolution import ConvOp
from tilewright.graph.operations.matrix import MatMulOp
from tilewright.graph.passes.constraints import candidate, serving
from tilewright.graph.passes.editing import add_weight, compiler, erase, insert, sweep
from tilewright.graph.passes.reanchoring import (
    anchor_operands,
    plain_kernel,
    reanchored,
    with_layouts,
)
from tilewright.ir import Context, ModuleOp, ModulePass, PythonValue, SSAValue
from tilewright.ir.passes import CompilerContext
from tilewright.ir.types import Array, shape_of, tensor, tensor_type
from tilewright.machine import Machine, Primitive
from tilewright.numerics import sparse
from tilewright.planning import Planner

SEGMENTS = (1 << 30, 1024, 256, 64)
"""Most channels of a segment; for each, the longest that divides the channels is tried."""


@dataclass(frozen=True)
class CompressWeights(ModulePass):
    """Keep the weights of convolutions and products as steps and values where that is faster.

    Before (three of four weights are 0)::

        %1 = graph.kernel "k0" (%x, %w, %b) {
          %2 = graph.conv %x, %w, %b {pads = [1, 1, 1, 1]} ...
          %3 = graph.relu %2

    After::

        %s = graph.weight ... : tensor<4x1x260xfixed<16, 12>>
        %1 = graph.kernel "k0" (%x, %s, %b) {
          %2 = graph.sparse_product %x, %s, %b {channels = 64, stream_cycles = [...], ...}
          %3 = graph.relu %2

    Both forms are planned, the compressed one with several lengths of segments, and the one of
    least predicted cycles is taken; results are the same bit for bit. Weights of which more than
    ``most`` are not 0 are not looked at, nor are convolutions in groups. Machines without a
    primitive for ``sparse_product`` are left alone. (Cambricon-X, MICRO 2016.)
    """

    name = "compress-weights"
    most: float = 0.75

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrite the module in place."""
        context = compiler(ctx)
        primitives = context.machine.primitives_for("sparse_product")
        if not primitives:
            return
        network, planner = network_of(op), Planner(context.machine)
        for kernel in network.kernels:
            weights = _weights(kernel, context)
            if weights is None or np.count_nonzero(weights) > self.most * weights.size:
                continue
            limit = _cycles(kernel, context.machine, planner)
            best: _Form | None = None
            for form in _forms(weights, primitives[0], context.machine):
                cycles = form.cycles(kernel, context.machine, planner)
                if cycles < limit:
                    limit, best = cycles, form
            if best is not None:
                best.put(kernel, context)
        sweep(network)


def _weights(kernel: KernelOp, context: CompilerContext) -> Array | None:
    """The weights [co, ci, kh, kw] of an anchor that can read compressed ones."""
    anchor = kernel.anchor
    if kernel.on_host or not isinstance(anchor, ConvOp | MatMulOp) or not anchor.is_fixed:
        return None
    image, weight, *_ = anchor_operands(kernel)
    if not isinstance(weight.owner, WeightOp) or image is weight:
        return None
    shape = shape_of(weight)
    if isinstance(anchor, ConvOp):
        if anchor.integer("group", 1, 2**24) != 1:
            return None
        return context.weights.get(weight.owner.symbol.data)
    bias = [shape_of(value) for value in anchor.inputs[2:]]
    if len(shape) != 2 or len(shape_of(image)) != 2 or anchor.transposed[0]:
        return None
    if any(len(extents) != 1 for extents in bias):
        return None
    array = context.weights.get(weight.owner.symbol.data)
    return (array if anchor.transposed[1] else array.T)[:, :, None, None]


def _cycles(kernel: KernelOp, machine: Machine, planner: Planner) -> float:
    """Predicted cycles of a kernel with the layouts of the first primitive that serves it."""
    primitive = serving(candidate(kernel.anchor), machine)[0]
    laid_out = with_layouts(plain_kernel(kernel), machine, primitive)
    return planner.plan(laid_out).predicted_cycles


@dataclass(frozen=True)
class _Form:
    """Compressed weights with segments of one length."""

    streams: Array
    channels: int
    kernel: tuple[int, int]
    lanes: int
    kept: int

    def attributes(self, anchor: Operation) -> dict[str, PythonValue]:
        """Attributes of the operation that replaces the anchor."""
        cycles = sparse.stream_cycles_of(self.streams, self.lanes)
        attributes: dict[str, PythonValue] = {
            "channels": self.channels,
            "kernel": self.kernel,
            "lanes": self.lanes,
            "stream_cycles": (cycles.alone, cycles.each, cycles.lead),
            "kept": self.kept,
        }
        if isinstance(anchor, ConvOp):
            attributes |= {key: anchor.integers(key) for key in ("strides", "pads", "dilations")}
        return attributes

    def cycles(self, kernel: KernelOp, machine: Machine, planner: Planner) -> float:
        """Predicted cycles of the kernel in this form; infinite where no tile fits."""
        weight = anchor_operands(kernel)[1]
        trial = WeightOp.of("trial", tensor(self.streams.shape, tensor_type(weight).element_type))
        insert(trial, kernel)
        rewritten = self.rewritten(kernel, trial.result, replace=False)
        try:
            return _cycles(rewritten, machine, planner)
        except TilewrightError:
            return float("inf")
        finally:
            erase(rewritten)
            erase(trial)

    def put(self, kernel: KernelOp, context: CompilerContext) -> None:
        """Give the kernel this form."""
        element = tensor_type(anchor_operands(kernel)[1]).element_type
        streams = add_weight(context, self.streams, kernel, "streams", element)
        self.rewritten(kernel, streams, replace=True)

    def rewritten(self, kernel: KernelOp, streams: SSAValue, *, replace: bool) -> KernelOp:
        """The kernel with compressed weights, in its place or before it."""
        image, _, *bias = anchor_operands(kernel)
        how = self.attributes(kernel.anchor)
        return reanchored(kernel, "sparse_product", [image, streams, *bias], how, replace=replace)


def _forms(weights: Array, primitive: Primitive, machine: Machine) -> Iterator[_Form]:
    """The forms worth planning: of each length of segments whose windows fit on the chip."""
    co, ci, kh, kw = weights.shape
    lanes = primitive.multiples.get("cl", 1)
    room = machine.memory(primitive.operands["input"].memory).bytes or 1 << 62
    # The window of a pixel has to fit, better twice.
    fitting = room // (2 * kh * kw)
    limits = [most for most in (*SEGMENTS, fitting, fitting // 2) if most > 0]
    for segment in dict.fromkeys(_divisor(ci, most) for most in limits):
        if segment <= fitting:
            streams = sparse.encode(weights, segment, lanes)
            yield _Form(streams, co, (kh, kw), lanes, int(np.count_nonzero(weights)))


def _divisor(value: int, most: int) -> int:
    """The greatest divisor that is at most ``most``."""
    return next(d for d in range(min(value, most), 0, -1) if value % d == 0)
