"""Changes of format as emitted C, bit for bit, in several orders."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.slow import but_fast
from tests.targets.ascend.ascend_arrays import built, run
from tests.targets.ascend.moved_kernels import move_program, relaid

from tilewright.planning.layout import Layout
from tilewright.targets.ascend.formats import heads, image, matrices
from tilewright.targets.ascend.lowering.launches import SLACK
from tilewright.targets.ascend.machine import ASCEND_310, ASCEND_910, DaVinci

Bits = NDArray[np.generic]


def packed(x: Bits, layout: str, filled: int) -> Bits:
    """A tensor as it lies in a layout, with room behind."""
    of = Layout.parse(layout, x.ndim)
    ends = [(0, -extent % block) for extent, block in zip(x.shape, of.blocks, strict=True)]
    data = of.pack(np.pad(x, ends, constant_values=filled)).ravel()
    room = np.full(SLACK // x.itemsize, filled, x.dtype)
    return np.concatenate([data, room])


def check(
    shape: tuple[int, ...],
    source: str,
    target: str,
    core: DaVinci = ASCEND_910,
    kind: type[np.unsignedinteger] = np.uint16,
) -> None:
    """From one layout to the other."""
    element = "half" if kind is np.uint16 else "int8_t"
    random = np.random.default_rng(1)
    x = random.integers(0, np.iinfo(kind).max, shape, kind, endpoint=True)
    program = move_program(relaid(shape, source, target, element), core)
    kernel, result = built(program, core), Layout.parse(target, x.ndim)
    wanted = packed(x, target, 0)
    there = packed(np.ones_like(x), target, 0)[: -(SLACK // x.itemsize)] == 1
    assert there.size == result.size(shape)
    for order in (0, 3, 12, 77):
        found = np.full_like(wanted, 0x7E)
        given = packed(x, source, 0x3C)
        run(kernel, {program.tensors[0].name: given, program.tensors[1].name: found}, order)
        np.testing.assert_array_equal(found[: there.size][there], wanted[: there.size][there])


IMAGES = [
    (1, 3, 4, 4),
    (1, 1, 9, 9),
    (1, 16, 7, 7),
    (2, 33, 7, 7),
    (1, 3, 112, 112),
    (2, 20, 53, 51),
    (1, 37, 1, 1),
    (1, 5, 60, 60),
]


@pytest.mark.few(4)
@pytest.mark.parametrize("core", [ASCEND_910, ASCEND_310])
@pytest.mark.parametrize("shape", but_fast(IMAGES, [(2, 33, 7, 7), (1, 1, 9, 9)]))
def test_images(shape: tuple[int, ...], core: DaVinci) -> None:
    check(shape, "", image(), core)
    check(shape, image(), "", core)


MATRICES = [(80, 768), (16, 16), (33, 50), (1, 768), (511, 640), (1, 9001), (17, 4100), (3, 20, 36)]


@pytest.mark.parametrize("shape", but_fast(MATRICES, MATRICES[1:4]))
def test_matrices(shape: tuple[int, ...]) -> None:
    blocks = str(matrices(len(shape)))
    check(shape, "", blocks)
    check(shape, blocks, "")


@pytest.mark.parametrize("shape", but_fast([(40, 96), (33, 50), (2, 17, 64)], [(40, 96)]))
def test_matrices_of_integers(shape: tuple[int, ...]) -> None:
    blocks = str(matrices(len(shape), element_bytes=1))
    check(shape, "", blocks, kind=np.uint8)
    check(shape, blocks, "", kind=np.uint8)


@pytest.mark.parametrize("shape", but_fast([(40, 96), (33, 50), (2, 17, 64)], [(33, 50)]))
def test_transposes(shape: tuple[int, ...]) -> None:
    """To Nz of the transposes and back, and between both."""
    turned, blocks = str(matrices(len(shape), turned=True)), str(matrices(len(shape)))
    for pair in (("", turned), (turned, ""), (blocks, turned), (turned, blocks)):
        check(shape, *pair)


HEADS = [(2, 20, 3, 24), (1, 197, 6, 64), (2, 20, 3, 32), (1, 17, 2, 5)]


@pytest.mark.parametrize("shape", but_fast(HEADS, HEADS[:1]))
def test_heads(shape: tuple[int, ...]) -> None:
    check(shape, "", heads())
    check(shape, heads(), "")
