"""Operands and attributes that an operation does not take are refused, and the reason is said."""

from typing import Any

import pytest

from tilewright.graph.operations import BY_NAME
from tilewright.graph.operations.numbers import RequantiseOp
from tilewright.ir import Attribute, Block, VerifyException, f32, i64
from tilewright.ir.types import FixedType, tensor

F16 = FixedType.of(16, 8)
F32 = FixedType.of(32, 8)

Kind = tuple[tuple[int, ...], Attribute]


def kinds(*shapes: tuple[int, ...], element: Attribute = f32) -> list[Kind]:
    return [(shape, element) for shape in shapes]


IMAGE, FILTERS = (1, 4, 8, 8), (6, 4, 3, 3)

REFUSED: list[tuple[str, list[Kind], dict[str, Any], str]] = [
    ("conv", kinds(IMAGE), {}, "takes 2 to 3 operands, has 1"),
    ("conv", kinds((4, 8, 8), FILTERS), {}, "images must have rank 4"),
    ("conv", kinds(IMAGE, (6, 4, 3)), {}, "weights must have rank 4"),
    ("conv", kinds(IMAGE, (6, 3, 3, 3)), {}, "4 input channels, but weights for 3 channels in 1"),
    ("conv", kinds(IMAGE, (5, 2, 3, 3)), {"group": 2}, "5 output channels do not divide into 2"),
    ("conv", kinds(IMAGE, FILTERS, (5,)), {}, r"bias must have shape \[6\], has \[5\]"),
    ("conv", kinds(IMAGE, FILTERS), {"strides": (1,)}, "strides needs 2 entries, has 1"),
    ("conv", kinds(IMAGE, FILTERS), {"strides": (0, 1)}, "strides .*must lie in"),
    ("conv", kinds(IMAGE, FILTERS), {"strides": (1.5, 1)}, "strides must be a list of integers"),
    ("conv", kinds(IMAGE, FILTERS), {"strides": 2}, "strides must be a list of integers"),
    ("conv", kinds(IMAGE, FILTERS), {"pads": (0, 0, -1, 0)}, "pads .*must lie in"),
    ("conv", kinds(IMAGE, FILTERS), {"pads": (2**40, 0, 0, 0)}, "pads .*must lie in"),
    ("conv", kinds(IMAGE, FILTERS), {"dilations": (4, 1)}, "exceeds the padded image"),
    ("conv", kinds(IMAGE, FILTERS), {"pads": (2**24, 2**24, 0, 0)}, "at most 2147483647 elements"),
    ("conv", kinds(IMAGE, FILTERS), {"group": 0}, "group must be an integer in"),
    ("conv", kinds(IMAGE, FILTERS), {"group": True}, "group must be an integer in"),
    ("conv", kinds((0, 4, 8, 8), FILTERS), {}, "empty images"),
    ("pad", kinds((4, 4), (4,)), {"pads": (1,) * 4}, "one element of the same type"),
    ("pad", [((4, 4), f32), ((), i64)], {"pads": (1,) * 4}, "one element of the same type"),
    ("pad", kinds((4, 4), ()), {"pads": (1,) * 4, "value": 2.0}, "an operand or an attribute"),
    ("pad", kinds((4, 4), ()), {"pads": (1,) * 4, "mode": "edge"}, "an operand or an attribute"),
    ("conv", [(IMAGE, F16), (FILTERS, f32)], {}, "takes fixed point of 8 or 16 bits"),
    ("conv", [(IMAGE, F16), (FILTERS, F16), ((6,), F32)], {}, "bias has elements"),
    ("conv", [(IMAGE, F32), (FILTERS, F16)], {}, "takes fixed point of 8 or 16 bits"),
    ("max_pool", kinds(IMAGE), {"kernel": (9, 1)}, "exceeds the padded image"),
    ("max_pool", kinds(IMAGE), {"kernel": (2, 2), "pads": (2, 0, 0, 0)}, "wholly in the padding"),
    (
        "max_pool",
        kinds((1, 1, 1, 1)),
        {"kernel": (2, 1), "dilations": (2, 1), "pads": (1, 0, 1, 0)},
        "wholly in the padding",
    ),
    ("average_pool", kinds(IMAGE), {"kernel": (2, 2), "pads": (0, 3, 0, 0)}, "wholly in the pad"),
    ("average_pool", kinds((4, 8)), {"kernel": (2, 2)}, "images must have rank 4"),
    ("matmul", kinds((3,), (3, 4)), {}, "rank 2 at least"),
    ("matmul", kinds((2, 3), (4, 5)), {}, "inner extents 3 and 4"),
    ("matmul", kinds((2, 3), (3, 5)), {"transpose_a": True}, "inner extents 2 and 3"),
    ("matmul", kinds((2, 3, 4), (3, 4, 5)), {}, "do not broadcast"),
    ("matmul", kinds((2, 3), (3, 5), (2, 2, 5)), {}, "bias .*does not broadcast"),
    ("matmul", kinds((2, 3), (3, 5)), {"transpose_b": "yes"}, "transpose_b must be true or false"),
    ("batch_norm", kinds(IMAGE, (4,), (4,), (4,), (3,)), {}, r"variance must have shape \[4\]"),
    ("batch_norm", kinds(IMAGE, *[(4,)] * 4, element=F16), {}, "not defined on fixed point"),
    ("batch_norm", kinds(IMAGE, *[(4,)] * 4), {"epsilon": -1.0}, "must not be negative"),
    ("lrn", kinds(IMAGE), {"size": 0}, "size must be an integer"),
    ("lrn", kinds(IMAGE), {"size": 5, "alpha": float("nan")}, "alpha must be a finite number"),
    ("lrn", kinds(IMAGE), {"size": 5, "bias": 0.0}, "bias must lie in"),
    ("lrn", kinds(IMAGE, element=F16), {"size": 5, "alpha": 4.0}, "alpha .*fixed point"),
    ("lrn", kinds(IMAGE, element=FixedType.of(16, -6)), {"size": 5}, "binary point"),
    ("softmax", kinds((2, 3)), {"axis": 2}, "axis must be an integer in"),
    ("softmax", kinds(()), {}, "rank 1 at least"),
    ("softmax", kinds((2, 3), element=FixedType.of(16, 50)), {}, "binary point"),
    ("reduce_mean", kinds((2, 3)), {"axes": (0, -2)}, "distinct axes"),
    ("reduce_mean", kinds((2, 3)), {"axes": ()}, "one at least"),
    ("reduce_mean", kinds((2, 3)), {"axes": (5,)}, "distinct axes of rank 2"),
    ("clip", kinds((2,)), {"minimum": "low"}, "minimum must be a finite number"),
    ("clip", kinds((2,)), {"minimum": float("-inf")}, "minimum must be a finite number"),
    ("leaky_relu", kinds((2,), element=F16), {"alpha": 2.0}, "alpha must lie in"),
    ("prelu", kinds((2, 3), (4, 1)), {}, "do not broadcast|does not broadcast"),
    ("prelu", kinds((3,), (2, 3)), {}, "does not broadcast"),
    ("relu", kinds((2,), (2,)), {}, "takes 1 operands, has 2"),
    ("sigmoid", kinds((2,), element=F32), {}, "takes fixed point of 16 bits"),
    ("add", kinds((2, 3), (2,)), {}, "do not broadcast"),
    ("add", [((2,), F16), ((2,), f32)], {}, "operands mix"),
    ("add", [((2,), f32), ((2,), i64)], {}, "operands differ in element type"),
    ("add", [((2,), F16), ((2,), FixedType.of(16, 50))], {}, "too far apart"),
    ("max", [((2,), F16), ((2,), F32)], {}, "operands differ in element type"),
    ("div", kinds((2,), (2,), element=F16), {}, "not defined on fixed point"),
    ("concat", kinds((2, 3), (3, 3)), {"axis": 1}, "operand 1 of shape"),
    ("concat", kinds((2, 3)), {"axis": -3}, "axis must be an integer"),
    ("concat", [((2,), F16), ((2,), FixedType.of(16, 9))], {"axis": 0}, "differ in element type"),
    ("concat", [], {"axis": 0}, "has 0"),
    ("interleave", kinds((2, 3), (2, 3)), {"steps": (1, 3)}, "ask for other operands"),
    ("interleave", kinds((2, 2), (2, 3)), {"steps": (1, 2)}, "operand 0 of shape"),
    ("interleave", kinds((1, 2, 3), (2, 3)), {"steps": (2, 1)}, "operand 1 of shape"),
    ("interleave", kinds((3,), (3,)), {"steps": (1, 2)}, "rank 2 at least"),
    ("reshape", kinds((2, 3)), {"shape": (4, 2)}, "has 6 elements"),
    ("reshape", kinds((2, 3)), {"shape": (-1, 6)}, "must be a list of extents"),
    ("reshape", kinds((0, 3)), {"shape": (2**31, 0)}, "must be a list of extents"),
    ("transpose", kinds((2, 3)), {"permutation": (0, 0)}, "no permutation"),
    ("transpose", kinds((2, 3)), {"permutation": (0,)}, "needs 2 entries"),
    ("slice", kinds((2, 3)), {"starts": (0,), "ends": (1, 1)}, "ends must be a list of 1"),
    ("slice", kinds((2, 3)), {"starts": (0,), "ends": (1,), "axes": (2,)}, "distinct axes"),
    ("slice", kinds((2, 3)), {"starts": (0,), "ends": (1,), "steps": (0,)}, "a step is 0"),
    ("pad", kinds((2, 3)), {"pads": (1, 1)}, "pads needs 4 entries"),
    ("pad", kinds((2, 3)), {"pads": (1, -1, 0, 0)}, "pads .*must lie in"),
    ("pad", kinds((2, 3)), {"pads": (2, 0, 0, 0), "mode": "reflect"}, "cannot pad an axis"),
    ("pad", kinds((2, 3)), {"pads": (0,) * 4, "mode": "wrap"}, "mode must be one of"),
    ("quantise", kinds((2,), element=F16), {}, "takes float32"),
    ("requantise", kinds((2,)), {}, "takes fixed point"),
    ("dequantise", kinds((2,)), {}, "takes fixed point"),
    ("relu", kinds((2**20, 2**20)), {}, "at most 2147483647 elements"),
    ("relu", kinds((1,) * 9), {}, "rank 9"),
    ("relu", kinds((-1, 2)), {}, "must be known"),
]


