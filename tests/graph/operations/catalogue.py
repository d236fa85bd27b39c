"""Examples of every operation, with the ONNX graph that means the same."""

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.graph.operations.example import Example, node, with_constants
from tests.graph.operations.spelled import (
    attention,
    channel_shuffle,
    gelu,
    interleave,
    root_mean_square,
    suppressed,
)


def conv(x: tuple[int, ...], w: tuple[int, ...], bias: bool, **attributes: Any) -> Example:
    shapes = (x, w, (w[0],)) if bias else (x, w)
    return Example("conv", shapes, attributes, node("Conv", **attributes), tolerance=3e-5)


def max_pool(x: tuple[int, ...], kernel: tuple[int, int], **attributes: Any) -> Example:
    same = node("MaxPool", kernel_shape=kernel, **attributes)
    return Example("max_pool", (x,), {"kernel": kernel, **attributes}, same)


def average_pool(x: tuple[int, ...], attributes: dict[str, Any], **of_onnx: Any) -> Example:
    return Example("average_pool", (x,), attributes, node("AveragePool", **of_onnx))


def matmul(
    a: tuple[int, ...], b: tuple[int, ...], swap: tuple[bool, bool], bias: tuple[int, ...] | None
) -> Example:
    def build(example: Example) -> list[onnx.NodeProto]:
        nodes: list[onnx.NodeProto] = []
        names = ["x0", "x1"]
        for i in range(2):
            if swap[i]:
                rank = len(example.shapes[i])
                order = [*range(rank - 2), rank - 1, rank - 2]
                nodes.append(helper.make_node("Transpose", [names[i]], [f"t{i}"], perm=order))
                names[i] = f"t{i}"
        nodes.append(helper.make_node("MatMul", names, ["y" if bias is None else "p"]))
        if bias is not None:
            nodes.append(helper.make_node("Add", ["p", "x2"], ["y"]))
        return nodes

    shapes = (a, b) if bias is None else (a, b, bias)
    attributes = {"transpose_a": swap[0], "transpose_b": swap[1]}
    return Example("matmul", shapes, attributes, build, tolerance=3e-5)


def silu(_: Example) -> list[onnx.NodeProto]:
    return [
        helper.make_node("Sigmoid", ["x0"], ["s"]),
        helper.make_node("Mul", ["x0", "s"], ["y"]),
    ]


def map_of(operation: str, kind: str, attributes: dict[str, Any] | None = None) -> Example:
    values = attributes or {}
    return Example(operation, ((2, 3, 5),), values, node(kind, **values), scale=4)


CONVOLUTIONS = [
    conv((1, 3, 9, 8), (4, 3, 3, 3), True),
    conv((2, 4, 7, 7), (6, 2, 3, 2), True, group=2, pads=(1, 0, 2, 1)),
    conv((1, 5, 8, 9), (5, 1, 3, 3), False, group=5, strides=(2, 1), pads=(1, 1, 1, 1)),
    conv((1, 3, 7, 6), (6, 1, 2, 2), True, group=3),
    conv((2, 3, 12, 11), (2, 3, 3, 3), False, dilations=(2, 3), strides=(1, 2), pads=(0, 3, 1, 2)),
    conv((1, 8, 5, 5), (7, 8, 1, 1), True),
    conv((1, 4, 6, 6), (3, 4, 1, 1), False, strides=(2, 2)),
    conv((1, 2, 5, 4), (3, 2, 5, 4), True),
]

POOLS = [
    max_pool((1, 2, 7, 6), (2, 2), strides=(2, 2)),
    max_pool((2, 3, 8, 7), (3, 2), strides=(2, 1), pads=(1, 0, 1, 1)),
    max_pool((1, 2, 9, 9), (2, 3), dilations=(3, 2), strides=(1, 2)),
    average_pool(
        (1, 3, 6, 7),
        {"kernel": (3, 2), "strides": (1, 2), "pads": (1, 1, 1, 0)},
        kernel_shape=(3, 2),
        strides=(1, 2),
        pads=(1, 1, 1, 0),
    ),
    average_pool(
        (2, 2, 6, 6),
        {"kernel": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1), "counted": (1, 1, 1, 1)},
        kernel_shape=(3, 3),
        strides=(2, 2),
        pads=(1, 1, 1, 1),
        count_include_pad=1,
    ),
    average_pool(
        (1, 2, 6, 8),
        {"kernel": (3, 3), "strides": (2, 2), "pads": (0, 0, 1, 1)},
        kernel_shape=(3, 3),
        strides=(2, 2),
        ceil_mode=1,
    ),
    average_pool(
        (1, 2, 7, 7),
        {"kernel": (7, 7)},
        kernel_shape=(7, 7),
    ),
]

