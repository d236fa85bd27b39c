"""ONNX's own backend suite: its single-operator tests through the importer and the interpreter.

In scope are the tests whose operator is imported, whose tensors are float32 but for operands that
give shapes, axes or bounds, and whose shapes are static. Such operands arrive as inputs; networks
are compiled for fixed ones, so they become constants. The suite's expected outputs are the oracle.
"""

import warnings
from collections import Counter
from functools import cache

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, numpy_helper
from onnx.backend.test.loader import load_model_tests

from tilewright.errors import TilewrightError
from tilewright.frontends.onnx import import_onnx
from tilewright.frontends.onnx.operators import RULES
from tilewright.graph.interpreter import interpret

# Operands that must be known at import, where they come as inputs.
CONSTANT_OPERANDS = {
    "Clip": (1, 2),
    "Dropout": (1, 2),
    "Expand": (1,),
    "Gather": (1,),
    "Pad": (1, 2, 3),
    "ReduceMean": (1,),
    "Reshape": (1,),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Squeeze": (1,),
    "Unsqueeze": (1,),
}

# Why tests in scope are refused: words of the refusal -> their number. Nothing else may fail.
REFUSED: dict[str, int] = {}

# Operators that the tests in scope must cover, so that the scope cannot shrink unseen.
COVERED: set[str] = set()


@cache
def cases():
    """The node tests in scope, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = load_model_tests(kind="node")
    return {case.name: case for case in found if in_scope(case)}


def in_scope(case):
    """Whether a test has one imported node, float32 tensors, and static shapes."""
    graph = case.model.graph
    if len(graph.node) != 1 or graph.node[0].op_type not in RULES or graph.node[0].domain:
        return False
    node = graph.node[0]
    fixed = CONSTANT_OPERANDS.get(node.op_type, ())
    for place, name in enumerate(node.input):
        kinds = [v.type.tensor_type.elem_type for v in graph.input if v.name == name]
        if place not in fixed and any(kind != TensorProto.FLOAT for kind in kinds):
            return False
    values = [*graph.input, *graph.output]
    dims = [dim for value in values for dim in value.type.tensor_type.shape.dim]
    return graph.output[0].type.tensor_type.elem_type == TensorProto.FLOAT and all(
        dim.dim_value > 0 for dim in dims
    )


def with_constants(case, arrays):
    """The test's model with those operands as constants, and the inputs that are left."""
    model = ModelProto()
    model.CopyFrom(case.model)
    node, graph = model.graph.node[0], model.graph
    fixed = {node.input[i] for i in CONSTANT_OPERANDS.get(node.op_type, ()) if i < len(node.input)}
    feeds = {}
    for value, array in zip(list(graph.input), arrays, strict=True):
        if value.name in fixed:
            graph.input.remove(value)
            graph.initializer.append(numpy_helper.from_array(array, value.name))
        else:
            feeds[value.name] = array
    return model, feeds
