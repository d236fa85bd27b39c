"""A network beside variants of it: one layer in other numbers, or all of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from tilewright.compiler.quantise import observe, prepare_ranges
from tilewright.compiler.state import CompilationState, context_of
from tilewright.graph.dialect import KernelOp, network_of
from tilewright.graph.interpreter import interpret
from tilewright.graph.operation import Operation
from tilewright.graph.passes import kernel_pipeline
from tilewright.graph.passes.fix_numbers import FixNumbers
from tilewright.graph.passes.quantise import Quantise, layers_of
from tilewright.graph.values import value_names
from tilewright.ir import ModuleOp, SSAValue
from tilewright.ir import Operation as AnyOperation
from tilewright.ir.types import Array
from tilewright.numbers.calibration import SampleStream, samples_of
from tilewright.report.measures import Measures, measure, plain

_CONVERSIONS = ("quantise", "dequantise")


class Variants(ABC):
    """The float32 network on samples, and variants of it on the same samples.

    ``state`` has come to the end of the graph passes; its calibration data are read here, and the
    first ``count`` of them kept.
    """

    def __init__(self, state: CompilationState, count: int) -> None:
        assert state.numbers is not None
        self.state = state
        self.numbers = state.numbers
        self.samples: list[Mapping[str, Array]] = []
        stream = samples_of(network_of(state.network), state.samples)

        def kept() -> Iterator[Mapping[str, Array]]:
            for sample in stream:
                if len(self.samples) < count:
                    self.samples.append(sample)
                yield sample

        self.stream = SampleStream(kept(), stream.count)
        self.layers: dict[str, SSAValue] = {}
        """Node -> its result in the float32 network, in program order."""
        self.prepare()
        if not self.samples:
            self.samples = self.stream.first(count)
        self.outputs, self.results = self.run(state.network, self.layers)

    @abstractmethod
    def prepare(self) -> None:
        """Bring the float32 network into its last form, and find ranges and ``layers``."""

    @abstractmethod
    def variant(self, node: str | None) -> tuple[CompilationState, SSAValue | None]:
        """The network with one layer in the numbers asked for, and what its readers read.

        Without a node: with all of them, but those that are kept in float32.
        """

    def alone(self, node: str) -> tuple[Measures, Measures]:
        """Return the error that one layer adds, at its own result and at the network's outputs."""
        state, value = self.variant(node)
        assert value is not None
        outputs, results = self.run(state.network, {node: value}, state)
        return (
            measure(results[node], self.results[node]),
            measure(outputs, self.outputs),
        )

    def together(self) -> Measures:
        """Return the error of the network's outputs with all layers quantised."""
        state, _ = self.variant(None)
        return measure(self.run(state.network, {}, state)[0], self.outputs)

    def run(
        self,
        module: ModuleOp,
        values: Mapping[str, SSAValue],
        state: CompilationState | None = None,
    ) -> tuple[Array, dict[str, Array]]:
        """The float outputs on all samples, one after another, and so the named values."""
        names = value_names(module)
        wanted = {names[value]: (node, value) for node, value in values.items()}
        values_by_node: dict[str, list[Array]] = {node: [] for node in values}
        outputs: list[Array] = []

        def observed(name: str, array: Array) -> None:
            if name in wanted:
                node, value = wanted[name]
                values_by_node[node].append(plain(value, array).reshape(-1).astype(np.float64))

        weights = (state or self.state).weights
        for sample in self.samples:
            results = interpret(module, weights, sample, observed)
            outputs += [array.reshape(-1) for array in results.values() if array.dtype.kind == "f"]
        joined = np.concatenate(outputs) if outputs else np.zeros(0)
        return joined, {node: np.concatenate(parts) for node, parts in values_by_node.items()}

    def copy(self) -> tuple[CompilationState, dict[SSAValue, SSAValue]]:
        """The state with a network and weights of its own, and its values by the original's."""
        network = self.state.network.clone()
        weights = self.state.weights.subset(self.state.weights)
        clone = replace(self.state, network=network, weights=weights)
        pairs = zip(self.state.network.walk(), network.walk(), strict=True)
        values = {
            old: new
            for first, second in pairs
            for old, new in zip(_values(first), _values(second), strict=True)
        }
        return clone, values


def _values(op: AnyOperation) -> list[SSAValue]:
    """The values that an operation and its regions' blocks define."""
    arguments = [value for region in op.regions for block in region.blocks for value in block.args]
    return [*op.results, *arguments]


class QuantisedVariants(Variants):
    """Variants by the pass ``quantise``, on machines that compute in float32."""

    def prepare(self) -> None:
        """Join biases and observe ranges, where the format asks for them."""
        if self.numbers.needs_ranges:
            self.state.samples = self.stream
        prepare_ranges(self.state, self.numbers)
        self.layers = layers_of(self.state.network, self.numbers.format.name)

    def variant(self, node: str | None) -> tuple[CompilationState, SSAValue | None]:
        """A clone that the pass has rewritten."""
        clone, values = self.copy()
        step = Quantise(
            self.numbers.format.name,
            self.numbers.keep_float if node is None else (),
            None if node is None else (node,),
            self.numbers.observer == "mean-squared-error",
        )
        instead = step.rewrite(clone.network, context_of(clone, self.state.runner.context.ranges))
        if node is None:
            return clone, None
        value = values[self.layers[node]]
        return clone, instead.get(value, value)


class FixedVariants(Variants):
    """Variants by partition and fix-numbers, on machines that compute in fixed point."""

    members: dict[str, set[str]]
    """First node of a kernel -> all of its nodes."""

    def prepare(self) -> None:
        """Observe ranges; layers are the accelerator's kernels."""
        self.members = {}
        whole, _ = self.copy()
        self.kernels(whole, ())
        whole.samples = self.stream
        whole.runner.context = context_of(whole, {})
        observe(whole)
        self.ranges = whole.runner.context.ranges
        for op in network_of(whole.network).block.ops:
            if isinstance(op, KernelOp) and not op.on_host:
                nodes = {step.node_name: None for step in op.operations if step.node_name}
                if nodes:
                    self.members[next(iter(nodes))] = set(nodes)
        last = {
            op.node_name: op.result
            for op in network_of(self.state.network).block.ops
            if isinstance(op, Operation) and op.node_name
        }
        for node, members in self.members.items():
            # The result of the last node in the kernel.
            self.layers[node] = [value for name, value in last.items() if name in members][-1]

    def kernels(self, state: CompilationState, host: tuple[str, ...]) -> None:
        """Form kernels, some nodes being the host's."""
        state.runner.context = context_of(state, {})
        state.runner.run(state.network, kernel_pipeline(state.machine, host), "graph-")

    def variant(self, node: str | None) -> tuple[CompilationState, SSAValue | None]:
        """A clone in which the host computes all other nodes."""
        clone, _ = self.copy()
        others = {
            op.node_name for op in clone.network.walk() if isinstance(op, Operation)
        } - {""}  # fmt: skip
        members = self.members[node] if node is not None else set[str]()
        host = self.numbers.keep_float if node is None else tuple(sorted(others - members))
        self.kernels(clone, host)
        FixNumbers().apply(context_of(clone, self.ranges), clone.network)
        if node is None:
            return clone, None
        result: SSAValue | None = None
        for op in network_of(clone.network).block.ops:
            if isinstance(op, KernelOp) and not op.on_host:
                names = {step.node_name for step in op.operations}
                if names & members and op.anchor.name.split(".")[1] not in _CONVERSIONS:
                    result = op.result
        return clone, result
