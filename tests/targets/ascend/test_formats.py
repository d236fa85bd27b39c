"""The block formats' addresses, from their definitions."""

import numpy as np
import pytest

from tilewright.planning.layout import Layout
from tilewright.targets.ascend import formats

SHAPES = [(512, 768), (33, 50), (16, 16), (1, 100)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [2, 1])
def test_nz(shape: tuple[int, int], size: int) -> None:
    c0 = 32 // size
    rows, columns = shape
    layout = Layout.parse(formats.nz(size), 2)
    assert layout.physical_shape(shape) == (-(-columns // c0), -(-rows // 16), 16, c0)
    for i in range(0, rows, 7):
        for j in range(0, columns, 5):
            address = ((j // c0) * -(-rows // 16) + i // 16) * 16 * c0 + (i % 16) * c0 + j % c0
            assert layout.offset((i, j), shape) == address


def zz(element_bytes: int) -> str:
    """Left operands next to the cube: blocks by rows, rows within."""
    return f"MN16m{formats.block_elements(element_bytes)}n"


def zn(element_bytes: int) -> str:
    """Right operands next to the cube: blocks by rows, columns within."""
    return f"MN16n{formats.block_elements(element_bytes)}m"


def test_sizes_of_the_thesis() -> None:
    assert Layout.parse(formats.nz(), 2).physical_shape((512, 768)) == (48, 32, 16, 16)
    assert Layout.parse(formats.nz(), 2).physical_shape((33, 50)) == (4, 3, 16, 16)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [2, 1])
def test_operands_next_to_the_cube(shape: tuple[int, int], size: int) -> None:
    c0 = 32 // size
    rows, columns = shape
    left, right = Layout.parse(zz(size), 2), Layout.parse(zn(size), 2)
    assert right.physical_shape(shape) == (-(-rows // c0), -(-columns // 16), 16, c0)
    for i in range(0, rows, 7):
        for j in range(0, columns, 5):
            address = ((i // 16) * -(-columns // c0) + j // c0) * 16 * c0 + (i % 16) * c0 + j % c0
            assert left.offset((i, j), shape) == address
            address = ((i // c0) * -(-columns // 16) + j // 16) * 16 * c0 + (j % 16) * c0 + i % c0
            assert right.offset((i, j), shape) == address


def test_a_transposed_right_operand_is_where_it_was() -> None:
    """K in Nz is K's transpose in Zn: QK' needs no transposition."""
    random = np.random.default_rng(0)
    k = random.integers(-9, 9, (64, 48)).astype(np.float16)
    by_columns = Layout.parse(formats.nz(), 2).pack(k)
    np.testing.assert_array_equal(by_columns, Layout.parse(zn(2), 2).pack(k.T))


def test_images_and_weights() -> None:
    images = Layout.parse(formats.image(), 4)
    assert images.physical_shape((2, 33, 7, 9)) == (2, 3, 7, 9, 16)
    assert images.offset((1, 20, 3, 4), (2, 33, 7, 9)) == (((3 + 1) * 7 + 3) * 9 + 4) * 16 + 4
    weights = Layout.parse(formats.convolution_weight(), 4)
    shape = (64, 32, 3, 3)
    assert weights.physical_shape(shape) == (2, 3, 3, 4, 16, 16)
    # Zn of the matrix [ci1 kh kw ci0][co].
    random = np.random.default_rng(1)
    kernel = random.integers(-9, 9, shape)
    matrix = kernel.reshape(64, 2, 16, 3, 3).transpose(1, 3, 4, 2, 0).reshape(-1, 64)
    np.testing.assert_array_equal(
        weights.pack(kernel).ravel(), Layout.parse(zn(2), 2).pack(matrix).ravel()
    )


def test_batches_of_matrices() -> None:
    assert Layout.parse(f"B{formats.nz()}", 3).physical_shape((12, 512, 64)) == (
        *(12, 4, 32),
        *(16, 16),
    )
