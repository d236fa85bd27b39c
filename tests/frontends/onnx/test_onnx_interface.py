"""Inputs and outputs: names, open sizes, given shapes, element types; and what an import tells."""

import hashlib

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.helper import tensor_dtype_to_np_dtype

from tests.frontends.onnx.onnx_models import check, model_of, noise, single
from tilewright.errors import TilewrightError
from tilewright.frontends import load
from tilewright.frontends.onnx import import_onnx
from tilewright.graph.dialect import network_of
from tilewright.graph.interpreter import interpret
from tilewright.graph.operations import parse
from tilewright.ir.types import element_dtype, shape_of, tensor_type


def relu(sizes, **more):
    return model_of([helper.make_node("Relu", ["x"], ["y"], **more)], {"x": sizes}, ["y"])


def input_shapes(imported):
    return {name: shape_of(value) for name, value in network_of(imported.module).inputs}


@pytest.mark.parametrize("size", ["batch", None, 0, -1])
def test_an_open_batch_is_one_and_is_noted(size):
    imported = import_onnx(relu([size, 3]))
    assert input_shapes(imported) == {"x": (1, 3)}
    assert len(imported.notes) == 1
    assert "'x'" in imported.notes[0]
    assert import_onnx(relu([1, 3])).notes == ()


def test_shapes_settle_what_is_open():
    imported = import_onnx(relu(["n", 3, "h", "w"]), shapes={"x": np.array([2, 3, 5, 7])})
    assert input_shapes(imported) == {"x": (2, 3, 5, 7)}
    assert imported.notes == ()


def test_one_symbol_has_one_size():
    nodes = [helper.make_node("Add", ["x", "y"], ["z"])]
    model = model_of(nodes, {"x": ["n", "t"], "y": ["n", "t"]}, ["z"])
    imported = import_onnx(model, shapes={"x": [2, 9]})
    assert input_shapes(imported) == {"x": (2, 9), "y": (2, 9)}


def test_sizes_that_are_none_settle_no_symbol():
    nodes = [helper.make_node("Add", ["x", "y"], ["z"])]
    model = model_of(nodes, {"x": [1, "t"], "y": [1, "t"]}, ["z"])
    with pytest.raises(TilewrightError) as caught:
        import_onnx(model, shapes={"x": [1, 2.5]})
    places = [problem.where for problem in caught.value.problems]
    assert places == ["input 'x'", "input 'x'", "input 'y'"]


@pytest.mark.parametrize(
    ("sizes", "shapes", "words"),
    [
        (["n", 3, "height", 4], None, "'height'"),
        ([1, 3, None, 4], None, "axis 2"),
        ([1, 3], {"y": [1, 3]}, "no input"),
        ([1, 3], {"x": [1, 3, 4]}, "rank 2"),
        ([1, 3], {"x": [1, 4]}, "axis 1"),
        (["n", 3], {"x": [-1, 3]}, "negative"),
        (["n", 3], {"x": [2.5, 3]}, "positive"),
        (["n", 3], {"x": ["2.5", 3]}, "is no dim"),
        (["n", 3], {"x": [2**30, 3]}, "elements"),
        (None, None, "does not state its shape"),
    ],
)
def test_shapes_that_do_not_settle_an_input_are_refused(sizes, shapes, words):
    with pytest.raises(TilewrightError, match=words) as caught:
        import_onnx(relu(sizes), shapes=shapes)
    assert {problem.code for problem in caught.value.problems} <= {
        "onnx-shape", "onnx-too-large", "shape-form", "shape-fixed", "shape-rank", "shape-unknown",
    }  # fmt: skip


def test_a_shape_may_be_given_for_an_input_without_one():
    assert input_shapes(import_onnx(relu(None), shapes={"x": [4]})) == {"x": (4,)}


@pytest.mark.parametrize("kind", [TensorProto.STRING, TensorProto.COMPLEX64, 0])
def test_inputs_of_other_elements_are_refused(kind):
    model = relu([2, 3])
    model.graph.input[0].type.tensor_type.elem_type = kind
    with pytest.raises(TilewrightError, match="input 'x'") as caught:
        import_onnx(model)
    assert [problem.code for problem in caught.value.problems] == ["onnx-dtype"]


