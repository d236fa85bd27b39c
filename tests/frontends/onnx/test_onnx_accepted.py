"""Models that ONNX allows and few write: branches of a run, functions, values and empty inputs."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.helper import make_tensor_value_info as info

from tests.frontends.onnx.onnx_models import noise, onnxruntime_of
from tests.slow import but_fast
from tilewright.compiler.api import compile
from tilewright.errors import TilewrightError
from tilewright.frontends.onnx import import_onnx
from tilewright.graph.interpreter import interpret

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def model(nodes, inputs, outputs, constants=None, functions=(), domains=(), opset=17):
    graph = helper.make_graph(
        nodes,
        "g",
        [info(name, kind, dims) for name, (kind, dims) in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    for value, kind in zip(graph.output, outputs.values(), strict=True):
        value.CopyFrom(info(value.name, kind, None))
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=functions)


def agree(built, feeds, tmp_path, constants=None, tolerance=1e-5):
    """The cpu target, the interpreter and ONNX Runtime on the same inputs."""
    path = tmp_path / "model.onnx"
    onnx.save(built, path)
    fixed = constants or {}
    given = {name: array for name, array in feeds.items() if name not in fixed}
    shapes = {name: list(array.shape) for name, array in given.items()}
    executable = compile(path, "cpu", shapes=shapes, constants=fixed)
    imported = import_onnx(built, shapes=shapes, constants=fixed)
    full = {name: array for name, array in given.items() if array.size}
    wanted = onnxruntime_of(built, feeds)
    for got in (executable.run(given), interpret(imported.module, imported.weights, full)):
        for name, want in wanted.items():
            assert got[name].dtype == want.dtype
            assert got[name].shape == want.shape
            np.testing.assert_allclose(got[name], want, rtol=tolerance, atol=tolerance)


def branch(name, nodes, result, kind=FLOAT, constants=None):
    stored = [numpy_helper.from_array(array, key) for key, array in (constants or {}).items()]
    return helper.make_graph(nodes, name, [], [info(result, kind, None)], stored)


def branches():
    """An If within an If, with captured values, and conditions of shapes [1] and []."""
    inner = helper.make_node(
        "If",
        ["c2"],
        ["i"],
        then_branch=branch("a", [helper.make_node("Neg", ["x"], ["i1"])], "i1"),
        else_branch=branch("b", [helper.make_node("Exp", ["h"], ["i2"])], "i2"),
    )
    add = helper.make_node("Add", ["i", "k"], ["t1"])
    outer = helper.make_node(
        "If",
        ["c"],
        ["y"],
        then_branch=branch("t", [inner, add], "t1", constants={"k": noise(4)}),
        else_branch=branch("e", [helper.make_node("Mul", ["h", "x"], ["e1"])], "e1"),
    )
    inputs = {"x": (FLOAT, [4]), "c": (BOOL, [1]), "c2": (BOOL, [])}
    return model([helper.make_node("Abs", ["x"], ["h"]), outer], inputs, {"y": FLOAT})


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("second", [True, False])
def test_branches_are_chosen_at_run_time(first, second, tmp_path):
    feeds = {"x": noise(4, seed=3), "c": np.array([first]), "c2": np.array(second)}
    agree(branches(), feeds, tmp_path)


def chosen_by_sum():
    """Nodes that give ``r`` from ``h``, by a branch for positive sums and one for others."""
    scaled = [helper.make_node("Mul", ["h", "k"], ["t0"]), helper.make_node("Tanh", ["t0"], ["t1"])]
    moved = [helper.make_node("Relu", ["h"], ["e0"]), helper.make_node("Sub", ["e0", "k"], ["e1"])]
    choose = helper.make_node(
        "If",
        ["c"],
        ["r"],
        then_branch=branch("t", scaled, "t1"),
        else_branch=branch("e", moved, "e1"),
    )
    total = helper.make_node("ReduceSum", ["h"], ["s"], keepdims=0)
    return [total, helper.make_node("Greater", ["s", "zero"], ["c"]), choose]


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("operator", ["Loop", "Scan"])
def test_branches_within_a_loop_are_chosen_in_each_round(operator, seed, tmp_path):
    """The condition depends on what the rounds before gave: both branches are taken."""
    constants = {"k": np.float32(-2.0), "zero": np.float32(0.0)}
    if operator == "Loop":
        body = helper.make_graph(
            [
                helper.make_node("Identity", ["on"], ["on1"]),
                helper.make_node("Identity", ["state"], ["h"]),
                *chosen_by_sum(),
                helper.make_node("Identity", ["r"], ["next"]),
                helper.make_node("Identity", ["c"], ["taken"]),
            ],
            "body",
            [info("i", INT64, []), info("on", BOOL, []), info("state", FLOAT, [2, 3])],
            [info("on1", BOOL, []), info("next", FLOAT, [2, 3]), info("taken", BOOL, [])],
        )
        node = helper.make_node("Loop", ["n", "true", "x"], ["y", "taken_each"], body=body)
        constants |= {"n": np.int64(6), "true": np.bool_(True)}
        shape, values = [2, 3], noise(2, 3, seed=seed)
    else:
        body = helper.make_graph(
            [
                helper.make_node("Add", ["state", "row"], ["h"]),
                *chosen_by_sum(),
                helper.make_node("Identity", ["r"], ["next"]),
                helper.make_node("Identity", ["c"], ["taken"]),
            ],
            "body",
            [info("state", FLOAT, [3]), info("row", FLOAT, [3])],
            [info("next", FLOAT, [3]), info("taken", BOOL, [])],
        )
        outputs = ["y", "taken_each"]
        node = helper.make_node("Scan", ["start", "x"], outputs, body=body, num_scan_inputs=1)
        constants["start"] = np.zeros(3, np.float32)
        shape, values = [6, 3], noise(6, 3, seed=seed)
    kept = {name: np.asarray(value) for name, value in constants.items()}
    built = model([node], {"x": (FLOAT, shape)}, {"y": FLOAT, "taken_each": BOOL}, kept)
    agree(built, {"x": values}, tmp_path)
    taken = onnxruntime_of(built, {"x": values})["taken_each"]
    assert taken.any() and not taken.all()


@pytest.mark.few(1)
@pytest.mark.parametrize("rate", [8000, 16000])
def test_branches_with_convolutions_before_a_recurrence(rate, tmp_path):
    """As a detector of voices has them: a kernel for each sampling rate, then an LSTM."""
    small, large = noise(4, 1, 3), noise(4, 1, 5, seed=1)
    halved = helper.make_node("Conv", ["u", "w"], ["t1"], pads=[1, 1], strides=[2])
    wide = helper.make_node("Conv", ["u", "v"], ["e0"], pads=[2, 2], strides=[2])
    nodes = [
        helper.make_node("Unsqueeze", ["x", "axis"], ["u"]),
        helper.make_node("Equal", ["rate", "high"], ["c"]),
        helper.make_node(
            "If",
            ["c"],
            ["r"],
            then_branch=branch("t", [halved], "t1", constants={"w": small}),
            else_branch=branch(
                "e",
                [wide, helper.make_node("Relu", ["e0"], ["e1"])],
                "e1",
                constants={"v": large},
            ),
        ),
        helper.make_node("Transpose", ["r"], ["steps"], perm=[2, 0, 1]),
        helper.make_node("LSTM", ["steps", "W", "R"], ["", "y"], hidden_size=3),
    ]
    constants = {
        "axis": np.array([1]),
        "high": np.array(16000),
        "W": noise(1, 12, 4, seed=2),
        "R": noise(1, 12, 3, seed=3),
    }
    inputs = {"x": (FLOAT, [2, 16]), "rate": (INT64, [])}
    feeds = {"x": noise(2, 16, seed=4), "rate": np.array(rate)}
    agree(model(nodes, inputs, {"y": FLOAT}, constants), feeds, tmp_path)


def test_the_branch_that_is_not_taken_may_divide_by_zero_and_read_nowhere(tmp_path):
    choose = helper.make_node(
        "If",
        ["c"],
        ["y"],
        then_branch=branch(
            "t",
            [
                helper.make_node("Div", ["a", "b"], ["d"]),
                helper.make_node("Gather", ["d", "p"], ["t1"]),
            ],
            "t1",
            INT64,
        ),
        else_branch=branch("e", [helper.make_node("Add", ["a", "b"], ["e1"])], "e1", INT64),
    )
    inputs = {"a": (INT64, [3]), "b": (INT64, [3]), "p": (INT64, [3]), "c": (BOOL, [])}
    feeds = {
        "a": np.array([5, -(2**63), 7]),
        "b": np.array([0, -1, 2]),
        "p": np.array([10**9, -(10**12), 1]),
        "c": np.array(False),
    }
    agree(model([choose], inputs, {"y": INT64}), feeds, tmp_path)


def test_branches_of_two_ranks_are_refused():
    choose = helper.make_node(
        "If",
        ["c"],
        ["y"],
        then_branch=branch("t", [helper.make_node("Neg", ["x"], ["t1"])], "t1"),
        else_branch=branch("e", [helper.make_node("Reshape", ["x", "s"], ["e1"])], "e1"),
    )
    built = model(
        [choose], {"x": (FLOAT, [2]), "c": (BOOL, [])}, {"y": FLOAT}, {"s": np.array([1, 2])}
    )
    with pytest.raises(TilewrightError, match=r"\[2\] and \[1, 2\]") as refused:
        import_onnx(built)
    assert refused.value.problems[0].code == "onnx-shape"
    assert "--constant" in refused.value.problems[0].help
    import_onnx(built, constants={"c": "false"})


@pytest.mark.parametrize(
    ("node", "constants", "outputs"),
    [
        (helper.make_node("Split", ["x", "s"], ["a", "b"], axis=2), [1, 3], 2),
        (helper.make_node("Reshape", ["x", "s"], ["a"]), "2,-1", 1),
        (helper.make_node("Slice", ["x", "s", "e"], ["a"]), [0, 1, 1], 1),
        (helper.make_node("Expand", ["x", "s"], ["a"]), "2,1,3,4,4", 1),
        (helper.make_node("Tile", ["x", "s"], ["a"]), (1, 2, 1, 3), 1),
        (helper.make_node("Pad", ["x", "s"], ["a"]), [0, 0, 1, -1, 0, 0, 2, 1], 1),
        (helper.make_node("Resize", ["x", "", "", "s"], ["a"], mode="linear"), "1,3,6,7", 1),
        (helper.make_node("ReduceSum", ["x", "s"], ["a"]), "1", 1),
    ],
    ids=lambda item: item.op_type if isinstance(item, onnx.NodeProto) else "",
)
def test_sizes_are_inputs_with_values(node, constants, outputs, tmp_path):
    listed = [int(v) for v in constants.split(",")] if isinstance(constants, str) else constants
    values = np.array(listed, np.int64)
    inputs = {"x": (FLOAT, [1, 3, 4, 4]), "s": (INT64, list(values.shape))}
    stored = {}
    if node.op_type == "Slice":
        stored = {"e": np.array([1, 3, 4], np.int64)}
    results = dict.fromkeys(("a", "b")[:outputs], FLOAT)
    built = model([node], inputs, results, stored)
    feeds = {"x": noise(1, 3, 4, 4, seed=1), "s": values}
    agree(built, feeds, tmp_path, {"s": constants})


@pytest.mark.parametrize(
    ("constants", "code"),
    [
        ({"t": 1}, "input-name"),
        ({"s": [1.5, 2]}, "input-dtype"),
        ({"s": "one"}, "input-dtype"),
        ({"s": [1, 2, 3]}, "input-shape"),
        ({"s": [2**64, 1]}, "input-dtype"),
    ],
)
def test_values_that_do_not_fit_are_refused(constants, code):
    built = model(
        [helper.make_node("Reshape", ["x", "s"], ["y"])],
        {"x": (FLOAT, [2, 2]), "s": (INT64, [2])},
        {"y": FLOAT},
    )
    with pytest.raises(TilewrightError) as refused:
        import_onnx(built, constants=constants)
    assert refused.value.problems[0].code == code


def test_dims_called_question_mark_differ(tmp_path):
    built = model(
        [helper.make_node("MatMul", ["a", "b"], ["y"])],
        {"a": (FLOAT, ["?", "?"]), "b": (FLOAT, ["?", "?"])},
        {"y": FLOAT},
    )
    agree(built, {"a": noise(2, 3), "b": noise(3, 5, seed=1)}, tmp_path)


def test_a_cache_may_be_empty(tmp_path):
    nodes = [
        helper.make_node("Cast", ["past"], ["p1"], to=FLOAT),
        helper.make_node("Softmax", ["p1"], ["p2"]),
        helper.make_node("Concat", ["p2", "x"], ["joined"], axis=1),
        helper.make_node("MatMul", ["joined", "w"], ["y"]),
    ]
    inputs = {"past": (FLOAT, ["b", "past", 4]), "x": (FLOAT, ["b", "now", 4])}
    built = model(nodes, inputs, {"y": FLOAT}, {"w": noise(4, 4)})
    for length in (0, 2):
        feeds = {"past": noise(1, length, 4, seed=2), "x": noise(1, 3, 4, seed=4)}
        agree(built, feeds, tmp_path)


def test_negative_pads_cut_constants(tmp_path):
    nodes = [
        helper.make_node("Pad", ["k", "p"], ["cut"]),
        helper.make_node("Add", ["x", "cut"], ["y"]),
    ]
    constants = {"k": noise(4, 5), "p": np.array([-1, 1, 0, -2], np.int64)}
    built = model(nodes, {"x": (FLOAT, [3, 4])}, {"y": FLOAT}, constants)
    agree(built, {"x": noise(3, 4, seed=5)}, tmp_path)


def test_an_output_may_be_listed_twice(tmp_path):
    built = model([helper.make_node("Relu", ["x"], ["y"])], {"x": (FLOAT, [3])}, {"y": FLOAT})
    built.graph.output.append(built.graph.output[0])
    agree(built, {"x": noise(3)}, tmp_path)


def test_resize_needs_no_regions():
    def built(opset):
        node = helper.make_node("Resize", ["x", "", "s"], ["y"], mode="nearest")
        scales = {"s": np.array([1, 1, 2, 3], np.float32)}
        return model([node], {"x": (FLOAT, [1, 2, 3, 3])}, {"y": FLOAT}, scales, opset=opset)

    x = {"x": noise(1, 2, 3, 3)}
    imported = import_onnx(built(11))
    got = interpret(imported.module, imported.weights, x)["y"]
    np.testing.assert_array_equal(got, onnxruntime_of(built(13), x)["y"])


@pytest.mark.few(2)
@pytest.mark.parametrize(("operator", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
@pytest.mark.parametrize("direction", ["reverse", "bidirectional"])
def test_recurrent_cells_clip(operator, gates, direction, tmp_path):
    count = 2 if direction == "bidirectional" else 1
    node = helper.make_node(
        operator, ["x", "W", "R", "B"], ["y", "h"], hidden_size=4, clip=0.5, direction=direction
    )
    constants = {
        "W": noise(count, gates * 4, 5),
        "R": noise(count, gates * 4, 4, seed=1),
        "B": noise(count, 8 * gates, seed=2),
    }
    built = model([node], {"x": (FLOAT, [4, 2, 5])}, {"y": FLOAT, "h": FLOAT}, constants)
    agree(built, {"x": noise(4, 2, 5, seed=6)}, tmp_path, tolerance=1e-4)


@pytest.mark.parametrize("cell", but_fast([("LSTM", 4), ("GRU", 3), ("RNN", 1)], [("RNN", 1)]))
@pytest.mark.parametrize(
    "direction", but_fast(["forward", "reverse", "bidirectional"], ["reverse"])
)
@pytest.mark.parametrize("known", but_fast([False, True], [False]))
def test_sequences_end_at_their_own_lengths(cell, direction, known, tmp_path):
    """A sequence of no step among them; lengths are constants or come with a run."""
    operator, gates = cell
    count = 2 if direction == "bidirectional" else 1
    results = ["y", "h", "c"][: 3 if operator == "LSTM" else 2]
    node = helper.make_node(
        operator, ["x", "W", "R", "", "n", "s"], results, hidden_size=4, direction=direction
    )
    lengths = np.array([3, 5, 0, 1], np.int32)
    constants = {"W": noise(count, gates * 4, 3), "R": noise(count, gates * 4, 4, seed=1)}
    inputs = {"x": (FLOAT, [5, 4, 3]), "s": (FLOAT, [count, 4, 4])}
    feeds = {"x": noise(5, 4, 3, seed=6), "s": noise(count, 4, 4, seed=2)}
    if known:
        constants["n"] = lengths
    else:
        inputs["n"], feeds["n"] = (TensorProto.INT32, [4]), lengths
    built = model([node], inputs, dict.fromkeys(results, FLOAT), constants)
    agree(built, feeds, tmp_path, tolerance=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("columns", but_fast([False, True], [True]))
@pytest.mark.parametrize("dtype", but_fast([np.uint8, np.int8], [np.uint8]))
def test_an_lstm_quantises_its_steps(columns, dtype, tmp_path):
    """Weights of 7 bits: ONNX Runtime's products of signed bytes saturate without dot products."""
    rng, count, hidden = np.random.default_rng(1), 2, 8
    shape = (count, 4 * hidden) if columns else (count,)
    low, zero = (60, 120) if dtype is np.uint8 else (-60, 0)
    constants = {
        "W": rng.integers(low, low + 121, (count, 6, 4 * hidden)).astype(dtype),
        "R": rng.integers(low, low + 121, (count, hidden, 4 * hidden)).astype(dtype),
        "B": noise(count, 8 * hidden),
        "ws": rng.uniform(0.004, 0.01, shape).astype(np.float32),
        "wz": np.full(shape, zero, dtype),
        "rs": rng.uniform(0.004, 0.01, shape).astype(np.float32),
        "rz": np.full(shape, zero, dtype),
    }
    node = helper.make_node(
        "DynamicQuantizeLSTM",
        ["x", "W", "R", "B", "", "h", "c", "", "ws", "wz", "rs", "rz"],
        ["y", "yh", "yc"],
        domain="com.microsoft",
        hidden_size=hidden,
        direction="bidirectional",
    )
    inputs = {"x": (FLOAT, [5, 2, 6]), "h": (FLOAT, [2, 2, 8]), "c": (FLOAT, [2, 2, 8])}
    outputs = dict.fromkeys(("y", "yh", "yc"), FLOAT)
    built = model([node], inputs, outputs, constants, domains=["com.microsoft"])
    feeds = {"x": noise(5, 2, 6, seed=1), "h": noise(2, 2, 8, seed=2), "c": noise(2, 2, 8, seed=3)}
    # A unit of a byte's scale is about 1/50 of a gate; results keep a tenth of that.
    agree(built, feeds, tmp_path, tolerance=0.02)


