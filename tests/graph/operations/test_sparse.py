"""sparse_product means the convolution, or product, that its streams were made of."""

from typing import Any

import numpy as np
import pytest

from tilewright.graph.operations.sparse import SparseProductOp
from tilewright.ir import Block, VerifyException
from tilewright.ir.types import FixedType, shape_of, tensor
from tilewright.numerics import fixed, sparse


def operation(
    image: tuple[int, ...], streams: tuple[int, ...], **attributes: Any
) -> SparseProductOp:
    kinds = [
        tensor(image, FixedType.of(16, 8)),
        tensor(streams, FixedType.of(16, 12)),
        tensor((attributes["channels"],), FixedType.of(32, 20)),
    ]
    op = SparseProductOp.build_from(Block(arg_types=kinds).args, attributes, node="a node")
    assert isinstance(op, SparseProductOp)
    op.verify()
    return op


def arrays(seed: int, co: int, ci: int, kernel: tuple[int, int]) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    weights = random.integers(-4000, 4000, (co, ci, *kernel)).astype(np.int16)
    weights[random.random(weights.shape) < 0.7] = 0
    return weights, random.integers(-9000, 9000, co).astype(np.int32)


def test_it_means_the_convolution() -> None:
    weights, bias = arrays(1, 21, 12, (3, 2))
    image = np.random.default_rng(2).integers(-9000, 9000, (2, 12, 9, 8)).astype(np.int16)
    streams = sparse.encode(weights, 6, 16)
    how = {"pads": (1, 0, 2, 1), "strides": (2, 1), "dilations": (1, 2)}
    op = operation(image.shape, streams.shape, channels=21, kernel=(3, 2), **how)
    expected = fixed.conv2d(image, weights, bias, how["strides"], how["pads"], how["dilations"])
    found = op.evaluate(image, streams, bias)
    assert found.shape == shape_of(op.result)
    np.testing.assert_array_equal(found, expected)


def test_it_means_the_product_of_rows() -> None:
    weights, bias = arrays(3, 40, 24, (1, 1))
    rows = np.random.default_rng(4).integers(-9000, 9000, (5, 24)).astype(np.int16)
    streams = sparse.encode(weights, 8, 16)
    op = operation(rows.shape, streams.shape, channels=40)
    expected = fixed.matmul(rows, weights[:, :, 0, 0].T, bias)
    np.testing.assert_array_equal(op.evaluate(rows, streams, bias), expected)


def test_it_tells_what_compression_saves() -> None:
    op = operation((1, 32, 4, 4), (1, 1, 60), channels=16, kernel=(1, 1), kept=32)
    assert op.how == "weights compressed: 6.2 % kept, 120 bytes for 1,024"


@pytest.mark.parametrize(
    ("image", "streams", "attributes"),
    [
        ((1, 30, 4, 4), (1, 4, 60), {"channels": 16}),
        ((1, 32, 4, 4), (2, 4, 60), {"channels": 16}),
        ((1, 32), (1, 4, 60), {"channels": 16, "kernel": (3, 3)}),
        ((1, 32, 2, 2), (1, 4, 60), {"channels": 16, "kernel": (3, 3)}),
        ((1, 32, 2), (1, 4, 60), {"channels": 16}),
    ],
)
def test_what_does_not_fit_is_refused(
    image: tuple[int, ...], streams: tuple[int, ...], attributes: dict[str, Any]
) -> None:
    with pytest.raises(VerifyException):
        operation(image, streams, **attributes)
