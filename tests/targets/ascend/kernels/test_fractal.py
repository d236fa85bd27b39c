"""Changes of format as emitted C: equal to the definition bit for bit, at the price foretold."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from benchmarks.papers.ascend.fractal import (
    METHODS,
    SLACK,
    Method,
    fractalise,
    piece_of,
)
from numpy.typing import NDArray
from tests.slow import but_fast
from tests.targets.ascend.ascend_arrays import NZ, built, run

from tilewright.errors import TilewrightError
from tilewright.targets.ascend.formats import padded
from tilewright.targets.ascend.host import Kernel, Outcome
from tilewright.targets.ascend.machine import ASCEND_310, ASCEND_910

SHAPES = [(512, 768), (80, 768), (16, 16), (33, 50), (1, 768), (511, 3072), (4096, 64)]

Bits = NDArray[np.uint16]


def matrix(rows: int, columns: int) -> Bits:
    """Random bits, those of NaN among them, with room behind."""
    random = np.random.default_rng(rows * columns)
    return random.integers(0, 1 << 16, rows * columns + SLACK // 2).astype(np.uint16)


def definition(plain: Bits, rows: int, columns: int) -> Bits:
    """dst[i][j][k][l] = src[16 j + k][16 i + l], padded with 0."""
    whole = np.zeros((padded(rows), padded(columns)), np.uint16)
    whole[:rows, :columns] = plain[: rows * columns].reshape(rows, columns)
    j, k = divmod(np.arange(padded(rows)), 16)
    i, lane = divmod(np.arange(padded(columns)), 16)
    result = np.zeros((padded(columns) // 16, padded(rows) // 16, 16, 16), np.uint16)
    result[i[None, :], j[:, None], k[:, None], lane[None, :]] = whole
    return result


@cache
def kernel_of(method: Method, rows: int, columns: int, *, forward: bool) -> Kernel:
    return built(fractalise(rows, columns, method, ASCEND_910, back=not forward))


def forth(method: Method, rows: int, columns: int, order: int = 0) -> Outcome:
    plain = matrix(rows, columns)
    nz = np.full(padded(rows) * padded(columns), 0xFFFF, np.uint16)
    kernel = kernel_of(method, rows, columns, forward=True)
    outcome = run(kernel, {"plain": plain, "nz": nz}, order)
    expected = definition(plain, rows, columns)
    found = nz.reshape(expected.shape)
    inside = NZ.pack(np.pad(np.ones((rows, columns), bool), [(0, -rows % 16), (0, -columns % 16)]))
    np.testing.assert_array_equal(found[inside], expected[inside])
    return outcome


def back(method: Method, rows: int, columns: int, order: int = 0) -> Outcome:
    plain = matrix(rows, columns)
    nz = definition(plain, rows, columns)
    found = np.zeros_like(plain)
    kernel = kernel_of(method, rows, columns, forward=False)
    outcome = run(kernel, {"nz": nz, "plain": found}, order)
    count = rows * columns
    np.testing.assert_array_equal(found[:count], plain[:count])
    return outcome


@pytest.mark.parametrize("shape", but_fast(SHAPES, SHAPES[2:5]))
@pytest.mark.parametrize("method", METHODS)
def test_to_blocks_and_back(method: Method, shape: tuple[int, int]) -> None:
    for order in (0, 8, 77):
        forth(method, *shape, order)
        back(method, *shape, order)


@pytest.mark.parametrize("shape", [(1, 8193), (17, 9001), (16, 8208)])
def test_copies_take_more_columns_than_ub_holds_rows_of(shape: tuple[int, int]) -> None:
    """In pieces along the columns, also where rows are no whole blocks and share some."""
    for order in (0, 8, 77):
        forth("dma", *shape, order)
        back("dma", *shape, order)


@pytest.mark.parametrize(
    ("method", "cycles", "commands", "bursts"),
    [
        ("naive", 6_144, 128, 1_536),
        ("improved", 6_144, 53, 288 + 48),
        ("vor", 3_072, 56, 288 + 48),
        ("dma", 0, 4 + 4 * 48, 512 * 48),
    ],
)
def test_what_512_rows_of_768_cost(method: Method, cycles: int, commands: int, bursts: int) -> None:
    counts = forth(method, 512, 768).counts
    assert counts["vector_cycles"] == cycles
    assert counts["commands"] == commands
    assert counts["gm_write_bursts"] == bursts
    assert counts["gm_writes"] == counts["gm_reads"] == 512 * 768 * 2


def test_80_rows_at_once_follow_from_the_memory_and_the_repeat_field() -> None:
    piece = piece_of("improved", 768, ASCEND_910)
    assert (piece.rows, piece.b, piece.b * piece.blocks, 2 * piece.bytes) == (80, 5, 240, 245_760)
    assert piece_of("improved", 768, ASCEND_310) == piece
    assert piece_of("improved", 3072, ASCEND_910).b == 1
    assert piece_of("improved", 64, ASCEND_910).b == 63
    assert 512 % 80 == 32


def test_more_columns_than_a_repeat_field_holds_are_refused() -> None:
    with pytest.raises(TilewrightError, match="lower-field"):
        fractalise(16, 4096, "improved", ASCEND_910)
