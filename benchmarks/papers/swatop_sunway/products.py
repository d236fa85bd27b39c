"""Products of tiles that lie in pieces over the 8 x 8 CPEs: eight variants from one template.

``spm_gemm_AB_V(M, N, K, alpha, a, lda, b, ldb, beta, c, ldc, scratch)`` is C = alpha A B + beta C
(swATOP, section 4.1). Every CPE has an eighth of the rows by an eighth of the columns of each
matrix: CPE (r, c) rows r and columns c of C, rows r and part c of K of A, part r of K and columns c
of B. In phase t the CPEs of column t send their piece of A along their rows, those of row t their
piece of B along their columns; the loops are the target's (gemm/mesh.py). M and N are multiples of
128 along the vectors and of 32 across, K of 8.

A and B of the name say how these matrices lie: by rows (``r``) or by columns (``c``); V is the dim
that vectors lie along, ``m`` or ``n``, and C lies along it, too. Vectors along M are loaded from A,
single elements from B, and the other way around for N. Where the matrix of the vectors lies across
them (half of the variants) its piece is transposed first, into ``scratch``; so its cycles depend on
the layout, by little (the paper says that they do not). C, ``scratch`` and a matrix of vectors that
is not transposed begin at multiples of 16 bytes, and so do their rows; the others may lie anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from tilewright.targets.sunway.gemm.mesh import ROLES, SIDE, role_loop
from tilewright.targets.sunway.gemm.steps import Code, load, store, transpose
from tilewright.targets.sunway.pipeline import LATENCIES, Instruction, Latencies, steady

LANES = 16
"""Elements of a block along its vectors."""
ACROSS = 4
"""Elements of a block across them."""


@dataclass(frozen=True)
class Variant:
    """One of the eight."""

    a: str
    """``r`` or ``c``: A lies by rows or by columns."""
    b: str
    vectors: str
    """``m`` or ``n``."""

    @property
    def name(self) -> str:
        """Of its function."""
        return f"spm_gemm_{self.a}{self.b}_{self.vectors}"

    @property
    def contiguous(self) -> bool:
        """Whether the vectors' elements lie side by side in their matrix."""
        return self.a == "c" if self.vectors == "m" else self.b == "r"


VARIANTS = tuple(Variant(a, b, v) for a, b, v in product("cr", "cr", "mn"))


_HEAD = """\
/* Products over the mesh of CPEs, written by products.py. */
#ifndef SPM_GEMM_H
#define SPM_GEMM_H

#include <simd.h>
#include <slave.h>

"""

_SUPPORT = """\
/* to[p * n + i] = from[i * pitch + p] for n rows of k elements; n is a multiple of 16. */
static inline void gemm_transpose(float *to, const float *from, long pitch, long n, long k)
{
    long p = 0;
    floatv4 r0, r1, r2, r3, t0, t1, t2, t3;
    if (((size_t)from / 4 | (size_t)pitch) % 4 == 0)
        for (; p + 4 <= k; p += 4)
            for (long i = 0; i < n; i += 4) {
@
            }
    for (; p < k; p++)
        for (long i = 0; i < n; i++)
            to[p * n + i] = from[i * pitch + p];
}

/* Products of all blocks of a piece in all phases. */
static inline void gemm_phases(int along_m, long vectors, long across, long k, const float *v,
                               long ldv, const float *s, long lds, long deep, float *c, long ldc)
{
    const int id = athread_get_id(-1), row = id / 8, column = id % 8;
    for (int t = 0; t < 8; t++) {
        const int puts_v = (along_m ? column : row) == t, puts_s = (along_m ? row : column) == t;
        for (long j = 0; j < across; j += 4)
            for (long i = 0; i < vectors; i += 16) {
                float *to = c + j * ldc + i;
                const float *x = v + i, *y = s + j * lds;
#
            }
    }
}

/* c = c * beta + a * alpha, for n elements of each of m rows. */
static inline void gemm_combine(float *c, long ldc, const float *a, float alpha, float beta, long m,
                                long n)
{
    for (long i = 0; i < m; i++)
        for (long j = 0; j < n; j++)
            c[i * ldc + j] = (beta == 0.0f ? 0.0f : beta * c[i * ldc + j])
                + (a ? alpha * a[i * n + j] : 0.0f);
}

"""


