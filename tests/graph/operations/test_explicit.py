"""explicit_conv means the convolution that it stands for, and says so in its domain."""

import numpy as np
import pytest

from tests.graph.operations.catalogue import conv
from tilewright.graph.operations.convolution import ConvOp
from tilewright.graph.operations.explicit import ExplicitConvOp
from tilewright.ir import Block, VerifyException
from tilewright.ir.types import shape_of, tensor

SHAPES = [
    ((1, 5, 7, 9), (4, 5, 3, 3), {"pads": (1, 1, 1, 1)}),
    ((2, 3, 13, 14), (6, 3, 5, 2), {"pads": (0, 2, 1, 0), "strides": (2, 3)}),
    ((1, 8, 9, 9), (2, 8, 3, 3), {"dilations": (3, 2), "strides": (1, 2)}),
    ((1, 2, 1, 1), (3, 2, 3, 4), {"pads": (3, 1, 2, 4)}),
]


def operation(
    image: tuple[int, ...], weights: tuple[int, ...], **attributes: tuple[int, ...]
) -> ExplicitConvOp:
    kinds = [tensor(image), tensor(weights), tensor((9,)), tensor((weights[0],))]
    op = ExplicitConvOp.build_from(Block(arg_types=kinds).args, dict(attributes), node="a node")
    assert isinstance(op, ExplicitConvOp)
    op.verify()
    return op


@pytest.mark.parametrize(("image", "weights", "attributes"), SHAPES)
def test_it_means_the_convolution(
    image: tuple[int, ...], weights: tuple[int, ...], attributes: dict[str, tuple[int, ...]]
) -> None:
    example = conv(image, weights, True, **attributes)
    x, w, b = example.operands(3)
    op = operation(image, weights, **attributes)
    found = op.evaluate(x, w, np.full(9, np.nan, np.float32), b)
    expected = example.expected([x, w, b])
    assert found.dtype == np.float32
    assert found.shape == shape_of(op.result) == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("image", "weights", "attributes"), SHAPES)
def test_its_domain_is_the_convolutions_with_scratch(
    image: tuple[int, ...], weights: tuple[int, ...], attributes: dict[str, tuple[int, ...]]
) -> None:
    stage = operation(image, weights, **attributes).stage(["x", "w", "s", "b"], "y")
    kinds = [tensor(image), tensor(weights), tensor((weights[0],))]
    direct = ConvOp.build_from(Block(arg_types=kinds).args, dict(attributes))
    assert isinstance(direct, ConvOp)
    other = direct.stage(["x", "w", "b"], "y")
    assert stage is not None and other is not None
    assert [operand.role for operand in stage.inputs] == ["input", "weight", "scratch", "bias"]
    assert stage.extents == other.extents and stage.reduction == other.reduction
    kept = [operand for operand in stage.inputs if operand.role != "scratch"]
    assert (*kept, stage.output) == (*other.inputs, other.output)


@pytest.mark.parametrize(
    ("kinds", "attributes"),
    [
        ([(1, 5, 7), (4, 5, 3, 3), (9,)], {}),
        ([(1, 5, 7, 9), (4, 4, 3, 3), (9,)], {}),
        ([(1, 5, 1, 9), (4, 5, 3, 3), (9,)], {}),
        ([(1, 5, 7, 9), (4, 5, 3, 3), (9, 1)], {}),
        ([(1, 5, 7, 9), (4, 5, 3, 3), (9,), (3,)], {}),
        ([(1, 5, 7, 9), (4, 5, 3, 3)], {}),
        ([(1, 5, 7, 9), (4, 5, 3, 3), (9,)], {"strides": (0, 1)}),
        ([(1, 5, 7, 9), (4, 5, 3, 3), (9,)], {"dilations": (4, 1)}),
    ],
)
def test_what_makes_no_sense_is_refused(
    kinds: list[tuple[int, ...]], attributes: dict[str, tuple[int, ...]]
) -> None:
    with pytest.raises(VerifyException):
        ExplicitConvOp.build_from(
            Block(arg_types=[tensor(shape) for shape in kinds]).args, dict(attributes)
        ).verify()
