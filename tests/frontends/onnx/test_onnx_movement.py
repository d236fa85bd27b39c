"""Reshapes, orders, parts and padding, against ONNX Runtime."""

import numpy as np
import pytest
from onnx import helper

from tests.frontends.onnx.onnx_models import check, model_of, noise, single
from tilewright.errors import TilewrightError
from tilewright.frontends.onnx import import_onnx
from tilewright.graph.dialect import network_of


def ints(*values):
    return np.array(values, np.int64)


@pytest.mark.parametrize("opset", [9, 14, 21])
@pytest.mark.parametrize("sizes", [(6, 20), (0, -1), (-1,), (2, 3, 0, 5, 1), (0, 0, 2, -1)])
def test_reshape(opset, sizes):
    check(single("Reshape", [(2, 3, 4, 5), ints(*sizes)], opset))


@pytest.mark.parametrize(
    ("sizes", "attributes"),
    [((7, -1), {}), ((-1, -1), {}), ((5,), {}), ((0, -1), {"allowzero": 1}), ((-2, 60), {})],
)
def test_reshapes_that_are_none_are_refused(sizes, attributes):
    with pytest.raises(TilewrightError):
        import_onnx(single("Reshape", [(2, 3, 4, 5), ints(*sizes)], **attributes))


@pytest.mark.parametrize("axis", [None, 0, 1, 3, 4, -1])
def test_flatten(axis):
    for opset in (11, 21) if axis == -1 else (9, 11, 21):
        check(single("Flatten", [(2, 3, 4, 5)], opset, **({} if axis is None else {"axis": axis})))


def test_squeeze_and_unsqueeze():
    check(single("Squeeze", [(1, 3, 1, 5)], 9))
    check(single("Squeeze", [(1, 3, 1, 5)], 13))
    check(single("Squeeze", [(1, 3, 1, 5)], 11, axes=[-2]))
    check(single("Squeeze", [(1, 3, 1, 5), ints(0, -2)], 13))
    check(single("Unsqueeze", [(3, 5)], 9, axes=[0, 3]))
    check(single("Unsqueeze", [(3, 5)], 11, axes=[-1, 1]))
    check(single("Unsqueeze", [(3, 5), ints(3, 0)], 13))
    with pytest.raises(TilewrightError):
        import_onnx(single("Squeeze", [(2, 3), ints(0)], 13))


@pytest.mark.parametrize("perm", [None, [0, 2, 3, 1], [3, 1, 0, 2], [0, 1, 2, 3]])
def test_transpose(perm):
    check(single("Transpose", [(2, 3, 4, 5)], **({} if perm is None else {"perm": perm})))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concat(axis):
    shapes = [[2, 3, 4], [2, 3, 4], [2, 3, 4]]
    shapes[1][axis] = 5
    check(single("Concat", [shapes[0], noise(*shapes[1]), shapes[2]], 11, axis=axis))
    check(single("Concat", [shapes[0]], 11, axis=axis))


@pytest.mark.parametrize(
    ("starts", "ends", "axes", "steps"),
    [
        ([1], [3], [1], None),
        ([0, -3], [2, 1000], [2, 3], [1, 2]),
        ([-1], [-1000], [3], [-1]),
        ([3], [0], [2], [-2]),
        ([0, 0, 1], [1, 2, 3], None, None),
    ],
)
def test_slice(starts, ends, axes, steps):
    operands = [starts, ends, axes, steps]
    given = [None if item is None else ints(*item) for item in operands]
    while given[-1] is None:
        given.pop()
    check(single("Slice", [(2, 3, 4, 5), *given], 13))
    if steps is None:
        attributes = {"starts": starts, "ends": ends} | ({"axes": axes} if axes else {})
        check(single("Slice", [(2, 3, 4, 5)], 9, **attributes))


def test_split():
    check(single("Split", [(2, 6)], 11, outputs=3, axis=1))
    check(single("Split", [(2, 6)], 11, outputs=2, axis=-1, split=[1, 5]))
    check(single("Split", [(2, 6), ints(2, 4)], 13, outputs=2, axis=1))
    check(single("Split", [(2, 7)], 18, outputs=3, axis=1, num_outputs=3))


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("index", [2, -1, [1], [0, 2], [2, 0, 1, 1], [[0, 1], [2, -3]]])
def test_gather_of_constant_indices(index, axis):
    check(single("Gather", [(3, 3, 4), np.array(index)], axis=axis))


def test_gathers_of_many_indices_and_of_those_out_of_range():
    check(single("Gather", [(2, 3, 4), np.arange(1000) * 7 % 4], axis=2))
    with pytest.raises(TilewrightError, match="index 4"):
        import_onnx(single("Gather", [(2, 3, 4), ints(0, 4)], axis=2))


@pytest.mark.parametrize("target", [(2, 3, 4), (5, 2, 3, 4), (3, 1), (1,), (2, 1, 4)])
def test_expand(target):
    check(single("Expand", [(2, 3, 1), ints(*target)]))


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
def test_pad(mode):
    pads = (0, 0, 1, 2, 0, 0, 3, 1) if mode != "constant" else (1, 0, 0, -1, 0, 2, 0, -2)
    check(single("Pad", [(2, 3, 4, 5)], 9, pads=pads, mode=mode))
    for opset in (11, 18):
        check(single("Pad", [(2, 3, 4, 5), ints(*pads)], opset, mode=mode))


