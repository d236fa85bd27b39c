"""Products of tiles that lie in pieces over the 8 x 8 CPEs: eight variants from one template.

``spm_gemm_AB_V(M, N, K, alpha, a, lda, b, ldb, beta, c, ldc, scratch)`` is C = alpha A B + beta C
(swATOP, section 4.1). Every CPE has an eighth of the rows by an eighth of the columns of each
matrix: CPE (r, c) rows r and columns c of C, rows r and part c of K of A, part r of K and columns c
of B. In phase t the CPEs of column t send their piece of A along their rows, those of row t their
piece of B along their columns, and every CPE multiplies what it gets, so that there are four loops
by who sends what. M and N are multiples of 128 along the vectors and of 32 across, K of 8.

A and B of the name say how these matrices lie: by rows (``r``) or by columns (``c``); V is the dim
that vectors lie along, ``m`` or ``n``, and C lies along it, too. Vectors along M are loaded from A,
single elements from B, and the other way around for N. Where the matrix of the vectors lies across
them (half of the variants) its piece is transposed first, into ``scratch``; so its cycles depend on
the layout, by little (the paper says that they do not). C, ``scratch`` and a matrix of vectors that
is not transposed begin at multiples of 16 bytes, and so do their rows; the others may lie anywhere.

Sending takes one instruction with the load for doubles. For floats no public kernel has it:
``fused`` says whether it is taken to exist; otherwise the sender's loop has 39 instructions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

from tilewright.targets.sunway.gemm.steps import (
    LOOP,
    Code,
    Operand,
    advance,
    first_operands,
    late,
    load,
    splat,
    step,
    store,
    transpose,
)
from tilewright.targets.sunway.pipeline import (
    LATENCIES,
    Instruction,
    Latencies,
    cycles,
    listing,
    steady,
)

SIDE = 8
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


@dataclass(frozen=True)
class Role:
    """What a CPE does in a phase: whether it sends its vectors, and its single elements."""

    sends_vectors: bool
    sends_elements: bool

    @property
    def name(self) -> str:
        """``put_get`` sends vectors and gets elements."""
        return "_".join("put" if sends else "get" for sends in self._both)

    @property
    def _both(self) -> tuple[bool, bool]:
        return self.sends_vectors, self.sends_elements


ROLES = tuple(Role(*sends) for sends in product((False, True), repeat=2))


@dataclass(frozen=True)
class Loop:
    """The instructions of one role's block."""

    begin: tuple[Instruction, ...]
    body: tuple[Instruction, ...]
    end: tuple[Instruction, ...]
    text: str

    def block_cycles(self, steps: int, latencies: Latencies = LATENCIES) -> float:
        """Cycles of a block of so many steps: beyond 12 they come one like the other."""
        few = min(steps, 12)
        short = cycles([*self.begin, *self.body * (few - 1), *self.end], latencies)
        return short + (steps - few) * steady(self.body, latencies)

    def listing(self) -> str:
        """A step, with cycles and pipelines."""
        return listing(self.body)


def _sent(name: str, bus: str, *, element: bool) -> Instruction:
    """One instruction that loads and sends."""
    place, pointer = (f"s{name[1]}", f"s{name[1]}") if element else (_vector(name), "v")
    kind = ("lder" if bus == "r" else "ldec") if element else ("vldr" if bus == "r" else "vldc")
    c = f"simd_load{'e' if element else ''}{bus}({name}, "
    c += f"{place});" if element else f"(floatv4 *)({place}));"
    return Instruction(kind, name, (pointer,), c)


def _vector(name: str) -> str:
    return "v" if name == "a0" else f"v + {4 * int(name[1])}"


@cache
def role_loop(vectors: str, role: Role, *, fused: bool) -> Loop:
    """The loop of a role for vectors along M or N."""
    buses = ("r", "c") if vectors == "m" else ("c", "r")
    names = [*(f"a{n}" for n in range(4)), *(f"b{n}" for n in range(4))]
    operands: list[Operand] = []
    puts: list[Instruction] = []
    for name in names:
        element = name[0] == "b"
        bus = buses[element]
        if not (role.sends_elements if element else role.sends_vectors):
            text = f"{name} = simd_get{bus}({name});"
            own = Instruction(f"get{bus}", name, (f"bus_{bus}",), text)
        elif fused:
            own = _sent(name, bus, element=element)
        else:
            pointer = f"s{name[1]}"
            own = splat(name, pointer, pointer) if element else load(name, "v", _vector(name))[0]
            text = f"simd_put{bus}({name}, {SIDE});"
            puts.append(Instruction(f"put{bus}", "", (name,), text))
        operands.append(Operand(name, own))
    puts.sort(key=lambda put: put.sources[0] in late(4))
    advances = [advance("v", "ldv")] if role.sends_vectors else []
    if role.sends_elements:
        advances += [advance(f"s{n}", "across") for n in range(4)]
    code = Code()
    rows = [[f"c{r}{p}" for p in range(4)] for r in range(4)]
    for row in rows:
        code.line(f"floatv4 {', '.join(row)};")
    code.line("floatv4 a0, a1, a2, a3, b0, b1, b2, b3;")
    if role.sends_elements:
        code.line("const float *s0 = s, *s1 = s + lds, *s2 = s + 2 * lds, *s3 = s + 3 * lds;")
    else:
        code.line("(void)s;")
        code.line("(void)lds;")
        code.line("(void)across;")
    if not role.sends_vectors:
        code.line("(void)v;")
        code.line("(void)ldv;")

    def places() -> list[tuple[str, str]]:
        return [
            (c, " + ".join(x for x in ("c", p and f"{p} * ldc", r and f"{4 * r}") if x))
            for r, row in enumerate(rows)
            for p, c in enumerate(row)
        ]

    begin = [i for c, place in places() for i in load(c, "c", place)]
    begin += first_operands(4, operands)
    code.emit(begin)
    code.open("for (; k > 1; k--)")
    body = code.emit(step(4, operands, [*advances, *puts], LOOP))
    code.close()
    lates = [own for own in operands if own.register in late(4)]
    end = code.emit(step(4, lates, puts))
    end += code.emit([i for c, place in places() for i in store(c, "c", place)])
    head = [
        f"static inline void gemm_{vectors}_{role.name}(float *c, long ldc, const float *v,",
        "    long ldv, const float *s, long lds, long across, long k)",
        "{",
    ]
    text = "\n".join([*head, *code.lines, "}", ""])
    return Loop(tuple(begin), tuple(body), tuple(end), text)


_HEAD = """\
/* Products over the mesh of CPEs, written by gemm/mesh.py. */
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
