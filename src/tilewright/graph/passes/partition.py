"""partition: which operations the accelerator runs, which the host, and why."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.graph.passes.constraints import objection
from tilewright.graph.passes.editing import VIEWS, compiler, operations_of
from tilewright.ir import Context, ModuleOp, ModulePass, StringAttr


@dataclass(frozen=True)
class Partition(ModulePass):
    """Mark every operation that computes with its engine, and those of the host with the reason.

    Before::

        %1 = graph.conv %x, %w : ...
        %2 = graph.softmax %1 : ...

    After::

        %1 = graph.conv %x, %w {engine = "accelerator"} : ...
        %2 = graph.softmax %1 {engine = "host", reason = "softmax with axis = 5000 kept whole
             needs 20000 bytes of nbin, which holds 8192 (...)"} : ...

    Views (reshape, transpose, concat, slice) get no engine: eliminate-views decides on them.
    ``host`` names operations (``graph.`` left out) or nodes of the model that are to run on the
    host whatever the machine can do.
    """

    name = "partition"
    host: tuple[str, ...] = ()

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrite the module in place."""
        machine = compiler(ctx).machine
        for step in operations_of(op):
            if step.operation in VIEWS:
                continue
            reason = ""
            if step.operation in self.host or (step.node_name and step.node_name in self.host):
                reason = "asked for"
            elif (refusal := objection(step, machine)) is not None:
                constraint, why = refusal
                reason = f"{why} ({constraint.help})"
            step.engine = StringAttr("host" if reason else "accelerator")
            step.reason = StringAttr(reason) if reason else None
