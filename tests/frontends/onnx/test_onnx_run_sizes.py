"""Results whose sizes data decide, beside ONNX Runtime: found, kept, moved, chosen, collected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright
from tests.frontends.onnx.executed import typed_model
from tests.frontends.onnx.onnx_models import onnxruntime_of
from tilewright.errors import TilewrightError
from tilewright.frontends.onnx import import_onnx
from tilewright.graph.interpreter import interpret
from tilewright.runtime.output_sizes import cut_to_sizes

FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
RNG = np.random.default_rng(20261201)
node = helper.make_node


def sparse(*shape: int) -> np.ndarray:
    """Numbers of which more than half are 0."""
    return (RNG.normal(size=shape) * (RNG.random(shape) < 0.4)).astype(np.float32)


def dense(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def whole(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@dataclass(frozen=True)
class Case:
    """A model and its inputs of several runs, in which sizes differ."""

    nodes: Sequence[onnx.NodeProto]
    feeds: Sequence[Mapping[str, np.ndarray]]
    outputs: Mapping[str, int]
    constants: Mapping[str, Any] = field(default_factory=dict[str, Any])
    rooms: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def model(self) -> onnx.ModelProto:
        return typed_model(self.nodes, self.feeds[0], self.outputs, self.constants)


def boxes(batch: int, count: int) -> np.ndarray:
    corner = RNG.random((batch, count, 2)).astype(np.float32) * 4
    return np.concatenate(
        [corner, corner + RNG.random((batch, count, 2)).astype(np.float32) * 2], 2
    )


def suppression(chosen: int, center: int = 0, batch: int = 2) -> Case:
    nodes = [
        node("NonMaxSuppression", ["b", "s", "k", "i", "t"], ["y"], center_point_box=center),
        node("Gather", ["y", "two"], ["places"], axis=1),
        node("Gather", ["table", "places"], ["rows"], axis=0),
    ]
    scores = [RNG.random((batch, 3, 12)).astype(np.float32) for _ in range(3)]
    scores[2][:] = 0  # Nothing is above the threshold.
    feeds = [{"b": boxes(batch, 12), "s": each, "table": dense(12, 4)} for each in scores]
    constants = {"k": whole(chosen), "i": np.float32([0.4]), "t": np.float32([0.2]), "two": 2}
    return Case(nodes, feeds, {"y": INT, "rows": FLOAT}, constants)


def value(name: str, kind: int = FLOAT, shape: Iterable[int] = ()) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, list(shape))


def counted_loop(rounds: Sequence[int], condition: str = "") -> Case:
    body = helper.make_graph(
        [
            node("Add", ["s", "x"], ["s1"]),
            node("Mul", ["s1", "s1"], ["row"]),
            node("Identity", ["c"], ["c1"]),
        ],
        "body",
        [value("i", INT), value("c", BOOL), value("s", shape=[3])],
        [value("c1", BOOL), value("s1", shape=[3]), value("row", shape=[3])],
    )
    nodes = [
        node("Loop", ["n", condition, "s0"], ["y", "rows"], body=body),
        node("ReduceSum", ["rows", "zero"], ["sums"]),
    ]
    feeds = [{"n": np.array(n), "s0": dense(3), "x": dense(3)} for n in rounds]
    outputs = {"y": FLOAT, "rows": FLOAT, "sums": FLOAT}
    return Case(nodes, feeds, outputs, {"zero": whole(0)}, {"rows": "0..10"})


def until(limits: Sequence[float], *, mixed: bool) -> Case:
    """A loop that ends when a sum is large; what it carries has one element type, or two."""
    inner = [
        node("Add", ["s", "s"], ["s1"]),
        node("ReduceSum", ["s1"], ["t"], keepdims=0),
        node("Less", ["t", "limit"], ["c1"]),
    ]
    inputs = [value("i", INT), value("c", BOOL), value("s", shape=[3])]
    results = [value("c1", BOOL), value("s1", shape=[3])]
    names, given = ["y"], ["s0"]
    if mixed:
        inner += [node("Add", ["k", "i"], ["k1"]), node("Add", ["i", "i"], ["twice"])]
        inputs.append(value("k", INT))
        results += [value("k1", INT), value("twice", INT)]
        names, given = ["y", "k9", "twices"], ["s0", "k0"]
    body = helper.make_graph(inner, "body", inputs, results)
    feeds = [
        {"s0": np.abs(dense(3)) + 1, "limit": np.array(limit, np.float32), "k0": np.array(4)}
        for limit in limits
    ]
    kinds = dict(zip(names, (FLOAT, INT, INT), strict=False))
    return Case([node("Loop", ["most", "", *given], names, body=body)], feeds, kinds, {"most": 8})


def resized(mode: str, way: str) -> onnx.NodeProto:
    how = {"mode": mode, "coordinate_transformation_mode": way}
    return node("Resize", ["x", "", "", "r"], ["y"], **how)


def branches() -> Case:
    first = helper.make_graph([node("Add", ["x", "one"], ["a"])], "first", [], [value("a")])
    cut = node("Slice", ["x", "zero", "two", "zero"], ["b"])
    second = helper.make_graph([cut], "second", [], [value("b")])
    nodes = [
        node("If", ["c"], ["y"], then_branch=first, else_branch=second),
        node("ReduceMean", ["y", "zero"], ["mean"]),
    ]
    feeds = [{"x": dense(3, 4), "c": np.array(c)} for c in (True, False)]
    constants = {"one": np.float32(1), "zero": whole(0), "two": whole(2)}
    return Case(nodes, feeds, {"y": FLOAT, "mean": FLOAT}, constants)


def along(operator: str, outputs: Mapping[str, int], *tail: onnx.NodeProto, **how: Any) -> Case:
    """An operator along the axis of the columns that a condition keeps."""
    nodes = [
        node("Compress", ["x", "keep"], ["kept"], axis=1),
        node(
            operator,
            ["kept", *how.pop("more", [])],
            list(outputs)[:1],
            **how,
        ),
        *tail,
    ]
    kept = [[1, 0, 1, 1, 0, 1], [1] * 6, [0, 0, 0, 0, 0, 1]]
    feeds = [{"x": dense(4, 6), "keep": np.array(each, bool)} for each in kept]
    return Case(nodes, feeds, outputs, {"one": whole(1), "right": dense(4, 3)})


CASES = {
    "non_zero": Case(
        [node("NonZero", ["x"], ["y"])],
        [{"x": sparse(4, 5)}, {"x": np.zeros((4, 5), np.float32)}, {"x": dense(4, 5)}],
        {"y": INT},
    ),
    "gathered": Case(
        [
            node("NonZero", ["x"], ["i"]),
            node("Transpose", ["i"], ["t"]),
            node("GatherND", ["d", "t"], ["rows"]),
            node("ReduceSum", ["rows", "zero"], ["sums"]),
            node("Relu", ["rows"], ["y"]),
        ],
        [{"x": sparse(4, 5), "d": dense(4, 5, 3)} for _ in range(3)],
        {"y": FLOAT, "sums": FLOAT},
        {"zero": whole(0)},
    ),
    "top_k": Case(
        [node("TopK", ["x", "k"], ["v", "i"])],
        [{"x": dense(4, 7), "k": whole(k)} for k in (1, 3, 7)],
        {"v": FLOAT, "i": INT},
    ),
    "range": Case(
        [node("Range", ["a", "b", "c"], ["y"])],
        [
            dict(zip("abc", map(np.array, abc), strict=True))
            for abc in ((0, 5, 1), (3, 17, 4), (9, 0, -2), (3, 3, 1))
        ],
        {"y": INT},
        rooms={"y": "0..20"},
    ),
    **{
        f"unique_{order}": Case(
            [node("Unique", ["x"], ["y", "first", "inverse", "counts"], sorted=order)],
            [{"x": RNG.integers(0, k, 9).astype(np.float32)} for k in (1, 3, 30)],
            {"y": FLOAT, "first": INT, "inverse": INT, "counts": INT},
        )
        for order in (0, 1)
    },
    **{
        f"unique_rows_{order}": Case(
            [node("Unique", ["x"], ["y", "first", "inverse", "counts"], sorted=order, axis=axis)],
            [{"x": RNG.integers(0, k, (3, 7, 2)).astype(np.float32)} for k in (1, 2, 30)],
            {"y": FLOAT, "first": INT, "inverse": INT, "counts": INT},
        )
        for order, axis in ((0, 1), (1, -1))
    },
    "suppression": suppression(5),
    "suppression_of_one": suppression(1, batch=1),
    "suppression_of_middles": suppression(100, center=1),
    "slice_to": Case(
        [node("Slice", ["x", "one", "end", "zero"], ["y"])],
        [{"x": dense(9, 4), "end": whole(end)} for end in (2, 5, 30, -2)],
        {"y": FLOAT},
        {"one": whole(1), "zero": whole(0)},
    ),
    "slice_both": Case(
        [node("Slice", ["x", "s", "e", "axes", "steps"], ["y"])],
        [
            {"x": dense(9, 6), "s": whole(*s), "e": whole(*e)}
            for s, e in (((0, 5), (9, 0)), ((1, -1), (8, -100)), ((-5, 3), (100, -7)))
        ],
        {"y": FLOAT},
        {"axes": whole(0, 1), "steps": whole(2, -1)},
    ),
    "tile": Case(
        [node("Tile", ["x", "r"], ["y"])],
        [{"x": dense(3, 2), "r": whole(*r)} for r in ((1, 1), (2, 3), (3, 1))],
        {"y": FLOAT},
        rooms={"y.0": "0..9", "y.1": "0..8"},
    ),
    "expand": Case(
        [node("Expand", ["x", "r"], ["y"])],
        [{"x": dense(3, 1), "r": whole(*r)} for r in ((1, 1, 1), (2, 3, 5), (3, 1, 4))],
        {"y": FLOAT},
        rooms={"y.0": "0..9", "y.2": "0..8"},
    ),
    "constant": Case(
        [node("ConstantOfShape", ["r"], ["y"])],
        [{"r": whole(*r)} for r in ((1, 1), (2, 3), (5, 4))],
        {"y": FLOAT},
        rooms={"y": "0..9"},
    ),
    **{
        f"pad_{mode}": Case(
            [node("Pad", ["x", "r", "v"], ["y"], mode=mode)],
            [
                {"x": dense(3, 4), "r": whole(*r)}
                for r in ((1, 1, 0, 0), (0, 0, 0, 0), (0, 2, 3, 1))
            ],
            {"y": FLOAT},
            {"v": np.float32(7)},
            {"y": "0..9"},
        )
        for mode in ("constant", "edge")
    },
    "reshape": Case(
        [node("Reshape", ["x", "r"], ["y"]), node("Relu", ["y"], ["z"])],
        [{"x": dense(4, 6), "r": whole(*r)} for r in ((4, 6), (-1, 3), (0, -1), (24, 1))],
        {"z": FLOAT},
        rooms={"y": "0..24"},
    ),
    "reshape_of_one": Case(
        [node("Concat", ["r", "six"], ["s"], axis=0), node("Reshape", ["x", "s"], ["y"])],
        [{"x": dense(4, 6), "r": whole(r)} for r in (4, -1)],
        {"y": FLOAT},
        {"six": whole(3, 2)},
    ),
    **{
        f"resize_{mode}_{way}": Case(
            [resized(mode, way)],
            [
                {"x": dense(1, 3, 5, 4), "r": whole(1, 3, *r)}
                for r in ((5, 4), (10, 8), (3, 2), (7, 9), (1, 1))
            ],
            {"y": FLOAT},
            rooms={"y": "0..12"},
        )
        for mode in ("nearest", "linear")
        for way in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    },
    "branches": branches(),
    "rounds": counted_loop((1, 4, 9, 0)),
    "until": until((5, 300, 1e9), mixed=False),
    "until_mixed": until((5, 300, 1e9), mixed=True),
    "along_softmax": along("Softmax", {"y": FLOAT}, axis=1),
    "along_mean": along("ReduceMean", {"y": FLOAT}, more=["one"]),
    "along_product": along("ReduceProd", {"y": FLOAT}, more=["one"]),
    "along_least": along("ReduceMin", {"y": FLOAT}, more=["one"]),
    "along_largest": along("ArgMax", {"y": INT}, axis=1),
    "along_sorted": Case(
        [
            node("Compress", ["x", "keep"], ["kept"], axis=0),
            node("TopK", ["kept", "two"], ["y", "places"], largest=0),
        ],
        [{"x": dense(6), "keep": np.array([1, 0, k, 1, 0, k], bool)} for k in (0, 1)],
        {"y": FLOAT, "places": INT},
        {"two": whole(2)},
    ),
    **{
        f"along_sorted_{axis}": Case(
            [
                node("Compress", ["x", "keep"], ["kept"], axis=axis),
                node("TopK", ["kept", "two"], ["y", "places"], axis=axis),
            ],
            [
                {"x": dense(*((6, 3) if axis == 0 else (3, 6))), "keep": np.array(keep, bool)}
                for keep in ([1, 0, 1, 1, 0, 1], [1] * 6, [0, 1, 0, 0, 0, 1])
            ],
            {"y": FLOAT, "places": INT},
            {"two": whole(2)},
        )
        for axis in (0, 1)
    },
    "along_running": along("CumSum", {"y": FLOAT}, more=["one"]),
    "windows": Case(
        [
            node("NonZero", ["x"], ["i"]),
            node("Cast", ["i"], ["floats"], to=FLOAT),
            node("Reshape", ["floats", "image"], ["wide"]),
            node("Conv", ["wide", "w"], ["z"], pads=[0, 1, 0, 1]),
            node("Reshape", ["z", "flat"], ["y"]),
        ],
        [{"x": dense(3, 4) * (np.arange(12).reshape(3, 4) < k)} for k in (12, 5, 2)],
        {"y": FLOAT},
        {"image": whole(1, 1, 2, -1), "flat": whole(1, -1), "w": dense(1, 1, 2, 3)},
    ),
    "rows": along(
        "Transpose", {"t": FLOAT, "y": FLOAT}, node("MatMul", ["t", "right"], ["y"]), perm=[1, 0]
    ),
    "summed": along(
        "Transpose", {"t": FLOAT, "y": FLOAT}, node("MatMul", ["kept", "t"], ["y"]), perm=[1, 0]
    ),
}  # fmt: skip


def agree(case: Case, outputs: Mapping[str, np.ndarray], feeds: Mapping[str, np.ndarray]) -> None:
    wanted = onnxruntime_of(case.model, feeds)
    assert list(outputs) == list(wanted)
    for name, want in wanted.items():
        assert outputs[name].dtype == want.dtype, name
        assert outputs[name].shape == want.shape, name
        np.testing.assert_allclose(outputs[name], want, rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("name", CASES)
def test_sizes_that_data_decide(name):
    case = CASES[name]
    imported = import_onnx(case.model, shapes=case.rooms)
    for feeds in case.feeds:
        with np.errstate(all="ignore"):  # What lies after the end is computed, too.
            outputs = interpret(imported.module, imported.weights, feeds)
        agree(case, cut_to_sizes(imported.ends, outputs), feeds)


@pytest.mark.parametrize(
    "name",
    [
        *("gathered", "suppression", "rounds", "branches"),
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("unique_0", "until_mixed")),
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("resize_linear_half_pixel",)),
    ],
)
def test_their_packages(name, tmp_path):
    case = CASES[name]
    onnx.save(case.model, tmp_path / "model.onnx")
    executable = tilewright.compile(
        tmp_path / "model.onnx", shapes=dict(case.rooms), directory=tmp_path / "package"
    )
    reopened = tilewright.Executable.load(tmp_path / "package")
    for feeds in case.feeds:
        agree(case, outputs := executable.run(dict(feeds)), feeds)
        assert executable.check(dict(feeds), outputs).passed
        agree(case, reopened.run(dict(feeds)), feeds)


@pytest.mark.parametrize("target", ["sunway", "cambricon-x", "ascend910"])
@pytest.mark.slow
def test_on_accelerators(target):
    case = CASES["along_mean"]
    executable = tilewright.compile(case.model, target)
    for feeds in case.feeds:
        outputs = executable.run(dict(feeds))
        np.testing.assert_allclose(
            outputs["y"], onnxruntime_of(case.model, feeds)["y"], rtol=2e-2, atol=2e-2
        )


def test_a_size_beyond_its_room():
    case = CASES["range"]
    executable = tilewright.compile(case.model, shapes={"y": "0..5"})
    feeds = {"a": np.array(0), "b": np.array(7), "c": np.array(1)}
    with pytest.raises(TilewrightError, match=r"has 7 indices .* --shape y=0\.\.7") as refused:
        executable.run(feeds)
    assert refused.value.problems[0].code == "output-room"


@pytest.mark.parametrize("most", [3, 10])
def test_a_loop_that_would_go_on(most):
    """Neither what it carries nor what it collects is that of fewer rounds than the run asks for,
    whether the rounds are a loop or, few of them, written out."""
    case = counted_loop([most, 0, most + 1])
    for names in (["y"], ["y", "rows"]):
        loop = onnx.NodeProto()
        loop.CopyFrom(case.nodes[0])
        if len(names) == 1:
            loop.ClearField("output")
            loop.output.extend(names)
            del loop.attribute[0].g.node[1], loop.attribute[0].g.output[2]
        model = typed_model([loop], case.feeds[0], dict.fromkeys(names, FLOAT), {})
        imported = import_onnx(model, shapes={names[-1]: f"0..{most}"})
        for feeds in case.feeds:
            outputs = interpret(imported.module, imported.weights, feeds)
            if feeds["n"] <= most:
                wanted = onnxruntime_of(model, feeds)
                for name, got in cut_to_sizes(imported.ends, outputs).items():
                    np.testing.assert_allclose(got, wanted[name], rtol=1e-5, err_msg=name)
                continue
            with pytest.raises(TilewrightError, match=rf"{most + 1}.* in this run"):
                cut_to_sizes(imported.ends, outputs)


def test_a_size_within_the_network_beyond_its_room():
    """Its outputs do not end there, and are wrong all the same."""
    nodes = [
        node("Compress", ["x", "keep"], ["kept"]),
        node("ReduceSum", ["kept"], ["y"], keepdims=0),
    ]
    feeds = {"x": dense(12), "keep": np.arange(12) % 3 == 0}
    model = typed_model(nodes, feeds, {"y": FLOAT}, {})
    executable = tilewright.compile(model, shapes={"kept": "0..5"})
    assert [tensor.name for tensor in executable.outputs] == ["y"]
    outputs = executable.run(dict(feeds))
    np.testing.assert_allclose(outputs["y"], onnxruntime_of(model, feeds)["y"], rtol=1e-5)
    with pytest.raises(TilewrightError, match=r"a size of 8 .* --shape kept=0\.\.8") as refused:
        executable.run({**feeds, "keep": np.arange(12) % 3 > 0})
    assert refused.value.problems[0].code == "output-room"


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        # The mean of a result divides by a number that follows from the size.
        ([node("Shape", ["i"], ["n"]), node("Cast", ["n"], ["y"], to=FLOAT)], "constant"),
        ([node("Reshape", ["i", "flat"], ["y"])], "joins or splits|shape"),
        ([node("Conv", ["wide", "w"], ["y"], strides=[1, 2])], "more than one where"),
    ],
)
def test_what_cannot_be_followed_is_refused(nodes, reason):
    before = [
        node("NonZero", ["x"], ["i"]),
        node("Cast", ["i"], ["floats"], to=FLOAT),
        node("Reshape", ["floats", "image"], ["wide"]),
    ]
    constants = {"flat": whole(-1), "image": whole(1, 1, 2, -1), "w": dense(1, 1, 2, 2)}
    model = typed_model(
        [*before, *nodes], {"x": dense(3, 4)}, {"y": INT if "Reshape" in str(nodes) else FLOAT},
        constants,
    )  # fmt: skip
    with pytest.raises(TilewrightError, match=reason):
        import_onnx(model)


def test_a_room_for_no_size_that_data_decide():
    model = typed_model([node("Relu", ["x"], ["y"])], {"x": dense(3)}, {"y": FLOAT})
    with pytest.raises(TilewrightError, match="is not decided by data") as refused:
        import_onnx(model, shapes={"y": "0..5"})
    assert refused.value.problems[0].code == "shape-unknown"


def test_the_same_bytes(tmp_path):
    case = CASES["suppression"]
    texts = [str(import_onnx(case.model).module) for _ in range(2)]
    assert texts[0] == texts[1]
