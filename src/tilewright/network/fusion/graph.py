"""The dependence graph of a network: kernels, and the tensors that they hand on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
    """What its first operation is, as primitives list it (``depthwise_conv``)."""
    reads: tuple[Tensor, ...] = ()
    """The computed tensors that it reads, each once."""
    properties: Mapping[str, int] = field(default_factory=dict[str, int])
    """What conditions of patterns speak of: machine/patterns.py, PROPERTIES."""
    fixed: str = ""
    """Why it is never a part of a group: it is a view, or runs on the host; "" if it can be."""
    nodes: tuple[str, ...] = ()
    """Names of the model's nodes."""


@dataclass(frozen=True)
class DependenceGraph:
    """Nodes in an order in which they can run: each reads results of earlier ones."""

    nodes: tuple[Node, ...]
    facts: Mapping[Tensor, Mapping[str, int]] = field(default_factory=dict[int, dict[str, int]])
    """Properties of tensors that are no node's result: the network's inputs."""

    @classmethod
    def of(cls, operations: Sequence[str], edges: Iterable[tuple[int, int]]) -> DependenceGraph:
        """A graph of operations without properties; an edge is (what is read, who reads it)."""
        reads: list[list[int]] = [[] for _ in operations]
        for source, target in edges:
            reads[target].append(source)
        readers = [sum(number in sources for sources in reads) for number in range(len(operations))]
        return cls(
            tuple(
                Node(
                    f"{operation}{number}",
                    operation,
                    tuple(dict.fromkeys(sorted(own))),
                    {"inputs": len(set(own)), "readers": readers[number]},
                )
                for number, (operation, own) in enumerate(zip(operations, reads, strict=True))
            )
        )

    @cached_property
    def predecessors(self) -> tuple[tuple[int, ...], ...]:
        """The nodes whose results each node reads."""
        return tuple(tuple(t for t in node.reads if t >= 0) for node in self.nodes)

    @cached_property
    def successors(self) -> tuple[tuple[int, ...], ...]:
        """The nodes that read each node's result."""
        return tuple(self.readers.get(number, ()) for number in range(len(self.nodes)))

    @cached_property
    def readers(self) -> dict[Tensor, tuple[int, ...]]:
        """The nodes that read each tensor, in order."""
        readers_of: dict[Tensor, list[int]] = {}
        for number, node in enumerate(self.nodes):
            for tensor in node.reads:
                readers_of.setdefault(tensor, []).append(number)
        return {tensor: tuple(numbers) for tensor, numbers in readers_of.items()}

    @cached_property
    def ancestors(self) -> tuple[int, ...]:
        """The nodes on which each node depends, directly or not, as a bit mask."""
        ancestors_of: list[int] = []
        for before in self.predecessors:
            bits = 0
            for number in before:
                bits |= ancestors_of[number] | 1 << number
            ancestors_of.append(bits)
        return tuple(ancestors_of)

    @cached_property
    def descendants(self) -> tuple[int, ...]:
        """The nodes that depend on each node, directly or not, as a bit mask."""
        descendants_of = [0] * len(self.nodes)
        for number in reversed(range(len(self.nodes))):
            for reader in self.successors[number]:
                descendants_of[number] |= descendants_of[reader] | 1 << reader
        return tuple(descendants_of)

    def property_of(self, number: int, name: str) -> int:
        """A property of a node; what it does not have counts as 1."""
        return self.nodes[number].properties.get(name, 1)

    def tensor_property(self, tensor: Tensor, name: str) -> int:
        """A property of a tensor: of the result of a node, or of an input."""
        if tensor >= 0:
            return self.property_of(tensor, name)
        return self.facts.get(tensor, {}).get(name, len(self.readers.get(tensor, ())))


@dataclass(frozen=True)
class NetworkGraph:
    """The dependence graph of a network, with the kernel behind each node (None for views)."""

    graph: DependenceGraph
    kernels: tuple[KernelOp | None, ...]


def graph_of(network: NetworkOp) -> NetworkGraph:
    """The dependence graph of a network whose kernels are formed."""
    tensors: dict[SSAValue, Tensor] = {}
    facts: dict[Tensor, dict[str, int]] = {}
    for number, (_, value) in enumerate(network.inputs):
        tensors[value] = -1 - number
        facts[-1 - number] = _facts(value)
    nodes: list[Node] = []
    kernels: list[KernelOp | None] = []
    for op in network.block.ops:
        if not isinstance(op, KernelOp | Operation):
            continue
        # Constants and scratch are no tensors that one kernel hands to another.
        computed = [v for v in op.inputs if not isinstance(v.owner, WeightOp | ScratchOp)]
        reads = tuple(dict.fromkeys(tensors[value] for value in computed))
        kernel = op if isinstance(op, KernelOp) else None
        tensors[op.result] = len(nodes)
        kernels.append(kernel)
        nodes.append(_node(op, reads, kernel))
    return NetworkGraph(DependenceGraph(tuple(nodes), facts), tuple(kernels))


def _node(op: KernelOp | Operation, reads: tuple[Tensor, ...], kernel: KernelOp | None) -> Node:
    properties = _facts(op.result) | {"inputs": len(reads)}
    if kernel is None:
        assert isinstance(op, Operation)
        nodes = tuple(name for name in (op.node_name,) if name)
        name = f"{op.operation}{f' {op.node_name}' if op.node_name else ''}"
        return Node(name, op.operation, reads, properties, "a view is no kernel", nodes)
    anchor = kernel.operations[0]
    assert isinstance(anchor, Operation)
    nodes = tuple(
        dict.fromkeys(
            name
            for inner in kernel.operations
            for name in (inner.node_name, *inner.merged_nodes)
            if name
        )
    )
    fixed = ""
    if kernel.on_host:
        reason = kernel.told_reason
        fixed = f"runs on the host{f': {reason}' if reason else ''}"
    return Node(
        kernel.symbol.data,
        candidate(anchor).operation,
        reads,
        properties | _windows(anchor),
        fixed,
        nodes,
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
