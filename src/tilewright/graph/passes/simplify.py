"""simplify: fewer operations with the same meaning."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.graph.dialect import network_of
from tilewright.graph.passes.editing import compiler, merge_weights, operations_of, sweep
from tilewright.graph.passes.rules import PHASES, Rule
from tilewright.ir import Context, ModuleOp, ModulePass
from tilewright.ir.passes import CompilerContext


@dataclass(frozen=True)
class Simplify(ModulePass):
    """Apply local rules (graph/passes/rules/) until none applies.

    Before::

        %1 = graph.pad %x {pads = [0, 0, 1, 1, 0, 0, 1, 1]}
        %2 = graph.conv %1, %w {pads = [0, 0, 0, 0], ...}
        %3 = graph.mul %2, %scale
        %4 = graph.reduce_mean %3 {axes = [2, 3]}

    After::

        %3 = graph.conv %x, %w_times_scale {pads = [1, 1, 1, 1], ...}
        %4 = graph.average_pool %3 {kernel = [7, 7], ...}

    Identities go; reshapes and transposes in a row become one; padding joins the convolution or
    pool after it; taps of a convolution that meet nothing but padding go; constants per channel
    join weights and bias; constant weights of products are kept as [co, ci]; a product on a
    flattened image becomes a convolution where the machine keeps images in an order of its own; a
    transposed convolution becomes one for each phase where machines write pixels at a distance;
    what exporters spell out (GELU, layer normalisation, attention, channel shuffles) is put
    together for machines that compute it at once, and softmax for all. A network that has its
    numbers is left alone: its constants are no real numbers any more. ``rounds`` bounds the work on
    hostile input.
    """

    name = "simplify"
    rounds: int = 1000

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrite the module in place."""
        context = compiler(ctx)
        if network_of(op).numbers is not None:
            return
        for phase in PHASES:
            for _ in range(self.rounds):
                if not _one_round(op, phase, context):
                    break
        sweep(network_of(op))
        merge_weights(network_of(op))


def _one_round(module: ModuleOp, rules: tuple[Rule, ...], ctx: CompilerContext) -> bool:
    """Try every rule on every operation once; whether any rewrote one."""
    changed = False
    for step in operations_of(module):
        if step.parent is None or step.result.first_use is None:
            continue
        changed = any(rule(step, ctx) for rule in rules) or changed
    return changed
