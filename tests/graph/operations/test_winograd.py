"""winograd_conv means the convolution that its weights were made of, and says so in its domain."""

import numpy as np
import pytest

from tests.graph.operations.catalogue import conv
from tilewright.graph.operations.winograd import WinogradConvOp
from tilewright.ir import Block, VerifyException
from tilewright.numerics.winograd import transform_weights
from tilewright.types import Array, shape_of, tensor

SHAPES = [
    ((1, 5, 7, 9), 4, (1, 1, 1, 1)),
    ((2, 3, 13, 4), 6, (0, 2, 1, 0)),
    ((1, 8, 3, 3), 2, (0, 0, 0, 0)),
    ((1, 2, 1, 1), 3, (3, 1, 2, 4)),
]


def operation(
    image: tuple[int, ...], channels: int, tile: int, bias: bool = True, **attributes: object
) -> WinogradConvOp:
    kinds = [tensor(image), tensor((channels, image[1], tile + 2, tile + 2)), tensor((9,))]
    if bias:
        kinds.append(tensor((channels,)))
    op = WinogradConvOp.build_from(
        Block(arg_types=kinds).args, {"tile": tile, **attributes}, node="a node"
    )
    assert isinstance(op, WinogradConvOp)
    op.verify()
    return op


@pytest.mark.parametrize("tile", [2, 4])
@pytest.mark.parametrize(("image", "channels", "pads"), SHAPES)
def test_it_means_the_convolution(
    image: tuple[int, ...], channels: int, pads: tuple[int, ...], tile: int
) -> None:
    example = conv(image, (channels, image[1], 3, 3), True, pads=pads)
    x, w, b = example.operands(3)
    op = operation(image, channels, tile, pads=pads)
    scratch = np.full(9, np.nan, np.float32)
    found = op.evaluate(x, transform_weights(w, tile), scratch, b)
    expected = example.expected([x, w, b])
    assert found.dtype == np.float32
    assert found.shape == shape_of(op.result) == expected.shape
    # One rounding of the weights, carried through transforms with entries up to 8.
    np.testing.assert_allclose(found, expected, atol=3e-5 * float(np.abs(expected).max()))


@pytest.mark.parametrize("tile", [2, 4])
def test_its_domain_touches_what_the_convolution_touches(tile: int) -> None:
    """Every output is in one tile, which covers the inputs of its nine taps."""
    op = operation((1, 2, 9, 6), 3, tile, pads=(1, 0, 1, 2))
    stage = op.stage(["x", "u", "s", "b"], "y")
    assert stage is not None
    assert [operand.role for operand in stage.inputs] == ["input", "weight", "scratch", "bias"]
    extents = stage.extents
    for axis, size in ((2, shape_of(op.result)[2]), (3, shape_of(op.result)[3])):
        covered: list[int] = []
        (grid, _), (inside, _) = stage.output.access[axis].terms
        for at in range(extents[grid]):
            dims = {grid: (at, 1), inside: (0, tile)}
            start, count = stage.output.access[axis].interval(dims)
            covered += range(start, start + count)
            position = stage.inputs[0].access[axis].dims[1]
            low, width = (
                stage.inputs[0]
                .access[axis]
                .interval({grid: (at, 1), position: (0, extents[position])})
            )
            assert (low, width) == (start - (1 if axis == 2 else 0), count + 2)
        assert covered == list(range(len(covered)))
        assert size <= len(covered) < size + tile


@pytest.mark.parametrize(
    ("kinds", "attributes"),
    [
        ([(1, 5, 7, 9), (4, 5, 6, 6), (9,)], {"tile": 3}),
        ([(1, 5, 7, 9), (4, 5, 6, 6), (9,)], {"tile": 2}),
        ([(1, 5, 7, 9), (4, 4, 6, 6), (9,)], {}),
        ([(1, 5, 1, 9), (4, 5, 6, 6), (9,)], {}),
        ([(1, 5, 7, 9), (4, 5, 6, 6), (9, 1)], {}),
        ([(1, 5, 7, 9), (4, 5, 6, 6), (9,), (3,)], {}),
        ([(1, 5, 7, 9), (4, 5, 6, 6)], {}),
        ([(1, 5, 7, 9), (4, 5, 6, 6), (9,)], {"pads": (-1, 0, 0, 0)}),
    ],
)
def test_what_makes_no_sense_is_refused(
    kinds: list[tuple[int, ...]], attributes: dict[str, object]
) -> None:
    with pytest.raises(VerifyException):
        WinogradConvOp.build_from(
            Block(arg_types=[tensor(shape) for shape in kinds]).args,
            attributes,  # type: ignore[arg-type]
        ).verify()


def rounded(array: Array) -> Array:
    """As float32 holds it."""
    return array.astype(np.float32).astype(np.float64)


@pytest.mark.parametrize("tile", [2, 4])
def test_weights_are_rounded_once(tile: int) -> None:
    from tilewright.numerics.winograd import TRANSFORMS

    w = np.random.default_rng(1).standard_normal((7, 5, 3, 3)).astype(np.float32)
    g = TRANSFORMS[tile].weights
    exact = np.einsum("ua,ocab,vb->ocuv", g, w.astype(np.float64), g)
    found = transform_weights(w, tile).astype(np.float64)
    assert (np.abs(found - exact) <= np.spacing(np.abs(exact).astype(np.float32)) * 0.51).all()
