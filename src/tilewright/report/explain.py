"""The place where each node of a model runs; for the host, why and what would change it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Unpack

from tilewright.compiler.build import settle_engines
from tilewright.compiler.pipeline import (
    CompilationState,
    Options,
    optimise_graph,
    place_graph,
    run_pipeline,
)
from tilewright.compiler.quantise import calibrate, kept_on_host, quantise
from tilewright.compiler.state import Model
from tilewright.frontends import ModelNode
from tilewright.graph.dialect import KernelOp, WeightOp, network_of
from tilewright.graph.operations import Operation
from tilewright.graph.passes import kernel_pipeline
from tilewright.graph.passes.constraints import objection, remedy
from tilewright.graph.passes.editing import operations_of
from tilewright.graph.passes.partition import Partition
from tilewright.ir import ModuleOp, SSAValue
from tilewright.machine import Machine
from tilewright.numerics.formats import Numbers
from tilewright.runtime.texts import printable, table
from tilewright.targets.base import Target

Place = Literal["accelerator", "host", "address", "constant", "none"]


@dataclass(frozen=True)
class Objection:
    """A reason for which an operation runs on the host."""

    constraint: str
    reason: str
    help: str = ""
    settings: Mapping[str, int] | None = None
    """Values of the machine that bring it on; None if no values alone do."""

    @property
    def edit(self) -> str:
        """The edit of the machine or the model that brings it on."""
        if not self.settings:
            return self.help
        return " ".join(f"--set {key}={value}" for key, value in self.settings.items())


@dataclass(frozen=True)
class NodeFate:
    """The kernels and the place of one node of the model."""

    node: str
    operator: str
    place: Place
    """The place where it runs: ``address`` is a view that costs nothing, ``constant`` was computed
    at compile time, and ``none`` leads to no output or does nothing."""
    kernels: tuple[str, ...] = ()
    """The kernels that it is part of."""
    how: str = ""
    objection: Objection | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the node as a JSON object."""
        row: dict[str, Any] = {
            "node": self.node,
            "operator": self.operator,
            "place": self.place,
            "kernels": list(self.kernels),
            "how": self.how,
        }
        if self.objection is not None:
            row |= asdict(self.objection) | {"edit": self.objection.edit}
        return row


@dataclass(frozen=True)
class Explanation:
    """The fates of all nodes, in the model's order."""

    target: str
    machine: str
    nodes: tuple[NodeFate, ...]
    notes: tuple[str, ...]
    added: tuple[tuple[str, str], ...]
    """Kernels that no node asked for (conversions, copies) and where they run."""

    def to_json(self) -> dict[str, Any]:
        """Return the nodes as a JSON object."""
        return {
            "target": self.target,
            "machine": self.machine,
            "nodes": [node.to_json() for node in self.nodes],
            "added_kernels": [{"name": name, "engine": engine} for name, engine in self.added],
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        rows = [
            (printable(fate.node), printable(fate.operator), *_told(fate)) for fate in self.nodes
        ]
        heads = ("node", "operator", "runs on", "kernel")
        lines = table([heads, *rows], len(heads))
        counts = {
            place: sum(fate.place == place for fate in self.nodes)
            for place in ("accelerator", "host", "address", "constant", "none")
        }
        words = [f"{count} {place}" for place, count in counts.items() if count]
        lines.append(f"{len(self.nodes)} nodes: {', '.join(words)}")
        for engine in ("accelerator", "host"):
            names = [name for name, where in self.added if where == engine]
            if names:
                lines.append(f"added on the {engine}: {', '.join(names)}")
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines) + "\n"


def _told(fate: NodeFate) -> tuple[str, str]:
    """Return the place of a node, and the rest of its line."""
    kernels = ", ".join(fate.kernels)
    text = f"{kernels} ({fate.how})" if kernels and fate.how else kernels or fate.how
    if fate.objection is not None:
        edit = f"; to bring it on: {fate.objection.edit}" if fate.objection.edit else ""
        text += f" [{fate.objection.constraint}] {fate.objection.reason}{edit}"
    return fate.place if fate.place != "none" else "-", text


