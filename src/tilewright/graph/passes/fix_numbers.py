"""fix-numbers: from float32 to fixed point of 8 or 16 bits, by calibrated ranges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from tilewright.graph.dialect import KernelOp, NetworkOp, network_of
from tilewright.graph.operations import Operation
from tilewright.graph.passes.editing import compiler
from tilewright.graph.passes.enclosing import accelerated_values
from tilewright.graph.passes.numbers_rewriter import NumbersRewriter
from tilewright.graph.passes.points import Points
from tilewright.graph.passes.stated_points import Pairs
from tilewright.graph.values import value_names
from tilewright.ir import Context, ModuleOp, ModulePass, SSAValue, from_attribute


@dataclass(frozen=True)
class NumberFormat:
    """The binary point that fix-numbers chose for one value, with its range."""

    value: str
    fraction: int
    minimum: float
    maximum: float
    guarantee: str = ""
    """For accumulators: what their room rests on, ``always`` or ``calibrated``."""


@dataclass(frozen=True)
class FixNumbers(ModulePass):
    """Give every value that the accelerator computes fixed-point elements, of 8 or 16 bits.

    Before (machine.element is ``fixed16``)::

        %y = graph.kernel "k0" (%x, %w, %b) : (tensor<..xf32>, ...) -> tensor<..xf32> {
          %1 = graph.conv %x, %w, %b
          %2 = graph.relu %1

    After::

        %q = graph.kernel "k1" (%x) attributes {engine = "host"} { graph.quantise }
        %y = graph.kernel "k0" (%q, %w16, %b32) : (tensor<..xfixed<16, 12>>, ...) -> ... {
          %1 = graph.conv ...    : fixed<32, 26>
          %2 = graph.relu %1     : fixed<32, 26>
          %3 = graph.requantise %2 : fixed<16, 11>
        %d = graph.kernel "k2" (%y) attributes {engine = "host"} { graph.dequantise }

    Binary points are per tensor: the finest that the calibrated range allows, shared where
    integers pass through unchanged. Accumulators stay below 2**(31 - headroom) over the calibrated
    range; weights give up fraction bits for that first. Biases have 32 bits at the accumulator's
    binary point. What enters the accelerator is quantised, what leaves it dequantised: the
    network's inputs and outputs and all kernels of the host stay float32. Pairs that round to a
    value's own point go (stated_points.py). Machines that compute in float32 get their module back
    unchanged. What was chosen is read with ``numbers_of``.
    """

    name = "fix-numbers"
    headroom: int = 1

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrite the module in place."""
        context, network = compiler(ctx), network_of(op)
        if not context.machine.fixed_bits or network.numbers is not None:
            return
        names, pairs = value_names(op), Pairs(network, context)
        while True:
            pairs.take_out()
            fixed_values = accelerated_values(network)
            points = Points(
                context,
                names,
                2.0 ** (31 - self.headroom),
                context.machine.fixed_bits,
                context.machine.own.rounding_rules(),
                pairs.stated,
            )
            _choose(network, points, fixed_values)
            if not pairs.put_back(lambda value, chosen=points: chosen.class_of(value).fraction):
                break
        NumbersRewriter(context, network, points, fixed_values, pairs).run()


def _choose(network: NetworkOp, points: Points, fixed_values: set[SSAValue]) -> None:
    """Choose the binary points of a network's values."""
    points.cut(network)
    for step in network.block.ops:
        if isinstance(step, KernelOp) and not step.on_host:
            points.add_kernel(step)
        elif isinstance(step, Operation) and step.result in fixed_values:
            for value in step.inputs:
                points.join(points.class_of(step.result), points.class_of(value))
    points.solve()


def numbers_of(network: NetworkOp) -> list[NumberFormat]:
    """List the formats that fix-numbers chose, in program order; empty before the pass has run."""
    if network.numbers is None:
        return []
    rows = cast("tuple[tuple[str, int, float, float, str], ...]", from_attribute(network.numbers))
    return [NumberFormat(*row) for row in rows]
