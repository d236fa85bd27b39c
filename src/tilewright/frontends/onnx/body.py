"""Import nodes in order: those of the model, of a subgraph, or of an operator's own definition.

What a name stands for is a tensor of the network, an array known at import, or unknown because
what makes it was refused. Import goes on past refusals, so that one report has them all: the
result of a refused node is stood in for by a tensor of the type that ONNX's own inference gives,
if it gives one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from onnx import FunctionProto, GraphProto, NodeProto, TensorProto, TypeProto, helper

from tilewright.errors import Problem, TilewrightError
from tilewright.frontends.emitter import NetworkBuilder
from tilewright.frontends.limits import MAX_ELEMENTS, shown, too_large
from tilewright.frontends.onnx import functions, legacy, numbers, sequences
from tilewright.frontends.onnx.control import CONTROL, Call
from tilewright.frontends.onnx.folding import Folder, infer_types, shape_of_type, type_of
from tilewright.frontends.onnx.gradient import gradient
from tilewright.frontends.onnx.limits import MAX_DEPTH, MAX_DIMENSIONS, MAX_NODES, MAX_OPERANDS
from tilewright.frontends.onnx.lowering import Lowering, Value, dtype_of, shape_of_value
from tilewright.frontends.onnx.microsoft import CONTRIBUTED, DOMAIN, contributed
from tilewright.frontends.onnx.nodes import (
    AttributeValue,
    Node,
    attributes_of,
    live_nodes,
    near_names,
    nodes_of,
    schema_of,
    sort_nodes,
    takes_lists,
)
from tilewright.frontends.onnx.operators import RULES
from tilewright.frontends.onnx.sequences import Absent, Item, ValueList
from tilewright.frontends.onnx.tensors import (
    DTYPES,
    Constant,
    Files,
    array_of,
    constant_of,
)
from tilewright.ir import SSAValue
from tilewright.ir.types import shape_of

SCOPED = {**CONTROL, "ai.onnx.preview.training.Gradient": gradient}
"""Importers of operators that see the names around them."""


class Unknown:
    """Stands for the result of what was refused."""


UNKNOWN = Unknown()

MAX_RANKS = 2 * MAX_DIMENSIONS
"""Numbers that a constant has at most which says sizes: two for each axis, as Pad's."""

_NOTHING = Constant(np.zeros(0, np.float32), "")
"""The placeholder for a result of a definition that is not used."""


@dataclass
class Scope:
    """The values of the names of one graph; a subgraph sees those around it, too."""

    values: dict[str, Item | Unknown]
    tensors: Mapping[str, TensorProto]
    """Stored constants, which are read when first asked for."""
    outer: Scope | None = None
    depth: int = 0

    def names(self) -> list[str]:
        """All names that can be read here."""
        names = [*self.values, *self.tensors]
        return names if self.outer is None else [*names, *self.outer.names()]