def explain(
    model: Model,
    target: Target,
    machine: Machine,
    *,
    numbers: Numbers | None = None,
    **options: Unpack[Options],
) -> Explanation:
    """Compile a model as far as its kernels, by the target's planner, and tell what became of each
    node."""
    with target.planner("model", machine) as planner:
        state = run_pipeline(
            model, target, machine, numbers=numbers, ask=planner, until="import", loops=True,
            **options,
        )  # fmt: skip
        imported = state.network.clone()
        objections = _prepare(state)
        calibrate(state)
        if target.falls_back:
            settle_engines(state)
        else:
            place_graph(state)
    return Explanation(
        target.name,
        machine.name,
        tuple(_Fates(state, imported, objections).all()),
        tuple(state.notes),
        tuple(
            (op.symbol.data, "host" if op.on_host else "accelerator")
            for op in network_of(state.network).kernels
            if not any(o.node_name for o in op.operations)
        ),
    )


def _prepare(state: CompilationState) -> dict[str, Objection]:
    """The graph passes up to kernels; the objections to the host's kernels by symbol."""
    objections: dict[Operation, Objection] = {}
    optimise_graph(state)
    quantise(state)
    for entry in kernel_pipeline(state.machine, kept_on_host(state)):
        state.runner.run(state.network, [entry], "graph-")
        if isinstance(entry.step, Partition):
            for op in operations_of(state.network):
                objection = objection_to(op, state.machine)
                if op.engine is not None and op.engine.data == "host" and objection is not None:
                    objections[op] = objection
    return {
        kernel.symbol.data: objections[op]
        for kernel in network_of(state.network).kernels
        for op in kernel.operations
        if op in objections
    }


def objection_to(op: Operation, machine: Machine) -> Objection | None:
    """The reason why the accelerator cannot run an operation, and a change that would help."""
    refused = objection(op, machine)
    if refused is None:
        return None
    constraint, reason = refused
    return Objection(constraint.name, reason, constraint.help, remedy(op, machine))


