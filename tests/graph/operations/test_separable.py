"""separable_conv means the two convolutions and the map that it stands for."""

import numpy as np
import pytest

from tests.graph.operations.catalogue import conv
from tilewright.graph.operations.separable import SeparableConvOp
from tilewright.ir import Block, PythonValue, VerifyException
from tilewright.ir.types import Array, shape_of, tensor

Attributes = dict[str, PythonValue]

CASES: list[tuple[tuple[int, ...], tuple[int, int], int, Attributes]] = [
    ((1, 5, 7, 9), (3, 3), 4, {"pads": (1, 1, 1, 1), "between": "clip", "maximum": 0.4}),
    ((2, 3, 13, 14), (5, 2), 6, {"pads": (0, 2, 1, 0), "strides": (2, 3), "between": "relu"}),
    ((1, 8, 9, 9), (3, 3), 2, {"dilations": (3, 2), "strides": (1, 2)}),
    ((1, 2, 4, 4), (3, 1), 3, {"pads": (1, 0, 1, 0), "between": "silu"}),
    ((1, 2, 4, 4), (1, 1), 3, {"between": "hard_swish"}),
]


def operation(
    image: tuple[int, ...], window: tuple[int, int], channels: int, attributes: Attributes
) -> SeparableConvOp:
    between = image[1]
    shapes = [image, (between, 1, *window), (channels, between, 1, 1), (9,), (between,)]
    kinds = [tensor(shape) for shape in (*shapes, (channels,))]
    op = SeparableConvOp.build_from(Block(arg_types=kinds).args, attributes, node="a node")
    assert isinstance(op, SeparableConvOp)
    op.verify()
    return op


def mapped(x: Array, attributes: Attributes) -> Array:
    """The maps by their definitions, in float64."""
    wide = x.astype(np.float64)
    match attributes.get("between"):
        case "clip":
            return np.minimum(wide, attributes["maximum"])
        case "relu":
            return np.maximum(wide, 0.0)
        case "silu":
            return wide / (1.0 + np.exp(-wide))
        case "hard_swish":
            return wide * np.clip(wide / 6.0 + 0.5, 0.0, 1.0)
        case _:
            return wide


@pytest.mark.parametrize(("image", "window", "channels", "attributes"), CASES)
def test_it_means_both_convolutions(
    image: tuple[int, ...], window: tuple[int, int], channels: int, attributes: Attributes
) -> None:
    own = {k: v for k, v in attributes.items() if k in ("pads", "strides", "dilations")}
    first = conv(image, (image[1], 1, *window), True, group=image[1], **own)
    x, v, a = first.operands(3)
    between = first.expected([x, v, a])
    second = conv(between.shape, (channels, image[1], 1, 1), True)
    _, w, b = second.operands(4)
    expected = second.expected([mapped(between, attributes).astype(np.float32), w, b])
    op = operation(image, window, channels, attributes)
    found = op.evaluate(x, v, w, np.full(9, np.nan, np.float32), a, b)
    assert found.dtype == np.float32
    assert found.shape == shape_of(op.result) == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_its_domain_has_both_reductions_and_scratch() -> None:
    op = operation((1, 5, 7, 9), (3, 3), 4, {"strides": (2, 1)})
    stage = op.stage(["x", "v", "w", "s", "a", "b"], "y")
    assert stage is not None
    roles = ["input", "weight", "weight", "scratch", "bias", "bias"]
    assert [operand.role for operand in stage.inputs] == roles
    assert stage.reduction == ("c", "kh", "kw")
    assert stage.extents == {"n": 1, "co": 4, "oh": 3, "ow": 7, "c": 5, "kh": 3, "kw": 3}
    assert str(stage.inputs[0].access[2]) == "oh*2 + kh"


SHAPES = [(1, 5, 7, 9), (5, 1, 3, 3), (4, 5, 1, 1), (9,), (5,), (4,)]


@pytest.mark.parametrize(
    ("place", "shape"),
    [
        (0, (1, 5, 7)),
        (1, (5, 2, 3, 3)),
        (1, (5, 1, 8, 3)),
        (2, (4, 5, 3, 3)),
        (3, (9, 1)),
        (4, (4,)),
    ],
)
def test_what_makes_no_sense_is_refused(place: int, shape: tuple[int, ...]) -> None:
    shapes = [shape if number == place else one for number, one in enumerate(SHAPES)]
    with pytest.raises(VerifyException):
        SeparableConvOp.build_from(Block(arg_types=[tensor(s) for s in shapes]).args, {}).verify()


def test_unknown_maps_are_refused() -> None:
    with pytest.raises(VerifyException, match="knows the maps"):
        operation((1, 5, 7, 9), (3, 3), 4, {"between": "sqrt"})