PRODUCTS = [
    matmul((3, 5), (5, 4), (False, False), None),
    matmul((1, 6), (4, 6), (False, True), (4,)),
    matmul((5, 3), (5, 4), (True, False), (3, 1)),
    matmul((2, 3, 4), (4, 5), (False, False), (5,)),
    matmul((2, 1, 3, 4), (3, 5, 4), (False, True), None),
    matmul((4, 1, 6), (3, 6), (False, True), (3,)),
    matmul((4, 1, 6), (4, 6, 3), (False, False), None),
]

NORMALISATIONS = [
    Example(
        "batch_norm",
        ((2, 3, 4, 5), (3,), (3,), (3,), (3,)),
        {"epsilon": 1e-3},
        node("BatchNormalization", epsilon=1e-3),
        positive=(4,),
    ),
    *(
        Example("lrn", ((2, 7, 3, 2),), values, node("LRN", **values), scale=3)
        for values in (
            {"size": 5, "alpha": 0.3, "beta": 0.75, "bias": 2.0},
            {"size": 3, "alpha": 1e-2, "beta": 0.5, "bias": 1.0},
            {"size": 1},
            {"size": 15, "alpha": 0.1},
        )
    ),
    *(
        Example("softmax", ((2, 3, 4),), {"axis": axis}, node("Softmax", axis=axis), scale=20)
        for axis in (-1, 0, 1)
    ),
    Example(
        "reduce_mean",
        ((2, 3, 4, 5),),
        {"axes": (2, 3), "keep_dims": True},
        node("ReduceMean", axes=[2, 3]),
    ),
    Example(
        "reduce_mean",
        ((2, 3, 4),),
        {"axes": (-2, 0), "keep_dims": False},
        node("ReduceMean", axes=[1, 0], keepdims=0),
    ),
]

MAPS = [
    map_of("relu", "Relu"),
    map_of("leaky_relu", "LeakyRelu", {"alpha": 0.2}),
    map_of("sigmoid", "Sigmoid"),
    map_of("tanh", "Tanh"),
    map_of("hard_sigmoid", "HardSigmoid", {"alpha": 0.3, "beta": 0.4}),
    map_of("hard_swish", "HardSwish"),
    map_of("exp", "Exp"),
    map_of("erf", "Erf"),
    map_of("elu", "Elu", {"alpha": 1.5}),
    map_of("softplus", "Softplus"),
    map_of("neg", "Neg"),
    map_of("abs", "Abs"),
    Example("silu", ((3, 4),), {}, silu, scale=5),
    Example("layer_norm", ((2, 3, 9), (9,), (9,)), {}, node("LayerNormalization")),
    Example("layer_norm", ((4, 6), (6,)), {"centred": False, "epsilon": 1e-3}, root_mean_square),
    *(
        Example(
            "attention",
            ((2, 5, 3, 4), (2, 6, 3, 4), (2, 6, 3, 7), *mask),
            {"scale": 0.5},
            attention,
        )
        for mask in ((), ((2, 1, 5, 6),), ((1, 3, 1, 6),))
    ),
    Example("channel_shuffle", ((2, 12, 3, 2),), {"groups": 3}, channel_shuffle),
    Example("gelu", ((3, 4),), {}, gelu, scale=5),
    Example("log", ((3, 4),), {}, node("Log"), positive=(0,)),
    Example("sqrt", ((3, 4),), {}, node("Sqrt"), positive=(0,)),
    with_constants(
        "clip",
        (4, 5),
        {"minimum": -0.5, "maximum": 0.75},
        "Clip",
        np.float32(-0.5),
        np.float32(0.75),
    ),
    with_constants("clip", (4, 5), {"maximum": 0.25}, "Clip", None, np.float32(0.25)),
    with_constants("clip", (4, 5), {"minimum": 0.25}, "Clip", np.float32(0.25)),
    Example("prelu", ((2, 3, 4, 4), (3, 1, 1)), {}, node("PRelu")),
]