class _Fates:
    """Finds the nodes of the model again in the final graph."""

    def __init__(
        self, state: CompilationState, imported: ModuleOp, objections: Mapping[str, Objection]
    ) -> None:
        self.state, self.objections = state, objections
        self.nodes = state.nodes or _nodes_of(imported)
        self.inputs = {name for name, _ in network_of(imported).inputs}
        self.kernels: dict[str, list[tuple[KernelOp, Operation, bool]]] = {}
        """Node -> its kernels, its operation there, and whether it was merged into that."""
        self.views: dict[str, Operation] = {}
        self.origin: dict[str, list[Operation]] = {}
        """Node -> its operations as they were imported."""
        for op in operations_of(imported):
            self.origin.setdefault(op.node_name, []).append(op)
        self.places: dict[KernelOp, tuple[str, CompilationState]] = {}
        """The name of each kernel, after that of the loop around it, and its compilation."""
        self._enter_all(state, "")

    def _enter_all(self, state: CompilationState, before: str) -> None:
        """Enter the operations of a network, and of the bodies of its loops."""
        for op in network_of(state.network).block.ops:
            if isinstance(op, KernelOp):
                symbol = op.symbol.data
                if symbol in state.loops:
                    self._enter_all(state.loops[symbol].body, f"{before}{symbol}.")
                    continue
                self.places[op] = f"{before}{symbol}", state
                for inner in op.operations:
                    self._enter(op, inner)
            elif isinstance(op, Operation):
                for name in (op.node_name, *op.merged_nodes):
                    self.views.setdefault(name, op)

    def _enter(self, kernel: KernelOp, op: Operation) -> None:
        for name in dict.fromkeys((op.node_name, *op.merged_nodes)):
            entries = self.kernels.setdefault(name, [])
            if all(other is not kernel for other, _, _ in entries):
                entries.append((kernel, op, name != op.node_name))

    def all(self) -> Iterable[NodeFate]:
        """The fates in the model's order."""
        for node in self.nodes:
            yield self._fate(node)

    def _fate(self, node: ModelNode) -> NodeFate:
        blank = NodeFate(node.name, node.operator, "none")
        direct = self._in_kernels(blank)
        if direct is not None:
            return direct
        if node.name in self.views:
            return replace(blank, place="address", how="a view: no work is left")
        origin = self.origin.get(node.name)
        if not origin and self.inputs.intersection(node.outputs):
            return replace(blank, how="an input of the network")
        if not origin:
            return replace(blank, how="a constant, an identity, or leads to no output")
        if all(_constant(op.result) for op in origin):
            return replace(blank, place="constant", how="computed at compile time")
        for other in _readers(origin):
            fate = self._in_kernels(replace(blank, node=other))
            if fate is not None:
                return replace(fate, node=node.name, how=f"merged into {printable(other)}")
        return replace(blank, how="does nothing")

    def _in_kernels(self, blank: NodeFate) -> NodeFate | None:
        entries = self.kernels.get(blank.node)
        if not entries:
            return None
        symbols = tuple(self.places[kernel][0] for kernel, _, _ in entries)
        hosts = [kernel for kernel, _, _ in entries if kernel.on_host]
        kernel, op, merged = entries[-1]
        how = ""
        if merged:
            how = f"merged into {printable(op.node_name)}"
        elif op is not kernel.anchor:
            how = f"follows {printable(kernel.anchor.node_name)}"
        else:  # The last kernel of a node that is several, or else one of the others.
            how = next((op.how for _, op, _ in reversed(entries) if op.how), "")
        if not hosts:
            return replace(blank, place="accelerator", kernels=symbols, how=how)
        # Of a node that is several kernels the product says most: the others only prepare it.
        refused = next(
            (kernel for kernel in hosts if any(_is_product(op) for op in kernel.operations)),
            hosts[0],
        )
        others = [self.places[kernel][0] for kernel, _, _ in entries if not kernel.on_host]
        if others:
            how = "; ".join(filter(None, (how, f"{', '.join(others)} on the accelerator")))
        return replace(
            blank, place="host", kernels=symbols, how=how, objection=self._objection(refused)
        )

    def _objection(self, kernel: KernelOp) -> Objection:
        _, state = self.places[kernel]
        refused = state.refusal_of(kernel.symbol.data)
        if refused is not None:
            return Objection(refused.code, refused.reason, refused.help)
        known = self.objections.get(kernel.symbol.data) if state is self.state else None
        if known is None:
            known = objection_to(kernel.anchor, self.state.machine)
        if known is None:
            reason = kernel.told_reason
            known = Objection("asked-for" if reason == "asked for" else "numbers", reason)
        return known


def _nodes_of(imported: ModuleOp) -> tuple[ModelNode, ...]:
    """The nodes that an imported network knows of, for front-ends that list none."""
    nodes: dict[str, str] = {}
    for op in operations_of(imported):
        if op.node_name:
            nodes.setdefault(op.node_name, op.operation)
    return tuple(ModelNode(name, operator) for name, operator in nodes.items())


def _is_product(op: Operation) -> bool:
    return op.operation in ("matmul", "conv")


def _constant(value: SSAValue) -> bool:
    """Return True if a value depends on nothing but weights."""
    waiting, seen = [value], {value}
    while waiting:
        owner = waiting.pop().owner
        if isinstance(owner, WeightOp):
            continue
        if not isinstance(owner, Operation) or not owner.inputs:
            return False
        fresh = [operand for operand in owner.inputs if operand not in seen]
        seen.update(fresh)
        waiting += fresh
    return True


def _readers(ops: Sequence[Operation]) -> Iterable[str]:
    """The nodes that read the results of operations, the nearest first."""
    waiting, seen = list(ops), set(ops)
    for op in waiting:
        for use in sorted(op.result.uses, key=lambda use: use.index):
            reader = use.operation
            if isinstance(reader, Operation) and reader not in seen:
                seen.add(reader)
                waiting.append(reader)
                yield reader.node_name