def referring(operator, inputs, outputs, name, to, **more):
    node = helper.make_node(operator, inputs, outputs, **more)
    reference = onnx.AttributeProto(name=name, ref_attr_name=to, type=onnx.AttributeProto.FLOAT)
    node.attribute.append(reference)
    return node


def test_functions_of_the_model_are_called(tmp_path):
    """Nested, with attributes that refer to attributes, a default, and a result left out."""
    scale = helper.make_function(
        "own",
        "Scale",
        ["x"],
        ["y"],
        [
            referring("Constant", [], ["k"], "value_float", "alpha"),
            helper.make_node("Mul", ["x", "k"], ["y"]),
        ],
        [helper.make_opsetid("", 17)],
        ["alpha"],
    )
    outer = helper.make_function(
        "own",
        "Outer",
        ["x", "b"],
        ["y", "z"],
        [
            referring("LeakyRelu", ["x"], ["l"], "alpha", "slope"),
            referring("Scale", ["l"], ["s"], "alpha", "slope", domain="own"),
            helper.make_node("Add", ["s", "b"], ["y"]),
            helper.make_node("Neg", ["s"], ["z"]),
        ],
        [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)],
        [],
        [helper.make_attribute("slope", 0.25)],
    )
    nodes = [
        helper.make_node("Outer", ["x", "x"], ["p", "q"], domain="own"),
        helper.make_node("Outer", ["p", "q"], ["y", ""], domain="own", slope=0.5),
        helper.make_node("Scale", ["q"], ["w"], domain="own", alpha=3.0),
    ]
    built = model(
        nodes, {"x": (FLOAT, [2, 3])}, {"y": FLOAT, "w": FLOAT}, None, [outer, scale], ["own"]
    )
    agree(built, {"x": noise(2, 3)}, tmp_path)