@dataclass
class Body:
    """Takes nodes into a network."""

    network: NetworkBuilder
    files: Files
    """The files in which external data may lie."""
    own_functions: functions.Functions = field(
        default_factory=dict[tuple[str, str, str], FunctionProto]
    )
    """The model's own functions."""
    problems: list[Problem] = field(default_factory=list[Problem])
    constants: Folder = field(default_factory=Folder)
    taken: int = 0

    def run(self, nodes: Sequence[Node], scope: Scope, outputs: Iterable[str]) -> None:
        """Import nodes that stand in an order in which they can be computed."""
        used = {name for node in nodes for name in node.reads} | set(outputs)
        for node in nodes:
            self._take(node, scope, used)

    def value(self, name: str, scope: Scope) -> Item | Unknown:
        """Return the value of a name; stored constants are read when first asked for."""
        where: Scope | None = scope
        while where is not None:
            if name in where.values:
                return where.values[name]
            if name in where.tensors:
                where.values[name] = UNKNOWN
                try:
                    where.values[name] = Constant(array_of(where.tensors[name], self.files), name)
                except TilewrightError as error:
                    self.problems.extend(error.problems)
                return where.values[name]
            where = where.outer
        return UNKNOWN

    def inline(
        self,
        node: Node,
        protos: Iterable[NodeProto],
        scope: Scope,
        outputs: Sequence[str],
        versions: Mapping[str, int] | None = None,
        by_onnx: bool = False,
    ) -> list[Item] | None:
        """The values that ``outputs`` have after nodes within a node; None if one was refused.

        Nodes ``by_onnx`` are its definition of the node's operator."""
        if scope.depth > MAX_DEPTH:
            raise node.refuse(f"graphs lie more than {MAX_DEPTH} deep in it", code="onnx-too-large")
        protos = list(protos)
        produced = {name for proto in protos for name in proto.output} | set(scope.names())
        for name in filter(None, outputs):
            if name not in produced:
                raise node.refuse(f"no node computes its result {shown(name)}")
        defines = node.defines or (node if by_onnx else None)
        nodes = nodes_of(protos, versions or node.versions, node, defines)
        self.taken += len(nodes)
        if self.taken > MAX_NODES:
            raise node.refuse(f"it unfolds to over {MAX_NODES} nodes", code="onnx-too-large")
        self.run(live_nodes(sort_nodes(nodes, scope.names()), outputs), scope, outputs)
        values = [self.value(name, scope) if name else _NOTHING for name in outputs]
        return None if any(isinstance(v, Unknown) for v in values) else _known(values)

    def subgraph(
        self, node: Node, graph: GraphProto, outer: Scope, inputs: Sequence[Item]
    ) -> list[Item] | None:
        """The outputs of a subgraph for given inputs; None if one depends on what was refused."""
        if len(graph.input) != len(inputs):
            raise node.refuse(f"its subgraph has {len(graph.input)} inputs, not {len(inputs)}")
        values = dict[str, Item | Unknown](
            zip((value.name for value in graph.input), inputs, strict=True)
        )
        tensors = {proto.name: proto for proto in graph.initializer}
        scope = Scope(values, tensors, outer, outer.depth + 1)
        return self.inline(node, graph.node, scope, [value.name for value in graph.output])

    def _take(self, node: Node, scope: Scope, used: set[str]) -> None:
        """Import one node: give a value to each of its outputs."""
        results: Sequence[Item] | None = None
        try:
            results = self._results(node, scope)
            for name in node.outputs[len(results or node.outputs) :]:
                if name in used:
                    raise node.refuse(f"its output {shown(name)} is used, which is not computed")
        except TilewrightError as error:
            self.problems.extend(error.problems)
            results = self._guess(node, scope)
        for name in filter(None, node.outputs):
            scope.values[name] = UNKNOWN
        for name, value in zip(node.outputs, results or (), strict=False):
            if name:
                scope.values[name] = value

    def check(self, node: Node) -> dict[str, AttributeValue]:
        """The attributes of a node that can be imported; raises TilewrightError otherwise."""
        if functions.own_function(node, self.own_functions) is not None:
            return {}
        schema = schema_of(node)
        operator = contributed(node, known=schema is not None)
        if operator is not None:
            return operator.values(node)
        taken = schema is not None and (
            node.key in RULES
            or node.key in SCOPED
            or node.key in sequences.RULES
            or node.key == "Constant"
            or self.constants.folds(node)
            or functions.has_body(node)
        )
        if schema is None or not taken:
            raise self._unsupported(node, schema is not None)
        legacy.check(node, schema)
        return attributes_of(node, schema)

    def _unsupported(self, node: Node, known: bool) -> TilewrightError:
        reason = "this operator is not supported"
        if not node.domain and not node.version:
            reason = "the model does not say which version of the ONNX operators it uses"
            return node.refuse(reason, code="onnx-opset")
        if not known:
            reason = f"operator set {node.version} has no such operator"
            if node.domain:
                reason = f"the domain {shown(node.domain)} is not one whose operators are known"
        contributed_keys = (
            [f"{DOMAIN}.{name}" for name in CONTRIBUTED] if node.domain == DOMAIN else []
        )
        if contributed_keys:
            reason = (
                f"it is none of the {len(contributed_keys)} operators of its domain that are known"
            )
        near = near_names(node.key, [*contributed_keys, *RULES, *SCOPED, *sequences.RULES])
        help = f"near to it are {', '.join(near)}" if near else ""
        return node.refuse(reason, code="onnx-unsupported-operator", help=help)

    def _results(self, node: Node, scope: Scope) -> Sequence[Item] | None:
        """The values of a node's outputs; None if they depend on what was refused."""
        count = max(len(node.inputs), len(node.outputs))
        if count > MAX_OPERANDS:
            raise node.refuse(
                f"it has {count} inputs or outputs; the limit is {MAX_OPERANDS}",
                code="onnx-too-large",
            )
        function = functions.own_function(node, self.own_functions)
        if function is not None:
            return self._call(node, functions.called(node, function), scope)
        attributes = self.check(node)
        if node.key == "Constant":
            return [constant_of(node, attributes, self.files)]
        items: list[Item | None] = []
        for name in node.inputs:
            value = self.value(name, scope) if name else None
            if isinstance(value, Unknown):
                return None
            items.append(value)
        at = Lowering(node, attributes, (), self.network)
        if node.key in sequences.RULES:
            return [sequences.RULES[node.key](at, items)]
        if node.key == "Identity" and items[0] is not None:
            return [items[0]]
        if node.key in SCOPED:
            return SCOPED[node.key](Call(self, node, attributes, items, scope))
        if any(isinstance(item, ValueList | Absent) for item in items):
            if functions.has_body(node) and takes_lists(node):
                return self._expanded(node, items, scope)
            raise at.refuse("it takes no sequence and no optional", code="onnx-dtype")
        operands = [item for item in items if not isinstance(item, ValueList | Absent)]
        operands = legacy.adapted(node, attributes, operands, self.network)
        constants = [value for value in operands if not isinstance(value, SSAValue)]
        if len(constants) == len(operands) and self.constants.folds(node, constants):
            return self.constants.fold(node, constants)
        inferred = _inferred(node, operands) if _may_be_empty(operands) else {}
        empty = _empty(node, inferred)
        if empty is not None:
            return empty
        if node.key in SUMS_OF_PRODUCTS:
            operands = [_of_one_zero(value) for value in operands]
        self._check_size(node, inferred)
        operator = contributed(node, known=schema_of(node) is not None)
        rule = operator.rule if operator is not None else RULES.get(node.key)
        if rule is not None:
            return numbers.apply(rule, Lowering(node, attributes, operands, self.network))
        if not functions.has_body(node):
            raise node.refuse(
                "this operator is supported only where all its inputs are constants",
                code="onnx-unsupported-operator",
            )
        return self._expanded(node, operands, scope)

    def _expanded(
        self, node: Node, operands: sequences.Items, scope: Scope
    ) -> Sequence[Item] | None:
        """The results of an operator that ONNX defines by others."""
        defined = functions.body_of(node, [None if v is None else _type(v) for v in operands])
        return self._defined(node, defined, operands, scope)

    def _check_size(self, node: Node, inferred: Mapping[str, TypeProto]) -> None:
        """Refuse results too large before a rule makes anything of their size."""
        for kind in inferred.values():
            shape = shape_of_type(kind)
            if shape is not None and too_large(shape):
                raise node.refuse(
                    f"its result of shape {list(shape)} has more than {MAX_ELEMENTS} elements",
                    code="onnx-too-large",
                )

    def _call(
        self, node: Node, function: functions.Definition, scope: Scope
    ) -> Sequence[Item] | None:
        """The results of one of the model's own functions."""
        operands = [self.value(name, scope) if name else None for name in node.inputs]
        known = [value for value in operands if not isinstance(value, Unknown)]
        if len(known) < len(operands):
            return None
        return self._defined(node, function, known, scope)

    def _defined(
        self,
        node: Node,
        function: functions.Definition,
        operands: sequences.Items,
        scope: Scope,
    ) -> Sequence[Item] | None:
        """The results of the nodes that define a node's operator."""
        values: dict[str, Item | Unknown] = {
            name: value
            for name, value in zip(function.inputs, operands, strict=False)
            if value is not None
        }
        inner = Scope(values, {}, None, scope.depth + 1)
        outputs = [
            inner if name else ""
            for name, inner in zip(node.outputs, function.outputs, strict=False)
        ]
        return self.inline(
            node, function.nodes, inner, outputs, function.versions, function.by_onnx
        )

    def _guess(self, node: Node, scope: Scope) -> list[Value] | None:
        """Tensors of the types that the outputs of a refused node would have, if known."""
        operands = [self.value(name, scope) if name else None for name in node.inputs]
        known = [value for value in operands if not isinstance(value, Unknown)]
        if len(known) < len(operands):
            return None
        inferred = _inferred(node, known)
        if not inferred:
            # What is wrong may be an attribute; shapes often do not depend on it.
            bare = NodeProto()
            bare.CopyFrom(node.proto)
            del bare.attribute[:]
            inferred = _inferred(replace(node, proto=bare), known)
        tensors = itertools.takewhile(lambda tensor: 0 not in tensor[0], _tensors(node, inferred))
        return [self.network.placeholder(shape, dtype) for shape, dtype in tensors]


