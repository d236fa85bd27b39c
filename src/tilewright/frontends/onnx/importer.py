"""Import a whole model: settle its inputs, then take its nodes in order.

What a name of the model stands for is a tensor of the network, an array known at import, or
unknown because what makes it was refused. Import goes on past refusals, so that one report has
them all: the result of a refused node is stood in for by a tensor of the shape that ONNX's own
shape inference gives, if it gives one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from onnx import NodeProto, TensorProto, TypeProto, helper

from tilewright.errors import Problem, TilewrightError, refuse
from tilewright.frontends.builder import NetworkBuilder
from tilewright.frontends.imported import Imported, ModelNode
from tilewright.frontends.onnx.folding import Folder, infer_types, shape_of_type, type_of
from tilewright.frontends.onnx.interface import inputs_of, outputs_of
from tilewright.frontends.onnx.limits import MAX_ELEMENTS, shown
from tilewright.frontends.onnx.lowering import Lowering, Value
from tilewright.frontends.onnx.nodes import (
    AttributeValue,
    Node,
    attributes_of,
    live_nodes,
    nodes_of,
    schema_of,
    sort_nodes,
)
from tilewright.frontends.onnx.operators import RULES
from tilewright.frontends.onnx.reader import ModelSource, Source, check_model, read_model
from tilewright.frontends.onnx.tensors import Constant, array_of, constant_of
from tilewright.graph.dialect import NetworkOp, OutputOp
from tilewright.graph.names import identifier
from tilewright.graph.weights import Weights
from tilewright.ir import ModuleOp, SSAValue
from tilewright.types import Array, shape_of, tensor


def import_onnx(
    source: ModelSource, *, shapes: Mapping[str, Sequence[int]] | None = None
) -> Imported:
    """Read an ONNX model (operator sets 9 to the installed onnx's newest) into the graph dialect.

    ``source`` is a path, the bytes of a file, or a ModelProto; only models from a path may keep
    data outside. ``shapes`` settles inputs whose sizes the model leaves open. Raises
    TilewrightError with every reason for which the model is refused.
    """
    return _Importer(read_model(source), shapes).run()


class Unknown:
    """Stands for the result of what was refused."""


UNKNOWN = Unknown()


class _Importer:
    """The state of one import."""

    def __init__(self, source: Source, shapes: Mapping[str, Sequence[int]] | None) -> None:
        self.source = source
        self.graph = source.model.graph
        self.opset = check_model(source)
        self.functions = {(f.name, f.domain) for f in source.model.functions}
        self.problems: list[Problem] = []
        self.notes: list[str] = []
        self.weights = Weights()
        self.folder = Folder(self.opset)
        self.tensors = self._initializers()
        inputs = inputs_of(self.graph, set(self.tensors), shapes, self.problems, self.notes)
        self.outputs = outputs_of(self.graph, self.problems)
        self.inputs = {name: shape for name, shape in inputs.items() if shape is not None}
        self.name = identifier(self.graph.name, "network")
        self.operator = NetworkOp.of(
            self.name,
            [(name, tensor(shape)) for name, shape in self.inputs.items()],
            self.outputs,
        )
        self.network = NetworkBuilder(self.operator.block, self.weights)
        self.values: dict[str, Value | Unknown] = dict.fromkeys(inputs, UNKNOWN)
        self.values.update(self.operator.inputs)

    def run(self) -> Imported:
        """The model as a network; raises TilewrightError."""
        nodes = self._ordered()
        used = {name for node in nodes for name in node.inputs} | set(self.outputs)
        for node in nodes:
            self._take(node, used)
        results = [self._output(name) for name in self.outputs]
        if self.problems:
            raise TilewrightError(self.problems)
        values = [value for value in results if value is not None]
        self.operator.block.add_op(OutputOp.build(operands=[values]))
        module = ModuleOp([self.operator])
        module.verify()
        digest, notes = self.source.digest, tuple(self.notes)
        named = (ModelNode(n.name, n.operator, n.outputs) for n in nodes_of(self.graph))
        return Imported(
            module, self.weights, self.name, self.opset, digest, notes, nodes=tuple(named)
        )

    def _initializers(self) -> dict[str, TensorProto]:
        """The model's stored constants by name."""
        found: dict[str, TensorProto] = {}
        for proto in self.graph.initializer:
            where = f"tensor {shown(proto.name)}"
            if not proto.name:
                self.problems.append(Problem("onnx-duplicate-name", "it has no name", where))
            elif proto.name in found:
                self.problems.append(Problem("onnx-duplicate-name", "it is stored twice", where))
            found[proto.name] = proto
        for sparse in self.graph.sparse_initializer:
            where = f"tensor {shown(sparse.values.name)}"
            self.problems.append(Problem("onnx-dtype", "sparse tensors are not read", where))
        return found

    def _ordered(self) -> list[Node]:
        """The nodes that the outputs need, each after those it reads.

        Raises TilewrightError if there is no such order, with all that can be said of each node.
        """
        nodes = nodes_of(self.graph)
        try:
            ordered = sort_nodes(nodes, [*self.values, *self.tensors])
        except TilewrightError as error:
            self.problems.extend(error.problems)
            for node in nodes:
                try:
                    self._check(node)
                except TilewrightError as other:
                    self.problems.extend(other.problems)
            raise TilewrightError(self.problems) from error
        made = {name for node in nodes for name in node.outputs} | {*self.values, *self.tensors}
        for name in self.outputs:
            if name not in made:
                reason = "nothing makes it"
                where = f"output {shown(name)}"
                self.problems.append(Problem("onnx-missing-output", reason, where))
        live = live_nodes(ordered, self.outputs)
        if len(live) < len(ordered):
            self.notes.append(f"{len(ordered) - len(live)} nodes lead to no output; left out")
        return live

    def _take(self, node: Node, used: set[str]) -> None:
        """Import one node: give a value to each of its outputs."""
        results: Sequence[Value] | None = None
        try:
            results = self._results(node)
            for name in node.outputs[len(results or node.outputs) :]:
                if name in used:
                    raise refuse(
                        "onnx-attribute",
                        f"its output {shown(name)} is used, which is not computed",
                        where=node.where,
                    )
        except TilewrightError as error:
            self.problems.extend(error.problems)
            results = self._guess(node)
        for name in filter(None, node.outputs):
            self.values[name] = UNKNOWN
        for name, value in zip(node.outputs, results or (), strict=False):
            if name:
                self.values[name] = value

    def _check(self, node: Node) -> dict[str, AttributeValue]:
        """The attributes of a node that can be imported; raises TilewrightError otherwise."""
        schema = schema_of(node, self.opset)
        known = node.domain == "" and schema is not None
        if not known or not (
            node.operator in RULES or node.operator == "Constant" or self.folder.folds(node)
        ):
            raise self._unsupported(node, known)
        assert schema is not None
        return attributes_of(node, schema)

    def _unsupported(self, node: Node, known: bool) -> TilewrightError:
        reason = "this operator is not supported"
        if not known:
            reason = f"operator set {self.opset} has no such operator"
        if node.domain:
            reason = f"operators of the domain {shown(node.domain)} are not supported"
        if (node.operator, node.domain) in self.functions:
            return refuse(
                "onnx-unsupported-operator",
                "functions inside a model are not read",
                where=node.where,
                help="inline them with onnx.inliner.inline_local_functions",
            )
        return refuse("onnx-unsupported-operator", reason, where=node.where)

    def _results(self, node: Node) -> Sequence[Value] | None:
        """The values of a node's outputs; None if they depend on what was refused."""
        attributes = self._check(node)
        if node.operator == "Constant":
            return [constant_of(node, attributes, self.source.folder)]
        operands: list[Value | None] = []
        for name in node.inputs:
            value = self._value(name) if name else None
            if isinstance(value, Unknown):
                return None
            operands.append(value)
        constants = [value for value in operands if not isinstance(value, SSAValue)]
        if len(constants) == len(operands) and self.folder.folds(node):
            return self.folder.fold(node, constants)
        rule = RULES.get(node.operator)
        if rule is None:
            raise refuse(
                "onnx-unsupported-operator",
                "this operator is supported only where all its inputs are constants",
                where=node.where,
            )
        result = rule(Lowering(node, self.opset, attributes, operands, self.network))
        return [result] if isinstance(result, (SSAValue, Constant)) else result

    def _value(self, name: str) -> Value | Unknown:
        """What a name stands for; stored constants are read when first asked for."""
        if name not in self.values:
            self.values[name] = UNKNOWN
            proto = self.tensors.get(name)
            if proto is not None:
                try:
                    self.values[name] = Constant(array_of(proto, self.source.folder), name)
                except TilewrightError as error:
                    self.problems.extend(error.problems)
        return self.values[name]

    def _guess(self, node: Node) -> list[Value] | None:
        """Tensors of the shapes that the outputs of a refused node would have, if known."""
        types: dict[str, TypeProto] = {}
        arrays: dict[str, Array] = {}
        for name in filter(None, node.inputs):
            value = self._value(name)
            if isinstance(value, Unknown):
                return None
            if isinstance(value, Constant):
                arrays[name] = value.array
                types[name] = type_of(value.array)
            else:
                kind = helper.make_tensor_type_proto(TensorProto.FLOAT, shape_of(value))
                types[name] = kind
        found = infer_types(node, self.opset, types, arrays)
        if not found:
            # What is wrong may be an attribute; shapes often do not depend on it.
            bare = NodeProto()
            bare.CopyFrom(node.proto)
            del bare.attribute[:]
            found = infer_types(replace(node, proto=bare), self.opset, types, arrays)
        results: list[Value] = []
        for name in node.outputs:
            kind = found.get(name)
            shape = shape_of_type(kind) if kind is not None else None
            if kind is None or shape is None or kind.tensor_type.elem_type != TensorProto.FLOAT:
                break
            if math.prod(shape) > MAX_ELEMENTS:
                break
            results.append(self.network.placeholder(shape))
        return results

    def _output(self, name: str) -> SSAValue | None:
        """The tensor that an output stands for; None if it was refused."""
        value = self._value(name)
        if isinstance(value, Constant):
            if value.array.dtype != np.float32 or value.array.size == 0:
                reason = f"it is a constant of {value.array.dtype}, shape {value.array.shape}"
                where = f"output {shown(name)}"
                self.problems.append(Problem("onnx-dtype", reason, where))
                return None
            return self.network.weight(value.array, value.name)
        return None if isinstance(value, Unknown) else value