@pytest.mark.parametrize("kind", [TensorProto.DOUBLE, TensorProto.INT64, TensorProto.BOOL])
def test_inputs_have_the_elements_that_the_model_says(kind):
    model = relu([2, 3])
    model.graph.node[0].op_type = "Identity"
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = kind
    ((_, value),) = network_of(import_onnx(model).module).inputs
    assert element_dtype(tensor_type(value).element_type) == tensor_dtype_to_np_dtype(kind)


def test_outputs_that_are_declared_of_other_elements_are_refused():
    model = relu([2, 3])
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.DOUBLE
    with pytest.raises(TilewrightError, match="declared as float64, and computed as float32"):
        import_onnx(model)


def test_outputs_may_be_inputs_constants_or_one_value_of_several():
    nodes = [
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node("Relu", ["x"], ["y"]),
        helper.make_node("Identity", ["y"], ["again"]),
    ]
    model = model_of(nodes, {"x": (2, 3)}, ["y", "same", "c", "again"], {"c": noise(4)})
    check(model)


NAMES = [
    'quo"te',
    "new\nline",
    "int",
    "ünïcode 漢字",
    "gpu_0/conv1_1",
    "../../x",
    "%0",
    "a" * 3000,
    "tab\tand\\back",
]


@pytest.mark.parametrize("name", NAMES)
def test_names_of_all_kinds_survive(name):
    nodes = [helper.make_node("Add", [name, name + "w"], [name + "y"], name=name)]
    model = model_of(nodes, {name: (2, 3)}, [name + "y"], {name + "w": noise(3)})
    model.graph.name = name
    imported = check(model)
    network = network_of(imported.module)
    assert [key for key, _ in network.inputs] == [name]
    assert [key for key, _ in network.outputs] == [name + "y"]
    assert imported.name.isidentifier()
    assert imported.name.isascii()
    # The text of the graph reads back the same, names and all.
    again = parse(str(imported.module))
    assert str(again) == str(imported.module)
    add = next(op for op in network_of(again).block.ops if op.name == "graph.add")
    assert add.node_name == name
    x = noise(2, 3)
    first = interpret(imported.module, imported.weights, {name: x})
    second = interpret(again, imported.weights, {name: x})
    np.testing.assert_array_equal(first[name + "y"], second[name + "y"])


def test_nodes_without_names_are_numbered():
    nodes = [helper.make_node("Relu", ["x"], ["t"]), helper.make_node("Tanh", ["t"], ["y"])]
    imported = import_onnx(model_of(nodes, {"x": (2,)}, ["y"]))
    ops = list(network_of(imported.module).block.ops)[:2]
    assert [op.node_name for op in ops] == ["Relu_0", "Tanh_1"]


def test_nodes_in_any_order_are_sorted():
    nodes = [
        helper.make_node("Tanh", ["b"], ["y"]),
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Neg", ["a"], ["b"]),
    ]
    model = model_of(nodes, {"x": (2, 3)}, ["y"])
    ops = [op.name for op in network_of(import_onnx(model).module).block.ops]
    assert ops == ["graph.relu", "graph.neg", "graph.tanh", "graph.output"]


def test_nodes_that_lead_nowhere_are_left_out():
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Det", ["x"], ["z"])]
    imported = import_onnx(model_of(nodes, {"x": (2, 2)}, ["y"]))
    assert imported.notes == ("1 nodes lead to no output; left out",)


def test_where_a_model_came_from(tmp_path):
    model = relu([1, 3])
    path = tmp_path / "some.ONNX"
    path.write_bytes(model.SerializeToString())
    imported = load(path)
    assert imported.digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (imported.name, imported.opset) == ("some", 17)
    assert import_onnx(path.read_bytes()).digest == imported.digest
    text = str(import_onnx(model).module)
    assert text.replace('"small"', '"some"') == str(imported.module)


def test_the_oldest_and_newest_operator_sets():
    newest = onnx.defs.onnx_opset_version()
    for opset in range(6, newest + 1):
        model = single("Relu", [(2, 3)], opset)
        assert import_onnx(model).opset == opset
    for opset in (0, 1, 5, newest + 1, 10**9, -1):
        model = single("Relu", [(2, 3)], 9)
        model.opset_import[0].version = opset
        with pytest.raises(TilewrightError, match="onnx-opset"):
            import_onnx(model)