def _may_be_empty(operands: Sequence[Value | None]) -> bool:
    """Return True if a node's results may be empty, or of another size than its operands.

    That takes an empty operand, or a constant that says sizes: repeats, pads, a number of elements.
    """
    return any(
        value is not None
        and (
            0 in shape_of_value(value)
            or (isinstance(value, Constant) and value.array.size <= MAX_RANKS)
        )
        for value in operands
    )


def _empty(node: Node, inferred: Mapping[str, TypeProto]) -> list[Value] | None:
    """The results of a node if all of them are empty; else None."""
    results = _tensors(node, inferred)
    if len(results) < len(node.outputs) or not all(0 in shape for shape, _ in results):
        return None
    return [
        Constant(np.zeros(shape, dtype), name)
        for name, (shape, dtype) in zip(node.outputs, results, strict=True)
    ]


def _inferred(node: Node, operands: sequences.Items) -> dict[str, TypeProto]:
    """Types of a node's results by name, as far as ONNX infers them from operands."""
    values = {n: v for n, v in zip(node.inputs, operands, strict=False) if v is not None}
    arrays = {name: v.array for name, v in values.items() if isinstance(v, Constant)}
    return infer_types(node, {name: _type(value) for name, value in values.items()}, arrays)


def _tensors(
    node: Node, inferred: Mapping[str, TypeProto]
) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
    """Shapes and element types of a node's results, up to the first that cannot be a tensor."""
    tensors: list[tuple[tuple[int, ...], np.dtype[Any]]] = []
    for kind in map(inferred.get, node.outputs):
        shape = None if kind is None else shape_of_type(kind)
        dtype = None if kind is None else DTYPES.get(kind.tensor_type.elem_type)
        if shape is None or dtype is None or too_large(shape):
            break
        tensors.append((shape, dtype))
    return tensors


def _known(values: Sequence[Item | Unknown]) -> list[Item]:
    return [value for value in values if not isinstance(value, Unknown)]


SUMS_OF_PRODUCTS = frozenset(("MatMul", "Gemm", "Einsum", "Conv", "ConvTranspose"))
"""Operators whose results are sums of products, beside a bias: a sum over nothing is 0."""


def _of_one_zero(value: Value | None) -> Value | None:
    """An empty operand with one zero along each axis of no extent: products have the same sums.

    Empty values are constants, whatever they come from; those axes are summed over, as results
    that have one are empty, too.
    """
    if not isinstance(value, Constant) or value.array.size:
        return value
    shape = [max(extent, 1) for extent in value.array.shape]
    return Constant(np.zeros(shape, value.array.dtype), value.name)


def _type(value: Item) -> TypeProto:
    """ONNX's type of a value."""
    if isinstance(value, ValueList):
        return sequences.type_of_list(value)
    if isinstance(value, Absent):
        return TypeProto()
    if isinstance(value, Constant):
        return type_of(value.array)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype_of(value)))
    return helper.make_tensor_type_proto(kind, shape_of(value))
