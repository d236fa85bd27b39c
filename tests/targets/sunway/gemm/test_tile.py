"""Products of tiles: the functions of gemm.h against NumPy, and what their instructions take."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tilewright.machine import parse_expression
from tilewright.targets.sunway import machine
from tilewright.targets.sunway.gemm.panel import columns, headers, transposing
from tilewright.targets.sunway.gemm.steps import order, step
from tilewright.targets.sunway.gemm.tile import Placing, dots, taps
from tilewright.targets.sunway.pipeline import cycles, steady

Floats = NDArray[np.float32]
FOLDER = Path(machine.__file__).parent
ENTRY = """
#include <stdio.h>
#include <stdlib.h>
#include "gemm.h"
/* What the shim calls where a vector lies at no multiple of its bytes. */
void shim_misplaced(const void *place, size_t bytes, const char *file, int line)
{
    fprintf(stderr, "%s:%d: %d bytes at %p\\n", file, line, (int)bytes, place);
    abort();
}
void positions(float *y, long plane, long left, struct gemm_tap *taps, const long *x,
               const float *inputs, const long *steps, const long *places, long count,
               const float *weights, long pitch, long channels, long depth)
{
    long all = 0;
    for (long t = 0; t < count; t++) {
        all |= places[t];
        for (long p = 0; p < 4; p++) {
            taps[t].x[p] = x[4 * t + p] < 0 ? gemm_zero : inputs + x[4 * t + p];
            taps[t].step[p] = x[4 * t + p] < 0 ? 0 : steps[t];
        }
        taps[t].w = places[t];
    }
    gemm_positions(y, plane, left, taps, count, weights, all, pitch, channels, depth);
}
void rows(float *sums, const float *x, long xs, const float *w, long ws, long depth)
{
    const float *a[4] = {x, x + xs, x + 2 * xs, x + 3 * xs};
    const float *b[4] = {w, w + ws, w + 2 * ws, w + 3 * ws};
    gemm_rows(sums, a, b, depth);
}
void product(float *y, long ldy, long step, const float *x, long ldx, long rows, const float *w,
             long ldw, long columns, long depth)
{
    gemm_product(y, ldy, step, x, ldx, rows, w, ldw, columns, depth);
}
int turns(long rows, long depth)
{
    return gemm_turns(rows, depth);
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("gemm")
    for name, text in headers().items():
        (folder / name).write_text(text)
    (folder / "cpe.h").write_text((FOLDER / "emit" / "slave" / "cpe.h").read_text())
    (folder / "entry.c").write_text(ENTRY)
    command = ["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-std=gnu99"]
    command += [f"-I{FOLDER / 'shim'}", "entry.c", "-o", "entry.so"]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "entry.so"))