BINARY = [
    Example(operation, shapes, {}, node(kind))
    for operation, kind in (
        ("add", "Add"),
        ("sub", "Sub"),
        ("mul", "Mul"),
        ("div", "Div"),
        ("max", "Max"),
        ("min", "Min"),
    )
    for shapes in (((2, 3, 4), (2, 3, 4)), ((2, 1, 4), (3, 1)), ((), (5,)))
] + [Example("pow", ((2, 3), (3,)), {}, node("Pow"), positive=(0,))]

INT64 = np.int64

FUNCTIONS = [
    Example(name.lower(), ((3, 5),), {}, node(name), scale=scale, positive=positive)
    for name, scale, positive in (
        *((name, 3.0, ()) for name in ("Floor", "Ceil", "Round", "Sin", "Cos", "Atan", "Asinh")),
        *((name, 0.3, ()) for name in ("Tan", "Sinh", "Cosh", "Sign")),
        *((name, 0.15, ()) for name in ("Asin", "Acos", "Atanh")),
    )
]
FUNCTIONS.append(Example("acosh", ((3, 5),), {}, node("Acosh"), positive=(0,), scale=1e3))

INTEGERS = ("int32", "int32")

LOGIC = [
    *(
        Example(name, shapes, {}, node(kind), dtypes=dtypes, scale=2)
        for name, kind in (("equal", "Equal"), ("less", "Less"), ("less_equal", "LessOrEqual"))
        for shapes, dtypes in (
            (((2, 3), (3,)), ()),
            (((4, 1), (1, 5)), ("int64", "int64")),
        )
    ),
    *(
        Example(name, ((2, 3, 4), (4,)), {}, node(kind), dtypes=("bool", "bool"))
        for name, kind in (("bit_and", "And"), ("bit_or", "Or"), ("bit_xor", "Xor"))
    ),
    Example("bit_not", ((3, 4),), {}, node("Not"), dtypes=("bool",)),
    Example(
        "bit_shift",
        ((4, 5), (5,)),
        {"left": True},
        node("BitShift", direction="LEFT"),
        positive=(0, 1),
        scale=3,
        dtypes=("uint32", "uint32"),
    ),
    Example("select", ((3, 1), (3, 4), (4,)), {}, node("Where"), dtypes=("bool", *["float32"] * 2)),
    *(
        Example("cast", ((3, 4),), {"to": to}, node("Cast", to=kind), dtypes=(of,), scale=20)
        for of, to, kind in (
            ("float32", "int32", TensorProto.INT32),
            ("int64", "float32", TensorProto.FLOAT),
            ("float32", "bool", TensorProto.BOOL),
            ("bool", "float64", TensorProto.DOUBLE),
            ("float32", "float16", TensorProto.FLOAT16),
        )
    ),
    # Large, so that no divisor is 0.
    Example("mod", ((3, 4), (4,)), {}, node("Mod"), dtypes=INTEGERS, scale=200, positive=(1,)),
    Example("mod", ((3, 4), (4,)), {"truncated": True}, node("Mod", fmod=1), positive=(1,)),
]


def reduction(operation: str, kind: str, axes: tuple[int, ...], keep: bool, **more: Any) -> Example:
    constants = {"axes": np.array(axes, np.int64)}

    def build(_: Example) -> list[onnx.NodeProto]:
        if kind == "ReduceSum":
            return [helper.make_node(kind, ["x0", "axes"], ["y"], keepdims=keep)]
        return [helper.make_node(kind, ["x0"], ["y"], axes=axes, keepdims=keep)]

    used = constants if kind == "ReduceSum" else {}
    attributes = {"axes": axes, "keep_dims": keep}
    return Example(operation, ((2, 3, 4),), attributes, build, constants=used, **more)


REDUCTIONS = [
    reduction(operation, kind, axes, keep)
    for operation, kind in (
        ("reduce_sum", "ReduceSum"),
        ("reduce_product", "ReduceProd"),
        ("reduce_max", "ReduceMax"),
        ("reduce_min", "ReduceMin"),
    )
    for axes, keep in (((1,), True), ((0, 2), False))
] + [
    Example(
        operation,
        ((2, 5, 3),),
        {"axes": (axis,), "keep_dims": keep, "last": last},
        node(kind, axis=axis, keepdims=keep, select_last_index=last),
        dtypes=("int32",),
    )
    for operation, kind in (("arg_max", "ArgMax"), ("arg_min", "ArgMin"))
    for axis, keep, last in ((1, True, False), (2, False, True))
]


