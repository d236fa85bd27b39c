"""Models that are refused: what is said, that all of it is said, and that nothing else happens."""

import re

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from tilewright.errors import TilewrightError
from tilewright.frontends.onnx import folding, import_onnx


def model_of(nodes, constants=None, opset=17, inputs=None, outputs=("y",)):
    graph = helper.make_graph(
        nodes,
        "bad",
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in (inputs or {"x": (1, 3, 8, 8)}).items()
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def refusals(source, **options):
    with pytest.raises(TilewrightError) as caught:
        import_onnx(source, **options)
    return caught.value.problems


def node(operator, inputs=("x",), outputs=("y",), name="the node", **attributes):
    return helper.make_node(operator, list(inputs), list(outputs), name, **attributes)


W = np.ones((4, 3, 3, 3), np.float32)

CASES = {
    "unknown operator": (node("Frobnicate"), {}, "onnx-unsupported-operator", "no such operator"),
    "other operator": (node("Multinomial"), {}, "onnx-unsupported-operator", "not supported"),
    "other domain": (
        node("NhwcFusedConv", domain="com.microsoft"),
        {},
        "onnx-unsupported-operator",
        "none of the 40 operators of its domain",
    ),
    "unknown attribute of another domain": (
        node("Gelu", domain="com.microsoft", alpha=1.0),
        {},
        "onnx-attribute",
        "'alpha'",
    ),
    "missing inputs of another domain": (
        node("BiasGelu", domain="com.microsoft"),
        {},
        "onnx-attribute",
        "inputs",
    ),
    "unknown attribute": (node("Relu", alpha=1.0), {}, "onnx-attribute", "'alpha'"),
    "attribute of another type": (
        node("LeakyRelu", alpha=[1.0]),
        {},
        "onnx-attribute",
        "'alpha'.*type",
    ),
    "attribute that is no number": (
        node("LeakyRelu", alpha=float("nan")),
        {},
        "onnx-attribute",
        "finite",
    ),
    "missing attribute": (node("LRN"), {}, "onnx-attribute", "'size'"),
    "missing operand": (node("Conv"), {}, "onnx-attribute", "1 inputs"),
    "empty operand": (node("Conv", ["x", ""]), {}, "onnx-attribute", "missing"),
    "too many operands": (node("Relu", ["x", "x"]), {}, "onnx-attribute", "2 inputs"),
    "too many results": (node("Relu", ["x"], ["y", "z"]), {}, "onnx-attribute", "2 outputs"),
    "four spatial axes": (
        node("Conv", ["w6", "w6"]),
        {"w6": np.ones((1, 3, 3, 3, 3, 3), np.float32)},
        "onnx-shape",
        "one to three spatial axes",
    ),
    "channels that differ": (
        node("Conv", ["x", "w"]),
        {"w": np.ones((4, 2, 3, 3), np.float32)},
        "onnx-shape",
        "channels",
    ),
    "kernel_shape that differs": (
        node("Conv", ["x", "w"], kernel_shape=[3, 2]),
        {"w": W},
        "onnx-attribute",
        "kernel_shape",
    ),
    "negative pads": (
        node("Conv", ["x", "w"], pads=[0, 0, 0, -1]),
        {"w": W},
        "onnx-attribute",
        "pads",
    ),
    "pads of a wrong number": (
        node("Conv", ["x", "w"], pads=[0, 0]),
        {"w": W},
        "onnx-attribute",
        "pads",
    ),
    "zero stride": (
        node("Conv", ["x", "w"], strides=[0, 1]),
        {"w": W},
        "onnx-attribute",
        "strides",
    ),
    "stride of 2**40": (
        node("Conv", ["x", "w"], strides=[2**40, 1]),
        {"w": W},
        "onnx-attribute",
        "strides",
    ),
    "zero groups": (node("Conv", ["x", "w"], group=0), {"w": W}, "onnx-shape", "group"),
    "unknown auto_pad": (
        node("Conv", ["x", "w"], auto_pad="SAME"),
        {"w": W},
        "onnx-attribute",
        "auto_pad",
    ),
    "window beyond the image": (
        node("MaxPool", kernel_shape=[9, 9]),
        {},
        "onnx-shape",
        "does not fit",
    ),
    "window of 2**40": (
        node("MaxPool", kernel_shape=[2**40, 1]),
        {},
        "onnx-attribute",
        "kernel_shape",
    ),
    "pads as large as the window": (
        node("MaxPool", kernel_shape=[2, 2], pads=[2, 0, 0, 0]),
        {},
        "onnx-attribute",
        "pads",
    ),
    "padding to 2**60": (
        node("Pad", ["x", "p"]),
        {"p": np.array([0, 0, 0, 0, 0, 0, 2**60, 0])},
        "onnx-too-large",
        "elements",
    ),
    "expansion to 2**60": (
        node("Expand", ["x", "p"]),
        {"p": np.array([2**60, 1, 1, 1])},
        "onnx-too-large",
        "elements",
    ),
    "axis that is none": (node("Softmax", axis=4), {}, "onnx-attribute", "axis 4"),
    "broadcast that fails": (
        node("Add", ["x", "w"]),
        {"w": np.ones(5, np.float32)},
        "onnx-shape",
        "broadcast",
    ),
    "weights of integers": (
        node("Conv", ["x", "w"]),
        {"w": W.astype(np.int32)},
        "onnx-dtype",
        "element type",
    ),
    "constant of 2**50 elements": (
        node("ConstantOfShape", ["p"]),
        {"p": np.array([2**25, 2**25])},
        "onnx-too-large",
        "limit",
    ),
    "range of 2**50 elements": (
        node("Range", ["zero", "many", "one"]),
        {"zero": np.array(0), "many": np.array(2**50), "one": np.array(1)},
        "onnx-too-large",
        "limit",
    ),
    "tile of 2**50 elements": (
        node("Tile", ["w", "p"]),
        {"w": W, "p": np.array([2**20, 2**20, 2**10, 1])},
        "onnx-too-large",
        "limit",
    ),
    "constant that cannot be evaluated": (
        node("Reshape", ["w", "p"]),
        {"w": W, "p": np.array([7, 7])},
        "onnx-(attribute|shape)",
        "",
    ),
    "loop": (
        node("Loop", ["many", ""], ["y"], body=helper.make_graph([], "b", [], [])),
        {"many": np.array(2**50)},
        "onnx-attribute",
        "subgraph",
    ),
    "random numbers": (
        node("RandomNormal", [], shape=[2]),
        {},
        "onnx-unsupported-operator",
        "not supported",
    ),
    "value that nothing makes": (
        node("Add", ["x", "ghost"]),
        {},
        "onnx-missing-input",
        "'ghost'",
    ),
    "cycle of one": (node("Add", ["x", "y"]), {}, "onnx-cycle", "'the node'"),
}


@pytest.mark.parametrize("case", CASES)
def test_one_node(case):
    bad, constants, code, words = CASES[case]
    problems = refusals(model_of([bad], constants))
    assert len(problems) == 1
    assert re.fullmatch(code, problems[0].code)
    assert "the node" in problems[0].where
    assert bad.op_type in problems[0].where
    assert re.search(words, problems[0].reason)


def test_nodes_of_onnx_s_own_definitions_are_not_named():
    """Bernoulli is random numbers and a comparison; the model has no nodes of these names."""
    model = model_of([helper.make_node("Bernoulli", ["x"], ["y"], "the node")], opset=18)
    (problem,) = refusals(model)
    assert problem.where == "node 'the node' (Bernoulli, which ONNX defines by RandomUniformLike)"


def test_nodes_of_the_model_s_functions_are_named():
    inner = helper.make_node("Bernoulli", ["x"], ["r"], "inside")
    versions = [helper.make_opsetid("", 18)]
    function = helper.make_function("own", "f", ["x"], ["r"], [inner], versions)
    call = helper.make_node("f", ["x"], ["y"], "the node", domain="own")
    model = model_of([call])
    model.functions.append(function)
    model.opset_import.append(helper.make_opsetid("own", 1))
    (problem,) = refusals(model)
    place = "node 'the node', in it 'inside' (Bernoulli, which ONNX defines by RandomUniformLike)"
    assert problem.where == place


def test_all_problems_are_told_at_once_also_behind_unsupported_operators():
    nodes = [
        helper.make_node("Multinomial", ["x"], ["d"], "first"),
        helper.make_node("RandomNormalLike", ["x"], ["a"], "second"),
        helper.make_node("MaxPool", ["a"], ["b", "i"], "third", kernel_shape=[2, 2], pads=[5] * 4),
        helper.make_node("Cast", ["i"], ["c"], "fourth", to=1),
        helper.make_node("LeakyRelu", ["b"], ["e"], beta=1.0),
        helper.make_node("Softmax", ["e"], ["f"], "sixth", axis=7),
        helper.make_node("Add", ["f", "ints"], ["g"], "seventh"),
        helper.make_node("Add", ["g", "c"], ["h"], "eighth"),
        helper.make_node("Add", ["h", "d"], ["y"], "ninth"),
    ]
    model = model_of(nodes, {"ints": np.arange(8)}, opset=18)
    model.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, None))
    model.graph.input.append(helper.make_tensor_value_info("s", TensorProto.STRING, [3]))
    problems = refusals(model)
    places = [problem.where for problem in problems]
    assert places == [
        "input 's'",
        "output 'z'",
        "node 'first' (Multinomial)",
        "node 'second' (RandomNormalLike)",
        "node 'third' (MaxPool)",
        "node 'LeakyRelu_4' (LeakyRelu)",
        "node 'sixth' (Softmax)",
        "node 'seventh' (Add)",
    ]


