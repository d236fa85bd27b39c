"""The eight products over the mesh: run on the shim against NumPy, and what their loops take."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from benchmarks.papers.swatop_sunway.products import VARIANTS, Variant, gemm_cycles, header_text
from numpy.typing import NDArray
from tests.slow import but_fast

from tilewright.targets.sunway import machine
from tilewright.targets.sunway.emit.package import SHIM_FLAGS, SHIM_LINK
from tilewright.targets.sunway.gemm.mesh import ROLES, role_loop
from tilewright.targets.sunway.pipeline import steady

SHIM = Path(machine.__file__).parent / "shim"
Floats = NDArray[np.float32]

MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include <athread.h>
extern void SLAVE_FUN(f_slave)(void *);
struct para { float *a, *b, *c, *sizes; };
int main(int argc, char **argv)
{
    float sizes[16];
    FILE *file = fopen(argv[argc - 2], "rb");
    if (fread(sizes, 4, 16, file) != 16)
        return 1;
    const long na = (long)sizes[7], nb = (long)sizes[8], nc = (long)sizes[9];
    struct para para = {malloc(na * 4), malloc(nb * 4), malloc(nc * 4), malloc(64)};
    for (int i = 0; i < 16; i++)
        para.sizes[i] = sizes[i];
    if (fread(para.a, 4, na, file) != (size_t)na || fread(para.b, 4, nb, file) != (size_t)nb
        || fread(para.c, 4, nc, file) != (size_t)nc)
        return 1;
    fclose(file);
    athread_init();
    athread_spawn(f_slave, &para);
    athread_join();
    athread_halt();
    file = fopen(argv[argc - 1], "wb");
    fwrite(para.c, 4, nc, file);
    fclose(file);
    return 0;
}
"""

SLAVE = """
#include <dma.h>
#include "spm_gemm.h"
struct para { float *a, *b, *c, *sizes; };
__thread_local float room[16 + 2052 + 2052 + 2048 + 4096] __attribute__((aligned(32)));
typedef void (*variant)(long, long, long, float, const float *, long, const float *, long, float,
                        float *, long, float *);
static const variant variants[] = {@};
void f_slave(void *argument)
{
    struct para para;
    volatile int reply = 0;
    const int id = athread_get_id(-1);
    float *sizes = room, *c = room + 16, *scratch = c + 2048, *a = scratch + 4096, *b = a + 2052;
    athread_get(PE_MODE, argument, &para, sizeof para, (void *)&reply, 0, 0, 0);
    dma_wait(&reply, 1);
    athread_get(PE_MODE, para.sizes, sizes, 64, (void *)&reply, 0, 0, 0);
    dma_wait(&reply, 2);
    const long M = (long)sizes[0], N = (long)sizes[1], K = (long)sizes[2];
    a += (long)sizes[6];
    b += (long)sizes[13];
    const long na = (long)sizes[7] / 64, nb = (long)sizes[8] / 64, nc = (long)sizes[9] / 64;
    athread_get(PE_MODE, para.a + id * na, a, na * 4, (void *)&reply, 0, 0, 0);
    athread_get(PE_MODE, para.b + id * nb, b, nb * 4, (void *)&reply, 0, 0, 0);
    athread_get(PE_MODE, para.c + id * nc, c, nc * 4, (void *)&reply, 0, 0, 0);
    dma_wait(&reply, 5);
    variants[(int)sizes[3]](M, N, K, sizes[4], a, (long)sizes[10], b, (long)sizes[11], sizes[5], c,
                            (long)sizes[12], scratch);
    athread_put(PE_MODE, c, para.c + id * nc, nc * 4, (void *)&reply, 0, 0);
    dma_wait(&reply, 6);
}
"""


def build(folder: Path, *, fused: bool) -> Path:
    (folder / "main.c").write_text(MAIN)
    (folder / "spm_gemm.h").write_text(header_text(fused=fused))
    names = ", ".join(variant.name for variant in VARIANTS)
    (folder / "f_slave.c").write_text(SLAVE.replace("@", names))
    flags = [flag for flag in SHIM_FLAGS if flag != "-Ishim"]
    sources = [str(folder / "main.c"), str(folder / "f_slave.c"), *map(str, SHIM.glob("*.c"))]
    command = ["cc", *flags, "-O1", "-Wall", "-Wextra", "-Werror", f"-I{SHIM}", *sources]
    binary = folder / "program"
    subprocess.run([*command, *SHIM_LINK, "-o", str(binary), "-lm"], check=True)
    return binary


