"""A lower bound of a network's memory, before layouts and addresses are known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from tilewright.graph.dialect import KernelOp, NetworkOp, WeightOp
from tilewright.graph.passes.constraints import candidate, serving
from tilewright.graph.passes.editing import bytes_of
from tilewright.graph.passes.strides import size
from tilewright.ir import Operation as AnyOperation
from tilewright.ir import SSAValue
from tilewright.ir.types import element_size, shape_of, tensor_type
from tilewright.machine import Machine
from tilewright.planning.space.operand_layouts import operand_layout


@dataclass(frozen=True)
class NetworkMemory:
    """Bytes of a network's weights, and of what is live while each kernel runs."""

    network: NetworkOp
    machine: Machine

    @cached_property
    def weights(self) -> int:
        """Bytes of all weights, each once, without padding."""
        return sum(bytes_of(value) for value in self._weights())

    @cached_property
    def padding(self) -> int:
        """Bytes that layouts add to the weights, if each kernel's first primitive computes it."""
        added: dict[SSAValue, int] = {}
        for kernel in self.network.kernels:
            added |= dict(self._padding(kernel))
        return sum(added.values())

    def _padding(self, kernel: KernelOp) -> Iterator[tuple[SSAValue, int]]:
        asked = candidate(kernel.anchor)
        primitive = next(iter(serving(asked, self.machine)), None)
        outer = kernel.outside
        pairs = zip(asked.op.inputs, asked.stage.inputs if asked.stage else (), strict=False)
        for inner, operand in pairs:
            value = outer.get(inner)
            if primitive is None or value is None or not isinstance(value.owner, WeightOp):
                continue
            shape = shape_of(value)
            layout = operand_layout(self.machine, primitive, operand)
            if layout and layout != "any":
                kind = tensor_type(value).element_type
                yield value, element_size(kind, size(layout, shape)) - bytes_of(value)

    def _weights(self) -> list[SSAValue]:
        weights: dict[str, SSAValue] = {}
        for op in self.network.block.ops:
            if isinstance(op, WeightOp):
                weights.setdefault(op.symbol.data, op.result)
        return list(weights.values())

    @cached_property
    def live(self) -> Mapping[KernelOp, int]:
        """Bytes of what each kernel reads and writes, and of what later ones read.

        Views are left out: they lie in what they are views of.
        """
        steps = {op: number for number, op in enumerate(self.network.block.ops, start=1)}
        change = [0] * (len(steps) + 2)
        results = [kernel.result for kernel in self.network.kernels]
        for value in (*self.network.block.args, *results):
            owner = value.owner
            born = steps[owner] if isinstance(owner, AnyOperation) else 0
            dies = max((steps[use.operation] for use in value.uses), default=born)
            change[born] += bytes_of(value)
            change[dies + 1] -= bytes_of(value)
        live: dict[KernelOp, int] = {}
        total = change[0]
        for op, step in steps.items():
            total += change[step]
            if isinstance(op, KernelOp):
                live[op] = total
        return live

    @property
    def activations(self) -> int:
        """The most that is live at once: what every plan of memory needs."""
        return max(self.live.values(), default=0)
