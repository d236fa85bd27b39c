"""The dependence graph of a network: kernels, and the tensors that they hand on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from tilewright.graph.dialect import KernelOp, NetworkOp, ScratchOp, WeightOp
from tilewright.graph.operations import Operation
from tilewright.graph.operations.convolution import ConvOp
from tilewright.graph.passes.constraints import candidate
from tilewright.graph.passes.editing import bytes_of
from tilewright.ir import SSAValue
from tilewright.ir.types import shape_of

Tensor = int
"""The result of the node of that number, or, below 0, the network's input ``-1 - number``."""


@dataclass(frozen=True)
class Node:
    """A kernel of the network, or a view (a reshape, a concatenation) between kernels."""

    name: str
    """The kernel's symbol; of a view, the operation and the model's node."""
    operation: str
    """The name of its first operation, as primitives list it (``depthwise_conv``)."""
    reads: tuple[Tensor, ...] = ()
    """The computed tensors that it reads, each once."""
    properties: Mapping[str, int] = field(default_factory=dict[str, int])
    """The values that conditions of patterns refer to: machine/patterns.py, PROPERTIES."""
    fixed: str = ""
    """The reason why it is never in a group: it is a view, or runs on the host; "" if it can be."""
    nodes: tuple[str, ...] = ()
    """Names of the model's nodes."""
    kernel: KernelOp | None = None
    """The kernel; None for a view."""


@dataclass(frozen=True)
class DependenceGraph:
    """Nodes in an order in which they can run: each reads results of earlier ones."""

    nodes: tuple[Node, ...]

    @cached_property
    def successors(self) -> tuple[tuple[int, ...], ...]:
        """The nodes that read each node's result, in order."""
        readers: list[list[int]] = [[] for _ in self.nodes]
        for number, node in enumerate(self.nodes):
            for tensor in node.reads:
                if tensor >= 0:
                    readers[tensor].append(number)
        return tuple(map(tuple, readers))


def graph_of(network: NetworkOp) -> DependenceGraph:
    """The dependence graph of a network whose kernels are formed."""
    tensors: dict[SSAValue, Tensor] = {
        value: -1 - number for number, (_, value) in enumerate(network.inputs)
    }
    nodes: list[Node] = []
    for op in network.block.ops:
        if not isinstance(op, KernelOp | Operation):
            continue
        # Constants and scratch are no tensors that one kernel hands to another.
        computed = [v for v in op.inputs if not isinstance(v.owner, WeightOp | ScratchOp)]
        reads = tuple(dict.fromkeys(tensors[value] for value in computed))
        tensors[op.result] = len(nodes)
        nodes.append(_node(op, reads))
    return DependenceGraph(tuple(nodes))


def _node(op: KernelOp | Operation, reads: tuple[Tensor, ...]) -> Node:
    properties = _facts(op.result) | {"inputs": len(reads)}
    if not isinstance(op, KernelOp):
        nodes = tuple(name for name in (op.node_name,) if name)
        name = f"{op.operation}{f' {op.node_name}' if op.node_name else ''}"
        return Node(name, op.operation, reads, properties, "a view is no kernel", nodes)
    anchor = op.anchor
    nodes = tuple(
        dict.fromkeys(
            name
            for inner in op.operations
            for name in (inner.node_name, *inner.merged_nodes)
            if name
        )
    )
    fixed = ""
    if op.on_host:
        reason = op.told_reason
        fixed = f"runs on the host{f': {reason}' if reason else ''}"
    return Node(
        op.symbol.data,
        candidate(anchor).operation,
        reads,
        properties | _windows(anchor),
        fixed,
        nodes,
        op,
    )


def _facts(value: SSAValue) -> dict[str, int]:
    shape = shape_of(value)
    return {
        "channels": shape[1] if len(shape) > 1 else 1,
        "bytes": bytes_of(value),
        "readers": len(list(value.uses)),
    }


def _windows(anchor: Operation) -> dict[str, int]:
    """The longest sides of an operation's window, of its strides and dilations."""
    sides: dict[str, int] = {}
    window = shape_of(anchor.inputs[1])[2:] if isinstance(anchor, ConvOp) else anchor.get("kernel")
    for name, value in (
        ("window", window),
        ("stride", anchor.get("strides")),
        ("dilation", anchor.get("dilations")),
    ):
        sides[name] = max(value) if isinstance(value, tuple) and value else 1
    return sides