def aligned(size: int, off: int = 0) -> Floats:
    """Floats whose first lies at a multiple of 32 bytes, or ``off`` elements behind one."""
    raw = np.zeros(size + 32, np.float32)
    start = (-raw.ctypes.data // 4) % 8 + off
    return raw[start : start + size]


def pointer(array: NDArray[np.generic]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5, 8, 16, 19, 28, 33, 35, 40])
@pytest.mark.parametrize("left", [1, 3, 4])
@pytest.mark.parametrize("seed", range(3))
def test_positions(library: ctypes.CDLL, channels: int, left: int, seed: int) -> None:
    """Weights of any pitch begin anywhere, taps lie anywhere among them, results too."""
    random = np.random.default_rng(channels * 100 + left * 10 + seed)
    for taps_n, depth in ((1, 1), (1, 7), (4, 5), (9, 1), (16, 2), (25, 3), (4, 16)):
        plane, off = int(random.integers(4, 12)), int(random.integers(0, 4))
        pitch = channels * taps_n if seed else -(-channels * taps_n // 4) * 4
        inputs = random.normal(size=400).astype(np.float32)
        weights = aligned((depth - 1) * pitch + channels * taps_n, off)
        weights[:] = random.normal(size=weights.size)
        x = random.integers(-1, 40, size=(taps_n, 4))
        x[:, left:] = -1
        steps = random.integers(1, 20, size=taps_n)
        places = np.arange(taps_n) * channels
        y = aligned((channels - 1) * plane + left, int(random.integers(0, 2)) * off)
        y[:] = random.normal(size=y.size)
        wanted = y.astype(np.float64)
        for t in range(taps_n):
            for p in range(left):
                if x[t, p] < 0:
                    continue
                for k in range(depth):
                    own = weights[places[t] + k * pitch : places[t] + k * pitch + channels]
                    value = float(inputs[x[t, p] + k * steps[t]])
                    wanted[p : p + channels * plane : plane] += value * own.astype(np.float64)
        table = np.zeros(25 * 9, np.int64)
        library.positions(
            pointer(y),
            *(ctypes.c_long(plane), ctypes.c_long(left), pointer(table), pointer(x)),
            *(pointer(inputs), pointer(steps), pointer(places), ctypes.c_long(taps_n)),
            *(pointer(weights), ctypes.c_long(pitch), ctypes.c_long(channels)),
            ctypes.c_long(depth),
        )
        np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("depth", [1, 3, 4, 12, 29, 64])
@pytest.mark.parametrize("off", [0, 1])
def test_rows(library: ctypes.CDLL, depth: int, off: int) -> None:
    random = np.random.default_rng(depth)
    step = -(-depth // 4) * 4
    x, w = aligned(4 * step, off), aligned(4 * step)
    x[:], w[:] = random.normal(size=x.size), random.normal(size=w.size)
    sums = aligned(16)
    longs = ctypes.c_long(step)
    library.rows(pointer(sums), pointer(x), longs, pointer(w), longs, ctypes.c_long(depth))
    wanted = x.reshape(4, step)[:, :depth] @ w.reshape(4, step)[:, :depth].T
    np.testing.assert_allclose(sums.reshape(4, 4), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("columns", [1, 4, 12, 19, 40])
@pytest.mark.parametrize("rows", [1, 4, 7, 33])
@pytest.mark.parametrize("off", [0, 1])
def test_products(library: ctypes.CDLL, rows: int, columns: int, off: int) -> None:
    random = np.random.default_rng(rows * 100 + columns)
    turned: set[int] = set()
    for depth, apart in ((1, 1), (8, 1), (67, 1), (130, 1), (64, 2)):
        pitch, ldw = depth + 3, -(-depth // 4) * 4
        ldy = (-(-columns // 4) * 4 + 4 * off) * apart
        x = random.normal(size=(rows, pitch)).astype(np.float32)
        w = aligned(columns * ldw, off)
        w[:] = random.normal(size=w.size)
        y = aligned(rows * ldy)
        y[:] = random.normal(size=y.size)
        wanted = y.reshape(rows, ldy).astype(np.float64)
        own = w.reshape(columns, ldw)[:, :depth].astype(np.float64)
        wanted[:, : columns * apart : apart] += x[:, :depth].astype(np.float64) @ own.T
        sizes = [ctypes.c_long(n) for n in (ldy, apart, pitch, rows, ldw, columns, depth)]
        library.product(*(pointer(y), *sizes[:2], pointer(x), *sizes[2:4], pointer(w), *sizes[4:]))
        np.testing.assert_allclose(y.reshape(rows, ldy), wanted, rtol=1e-4, atol=1e-4)
        turned.add(library.turns(ctypes.c_long(rows), ctypes.c_long(depth)))
    assert turned == ({1} if rows == 33 else {0, 1} if rows < 8 else turned)


@pytest.mark.parametrize("ci", [1, 30, 64, 200, 768, 4096])
@pytest.mark.parametrize("rows", [1, 4, 16, 40, 64, 500])
def test_plans_know_which_way_is_taken(library: ctypes.CDLL, rows: int, ci: int) -> None:
    sizes = {"b0": 1, "b1": 1, "m": rows, "n": 1, "co": 48, "ci": ci}
    ways = [
        float(parse_expression(text).evaluate(sizes))
        for text in (machine.PANELS, machine.DOTS, machine.MATMUL)
    ]
    taken = library.turns(ctypes.c_long(rows), ctypes.c_long(ci))
    assert ways[2] == ways[0 if taken else 1]
    assert ways[2] <= 1.05 * min(ways)


def test_panels_take_what_plans_say() -> None:
    parts = columns()[1]
    assert parts.cycles().step == 16.0
    whole = cycles([*parts.begin, *parts.body * 11, *parts.end])
    assert whole - 12 * steady(parts.body) == 38.0
    loop = 2
    assert steady(transposing()) + loop == 18.0


def test_sixteen_multiply_adds_take_sixteen_cycles() -> None:
    assert taps(4)[1].cycles().step == 16.0
    assert taps(2)[1].cycles().step == 11.0
    # Weights that lie anywhere: two loads and a merge for each vector.
    assert taps(4, Placing.ALL)[1].cycles().step == 23.0
    assert taps(2, Placing.ALL)[1].cycles().step == 13.0
    # Eight pointers are one more than the slots of P1 and P0 together have room for.
    assert 16.0 < dots()[1].cycles().step <= 18.0


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_every_step_multiplies_all_pairs_once(rows: int) -> None:
    pairs = {(row, column) for row in range(rows) for column in range(4)}
    assert set(order(rows)) == pairs
    assert len(order(rows)) == len(pairs)


def test_without_operands_a_step_is_its_multiply_adds() -> None:
    assert steady(step(4, [], [])) == 16.0
