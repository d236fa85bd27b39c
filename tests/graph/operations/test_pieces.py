"""piece_conv and piece_matmul mean what they stand for, and say so in their domains."""

import numpy as np
import pytest

from tests.graph.operations.catalogue import conv
from tilewright.graph.operation import Operation
from tilewright.graph.operations.convolution import ConvOp
from tilewright.graph.operations.matrix import MatMulOp
from tilewright.graph.operations.pieces import PieceConvOp, PieceMatMulOp
from tilewright.ir import Block, VerifyException, bf16, f16, f32
from tilewright.ir.types import shape_of, tensor
from tilewright.numerics.pieces import THREE, TWO, split_weights
from tilewright.planning.domain import Affine

SHAPES = [
    ((1, 5, 7, 9), (4, 5, 3, 3), {"pads": (1, 1, 1, 1)}),
    ((2, 3, 13, 14), (6, 3, 5, 2), {"pads": (0, 2, 1, 0), "strides": (2, 3)}),
    ((1, 40, 9, 9), (2, 40, 3, 3), {"dilations": (3, 2), "strides": (1, 2)}),
    ((1, 2, 1, 1), (3, 2, 3, 4), {"pads": (3, 1, 2, 4)}),
    ((1, 33, 4, 5), (7, 33, 1, 1), {}),
]
ROWS = [((6, 40), 5), ((2, 3, 7), 33), ((2, 1, 4, 64), 3)]

Attributes = dict[str, tuple[int, ...]]