def test_missing_values_do_not_hide_other_problems():
    nodes = [
        helper.make_node("Add", ["x", "ghost"], ["a"], "first"),
        helper.make_node("RandomNormalLike", ["spectre"], ["b"], "second"),
        helper.make_node("Add", ["a", "b"], ["y"], "third"),
    ]
    found = [(problem.code, problem.where) for problem in refusals(model_of(nodes, opset=18))]
    assert found == [
        ("onnx-missing-input", "node 'first' (Add)"),
        ("onnx-missing-input", "node 'second' (RandomNormalLike)"),
        ("onnx-unsupported-operator", "node 'second' (RandomNormalLike)"),
    ]


def test_a_cycle_is_named():
    nodes = [
        helper.make_node("Relu", ["x"], ["s"], "start"),
        helper.make_node("Add", ["s", "c"], ["a"], "one"),
        helper.make_node("Neg", ["a"], ["b"], "two"),
        helper.make_node("Abs", ["b"], ["c"], "three"),
        helper.make_node("Tanh", ["c"], ["y"], "end"),
    ]
    (problem,) = refusals(model_of(nodes))
    assert problem.code == "onnx-cycle"
    assert all(f"'{name}'" in problem.reason for name in ("one", "two", "three"))
    assert "'start'" not in problem.reason
    assert "'end'" not in problem.reason


