"""Sequences and optionals that are known at import, rounds that never go, computed slices."""

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.frontends.onnx.executed import executed, runtime_of, typed_model
from tests.frontends.onnx.onnx_models import noise
from tilewright.errors import TilewrightError
from tilewright.frontends.onnx import import_onnx

node = helper.make_node
FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def of(shape: list[int] | None, name: str, kind: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def test_lists_of_tensors() -> None:
    """Split, changed, counted, joined: as ONNX Runtime has it."""
    feeds = {"x": noise(7, 3), "z": noise(2, 3, seed=1)}
    nodes = [
        node("SplitToSequence", ["x", "two"], ["parts"], axis=0),
        node("SequenceErase", ["parts", "second"], ["fewer"]),
        node("SequenceInsert", ["fewer", "z", "minus"], ["more"]),
        node("SequenceLength", ["more"], ["n"]),
        node("SequenceAt", ["more", "minus"], ["last"]),
        node("ConcatFromSequence", ["more"], ["joined"], axis=0),
        node("SplitToSequence", ["x"], ["columns"], axis=1, keepdims=0),
        node("ConcatFromSequence", ["columns"], ["turned"], axis=0, new_axis=1),
        node("SplitToSequence", ["x", "sizes"], ["listed"], axis=0),
        node("SequenceAt", ["listed", "second"], ["middle"]),
        node("SequenceConstruct", ["z", "last"], ["pair"]),
        node("ConcatFromSequence", ["pair"], ["beside"], axis=-2),
        node("SequenceEmpty", [], ["none"]),
        node("SequenceLength", ["none"], ["zero"]),
    ]
    constants = {
        "two": np.array(2),
        "second": np.array(1),
        "minus": np.array(-1),
        "sizes": np.array([1, 4, 2]),
    }
    outputs = dict.fromkeys(["joined", "turned", "last", "middle", "beside"], FLOAT)
    model = typed_model(nodes, feeds, outputs | {"n": INT, "zero": INT}, constants, opset=17)
    # The last part has one row, so that z, which has two, is put before it.
    got, want = executed(model, feeds), runtime_of(model, feeds)
    for name, array in want.items():
        np.testing.assert_array_equal(got[name], array, err_msg=name)


def test_tensors_that_do_not_fit_are_not_stacked() -> None:
    """Not even if they have as many elements."""
    nodes = [
        node("SequenceConstruct", ["x", "z"], ["pair"]),
        node("ConcatFromSequence", ["pair"], ["y"], axis=0, new_axis=1),
    ]
    model = typed_model(nodes, {"x": noise(2, 3), "z": noise(3, 2)}, {"y": FLOAT})
    with pytest.raises(TilewrightError, match="do not fit together"):
        import_onnx(model)


def test_a_map_of_lists() -> None:
    """SequenceMap, which ONNX defines by a loop."""
    body = helper.make_graph(
        [node("Mul", ["a", "b"], ["c"])], "each", [of(None, "a"), of([3], "b")], [of(None, "c")]
    )
    nodes = [
        node("SplitToSequence", ["x", "two"], ["parts"], axis=0),
        node("SequenceMap", ["parts", "w"], ["mapped"], body=body),
        node("ConcatFromSequence", ["mapped"], ["y"], axis=0),
    ]
    feeds, weight = {"x": noise(5, 3)}, noise(3, seed=2)
    model = typed_model(nodes, feeds, {"y": FLOAT}, {"two": np.array(2), "w": weight})
    np.testing.assert_array_equal(executed(model, feeds)["y"], feeds["x"] * weight)


def test_a_loop_fills_a_list() -> None:
    """As PyTorch's exporter has it: each round appends a tensor, which are joined at the end."""
    body = helper.make_graph(
        [
            node("Mul", ["state", "w"], ["next"]),
            node("SequenceInsert", ["list", "next"], ["longer"]),
            node("Identity", ["going"], ["go"]),
        ],
        "body",
        [
            *(of([], "i", INT), of([], "going", BOOL), of([2, 3], "state")),
            helper.make_tensor_sequence_value_info("list", FLOAT, None),
        ],
        [
            *(of([], "go", BOOL), of([2, 3], "next")),
            helper.make_tensor_sequence_value_info("longer", FLOAT, None),
        ],
    )
    nodes = [
        node("SequenceEmpty", [], ["none"]),
        node("Loop", ["three", "true", "x", "none"], ["end", "all"], body=body),
        node("ConcatFromSequence", ["all"], ["joined"], axis=0),
    ]
    constants = {"three": np.array(3), "true": np.array(True), "w": noise(3)}
    feeds = {"x": noise(2, 3, seed=4)}
    model = typed_model(nodes, feeds, {"joined": FLOAT, "end": FLOAT}, constants, opset=17)
    got, want = executed(model, feeds), runtime_of(model, feeds)
    for name, array in want.items():
        np.testing.assert_allclose(got[name], array, rtol=1e-6, err_msg=name)


def test_optionals() -> None:
    """What is there is known; a branch that is not taken is not looked at."""
    kind = helper.make_tensor_type_proto(FLOAT, [4])
    absent = node("Optional", [], ["absent"], type=kind)
    there = helper.make_graph(
        [node("OptionalGetElement", ["absent"], ["t"])], "t", [], [of([4], "t")]
    )
    other = helper.make_graph([node("Neg", ["x"], ["e"])], "e", [], [of([4], "e")])
    nodes = [
        absent,
        node("Optional", ["x"], ["held"]),
        node("OptionalHasElement", ["held"], ["a"]),
        node("OptionalHasElement", ["absent"], ["b"]),
        node("OptionalHasElement", [""], ["c"]),
        node("OptionalHasElement", ["x"], ["d"]),
        node("OptionalGetElement", ["held"], ["got"]),
        node("Relu", ["got"], ["y"]),
        node("If", ["b"], ["z"], then_branch=there, else_branch=other),
    ]
    feeds = {"x": noise(4)}
    outputs = {"y": FLOAT, "z": FLOAT, **dict.fromkeys("abcd", BOOL)}
    got = executed(typed_model(nodes, feeds, outputs, opset=18), feeds)
    np.testing.assert_array_equal(got["y"], np.maximum(feeds["x"], 0))
    np.testing.assert_array_equal(got["z"], -feeds["x"])
    assert [bool(got[name]) for name in "abcd"] == [True, False, False, True]


def test_a_list_is_no_tensor() -> None:
    def refused(nodes: list[Any], reason: str) -> None:
        with pytest.raises(TilewrightError, match=reason):
            import_onnx(typed_model(nodes, {"x": noise(4)}, {"y": FLOAT}, {"one": np.array(1)}))

    split = node("SplitToSequence", ["x"], ["parts"], axis=0)
    refused([split, node("Relu", ["parts"], ["y"])], "it takes no sequence and no optional")
    refused([split, node("Identity", ["parts"], ["y"])], "is declared, and another computed")
    refused([node("SequenceAt", ["x", "one"], ["y"])], "its first input is no sequence")
    far = node("SequenceConstruct", ["x"], ["parts"])
    refused([far, node("SequenceAt", ["parts", "one"], ["y"])], "there is no position 1 among 1")
    maker = node("Optional", [], ["o"], type=helper.make_tensor_type_proto(FLOAT, [4]))
    refused([maker, node("OptionalGetElement", ["o"], ["y"])], "its optional holds nothing")


@pytest.mark.parametrize("stated", [False, True])
def test_no_round(stated: bool) -> None:
    """What rounds would have collected is empty, of the shape that a round's would have."""
    shape = [4] if stated else None
    body = helper.make_graph(
        [node("Add", ["s", "x"], ["t"]), node("Identity", ["c"], ["d"])],
        "body",
        [of([], "i", INT), of([], "c", BOOL), of([4], "s")],
        [of([], "d", BOOL), of([4], "t"), of(shape, "t")],
    )
    sums = helper.make_graph(
        [node("Add", ["s", "r"], ["t"]), node("Neg", ["t"], ["u"])],
        "sums",
        [of([4], "s"), of([4], "r")],
        [of([4], "t"), of(shape, "u")],
    )
    nodes = [
        node("Loop", ["zero", "true", "s0"], ["y", "o"], body=body),
        node("Loop", ["", "false", "s0"], ["y2", "o2"], body=body),
        node("Scan", ["s0", "nothing"], ["y3", "o3"], body=sums, num_scan_inputs=1),
    ]
    constants = {
        "zero": np.array(0),
        "true": np.array(True),
        "false": np.array(False),
        "nothing": np.zeros((0, 4), np.float32),
    }
    feeds = {"x": noise(4), "s0": noise(4, seed=1)}
    names = ["y", "o", "y2", "o2", "y3", "o3"]
    model = typed_model(nodes, feeds, dict.fromkeys(names, FLOAT), constants)
    # The interpreter's network has no output without elements.
    got = executed(model, feeds, empty=("o", "o2", "o3"))
    for name in names:
        want = np.zeros((0, 4), np.float32) if name.startswith("o") else feeds["s0"]
        np.testing.assert_array_equal(got[name], want)
        assert got[name].shape == want.shape and got[name].dtype == np.float32


def test_slices_of_known_size() -> None:
    """Their starts come with a run; how far apart their ends are is known at import."""
    nodes = [
        node("Add", ["i", "two"], ["end"]),
        node("Slice", ["x", "i", "end"], ["plain"]),
        node("Slice", ["x", "i", "end", "one"], ["columns"]),
        node("Sub", ["i", "one"], ["before"]),
        node("Cast", ["i"], ["short"], to=TensorProto.INT32),
        node("Cast", ["short"], ["long"], to=INT),
        node("Add", ["long", "one"], ["after"]),
        node("Slice", ["x", "before", "after"], ["around"]),
        node("Concat", ["i", "zero"], ["starts"], axis=0),
        node("Concat", ["end", "four"], ["ends"], axis=0),
        node("Slice", ["x", "starts", "ends", "axes", "steps"], ["both"]),
        node("Squeeze", ["i", "zero"], ["number"]),
        node("Add", ["number", "scalar"], ["numbered"]),
        node("Unsqueeze", ["numbered", "zero"], ["ended"]),
        node("Slice", ["x", "i", "ended", "one"], ["three"]),
    ]
    constants = {
        **{name: np.array([k]) for name, k in (("zero", 0), ("one", 1), ("two", 2), ("four", 4))},
        "axes": np.array([1, 0]),
        "steps": np.array([1, 2]),
        "scalar": np.array(3),
    }
    outputs = dict.fromkeys(["plain", "columns", "around", "both", "three"], FLOAT)
    for start in (1, 2):
        feeds = {"x": noise(5, 6), "i": np.array([start])}
        model = typed_model(nodes, feeds, outputs, constants)
        got, want = executed(model, feeds), runtime_of(model, feeds)
        for name, array in want.items():
            np.testing.assert_array_equal(got[name], array, err_msg=name)


def test_a_refusal_names_a_node_that_the_model_has() -> None:
    feeds = {"n": np.array(3.0, np.float32)}
    constants = {"zero": np.array(0, np.float32), "one": np.array(1, np.float32)}
    nodes = [node("Range", ["zero", "n", "one"], ["y"], name="counted")]
    with pytest.raises(TilewrightError) as refused:
        import_onnx(typed_model(nodes, feeds, {"y": FLOAT}, constants))
    assert {problem.where.split(",")[0] for problem in refused.value.problems} == {
        "node 'counted' (Range)"
    }
