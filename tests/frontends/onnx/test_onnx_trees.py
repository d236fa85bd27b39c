"""Ensembles of trees against ONNX Runtime, and text that becomes numbers at import."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import ModelProto, TensorProto, helper

import tilewright
from tilewright.errors import TilewrightError
from tilewright.frontends.onnx import import_onnx
from tilewright.graph.interpreter import interpret

WIDTH = 4


def columns(
    seed: int, modes: list[int], *, targets: int, missing: bool, trees: int
) -> dict[str, Any]:
    """Attributes of random trees of up to five levels, whose splits are halves."""
    random = np.random.default_rng(seed)
    nodes: list[list[int]] = []
    splits: list[float] = []
    leaves: list[int] = []
    members: list[float] = []

    def branch(level: int) -> tuple[int, int]:
        """A place and whether it is a leaf."""
        if level == 5 or (level > 1 and random.random() < 0.2):
            leaves.append(int(random.integers(targets)))
            return len(leaves) - 1, 1
        return node(level), 0

    def node(level: int) -> int:
        number, mode = len(nodes), int(random.choice(modes))
        nodes.append([mode, int(random.integers(WIDTH)), int(random.integers(2))])
        splits.append(float(random.integers(-4, 5)) / 2)
        if mode == 6:
            members.extend([*random.choice(8, 3, replace=False) / 2, np.nan])
        nodes[number] += [*branch(level + 1), *branch(level + 1)]
        return number

    roots = [node(0) for _ in range(trees)]
    mode, feature, tracks, yes, yes_leaf, no, no_leaf = map(list, zip(*nodes, strict=True))
    weights = random.normal(0, 1, len(leaves)).astype(np.float32)
    made: dict[str, Any] = {
        "tree_roots": roots,
        "n_targets": targets,
        "nodes_modes": helper.make_tensor("m", TensorProto.UINT8, [len(mode)], mode),
        "nodes_splits": helper.make_tensor("s", TensorProto.FLOAT, [len(splits)], splits),
        "nodes_featureids": feature,
        "nodes_truenodeids": yes,
        "nodes_trueleafs": yes_leaf,
        "nodes_falsenodeids": no,
        "nodes_falseleafs": no_leaf,
        "leaf_targetids": leaves,
        "leaf_weights": helper.make_tensor("w", TensorProto.FLOAT, [len(leaves)], weights),
    }
    if missing:
        made["nodes_missing_value_tracks_true"] = tracks
    if members:
        made["membership_values"] = helper.make_tensor(
            "v", TensorProto.FLOAT, [len(members)], members
        )
    return made


def forest(rows: int, attributes: dict[str, Any]) -> ModelProto:
    node = helper.make_node("TreeEnsemble", ["x"], ["y"], domain="ai.onnx.ml", **attributes)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, WIDTH])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "forest", [x], [y])
    sets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 5)]
    return helper.make_model(graph, opset_imports=sets, ir_version=10)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize(
    ("modes", "more"),
    [
        ([0], {}),
        ([1], {"aggregate_function": 0}),
        ([2, 3], {"post_transform": 2}),
        ([4, 5], {"post_transform": 1}),
        ([0, 1, 2, 3, 4, 5], {}),
        ([0, 6], {}),
        ([0], {"aggregate_function": 2}),
        ([3], {"aggregate_function": 3}),
    ],
)
def test_ensembles(modes: list[int], more: dict[str, int], missing: bool) -> None:
    targets = 1 if more.get("aggregate_function", 1) > 1 else 3
    attributes = columns(sum(modes), modes, targets=targets, missing=missing, trees=5) | more
    random = np.random.default_rng(9)
    x = (random.integers(-5, 6, (40, WIDTH)) / 2).astype(np.float32)
    if missing:
        x[random.random(x.shape) < 0.1] = np.nan
    made = forest(40, attributes)
    # ONNX Runtime has the numbers of softmax, 1, and of the logistic function, 2, the other way.
    theirs = attributes | {"post_transform": {1: 2, 2: 1}.get(more.get("post_transform", 0), 0)}
    session = ort.InferenceSession(forest(40, theirs).SerializeToString())
    (wanted,) = session.run(None, {"x": x})
    imported = import_onnx(made)
    for got in (
        interpret(imported.module, imported.weights, {"x": x}),
        tilewright.compile(made, "cpu").run({"x": x}),
    ):
        np.testing.assert_allclose(got["y"], wanted, rtol=1e-5, atol=1e-6)


def test_trees_that_lead_nowhere_or_round_are_refused() -> None:
    attributes = columns(1, [0], targets=1, missing=False, trees=1)
    for name, value in (("nodes_truenodeids", 99), ("nodes_featureids", WIDTH)):
        with pytest.raises(TilewrightError, match=r"leads nowhere|on column"):
            _ = import_onnx(forest(2, attributes | {name: [value] * len(attributes[name])}))
    count = len(attributes["nodes_trueleafs"])
    back = {"nodes_truenodeids": [0] * count, "nodes_trueleafs": [0] * count}
    with pytest.raises(TilewrightError, match="onnx-too-large"):
        _ = import_onnx(forest(2, attributes | back))


def of_text(operator: str, kind: int, domain: str = "", **attributes: Any) -> ModelProto:
    node = helper.make_node(operator, ["x"], ["y"], domain=domain, **attributes)
    x = helper.make_tensor_value_info("x", TensorProto.STRING, [3])
    y = helper.make_tensor_value_info("y", kind, [3])
    sets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 4)]
    graph = helper.make_graph([node], "text", [x], [y])
    return helper.make_model(graph, opset_imports=sets, ir_version=10)


def test_text_becomes_numbers_where_it_is_constant() -> None:
    made = of_text(
        "LabelEncoder", TensorProto.INT64, "ai.onnx.ml", keys_strings=["a", "b"],
        values_int64s=[5, 7], default_int64=-2,
    )  # fmt: skip
    words = np.array(["b", "c", "a"], object)
    (wanted,) = ort.InferenceSession(made.SerializeToString()).run(None, {"x": words})
    got = tilewright.compile(made, "cpu", constants={"x": words}).run({})
    np.testing.assert_array_equal(got["y"], wanted)
    with pytest.raises(TilewrightError, match=r"onnx-dtype.*string"):
        _ = import_onnx(made)


@pytest.mark.parametrize(
    "pattern", ["(a+)+b", "a*a*b", "(a?){40}b", "(a|a)*b", "a?" * 9, "(a|a)" * 9, "(?x)(a|a) *b"]
)
def test_patterns_that_take_long_are_refused(pattern: str) -> None:
    made = of_text("RegexFullMatch", TensorProto.BOOL, pattern=pattern)
    with pytest.raises(TilewrightError, match="repeats a group or several parts"):
        _ = import_onnx(made, constants={"x": np.array(["a" * 40] * 3, object)})


def test_text_is_no_output() -> None:
    made = of_text("Identity", TensorProto.STRING)
    with pytest.raises(TilewrightError, match="onnx-dtype"):
        _ = import_onnx(made, constants={"x": np.array(["a"] * 3, object)})
