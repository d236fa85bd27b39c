"""Operators that ONNX or the model defines by others: the nodes, with attributes put in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnx import AttributeProto, FunctionProto, ModelProto, NodeProto, TypeProto

from tilewright.frontends.limits import shown
from tilewright.frontends.onnx.nodes import Node, schema_of


@dataclass(frozen=True)
class Definition:
    """The nodes that define an operator, and what they read and give."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[NodeProto, ...]
    versions: Mapping[str, int]
    """Versions of the operator sets that the nodes are of, by domain."""
    by_onnx: bool = False
    """True if ONNX defines the operator, not the model."""


Functions = Mapping[tuple[str, str, str], FunctionProto]
"""A model's own functions by domain, name and overload."""


def functions_of(model: ModelProto) -> Functions:
    """The model's own functions; of two alike the first holds."""
    functions: dict[tuple[str, str, str], FunctionProto] = {}
    for function in model.functions:
        domain = "" if function.domain == "ai.onnx" else function.domain
        functions.setdefault((domain, function.name, function.overload), function)
    return functions


def own_function(node: Node, functions: Functions) -> FunctionProto | None:
    """The function of the model that a node calls, or None."""
    return functions.get((node.domain, node.operator, node.proto.overload))


def called(node: Node, function: FunctionProto) -> Definition:
    """A model's own function with a node's attributes put in; raises TilewrightError."""
    attributes: dict[str, AttributeProto] = {}
    known = {*function.attribute, *(item.name for item in function.attribute_proto)}
    for attribute in node.proto.attribute:
        if attribute.name not in known or attribute.name in attributes or attribute.ref_attr_name:
            reason = f"the function has no attribute {shown(attribute.name)}, or it is given twice"
            raise node.refuse(reason)
        attributes[attribute.name] = attribute
    for attribute in function.attribute_proto:
        attributes.setdefault(attribute.name, attribute)
    if len(node.inputs) > len(function.input) or len(node.outputs) > len(function.output):
        reason = f"the function takes {len(function.input)} inputs, gives {len(function.output)}"
        raise node.refuse(reason)
    versions = dict(node.versions)
    for entry in function.opset_import:
        versions["" if entry.domain == "ai.onnx" else entry.domain] = entry.version
    nodes = tuple(_bound(inner, attributes) for inner in function.node)
    absent = {
        name
        for index, name in enumerate(function.input)
        if index >= len(node.inputs) or not node.inputs[index]
    }
    for inner in nodes:
        for index, name in enumerate(inner.input):
            if name in absent:
                inner.input[index] = ""
    return Definition(tuple(function.input), tuple(function.output), nodes, versions)


def has_body(node: Node) -> bool:
    """Return True if ONNX defines the node's operator by others."""
    schema: Any = schema_of(node)  # Its stubs lack what concerns functions.
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def body_of(node: Node, types: Sequence[TypeProto | None]) -> Definition:
    """The definition of a node's operator for operands of these types; raises TilewrightError."""
    schema: Any = schema_of(node)
    built = schema.has_context_dependent_function
    versions = (
        schema.context_dependent_function_opset_versions
        if built
        else schema.function_opset_versions
    )
    # The newest that is not newer than the model's operators; the oldest if all are.
    version = max((v for v in versions if v <= node.version), default=min(versions))
    proto = FunctionProto()
    try:
        if built:
            kinds = [b"" if kind is None else kind.SerializeToString() for kind in types]
            data = schema.get_context_dependent_function_with_opset_version(
                version, node.proto.SerializeToString(), kinds
            )
        else:
            data = schema.get_function_with_opset_version(version)
        proto.ParseFromString(data)
    except Exception as error:  # Bindings to C++, with whatever it throws.
        reason = " ".join(str(error).split())[:200]
        raise node.refuse(f"ONNX does not define it: {reason}") from error
    if not proto.node:
        raise node.refuse("ONNX does not define it with these inputs")
    opsets = dict(node.versions)
    for entry in proto.opset_import:
        domain = "" if entry.domain == "ai.onnx" else entry.domain
        opsets[domain] = max(entry.version, version if domain == node.domain else 0)
    opsets.setdefault("", version)
    attributes = {attribute.name: attribute for attribute in node.proto.attribute}
    for attribute in proto.attribute_proto:
        attributes.setdefault(attribute.name, attribute)
    for name, definition in schema.attributes.items():
        if definition.default_value.name:
            attributes.setdefault(name, definition.default_value)
    return Definition(
        tuple(proto.input),
        tuple(proto.output),
        tuple(_bound(inner, attributes) for inner in proto.node),
        opsets,
        by_onnx=True,
    )


def _bound(inner: NodeProto, attributes: dict[str, AttributeProto]) -> NodeProto:
    """A node with its references to the function's attributes replaced by their values."""
    node = NodeProto()
    node.CopyFrom(inner)
    del node.attribute[:]
    for attribute in inner.attribute:
        if not attribute.ref_attr_name:
            node.attribute.append(attribute)
            if attribute.type == AttributeProto.GRAPH:
                graph = node.attribute[-1].g
                nodes = [_bound(each, attributes) for each in graph.node]
                del graph.node[:]
                graph.node.extend(nodes)
        elif attribute.ref_attr_name in attributes:
            value = AttributeProto()
            value.CopyFrom(attributes[attribute.ref_attr_name])
            value.name = attribute.name
            node.attribute.append(value)
    return node