def test_overloads_of_a_function_are_told_apart():
    def function(operator, overload):
        made = helper.make_function(
            "own", "F", ["x"], ["y"], [helper.make_node(operator, ["x"], ["y"])],
            [helper.make_opsetid("", 17)],
        )  # fmt: skip
        made.overload = overload
        return made

    nodes = [helper.make_node("F", ["x"], [name], domain="own") for name in ("a", "b")]
    nodes[0].overload, nodes[1].overload = "one", "two"
    functions = [function("Neg", "one"), function("Exp", "two")]
    built = model(nodes, {"x": (FLOAT, [3])}, {"a": FLOAT, "b": FLOAT}, None, functions, ["own"])
    imported = import_onnx(built)
    x = noise(3)
    got = interpret(imported.module, imported.weights, {"x": x})
    np.testing.assert_array_equal(got["a"], -x)
    np.testing.assert_allclose(got["b"], np.exp(x), rtol=1e-6)


def test_a_function_that_calls_itself_is_refused():
    again = helper.make_function(
        "own", "F", ["x"], ["y"], [helper.make_node("F", ["x"], ["y"], domain="own")],
        [helper.make_opsetid("own", 1)],
    )  # fmt: skip
    node = helper.make_node("F", ["x"], ["y"], domain="own")
    built = model([node], {"x": (FLOAT, [3])}, {"y": FLOAT}, None, [again], ["own"])
    with pytest.raises(TilewrightError) as refused:
        import_onnx(built)
    assert refused.value.problems[0].code == "onnx-too-large"
