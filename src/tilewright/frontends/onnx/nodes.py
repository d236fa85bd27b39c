"""Nodes of a model: names, order, and attributes checked against ONNX's own schema."""

from __future__ import annotations

import difflib
import heapq
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from graphlib import CycleError, TopologicalSorter
from typing import Any

import onnx
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, TypeProto

from tilewright.errors import Problem, TilewrightError, refuse
from tilewright.frontends.limits import shown

AttributeValue = (
    int
    | float
    | str
    | tuple[int, ...]
    | tuple[float, ...]
    | tuple[str, ...]
    | TensorProto
    | GraphProto
    | TypeProto
)


@dataclass(frozen=True)
class Node:
    """One node; ``name`` is made up from operator and position if the model gives none."""

    name: str
    operator: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    proto: NodeProto
    versions: Mapping[str, int]
    """Versions of the operator sets in which operators are looked up, by domain."""
    origin: str
    """Name of the model's node that it stands in, or its own."""
    defines: Node | None = None
    """The node of the model in whose definition by ONNX it is; the model knows nothing of it."""

    @property
    def version(self) -> int:
        """The version of the node's operator set; 0 if the model states none."""
        return self.versions.get(self.domain, 0)

    @cached_property
    def key(self) -> str:
        """The operator with its domain before it, if that is not ONNX's own."""
        return f"{self.domain}.{self.operator}" if self.domain else self.operator

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """All names that it reads, those that its subgraphs take from outside among them."""
        if self.operator == "Gradient":  # It states by name what it is the gradient of.
            return (*self.inputs, *(item.s.decode() for item in self.proto.attribute if item.s))
        return (*self.inputs, *captured(self.proto))

    @property
    def where(self) -> str:
        """The node's name in messages, with that of the function or subgraph in which it is.

        Of ONNX's own definitions only the operator is told: their nodes are not the model's.
        """
        if self.defines is not None:
            outer = self.defines.where.removesuffix(")")
            return f"{outer}, which ONNX defines by {self.key})"
        if self.name == self.origin:
            return f"node {shown(self.name)} ({self.key})"
        inner = self.name.removeprefix(f"{self.origin}/")
        return f"node {shown(self.origin)}, in it {shown(inner)} ({self.key})"

    def refuse(
        self, reason: str, *, code: str = "onnx-attribute", help: str = ""
    ) -> TilewrightError:
        """The refusal of this node; ``raise node.refuse(...)``."""
        return refuse(code, reason, self.where, help)


def nodes_of(
    protos: Iterable[NodeProto],
    versions: Mapping[str, int],
    within: Node | None = None,
    defines: Node | None = None,
) -> list[Node]:
    """The nodes in the model's order; those ``within`` another have its name before theirs.

    With ``defines`` they are ONNX's definition of that node's operator.
    """
    prefix = f"{within.name}/" if within is not None else ""
    nodes: list[Node] = []
    for index, proto in enumerate(protos):
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        name = prefix + (proto.name or f"{proto.op_type}_{index}")
        inputs, outputs = tuple(proto.input), tuple(proto.output)
        origin = within.origin if within is not None else name
        nodes.append(
            Node(name, proto.op_type, domain, inputs, outputs, proto, versions, origin, defines)
        )
    return nodes


def captured(proto: NodeProto) -> tuple[str, ...]:
    """Names that a node's subgraphs read and do not make, in order."""
    if not proto.attribute:
        return ()
    names: dict[str, None] = {}
    for attribute in proto.attribute:
        if attribute.type != AttributeProto.GRAPH:
            continue
        graph = attribute.g
        defined = {value.name for value in graph.input} | {t.name for t in graph.initializer}
        defined |= {name for node in graph.node for name in node.output}
        for node in graph.node:
            names.update(
                dict.fromkeys(n for n in (*node.input, *captured(node)) if n not in defined)
            )
        names.update(dict.fromkeys(v.name for v in graph.output if v.name not in defined))
    return tuple(names)


def sort_nodes(nodes: Sequence[Node], sources: Iterable[str]) -> list[Node]:
    """The nodes so that each comes after those it reads; the model's order where that is one.

    ``sources`` names the values that no node makes. Raises TilewrightError with every value that is
    made twice or never, or with the nodes of a cycle.
    """
    problems: list[Problem] = []
    known, maker = set(sources), dict[str, int]()
    for index, node in enumerate(nodes):
        for name in node.outputs:
            if name and (name in known or name in maker):
                problems.append(
                    Problem(
                        "onnx-duplicate-name",
                        f"it computes the value {shown(name)}, which is computed elsewhere, too",
                        node.where,
                    )
                )
            elif name:
                maker[name] = index
    for node in nodes:
        for name in dict.fromkeys(node.reads):
            if name and name not in known and name not in maker:
                problems.append(
                    Problem(
                        "onnx-missing-input",
                        f"it reads the value {shown(name)}, which no node computes",
                        node.where,
                    )
                )
    if problems:
        raise TilewrightError(problems)
    before = {
        index: {maker[name] for name in node.reads if name in maker}
        for index, node in enumerate(nodes)
    }
    sorter = TopologicalSorter(before)
    try:
        sorter.prepare()
    except CycleError as error:
        cycle = [nodes[index] for index in error.args[1][1:]]
        names = [shown(node.name) for node in cycle]
        path = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        reason = f"nodes read each other's results: {path}"
        raise cycle[0].refuse(reason, code="onnx-cycle") from None
    ready, ordered = list[int](), list[Node]()
    while sorter.is_active():
        for index in sorter.get_ready():
            heapq.heappush(ready, index)
        index = heapq.heappop(ready)
        ordered.append(nodes[index])
        sorter.done(index)
    return ordered