@pytest.fixture(scope="module", params=[True, False], ids=["fused", "apart"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("mesh"), fused=request.param)


def pieces(matrix: Floats, *, by_rows: bool) -> tuple[Floats, int]:
    """The pieces of all CPEs one after the other, and their pitch."""
    rows, columns = (size // 8 for size in matrix.shape)
    found: list[Floats] = []
    for cpe in range(64):
        r, c = divmod(cpe, 8)
        piece = matrix[r * rows : (r + 1) * rows, c * columns : (c + 1) * columns]
        found.append((piece if by_rows else piece.T).ravel())
    return np.concatenate(found), columns if by_rows else rows


def together(data: Floats, shape: tuple[int, int], *, by_rows: bool) -> Floats:
    """The matrix of pieces."""
    rows, columns = (size // 8 for size in shape)
    matrix = np.empty(shape, np.float32)
    for cpe, piece in enumerate(data.reshape(64, rows * columns)):
        r, c = divmod(cpe, 8)
        own = piece.reshape(rows, columns) if by_rows else piece.reshape(columns, rows).T
        matrix[r * rows : (r + 1) * rows, c * columns : (c + 1) * columns] = own
    return matrix


def product(
    program: Path,
    folder: Path,
    variant: Variant,
    sizes: tuple[int, int, int],
    factors: tuple[float, float] = (1.0, 1.0),
    off: int = 0,
    **environment: str,
) -> Floats:
    """Run it, compare it, and give back what it computed.

    Pieces that may lie anywhere lie ``off`` elements behind a multiple of 16 bytes.
    """
    m, n, k = sizes
    vectors = ("a" if variant.vectors == "m" else "b") if variant.contiguous else ""
    offs = [0 if vectors == matrix else off for matrix in "ab"]
    random = np.random.default_rng(m + n + k)
    a, b, c = (random.normal(size=shape).astype(np.float32) for shape in ((m, k), (k, n), (m, n)))
    along_rows = variant.vectors == "n"
    data_a, lda = pieces(a, by_rows=variant.a == "r")
    data_b, ldb = pieces(b, by_rows=variant.b == "r")
    data_c, ldc = pieces(c, by_rows=along_rows)
    head = [m, n, k, VARIANTS.index(variant), *factors, offs[0], a.size, b.size]
    head += [c.size, lda, ldb, ldc, offs[1]]
    header = np.array([*head, 0, 0], np.float32)
    (folder / "in").write_bytes(np.concatenate([header, data_a, data_b, data_c]).tobytes())
    ran = subprocess.run(
        [str(program), str(folder / "in"), str(folder / "out")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=os.environ | environment,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    result = np.fromfile(folder / "out", np.float32)
    found = together(result, (m, n), by_rows=along_rows)
    wanted = factors[0] * (a.astype(np.float64) @ b.astype(np.float64)) + factors[1] * c
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    return found


def least(variant: Variant) -> tuple[int, int]:
    return (128, 32) if variant.vectors == "m" else (32, 128)


@pytest.mark.few(4)
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: v.name)
def test_every_variant(variant: Variant, program: Path, tmp_path: Path) -> None:
    m, n = least(variant)
    for k in (8, 16, 40):
        product(program, tmp_path, variant, (m, n, k), off=k // 8 % 4)
    product(program, tmp_path, variant, (2 * m, 3 * n, 64), (0.5, 2.0))
    product(program, tmp_path, variant, (m, 2 * n, 24), (1.0, 0.0))
    product(program, tmp_path, variant, (m, n, 8), (-2.0, 0.0))


@pytest.mark.few(2)
@pytest.mark.parametrize("variant", but_fast(VARIANTS, VARIANTS[::4]), ids=lambda v: v.name)
def test_neither_buffers_nor_order_matter(variant: Variant, program: Path, tmp_path: Path) -> None:
    m, n = least(variant)
    sizes = (m, 2 * n, 48)
    first = product(program, tmp_path, variant, sizes, SHIM_FIFO="1")
    for depth, order in (("4", ""), ("64", ""), ("1", "3"), ("4", "8")):
        again = product(program, tmp_path, variant, sizes, SHIM_FIFO=depth, SHIM_ORDER=order)
        assert np.array_equal(first, again)


@pytest.mark.parametrize("vectors", ["m", "n"])
def test_loops_take_sixteen_cycles_or_twenty(vectors: str) -> None:
    for role in ROLES:
        assert steady(role_loop(vectors, role, fused=True).body) == 16.0
    sender = role_loop(vectors, ROLES[-1], fused=False)
    assert len(sender.body) == 39
    assert steady(sender.body) == pytest.approx(20, abs=1)


def test_only_vectors_that_lie_across_cost_more() -> None:
    sizes = (512, 512, 512)
    peak = 512**3 / 64 / 4
    cycles = {variant: gemm_cycles(variant, sizes) for variant in VARIANTS}
    plain = {c for variant, c in cycles.items() if variant.contiguous}
    assert len(plain) == 1
    assert peak < min(plain) < 1.1 * peak
    assert all(1 < c / min(plain) < 1.05 for v, c in cycles.items() if not v.contiguous)
