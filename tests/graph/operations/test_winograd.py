"""winograd_conv means the convolution that its weights were made of, and says so in its domain."""

import numpy as np
import pytest

from tests.graph.operations.catalogue import conv
from tilewright.graph.operations.winograd import WinogradConvOp
from tilewright.ir import Block, VerifyException
from tilewright.ir.types import shape_of, tensor
from tilewright.numerics.winograd import POINTS, SCALES, TRANSFORMS, transform_weights

SHAPES = [
    ((1, 5, 7, 9), 4, (1, 1, 1, 1), 1),
    ((2, 3, 13, 4), 6, (0, 2, 1, 0), 3),
    ((1, 8, 3, 3), 2, (0, 0, 0, 0), 2),
    ((1, 2, 1, 1), 3, (3, 1, 2, 4), 1),
]


SIZES = sorted(TRANSFORMS)


def operation(
    image: tuple[int, ...],
    channels: int,
    sizes: tuple[int, int],
    plain: bool = False,
    group: int = 1,
    **attributes: object,
) -> WinogradConvOp:
    tile, taps = sizes
    extent = taps if plain else tile + taps - 1
    kinds = [tensor(image), tensor((channels, image[1] // group, extent, extent)), tensor((9,))]
    kinds.append(tensor((channels,)))
    op = WinogradConvOp.build_from(
        Block(arg_types=kinds).args,
        {"tile": tile, "taps": taps, "group": group, **attributes},  # type: ignore[dict-item]
        node="a node",
    )
    assert isinstance(op, WinogradConvOp)
    op.verify()
    return op


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize(("image", "channels", "pads", "group"), SHAPES)
def test_it_means_the_convolution(
    image: tuple[int, ...],
    channels: int,
    pads: tuple[int, ...],
    group: int,
    sizes: tuple[int, int],
    plain: bool,
) -> None:
    taps = sizes[1]
    pads = tuple(pad + taps - 3 for pad in pads)
    weights = (channels, image[1] // group, taps, taps)
    example = conv(image, weights, True, pads=pads, group=group)
    x, w, b = example.operands(3)
    op = operation(image, channels, sizes, plain, group, pads=pads)
    scratch = np.full(9, np.nan, np.float32)
    found = op.evaluate(x, w if plain else transform_weights(w, sizes[0]), scratch, b)
    expected = example.expected([x, w, b])
    assert found.dtype == np.float32
    assert found.shape == shape_of(op.result) == expected.shape
    # One rounding of the weights, carried through transforms with entries up to 8.
    np.testing.assert_allclose(found, expected, atol=3e-5 * float(np.abs(expected).max()))


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
def test_its_domain_touches_what_the_convolution_touches(
    sizes: tuple[int, int], plain: bool
) -> None:
    """Every output is in one tile, which covers the inputs of its taps."""
    tile, taps = sizes
    op = operation((1, 2, 9, 6), 3, sizes, plain, pads=(1, 0, 1, 2))
    stage = op.stage(["x", "u", "s", "b"], "y")
    assert stage is not None
    assert [operand.role for operand in stage.inputs] == ["input", "weight", "scratch", "bias"]
    extents = stage.extents
    weight, whole = stage.inputs[1], {dim: (0, extent) for dim, extent in extents.items()}
    assert [axis.interval(whole)[1] for axis in weight.access] == list(weight.shape)
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
            assert (low, width) == (start - (1 if axis == 2 else 0), count + taps - 1)
        assert covered == list(range(len(covered)))
        assert size <= len(covered) < size + tile


@pytest.mark.parametrize(
    ("kinds", "attributes"),
    [
        ([(1, 5, 7, 9), (4, 5, 6, 6), (9,)], {"tile": 3}),
        ([(1, 5, 7, 9), (4, 5, 6, 6), (9,)], {"tile": 2}),
        ([(1, 5, 7, 9), (4, 5, 6, 6), (9,)], {"tile": 6}),
        ([(1, 5, 7, 9), (4, 5, 8, 8), (9,)], {"tile": 7}),
        ([(1, 5, 7, 9), (4, 5, 6, 6), (9,)], {"taps": 5}),
        ([(1, 5, 7, 9), (4, 5, 5, 5), (9,)], {}),
        ([(1, 5, 7, 9), (4, 5, 3, 3), (9,)], {"group": 5}),
        ([(1, 6, 7, 9), (3, 3, 3, 3), (9,)], {"group": 2}),
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


@pytest.mark.parametrize("sizes", SIZES)
def test_weights_are_rounded_once(sizes: tuple[int, int]) -> None:
    tile, taps = sizes
    w = np.random.default_rng(1).standard_normal((7, 5, taps, taps)).astype(np.float32)
    g = TRANSFORMS[sizes].weights
    exact = np.einsum("ua,ocab,vb->ocuv", g, w.astype(np.float64), g)
    found = transform_weights(w, tile).astype(np.float64)
    assert (np.abs(found - exact) <= np.spacing(np.abs(exact).astype(np.float32)) * 0.51).all()


@pytest.mark.parametrize("sizes", SIZES)
def test_rows_of_the_weights_transform_are_powers_of_the_points(sizes: tuple[int, int]) -> None:
    """Kernels that transform weights add up powers, and leave the factors to the inputs."""
    matrices = TRANSFORMS[sizes]
    for row, point, scale in zip(
        matrices.weights, POINTS[matrices.inner], SCALES[matrices.inner], strict=True
    ):
        powers = [0.0] * (matrices.taps - 1) + [1.0]
        if point is not None:
            powers = [float(point**k) for k in range(matrices.taps)]
        assert row.tolist() == [scale * power for power in powers]