@pytest.mark.parametrize(
    ("operation", "operands", "attributes", "reason"),
    REFUSED,
    ids=[f"{number}-{item[0]}" for number, item in enumerate(REFUSED)],
)
def test_refusals(
    operation: str, operands: list[Kind], attributes: dict[str, Any], reason: str
) -> None:
    block = Block(arg_types=[tensor(shape, element) for shape, element in operands])
    with pytest.raises(VerifyException, match=reason) as caught:
        BY_NAME[operation].build_from(block.args, attributes, node="my node")
    assert str(caught.value).startswith(f"graph.{operation} (node 'my node'): ")


@pytest.mark.parametrize(
    ("operation", "operands", "result"),
    [
        ("relu", kinds((2, 3)), tensor((3, 2))),
        ("relu", kinds((2, 3)), tensor((2, 3), F16)),
        ("relu", kinds((2, 3), element=F16), tensor((2, 3), FixedType.of(16, 7))),
        ("sigmoid", kinds((2, 3), element=F16), tensor((2, 3), F32)),
        ("sigmoid", kinds((2, 3)), tensor((2, 3), F16)),
        ("requantise", kinds((2, 3), element=F32), tensor((2, 3), F32)),
        ("add", kinds((2,), (2,), element=F16), tensor((2,), F16)),
        ("convert_layout", kinds((2, 3), element=F16), tensor((2, 3), FixedType.of(16, 9), "NC")),
    ],
)
def test_a_result_of_another_type_is_refused(
    operation: str, operands: list[Kind], result: Attribute
) -> None:
    block = Block(arg_types=[tensor(shape, element) for shape, element in operands])
    op = BY_NAME[operation].build_from(block.args, result_type=result)
    with pytest.raises(VerifyException, match="result has"):
        op.verify()


def test_binary_points_of_results_may_be_chosen() -> None:
    block = Block(arg_types=[tensor((2, 3), F32)])
    op = RequantiseOp.build_from(block.args, result_type=tensor((2, 3), FixedType.of(16, -2)))
    op.verify()