def transposition() -> list[Instruction]:
    """A block of 4 x 4 elements, transposed from LDM to LDM."""
    names = [f"r{n}" for n in range(4)]
    reads = [
        i for n, r in enumerate(names) for i in load(r, "from", f"from + (i + {n}) * pitch + p")
    ]
    writes = [i for n, r in enumerate(names) for i in store(r, "to", f"to + (p + {n}) * n + i")]
    return [*reads, *transpose(names), *writes]


def _support_text() -> str:
    """What all variants share."""
    tiles = Code(depth=4)
    tiles.emit(transposition())
    phases = Code(depth=4)
    for vectors in "mn":
        for role in ROLES:
            conditions = [
                "along_m" if vectors == "m" else "!along_m",
                "puts_v" if role.sends_vectors else "!puts_v",
                "puts_s" if role.sends_elements else "!puts_s",
            ]
            phases.line(f"if ({' && '.join(conditions)})")
            phases.line(f"    gemm_{vectors}_{role.name}(to, ldc, x, ldv, y, lds, deep, k);")
    return _SUPPORT.replace("@", "\n".join(tiles.lines)).replace("#", "\n".join(phases.lines))


def function_text(variant: Variant) -> str:
    """The function of a variant."""
    along_m = variant.vectors == "m"
    matrix, other = ("a", "b") if along_m else ("b", "a")
    n, across = ("M", "N") if along_m else ("N", "M")
    # Elements of the other matrix: from one across the vectors to the next, and along K.
    along_k = (variant.b == "c") if along_m else (variant.a == "r")
    lds, deep = (f"ld{other}", "1") if along_k else ("1", f"ld{other}")
    phases = f"{int(along_m)}, n, across, k, v, ldv, {other}, {lds}, {deep}, to, pitch"
    lines = [
        f"static inline void {variant.name}(long M, long N, long K, float alpha, const float *a,",
        "    long lda, const float *b, long ldb, float beta, float *c, long ldc, float *scratch)",
        "{",
        f"    const long n = {n} / 8, across = {across} / 8, k = K / 8;",
        f"    const float *v = {matrix};",
        f"    long ldv = ld{matrix};",
        "    float *to = c;",
        "    long pitch = ldc;",
    ]
    if not variant.contiguous:
        lines += [
            "    gemm_transpose(scratch, v, ldv, n, k);",
            "    v = scratch;",
            "    ldv = n;",
            "    scratch += n * k;",
        ]
    lines += [
        "    if (alpha != 1.0f) {",
        "        to = scratch;",
        "        pitch = n;",
        "        for (long i = 0; i < n * across; i++)",
        "            to[i] = 0.0f;",
        "    } else if (beta != 1.0f)",
        "        gemm_combine(c, ldc, NULL, 0.0f, beta, across, n);",
        f"    gemm_phases({phases});",
        "    if (alpha != 1.0f)",
        "        gemm_combine(c, ldc, scratch, alpha, beta, across, n);",
        "}",
    ]
    return "\n".join(lines) + "\n"


def header_text(*, fused: bool) -> str:
    """All variants: spm_gemm.h."""
    loops = [role_loop(v, role, fused=fused).text for v in "mn" for role in ROLES]
    functions = [function_text(variant) for variant in VARIANTS]
    parts = [*loops, _support_text(), *functions]
    return _HEAD + "\n".join(parts) + "\n#endif\n"


def gemm_cycles(
    variant: Variant,
    sizes: Sequence[int],
    *,
    fused: bool = True,
    latencies: Latencies = LATENCIES,
) -> float:
    """Cycles of alpha = beta = 1 by the pipeline model, for M, N and K of the core group.

    A phase takes what the slowest of its roles takes: the others wait for its registers.
    """
    m, n, k = (size / SIDE for size in sizes)
    vectors, across = (m, n) if variant.vectors == "m" else (n, m)
    blocks = -(-vectors // LANES) * -(-across // ACROSS)
    slowest = max(
        role_loop(variant.vectors, role, fused=fused).block_cycles(int(k), latencies)
        for role in ROLES
    )
    total = SIDE * (blocks * (slowest + CALL_CYCLES) + PHASE_CYCLES)
    if not variant.contiguous:
        tiles = -(-vectors // 4) * -(-k // 4)
        total += tiles * (steady(transposition(), latencies) + 2)
    return total


CALL_CYCLES = 8
"""Integers of the loops around a block: its pointers, two counters, two jumps. An estimate."""

PHASE_CYCLES = 30
"""From the last register of a phase to the first of the next, and the choice of a role: an
estimate."""