def stored(channels: int, taps: int, co: int, pieces: int):
    """The type of weights for so many pieces."""
    size = -(-channels // 32) * taps * 32
    return tensor((co, 2 * size), bf16) if pieces == TWO else tensor((co, size), f32)


def convolution(
    image: tuple[int, ...], w: tuple[int, ...], pieces: int = TWO, **attributes: tuple[int, ...]
):
    split = stored(w[1], w[2] * w[3], w[0], pieces)
    kinds = [tensor(image), split, tensor((9,)), tensor((w[0],))]
    op = PieceConvOp.build_from(
        Block(arg_types=kinds).args, {"window": w[2:], **attributes}, node="a node"
    )
    assert isinstance(op, PieceConvOp)
    op.verify()
    return op


def matrix(rows: tuple[int, ...], co: int, pieces: int = TWO) -> PieceMatMulOp:
    kinds = [tensor(rows), stored(rows[-1], 1, co, pieces), tensor((9,)), tensor((co,))]
    op = PieceMatMulOp.build_from(Block(arg_types=kinds).args, {}, node="a node")
    assert isinstance(op, PieceMatMulOp)
    op.verify()
    return op


def sixteen_bits(values: np.ndarray) -> np.ndarray:
    """Rounded to what two pieces hold: then the operation is the one that it stands for."""
    fraction, exponent = np.frexp(values)
    return np.ldexp(np.rint(fraction * 2**16), exponent - 16).astype(np.float32)


@pytest.mark.parametrize(("image", "weights", "attributes"), SHAPES)
def test_it_means_the_convolution(
    image: tuple[int, ...], weights: tuple[int, ...], attributes: Attributes
) -> None:
    example = conv(image, weights, True, **attributes)
    x, w, b = example.operands(3)
    op = convolution(image, weights, **attributes)
    scratch = np.full(9, np.nan, np.float32)
    exact = sixteen_bits(w)
    found = op.evaluate(x, split_weights(exact), scratch, b)
    expected = example.expected([x, exact, b])
    assert found.dtype == np.float32
    assert found.shape == shape_of(op.result) == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    without = op.evaluate(x, split_weights(exact), scratch)
    np.testing.assert_allclose(without + b[:, None, None], expected, rtol=1e-5, atol=1e-5)
    whole = convolution(image, weights, THREE, **attributes)
    found = whole.evaluate(x, split_weights(w, THREE), scratch, b)
    np.testing.assert_allclose(found, example.expected([x, w, b]), rtol=1e-5, atol=1e-5)
    # Weights lose up to 2**-17 of each; the sums' own rounding is below that here.
    found = op.evaluate(x, split_weights(w), scratch, b)
    sizes = example.expected([np.abs(x), np.abs(w), np.abs(b)])
    assert (np.abs(found - example.expected([x, w, b])) <= 2.0**-16 * sizes).all()


@pytest.mark.parametrize(("rows", "co"), ROWS)
def test_it_means_the_product(rows: tuple[int, ...], co: int) -> None:
    random = np.random.default_rng(co)
    x = random.standard_normal(rows).astype(np.float32)
    w = sixteen_bits(random.standard_normal((co, rows[-1])))
    b = random.standard_normal(co).astype(np.float32)
    op = matrix(rows, co)
    scratch = np.full(9, np.nan, np.float32)
    found = op.evaluate(x, split_weights(w), scratch, b)
    expected = x.astype(np.float64) @ w.T.astype(np.float64) + b
    assert found.dtype == np.float32
    assert found.shape == shape_of(op.result) == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    without = op.evaluate(x, split_weights(w), scratch)
    np.testing.assert_allclose(without + b, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("image", "weights", "attributes"), SHAPES)
def test_its_domain_is_the_convolutions_on_other_weights(
    image: tuple[int, ...], weights: tuple[int, ...], attributes: Attributes
) -> None:
    stage = convolution(image, weights, **attributes).stage(["x", "w", "s", "b"], "y")
    kinds = [tensor(image), tensor(weights), tensor((weights[0],))]
    direct = ConvOp.build_from(Block(arg_types=kinds).args, dict(attributes))
    assert isinstance(direct, ConvOp)
    other = direct.stage(["x", "w", "b"], "y")
    assert stage is not None and other is not None
    assert [operand.role for operand in stage.inputs] == ["input", "weight", "scratch", "bias"]
    assert stage.extents == other.extents and stage.reduction == other.reduction
    assert (stage.inputs[0], stage.inputs[3], stage.output) == (
        *(other.inputs[0], other.inputs[2]),
        other.output,
    )
    # Both pieces of all inputs and taps of an output channel, side by side.
    co, pieces = stage.inputs[1].access
    assert co == Affine((("co", 1),))
    last = {dim: stage.extents[dim] - 1 for dim in ("ci", "kh", "kw")}
    strides = dict(pieces.terms)
    reached = sum(strides[dim] * last[dim] for dim in last if dim in strides)
    assert reached + 2 == 2 * np.prod(weights[1:]) <= stage.inputs[1].shape[1]
    alone = convolution(image, weights, THREE, **attributes).stage(["x", "w", "s", "b"], "y")
    assert alone is not None
    terms = dict(alone.inputs[1].access[1].terms)
    assert {dim: 2 * stride for dim, stride in terms.items()} == strides
    assert alone.inputs[1].element == "float32" and alone.inputs[0] == stage.inputs[0]


@pytest.mark.parametrize(("rows", "co"), ROWS)
def test_its_domain_is_the_products_on_other_weights(rows: tuple[int, ...], co: int) -> None:
    stage = matrix(rows, co).stage(["x", "w", "s", "b"], "y")
    kinds = [tensor(rows), tensor((co, rows[-1])), tensor((co,))]
    direct = MatMulOp.build_from(Block(arg_types=kinds).args, {"transpose_b": True})
    assert isinstance(direct, MatMulOp)
    other = direct.stage(["x", "w", "b"], "y")
    assert stage is not None and other is not None
    assert [operand.role for operand in stage.inputs] == ["input", "weight", "scratch", "bias"]
    assert stage.extents == other.extents and stage.reduction == other.reduction
    assert stage.inputs[0] == other.inputs[0] and stage.output == other.output


IMAGE, W, S = tensor((1, 5, 7, 9)), tensor((4, 9 * 64), bf16), tensor((9,))
TAPS = {"window": (3, 3)}


@pytest.mark.parametrize(
    ("kinds", "attributes"),
    [
        ([tensor((1, 5, 7)), W, S], TAPS),
        ([tensor((1, 5, 7, 9), f16), W, S], TAPS),
        ([tensor((1, 33, 7, 9)), W, S], TAPS),
        ([tensor((1, 5, 1, 9)), W, S], TAPS),
        ([IMAGE, tensor((4, 9 * 64), f32), S], TAPS),
        ([IMAGE, tensor((4, 9 * 32), bf16), S], TAPS),
        ([IMAGE, tensor((4, 9 * 64), f16), S], TAPS),
        ([IMAGE, tensor((4, 9, 64), bf16), S], TAPS),
        ([IMAGE, W, S], {}),
        ([IMAGE, W, S], {"window": (3, 0)}),
        ([IMAGE, W, tensor((9, 1))], TAPS),
        ([IMAGE, W, S, tensor((3,))], TAPS),
        ([IMAGE, W], TAPS),
        ([IMAGE, W, S], {**TAPS, "strides": (0, 1)}),
        ([IMAGE, W, S], {**TAPS, "dilations": (4, 1)}),
    ],
)
def test_convolutions_that_make_no_sense_are_refused(
    kinds: list, attributes: dict[str, tuple[int, ...]]
) -> None:
    refused(PieceConvOp, kinds, attributes)


@pytest.mark.parametrize(
    "kinds",
    [
        [tensor((40,)), tensor((4, 128), bf16), S],
        [tensor((6, 40)), tensor((4, 64), bf16), S],
        [tensor((6, 40), bf16), tensor((4, 128), bf16), S],
        [tensor((6, 40)), tensor((4, 128), f32), S],
        [tensor((6, 40)), tensor((4, 128), bf16), tensor((3, 3))],
        [tensor((6, 40)), tensor((4, 128), bf16), S, tensor((6,))],
        [tensor((6, 40)), tensor((4, 128), bf16)],
    ],
)
def test_products_that_make_no_sense_are_refused(kinds: list) -> None:
    refused(PieceMatMulOp, kinds, {})


def refused(kind: type[Operation], kinds: list, attributes: dict[str, tuple[int, ...]]) -> None:
    with pytest.raises(VerifyException):
        kind.build_from(Block(arg_types=kinds).args, dict(attributes)).verify()