def test_pad_of_a_value_and_of_named_axes():
    check(single("Pad", [(2, 3), ints(1, 0, 0, 2), np.array(1.5, np.float32)], 13))
    check(single("Pad", [(2, 3)], 9, pads=[1, 0, 0, 2], value=-3.0))
    check(single("Pad", [(2, 3, 4), ints(1, 2, 3, 0), None, ints(-1, 0)], 18))


def test_shape_arithmetic_folds():
    # x.view(x.size(0), -1) as exporters write it.
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Constant", [], ["zero"], value_int=0),
        helper.make_node("Gather", ["shape", "zero"], ["batch"]),
        helper.make_node("Unsqueeze", ["batch", "axes"], ["first"]),
        helper.make_node("Constant", [], ["rest"], value_ints=[-1]),
        helper.make_node("Concat", ["first", "rest"], ["sizes"], axis=0),
        helper.make_node("Cast", ["sizes"], ["sizes32"], to=6),
        helper.make_node("Cast", ["sizes32"], ["sizes64"], to=7),
        helper.make_node("Reshape", ["x", "sizes64"], ["flat"]),
        helper.make_node("Relu", ["flat"], ["y"]),
    ]
    model = model_of(nodes, {"x": (3, 4, 5)}, ["y"], {"axes": ints(0)})
    imported = check(model)
    names = [op.name for op in network_of(imported.module).block.ops]
    assert names == ["graph.reshape", "graph.relu", "graph.output"]


def test_shape_of_some_axes_and_size():
    nodes = [
        helper.make_node("Shape", ["x"], ["tail"], start=-2, end=3),
        helper.make_node("Size", ["x"], ["size"]),
        helper.make_node("ReduceProd", ["tail"], ["inner"], keepdims=1),
        helper.make_node("Div", ["size", "inner"], ["outer"]),
        helper.make_node("Concat", ["outer", "inner"], ["sizes"], axis=0),
        helper.make_node("Reshape", ["x", "sizes"], ["y"]),
    ]
    check(model_of(nodes, {"x": (2, 3, 4, 5)}, ["y"]))


def test_constants_that_nodes_make_become_weights():
    nodes = [
        helper.make_node(
            "ConstantOfShape", ["sizes"], ["ones"], value=helper.make_tensor("", 1, [1], [1.0])
        ),
        helper.make_node("Mul", ["ones", "half"], ["halves"]),
        helper.make_node("Transpose", ["halves"], ["turned"]),
        helper.make_node("Add", ["x", "turned"], ["y"]),
    ]
    constants = {"sizes": ints(4, 3), "half": noise(4, 1)}
    imported = check(model_of(nodes, {"x": (2, 3, 4)}, ["y"], constants))
    names = [op.name for op in network_of(imported.module).block.ops]
    assert names == ["graph.weight", "graph.add", "graph.output"]


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gathers_of_long_constants_fold(axis):
    # Position ids of a sentence, as exporters of Transformers write them.
    table = np.arange(3 * 512, dtype=np.float32).reshape(3, 512)
    indices = np.arange(2 * 40).reshape(2, 40) * 7 % (3 if axis == 0 else 512)
    nodes = [
        helper.make_node("GatherElements", ["table", "indices"], ["part"], axis=axis),
        helper.make_node("Add", ["x", "part"], ["y"]),
    ]
    constants = {"table": table, "indices": indices}
    imported = check(model_of(nodes, {"x": (2, 40)}, ["y"], constants))
    names = [op.name for op in network_of(imported.module).block.ops]
    assert names == ["graph.weight", "graph.add", "graph.output"]


@pytest.mark.parametrize("allowzero", [0, 1])
def test_shapes_of_a_run_need_their_most(allowzero):
    nodes = [
        helper.make_node("Cast", ["x"], ["sizes"], to=7),
        helper.make_node("Reshape", ["x", "sizes"], ["y"], allowzero=allowzero),
    ]
    with pytest.raises(TilewrightError, match="how large it may be"):
        import_onnx(model_of(nodes, {"x": (2,)}, ["y"]))


@pytest.mark.parametrize("mode", ["half_pixel", "asymmetric", "align_corners"])
@pytest.mark.parametrize("rounding", ["floor", "ceil", "round_prefer_ceil", "round_prefer_floor"])
def test_nearest_elements_where_coordinates_fall_between(mode, rounding):
    """Sizes of which coordinates in float32 and float64 fall to different sides."""
    for extent, size in ((7, 1), (7, 9), (10, 6), (7, 2), (7, 4), (7, 8), (10, 12)):
        nodes = [
            helper.make_node(
                "Resize",
                ["x", "", "", "sizes"],
                ["y"],
                mode="nearest",
                coordinate_transformation_mode=mode,
                nearest_mode=rounding,
            )
        ]
        sizes = np.array([1, 1, 2, size])
        check(model_of(nodes, {"x": (1, 1, 2, extent)}, ["y"], {"sizes": sizes}, opset=19))