@pytest.mark.slow
def test_long_chains_and_long_cycles_take_no_recursion_and_little_time():
    count = 5000
    names = ["x", *(f"v{i}" for i in range(count - 1)), "y"]
    nodes = [helper.make_node("Relu", [names[i]], [names[i + 1]]) for i in range(count)]
    imported = import_onnx(model_of(nodes[::-1], inputs={"x": (2,)}))
    assert len(list(imported.module.walk())) == count + 3
    nodes[0].input[0] = "y"
    (problem,) = refusals(model_of(nodes))
    assert problem.code == "onnx-cycle"
    assert len(problem.reason) < 500


def test_values_and_tensors_of_one_name_are_refused():
    relu = node("Relu")
    twice = model_of([relu, node("Tanh", name="other")])
    assert [p.code for p in refusals(twice)] == ["onnx-duplicate-name"]
    shadow = model_of([node("Relu", outputs=["x"])], outputs=["x"])
    assert [p.code for p in refusals(shadow)] == ["onnx-duplicate-name"]
    model = model_of([node("Add", ["x", "w"])], {"w": np.ones(8, np.float32)})
    model.graph.initializer.append(model.graph.initializer[0])
    assert [p.code for p in refusals(model)] == ["onnx-duplicate-name"]
    model = model_of([relu])
    model.graph.input.append(model.graph.input[0])
    assert [p.code for p in refusals(model)] == ["onnx-duplicate-name"]


