"""The plan of a network's memory for people: peak, bound, who is alive at the peak."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.graph.dialect import KernelOp, NetworkOp
from tilewright.graph.operation import Operation
from tilewright.graph.passes.memory_plan import MemoryPlan, PlannedBuffer
from tilewright.graph.values import name_values
from tilewright.runtime.texts import printable


@dataclass(frozen=True)
class MemoryReport:
    """A plan of memory with the model's own names."""

    model: str
    target: str
    plan: MemoryPlan
    nodes: Mapping[str, str]
    """Name of a value -> the model's name for it: the node whose result it is, or the input."""

    @property
    def peak_step(self) -> int:
        """The first step at which the most bytes are live."""
        at = {step: sum(b.bytes for b in self.alive(step)) for step in self._steps()}
        return max(at, key=lambda step: (at[step], -step), default=0)

    def _steps(self) -> list[int]:
        return sorted({step for b in self.plan.buffers for step in (b.first, b.last)})

    def alive(self, step: int) -> list[PlannedBuffer]:
        """The buffers that are live at a step, the largest first."""
        buffers = [b for b in self.plan.buffers if b.first <= step <= b.last]
        return sorted(buffers, key=lambda b: (-b.bytes, b.offset, b.name))

    def label(self, buffer: PlannedBuffer) -> str:
        """The model's names for what lies in a buffer, in the order of the run."""
        names = [self.nodes.get(name, name) for name in buffer.values]
        return ", ".join(dict.fromkeys(names))

    def to_json(self) -> dict[str, Any]:
        """Return the plan of memory as a JSON object."""
        plan = self.plan
        return {
            "target": self.target,
            "peak_bytes": plan.peak,
            "bound_bytes": plan.lower_bound,
            "optimal": plan.optimal,
            "heuristic": plan.heuristic,
            "weight_bytes": plan.weight_bytes,
            "busiest": plan.busiest,
            "alive_at_peak": [self._row(b) for b in self.alive(self.peak_step)],
            "buffers": [self._row(b) for b in plan.buffers],
            "kernels": [{"step": step, "name": name} for step, name in plan.kernels],
        }

    def _row(self, buffer: PlannedBuffer) -> dict[str, Any]:
        return {
            "name": buffer.name,
            "nodes": [self.nodes.get(name, name) for name in buffer.values],
            "offset": buffer.offset,
            "bytes": buffer.bytes,
            "first": buffer.first,
            "last": buffer.last,
        }

    def __str__(self) -> str:
        plan = self.plan
        above = 100 * (plan.peak / plan.lower_bound - 1) if plan.lower_bound else 0.0
        proof = "no plan needs less" if plan.optimal else "whether less would do is open"
        live = self.alive(self.peak_step)
        lines = [
            f"{self.model} on {self.target}",
            f"  activations  {plan.peak:>14,} bytes at the peak",
            f"  bound        {plan.lower_bound:>14,} bytes: the most that is live at once;"
            f" the peak is {above:.1f} % above it",
            f"  found        {plan.heuristic}; {proof}",
            f"  weights      {plan.weight_bytes:>14,} bytes",
            f"  buffers      {len(plan.buffers):>14,}, which take"
            f" {sum(b.bytes for b in plan.buffers):,} bytes without sharing",
            f"live at the peak, during {plan.busiest}:",
            *(
                f"  {b.bytes:>14,} bytes at {b.offset:>12,}  {printable(self.label(b))}"
                for b in live
            ),
        ]
        return "\n".join(lines) + "\n"


def memory_report(model: str, target: str, network: NetworkOp, plan: MemoryPlan) -> MemoryReport:
    """The report on a plan of a network's memory."""
    naming = name_values(network)
    nodes: dict[str, str] = {}
    for name, value in network.inputs:
        nodes[naming.names[value]] = name
    for op in network.block.ops:
        inner = op.computed.owner if isinstance(op, KernelOp) else op
        if isinstance(inner, Operation) and inner.result_node:
            nodes[naming.names[op.results[0]]] = inner.result_node
    return MemoryReport(model, target, plan, nodes)