def live_nodes(ordered: Sequence[Node], outputs: Iterable[str]) -> list[Node]:
    """The nodes that the outputs depend on."""
    needed, kept = set(outputs), list[Node]()
    for node in reversed(ordered):
        if needed.intersection(name for name in node.outputs if name):
            kept.append(node)
            needed.update(node.reads)
    return kept[::-1]


def schema_of(node: Node) -> onnx.defs.OpSchema | None:
    """ONNX's definition of the node's operator in its operator set; None if there is none."""
    return _schema(node.operator, node.version, node.domain)


@lru_cache(maxsize=1024)
def _schema(operator: str, version: int, domain: str) -> onnx.defs.OpSchema | None:
    # Models have thousands of nodes of a few operators, and ONNX makes a new object each time.
    try:
        return onnx.defs.get_schema(operator, version, domain)
    except onnx.defs.SchemaError:
        return None


def takes_lists(node: Node) -> bool:
    """Return True if ONNX lets an operand of the node's operator be a sequence or an optional."""
    schema = schema_of(node)
    kinds = [kind for formal in schema.inputs for kind in formal.types] if schema else []
    return any(kind.startswith(("seq(", "optional(")) for kind in kinds)


def given_attributes(node: Node, kinds: Mapping[str, int]) -> dict[str, AttributeValue]:
    """The attributes that a node states, of AttributeProto's ``kinds``; raises TilewrightError."""
    values: dict[str, AttributeValue] = {}
    for attribute in node.proto.attribute:
        name = attribute.name
        if name not in kinds:
            raise node.refuse(f"it has no attribute {shown(name)} in this operator set")
        if name in values:
            raise node.refuse(f"the attribute {shown(name)} is given twice")
        if attribute.ref_attr_name:
            raise node.refuse(f"the attribute {shown(name)} refers to a function's parameter")
        # Files of the first IR version do not state the type.
        if attribute.type not in (AttributeProto.UNDEFINED, kinds[name]):
            raise node.refuse(f"the attribute {shown(name)} is of the wrong type")
        values[name] = decoded(node, attribute, kinds[name])
    return values


def attributes_of(node: Node, schema: onnx.defs.OpSchema) -> dict[str, AttributeValue]:
    """The node's attributes, those left out at their defaults; raises TilewrightError."""
    stated: Any = schema.attributes  # Its stubs lack the number of a type.
    kinds = {name: definition.type.value for name, definition in stated.items()}
    values = given_attributes(node, kinds)
    for name, definition in schema.attributes.items():
        if name in values:
            continue
        if definition.required:
            raise node.refuse(f"the attribute {shown(name)} is missing")
        if definition.default_value.name:
            default = definition.default_value
            values[name] = decoded(node, default, default.type)
    count = len(node.inputs)
    if not schema.min_input <= count <= schema.max_input:
        raise node.refuse(f"it has {count} inputs, not {schema.min_input} to {schema.max_input}")
    if not schema.min_output <= len(node.outputs) <= schema.max_output:
        raise node.refuse(f"it cannot have {len(node.outputs)} outputs")
    for index, formal in enumerate(schema.inputs[:count]):
        optional = formal.option == onnx.defs.OpSchema.FormalParameterOption.Optional
        if not node.inputs[index] and not optional and (node.key, index) not in _OMITTED:
            raise node.refuse(f"its input {formal.name!r} is missing")
    return values


_OMITTED = frozenset((("Resize", 1), ("Resize", 2)))
"""Inputs that operator set 11 requires and 13 does not: regions, and scales where sizes are given.
ONNX Runtime takes models without them in every version."""


def decoded(node: Node, attribute: AttributeProto, kind: int) -> AttributeValue:
    """The plain value of an attribute; raises TilewrightError for sparse tensors and lists."""
    match kind:
        case AttributeProto.INT:
            return attribute.i
        case AttributeProto.FLOAT:
            return attribute.f
        case AttributeProto.STRING:
            return attribute.s.decode("utf-8", errors="replace")
        case AttributeProto.INTS:
            return tuple(attribute.ints)
        case AttributeProto.FLOATS:
            return tuple(attribute.floats)
        case AttributeProto.TENSOR:
            return attribute.t
        case AttributeProto.STRINGS:
            return tuple(item.decode("utf-8", errors="replace") for item in attribute.strings)
        case AttributeProto.GRAPH:
            return attribute.g
        case AttributeProto.TYPE_PROTO:
            return attribute.tp
        case _:
            name = AttributeProto.AttributeType.Name(kind)
            raise node.refuse(f"the attribute {shown(attribute.name)} of kind {name} is not read")


_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z][a-z]+")


def near_names(name: str, known: Iterable[str]) -> list[str]:
    """Up to three operators whose names share the most with one: words first, then letters."""
    plain = name.rpartition(".")[2]

    def nearness(other: str) -> tuple[float, str]:
        last = other.rpartition(".")[2]
        words, others = set(_WORD.findall(plain)), set(_WORD.findall(last))
        shared = len(words & others) / max(len(words | others), 1)
        return (shared + difflib.SequenceMatcher(None, plain, last).ratio(), other)

    ranked = sorted(map(nearness, known), reverse=True)
    return [other for score, other in ranked[:3] if score > 0.75]
