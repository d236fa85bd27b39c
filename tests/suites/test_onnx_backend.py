"""ONNX's own backend suite: its single-operator tests through the importer and the interpreter.

In scope are the tests whose operator is imported, whose tensors are float32 but for operands that
give shapes, axes or bounds, and whose shapes are static. Such operands arrive as inputs; networks
are compiled for fixed ones, so they become constants. The suite's expected outputs are the oracle.
"""

import warnings
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, numpy_helper
from onnx.backend.test.loader import load_model_tests

from tilewright.errors import TilewrightError
from tilewright.frontends.onnx import import_onnx
from tilewright.frontends.onnx.operators import RULES
from tilewright.graph.dialect import network_of
from tilewright.graph.interpreter import interpret
from tilewright.types import shape_of

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

# Why tests in scope are refused, and how many there are. Nothing else may be.
REFUSED = {
    "images of one or two spatial axes are computed": 10,
    "it is in training mode": 8,
    "is used, which is not computed": 4,
}

# Operators that the tests in scope cover, so that the scope cannot shrink unseen. Cast, Shape and
# Size give or take other types than float32 in all of the suite's tests.
COVERED = set(RULES) - {"Cast", "Shape", "Size"}


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


@pytest.mark.slow
def test_single_operators():
    covered, refused, failed = Counter(), Counter(), list[str]()
    for name, case in cases().items():
        operator = case.model.graph.node[0].op_type
        for arrays, wanted in case.data_sets:
            model, feeds = with_constants(case, arrays)
            try:
                imported = import_onnx(model)
            except TilewrightError as error:
                # The last problem is the node's; those before it are of an output's type.
                reason = error.problems[-1].reason
                refused[next((words for words in REFUSED if words in reason), reason)] += 1
                continue
            covered[operator] += 1
            got = interpret(imported.module, imported.weights, feeds)
            for array, want in zip(got.values(), wanted, strict=True):
                same = array.shape == want.shape and array.dtype == want.dtype
                if not (same and np.allclose(array, want, case.rtol, case.atol, equal_nan=True)):
                    failed.append(name)
    assert not failed
    assert dict(refused) == REFUSED
    assert set(covered) == COVERED
    assert covered.total() >= 200


LIGHT = ("inception_v1", "resnet50", "shufflenet", "squeezenet")
HEAVY = ("bvlc_alexnet", "densenet121", "inception_v2", "vgg19", "zfnet512")


@pytest.mark.parametrize(
    "name", [*LIGHT, *(pytest.param(name, marks=pytest.mark.slow) for name in HEAVY)]
)
def test_light_models(name):
    """The bundled networks with constant weights, on the suite's input and output."""
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    imported = import_onnx(folder / f"light_{name}.onnx")
    ((key, value),) = network_of(imported.module).inputs
    shape = shape_of(value)
    # As the suite makes it: 0, 1, 2, ... scaled to [0, 1).
    image = (np.arange(np.prod(shape)) / np.prod(shape)).astype(np.float32).reshape(shape)
    (got,) = interpret(imported.module, imported.weights, {key: image}).values()
    want = numpy_helper.to_array(onnx.load_tensor(folder / f"light_{name}_output_0.pb"))
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-7)
