"""Operations that ONNX has no node for, spelled out in its nodes, from x0, x1, ... to y."""

from typing import Any, Protocol

import numpy as np
import onnx
from onnx import helper


class Described(Protocol):
    """What the nodes depend on."""

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]: ...

    @property
    def attributes(self) -> dict[str, Any]: ...


def root_mean_square(example: Described) -> list[onnx.NodeProto]:
    """x over the root of its mean square, times a scale."""
    return [
        helper.make_node("Mul", ["x0", "x0"], ["a"]),
        helper.make_node("ReduceMean", ["a"], ["b"], axes=[-1]),
        helper.make_node("Constant", [], ["e"], value_float=example.attributes["epsilon"]),
        helper.make_node("Add", ["b", "e"], ["c"]),
        helper.make_node("Sqrt", ["c"], ["d"]),
        helper.make_node("Div", ["x0", "d"], ["f"]),
        helper.make_node("Mul", ["f", "x1"], ["y"]),
    ]


def attention(example: Described) -> list[onnx.NodeProto]:
    """Two products with a softmax between them, heads in front of the rows."""
    nodes = [
        helper.make_node("Transpose", [f"x{i}"], [f"t{i}"], perm=perm)
        for i, perm in enumerate(([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
    ]
    scale = example.attributes["scale"]
    nodes += [
        helper.make_node("Constant", [], ["s"], value_float=scale),
        helper.make_node("MatMul", ["t0", "t1"], ["a"]),
        helper.make_node("Mul", ["a", "s"], ["b"]),
    ]
    scores = "b"
    if len(example.shapes) == 4:
        nodes.append(helper.make_node("Add", ["b", "x3"], ["c"]))
        scores = "c"
    return [
        *nodes,
        helper.make_node("Softmax", [scores], ["d"], axis=-1),
        helper.make_node("MatMul", ["d", "t2"], ["f"]),
        helper.make_node("Transpose", ["f"], ["y"], perm=[0, 2, 1, 3]),
    ]


def interleave(example: Described) -> list[onnx.NodeProto]:
    """Padded to one size, stacked, with the axes of the stack moved behind rows and pixels."""
    (down, along), count = example.attributes["steps"], len(example.shapes)
    before, (rows, pixels) = example.shapes[0][:-2], example.shapes[0][-2:]
    rank = len(before)
    height = sum(shape[-2] for shape in example.shapes[::along])
    width = sum(shape[-1] for shape in example.shapes[:along])
    stack = [down, along, *before, rows, pixels]
    order = [*range(2, 2 + rank), 2 + rank, 0, 3 + rank, 1]
    nodes: list[onnx.NodeProto] = []
    for i, shape in enumerate(example.shapes):
        pads = [0] * (rank + 2) + [0] * rank + [rows - shape[-2], pixels - shape[-1]]
        nodes += [
            helper.make_node("Constant", [], [f"p{i}"], value_ints=pads),
            helper.make_node("Pad", [f"x{i}", f"p{i}"], [f"q{i}"]),
        ]
    for name, values in {
        "s": stack,
        "j": [*before, rows * down, pixels * along],
        "zero": [0, 0],
        "end": [height, width],
        "axes": [rank, rank + 1],
    }.items():
        nodes.append(helper.make_node("Constant", [], [name], value_ints=values))
    return [
        *nodes,
        helper.make_node("Concat", [f"q{i}" for i in range(count)], ["a"], axis=0),
        helper.make_node("Reshape", ["a", "s"], ["b"]),
        helper.make_node("Transpose", ["b"], ["c"], perm=order),
        helper.make_node("Reshape", ["c", "j"], ["d"]),
        helper.make_node("Slice", ["d", "zero", "end", "axes"], ["y"]),
    ]


def channel_shuffle(example: Described) -> list[onnx.NodeProto]:
    """Split, swap, join."""
    (n, c, h, w), groups = example.shapes[0], example.attributes["groups"]
    split, joined = [n, groups, c // groups, h, w], [n, c, h, w]
    return [
        helper.make_node("Constant", [], ["s"], value_ints=split),
        helper.make_node("Constant", [], ["j"], value_ints=joined),
        helper.make_node("Reshape", ["x0", "s"], ["a"]),
        helper.make_node("Transpose", ["a"], ["b"], perm=[0, 2, 1, 3, 4]),
        helper.make_node("Reshape", ["b", "j"], ["y"]),
    ]


def gelu(example: Described) -> list[onnx.NodeProto]:
    """x * (1 + erf(x * sqrt(1/2))) * 0.5; operator set 17 has no node for it."""
    return [
        helper.make_node("Constant", [], ["root"], value_float=float(np.sqrt(0.5))),
        helper.make_node("Constant", [], ["half"], value_float=0.5),
        helper.make_node("Constant", [], ["one"], value_float=1.0),
        helper.make_node("Mul", ["x0", "root"], ["a"]),
        helper.make_node("Erf", ["a"], ["b"]),
        helper.make_node("Add", ["b", "one"], ["c"]),
        helper.make_node("Mul", ["x0", "c"], ["d"]),
        helper.make_node("Mul", ["d", "half"], ["y"]),
    ]


def suppressed(example: Described) -> list[onnx.NodeProto]:
    """The boxes of each class by a NonMaxSuppression of its own, padded with -1."""
    batch, classes, _ = example.shapes[1]
    most, center = example.attributes["most"], int(example.attributes["center"])
    constants = {
        "most": np.array([most]), "column": np.array([2]), "flat": np.array([-1]),
        "zero": np.array([0]), "shape": np.array([batch, classes, most]), "none": np.array(-1),
        **{f"i{n}": np.array([n]) for n in range(max(batch, classes))},
    }  # fmt: skip
    nodes = [
        helper.make_node("Constant", [], [name], value=onnx.numpy_helper.from_array(array))
        for name, array in constants.items()
    ]
    rows: list[str] = []
    for b, c in np.ndindex(batch, classes):
        own = f"{b}_{c}"
        names = [f"boxes{own}", f"scores{own}", "most", "x2"]
        nodes += [
            helper.make_node("Gather", ["x0", f"i{b}"], [f"boxes{own}"], axis=0),
            helper.make_node("Gather", ["x1", f"i{b}"], [f"all{own}"], axis=0),
            helper.make_node("Gather", [f"all{own}", f"i{c}"], [f"scores{own}"], axis=1),
            helper.make_node("NonMaxSuppression", names, [f"n{own}"], center_point_box=center),
            helper.make_node("Gather", [f"n{own}", "column"], [f"p{own}"], axis=1),
            helper.make_node("Reshape", [f"p{own}", "flat"], [f"l{own}"]),
            helper.make_node("Shape", [f"l{own}"], [f"s{own}"]),
            helper.make_node("Sub", ["most", f"s{own}"], [f"m{own}"]),
            helper.make_node("Concat", ["zero", f"m{own}"], [f"a{own}"], axis=0),
            helper.make_node("Pad", [f"l{own}", f"a{own}", "none"], [f"r{own}"]),
        ]
        rows.append(f"r{own}")
    return [
        *nodes,
        helper.make_node("Concat", rows, ["flat_rows"], axis=0),
        helper.make_node("Reshape", ["flat_rows", "shape"], ["y"]),
    ]