def test_models_without_a_graph_an_output_or_a_version():
    assert [p.code for p in refusals(b"")] == ["onnx-truncated"]
    assert [p.code for p in refusals(ModelProto())] == ["onnx-truncated"]
    model = model_of([node("Relu")])
    del model.graph.output[:]
    assert [p.code for p in refusals(model)] == ["onnx-missing-output"]
    model = model_of([node("Relu")])
    del model.opset_import[:]
    assert [p.code for p in refusals(model)] == ["onnx-opset"]
    model = model_of([node("Relu")])
    model.opset_import.append(helper.make_opsetid("ai.onnx", 12))
    assert [p.code for p in refusals(model)] == ["onnx-opset"]
    model = model_of([node("Relu")])
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.DOUBLE
    assert [p.code for p in refusals(model)] == ["onnx-dtype"]


def test_absurd_input_sizes():
    (problem,) = refusals(model_of([node("Relu")], inputs={"x": (1, 2**40)}))
    assert problem.code == "onnx-too-large"
    (problem,) = refusals(model_of([node("Relu")], inputs={"x": (1,) * 40}))
    assert problem.code == "onnx-too-large"
    # Each tensor is in bounds; their outer product is not.
    inputs = {"x": (2**20, 1), "z": (1, 2**20)}
    (problem,) = refusals(model_of([node("Add", ["x", "z"])], inputs=inputs))
    assert problem.code in ("onnx-too-large", "onnx-shape")


def test_many_large_constants_pass_the_budget(monkeypatch):
    monkeypatch.setattr(folding, "MAX_FOLDED_BYTES", 10_000)
    make = [helper.make_node("ConstantOfShape", ["p"], [f"c{i}"]) for i in range(50)]
    total = helper.make_node("Sum", ["x", *(f"c{i}" for i in range(50))], ["y"])
    problems = refusals(model_of([*make, total], {"p": np.array([8, 8])}, inputs={"x": (1, 8)}))
    assert {problem.code for problem in problems} == {"onnx-too-large"}
    assert problems[0].where == f"node 'ConstantOfShape_{10_000 // 256}' (ConstantOfShape)"


def test_names_in_messages_stay_on_one_short_line():
    for name in ("two\nlines", "\x1b[31mred", "q'uo\"te", "n" * 10_000):
        for bad in (node("Det", name=name), node("Gemm", ["x", "x"], name=name)):
            error = TilewrightError(refusals(model_of([bad], inputs={"x": (2, 3)})))
            assert len(str(error).splitlines()) == 1
            assert str(error).isprintable()
            assert len(str(error)) < 400


def test_names_that_are_not_text():
    data = model_of([node("Relu", name="NODENAME")]).SerializeToString()
    for old, new in ((b"NODENAME", b"NODE\xff\xfeME"), (b"\x01y", b"\x01\xff")):
        broken = data.replace(old, new)
        assert broken != data
        assert [p.code for p in refusals(broken)] == ["onnx-truncated"]