def scatter(reduction: str) -> Example:
    return Example(
        "scatter",
        ((5, 3), (4,), (4, 3)),
        {"reduction": reduction},
        lambda _: [
            helper.make_node("Unsqueeze", ["x1", "last"], ["rows"]),
            helper.make_node("ScatterND", ["x0", "rows", "x2"], ["y"], reduction=reduction),
        ],
        constants={"last": np.array([1], np.int64)},
        dtypes=("float32", "int64", "float32"),
        scale=1.2,
    )


INDEXING = [
    Example("gather", ((4, 5), (2, 3)), {"axis": 0}, node("Gather"), dtypes=("float32", "int64")),
    Example(
        "gather", ((2, 4, 3), (3,)), {"axis": 1}, node("Gather", axis=1), dtypes=("int32", "int32")
    ),
    *(scatter(reduction) for reduction in ("none", "add", "mul")),
    with_constants("running_sum", (3, 4), {"axis": 1}, "CumSum", np.array(1, INT64)),
    Example(
        "running_product",
        ((3, 4),),
        {"axis": 0},
        lambda _: [
            # The running products of three rows, one by one.
            helper.make_node("Split", ["x0"], ["a", "b", "c"], axis=0),
            helper.make_node("Mul", ["a", "b"], ["ab"]),
            helper.make_node("Mul", ["ab", "c"], ["abc"]),
            helper.make_node("Concat", ["a", "ab", "abc"], ["y"], axis=0),
        ],
    ),
    *(
        Example(
            "arg_sort",
            ((3, 6),),
            {"axis": 1, "descending": descending},
            lambda example: [
                helper.make_node(
                    "TopK",
                    ["x0", "k"],
                    ["sorted", "y"],
                    axis=1,
                    largest=int(example.attributes["descending"]),
                )
            ],
            constants={"k": np.array([6], INT64)},
        )
        for descending in (False, True)
    ),
    *(
        Example(
            "non_max_suppression",
            ((2, 9, 4), (2, 3, 9), ()),
            {"most": 4, "center": center},
            suppressed,
            positive=(0, 2),
            scale=0.3,
        )
        for center in (False, True)
    ),
]

VIEWS = [
    Example("concat", ((2, 3, 4), (2, 1, 4), (2, 2, 4)), {"axis": 1}, node("Concat", axis=1)),
    Example("concat", ((2, 3), (2, 5)), {"axis": -1}, node("Concat", axis=-1)),
    Example(
        "interleave",
        tuple((2, rows, pixels) for rows in (3, 2) for pixels in (2, 2, 1)),
        {"steps": (2, 3)},
        interleave,
    ),
    with_constants("reshape", (2, 3, 4), {"shape": (4, 6)}, "Reshape", np.array([4, 6], INT64)),
    Example(
        "transpose",
        ((2, 3, 4),),
        {"permutation": (2, 0, 1)},
        node("Transpose", perm=[2, 0, 1]),
    ),
    with_constants(
        "slice",
        (6, 7, 5),
        {"starts": (1, -2), "ends": (5, -6), "axes": (1, 0), "steps": (2, -2)},
        "Slice",
        np.array([1, -2], INT64),
        np.array([5, -6], INT64),
        np.array([1, 0], INT64),
        np.array([2, -2], INT64),
    ),
    with_constants(
        "slice",
        (5, 4),
        {"starts": (9, 0), "ends": (-(2**63), 2**62), "axes": (0, 1), "steps": (-1, 3)},
        "Slice",
        np.array([9, 0], INT64),
        np.array([-(2**63), 2**62], INT64),
        np.array([0, 1], INT64),
        np.array([-1, 3], INT64),
    ),
    with_constants(
        "slice", (5, 4), {"starts": (1,), "ends": (3,)}, "Slice", np.array([1]), np.array([3])
    ),
    *(
        with_constants(
            "pad",
            (3, 4),
            {"pads": (1, 2, 0, 3), "mode": mode, "value": 1.5},
            "Pad",
            np.array([1, 2, 0, 3], INT64),
            np.float32(1.5),
        )
        for mode in ("constant", "reflect", "edge")
    ),
]

PLAIN = FUNCTIONS + LOGIC + REDUCTIONS + INDEXING
"""Examples of operations on other elements too, or that fixed point has not."""

EXAMPLES = CONVOLUTIONS + POOLS + PRODUCTS + NORMALISATIONS + MAPS + BINARY + VIEWS + PLAIN
"""Examples of every operation."""
