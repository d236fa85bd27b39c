"""Matrix products: tiles in L1, tiles of these in L0A and L0B, sums in L0C.

C = A B, with the thesis' letters: A is M x N, B is N x K, and N is summed. A and C lie in main
memory in Nz. B lies there in Nz as N x K, and is transposed on its way into L0B; or as K x N
(``transposed``: keys of attention, weights kept by output channel), which needs no transposition.

::

    for x, for y                        tiles of C in L1's units (``Tiling.order``)
      for s                             where L1 holds part of the reduction
        A, B -> L1
        for u, for v                    tiles of C next to the cube
          for t
            A, B -> L0A, L0B;  mad
          C -> UB (+ bias, relu) -> main memory

Loads of an operand stand outside of the loops over which its tile stays. Extents that are no
multiples of 16 are padded in main memory; products leave the padding of the reduction out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tilewright.errors import refuse
from tilewright.targets.ascend import isa
from tilewright.targets.ascend.formats import padded
from tilewright.targets.ascend.machine import BLOCK, CUBE, FRACTAL, MAX_REPEAT, DaVinci
from tilewright.targets.ascend.program import (
    Buffer,
    Loop,
    Place,
    Program,
    Statement,
    Tensor,
    Value,
    equal,
    least,
)


@dataclass(frozen=True)
class Matrices:
    """What is multiplied: A is M x N, B is N x K."""

    M: int
    N: int
    K: int
    transposed: bool = False
    """Whether B lies in main memory as K x N."""
    bias: bool = False
    relu: bool = False


@dataclass(frozen=True)
class Tiling:
    """Sizes of tiles, multiples of 16, and how many buffers each operand has."""

    m1: int
    n1: int
    k1: int
    m0: int
    n0: int
    k0: int
    order: Literal["xy", "yx"] = "xy"
    """Of the loops over tiles in L1, the outer first."""
    stays: bool = True
    """Whether the outer loop's operand stays in L1 while the inner loop runs, where L1 holds its
    whole reduction; otherwise it is loaded again, as the thesis counts."""
    l1: int = 1
    l0: int = 1
    l0c: int = 1
    ub: int = 1


@dataclass
class _Matmul:
    of: Matrices
    tiling: Tiling
    core: DaVinci
    name: str
    buffers: list[Buffer] = field(default_factory=list[Buffer])
    used: dict[str, int] = field(default_factory=dict[str, int])

    def __post_init__(self) -> None:
        of, t = self.of, self.tiling
        self.M, self.N, self.K = padded(of.M), padded(of.N), padded(of.K)
        self.whole = t.n1 >= self.N
        self.A = Tensor("a", self.M * self.N * 2)
        self.B = Tensor("b", self.N * self.K * 2)
        self.bias = Tensor("bias", self.K * 2)
        self.C = Tensor("c", self.M * self.K * 2, written=True)

    def _buffer(
        self, name: str, memory: str, size: int, slots: int, slot: Value, scope: Loop | None
    ) -> Buffer:
        room = {
            "cbuf": self.core.l1,
            "ca": self.core.l0a,
            "cb": self.core.l0b,
            "cc": self.core.l0c,
            "ub": self.core.ub,
        }[memory]
        at = self.used.get(memory, 0)
        self.used[memory] = at + size * slots
        if self.used[memory] > room:
            raise refuse(
                "plan-capacity",
                f"{self.name}: {name} needs {size * slots} bytes of {memory} beside {at}; "
                f"it has {room}",
                help="smaller tiles or fewer buffers",
            )
        element = "float" if memory == "cc" else "half"
        found = Buffer(name, memory, at, size, slots, slot if slots > 1 else 0, scope, element)
        self.buffers.append(found)
        return found

    def program(self) -> Program:
        """The kernel without flags."""
        t = self.tiling
        before: list[Statement] = [self._load_bias()] if self.of.bias else []
        x = Loop("x", -(-self.M // t.m1))
        y = Loop("y", -(-self.K // t.k1))
        outer, inner = (x, y) if t.order == "xy" else (y, x)
        outer.body.append(inner)
        s = Loop("s", -(-self.N // t.n1))
        m = _cut(self.M, t.m1, x)
        k = _cut(self.K, t.k1, y)
        n = _cut(self.N, t.n1, s)
        tile = (inner.variable + outer.variable * int(str(inner.count))) % t.l1
        step = (s.variable + (inner.variable + outer.variable * int(str(inner.count))) * int(
            str(s.count)
        )) % t.l1  # fmt: skip
        within = inner.body if self.whole else s.body
        scope, slot = (inner, tile) if self.whole else (s, step)
        outer_slot = outer.variable % t.l1
        homes: dict[str, Buffer] = {}
        for name, loop, size in (
            ("a", x, min(t.m1, self.M) * min(t.n1, self.N) * 2),
            ("b", y, min(t.n1, self.N) * min(t.k1, self.K) * 2),
        ):
            stays = self.whole and t.stays and loop is outer
            home = self._buffer(
                f"l1_{name}",
                "cbuf",
                size,
                min(t.l1, int(str(outer.count))) if stays else t.l1,
                outer_slot if stays else slot,
                outer if stays else scope,
            )
            homes[name] = home
            body = outer.body if stays else within
            load = self._load_a if name == "a" else self._load_b
            statement = load(home, x.variable, y.variable, 0 if self.whole else s.variable, m, n, k)
            body.insert(len(body) - 1 if stays else len(body), statement)
        if self.whole:
            inner.body += self._inner(homes, x, y, None, m, n, k, inner, outer)
        else:
            if t.m0 < min(t.m1, self.M) or t.k0 < min(t.k1, self.K):
                raise refuse(
                    "plan-capacity",
                    f"{self.name}: a tile in L1 of part of the reduction must be one of C's tiles",
                    help="n1 of the whole reduction, or m1 = m0 and k1 = k0",
                )
            inner.body += self._inner(homes, x, y, s, m, n, k, inner, outer)
        tensors = [self.A, self.B, self.C]
        if self.of.bias:
            tensors.insert(2, self.bias)
        of = self.of
        about = f"C[{of.M} x {of.K}] = A[{of.M} x {of.N}] B[{of.N} x {of.K}]"
        return Program(self.name, tuple(tensors), [*before, outer], tuple(self.buffers), about)

    def _load_bias(self) -> Statement:
        self.bias_home = self._buffer("bias", "ub", self.K * 2, 1, 0, None)
        return isa.copy(Place(self.bias_home), Place(self.bias), 1, self.K // CUBE)

    def _load_a(
        self, home: Buffer, x: Value, y: Value, s: Value, m: Value, n: Value, k: Value
    ) -> Statement:
        t = self.tiling
        column, row = s * (t.n1 // CUBE), x * t.m1
        at = (column * self.M + row) * BLOCK
        return isa.copy(Place(home), Place(self.A, at), n // CUBE, m, self.M - m)

    def _load_b(
        self, home: Buffer, x: Value, y: Value, s: Value, m: Value, n: Value, k: Value
    ) -> Statement:
        t = self.tiling
        if self.of.transposed:
            at = (s * (t.n1 // CUBE) * self.K + y * t.k1) * BLOCK
            return isa.copy(Place(home), Place(self.B, at), n // CUBE, k, self.K - k)
        at = (y * (t.k1 // CUBE) * self.N + s * t.n1) * BLOCK
        return isa.copy(Place(home), Place(self.B, at), k // CUBE, n, self.N - n)

    def _inner(
        self,
        homes: dict[str, Buffer],
        x: Loop,
        y: Loop,
        s: Loop | None,
        m: Value,
        n: Value,
        k: Value,
        inner: Loop,
        outer: Loop,
    ) -> list[Statement]:
        """The loops next to the cube, and the results' way out."""
        t = self.tiling
        u = Loop("u", -(-min(t.m1, self.M) // t.m0))
        v = Loop("v", -(-min(t.k1, self.K) // t.k0))
        reduction = Loop("t", -(-min(t.n1, self.N) // t.n0))
        m0, k0, n0 = _cut(m, t.m0, u), _cut(k, t.k0, v), _cut(n, t.n0, reduction)
        # Edge tiles have fewer tiles of their own: the loops end where the tile does.
        ragged = (self.M % t.m1 and u.count != 1, self.K % t.k1 and v.count != 1)
        if ragged[0]:
            u.count = (m + (t.m0 - 1)) // t.m0
        if ragged[1]:
            v.count = (k + (t.k0 - 1)) // t.k0
        if s is not None and self.N % t.n1 and reduction.count != 1:
            reduction.count = (n + (t.n0 - 1)) // t.n0
        most = [-(-min(a, b) // c) for a, b, c in
                ((t.m1, self.M, t.m0), (t.k1, self.K, t.k0), (t.n1, self.N, t.n0))]  # fmt: skip
        block: Value = inner.variable + outer.variable * int(str(inner.count))
        block = v.variable + (u.variable + block * most[0]) * most[1]
        if any(ragged):
            self._only_one_slot("l0c and ub", max(t.l0c, t.ub))
        step: Value = block
        if s is not None:
            step = s.variable + step * int(str(s.count))
        step = reduction.variable + step * most[2]
        if any(ragged) or (s is not None and self.N % t.n1):
            self._only_one_slot("l0", t.l0)
        size = min(t.m0, self.M), min(t.n0, self.N), min(t.k0, self.K)
        ca = self._buffer(
            "l0a", "ca", _up(size[0] * size[1] * 2, FRACTAL), t.l0, step % t.l0, reduction
        )
        cb = self._buffer(
            "l0b", "cb", _up(size[1] * size[2] * 2, FRACTAL), t.l0, step % t.l0, reduction
        )
        # With the reduction cut in L1 there is one tile of C next to the cube, and u and v are 1.
        scope = inner if s is not None else v
        cc = self._buffer("l0c", "cc", size[0] * size[2] * 4, t.l0c, block % t.l0c, scope)
        ub = self._buffer("ub", "ub", size[0] * size[2] * 2, t.ub, block % t.ub, scope)
        sums = Place(cc)
        reduction.body += self._loads(homes, ca, cb, u, v, reduction, (m, n, k), (m0, n0, k0))
        first: Value = reduction.variable
        start: Value = reduction.variable * t.n0
        if s is not None:
            first = first + s.variable * most[2]
            start = start + s.variable * t.n1
        depth = least(n0, self.of.N - start) if self.of.N != self.N else n0
        one = first == 0 or (reduction.count == 1 and (s is None or s.count == 1))
        reduction.body.append(
            isa.mad(
                sums,
                Place(ca),
                Place(cb),
                m0,
                depth,
                k0,
                1 if one else equal(first, 0),
                int(self.core.barrier_blocks.value),
            )
        )
        finish = self._finish(sums, ub, (x, y, u, v), (m0, k0))
        if s is not None:
            s.body.append(reduction)
            return [s, *finish]
        v.body += [reduction, *finish]
        u.body.append(v)
        return [u]

    def _only_one_slot(self, what: str, slots: int) -> None:
        if slots > 1:
            raise refuse(
                "plan-capacity",
                f"{self.name}: tiles of several sizes in L1 leave {what} one buffer",
                help="tiles that divide the extents",
            )

    def _loads(
        self,
        homes: dict[str, Buffer],
        ca: Buffer,
        cb: Buffer,
        u: Loop,
        v: Loop,
        t: Loop,
        whole: tuple[Value, Value, Value],
        tile: tuple[Value, Value, Value],
    ) -> list[Statement]:
        """Fractals of A and B to the cube: Zz and Zn."""
        (m, n, k), (m0, n0, k0), sizes = whole, tile, self.tiling
        for what, size in (
            ("reduction", min(sizes.n0, self.N)),
            ("columns", min(sizes.k0, self.K)),
        ):
            if size // CUBE > MAX_REPEAT:
                raise refuse(
                    "lower-field", f"{self.name}: {what} of {size} are more than 255 fractals"
                )
        i, r = Loop("i", m0 // CUBE), Loop("r", n0 // CUBE)
        blocks = m // CUBE
        column, row = t.variable * (sizes.n0 // CUBE), u.variable * (sizes.m0 // CUBE)
        source = (column * blocks + row + i.variable) * FRACTAL
        i.body.append(
            isa.load(
                Place(ca, i.variable * (n0 // CUBE) * FRACTAL),
                Place(homes["a"], source),
                n0 // CUBE,
                blocks,
                transpose=False,
            )
        )
        row, column = t.variable * (sizes.n0 // CUBE), v.variable * (sizes.k0 // CUBE)
        target = Place(cb, r.variable * (k0 // CUBE) * FRACTAL)
        if self.of.transposed:
            source = ((row + r.variable) * (k // CUBE) + column) * FRACTAL
            operation = isa.load(target, Place(homes["b"], source), k0 // CUBE, 1, transpose=False)
        else:
            source = (column * (n // CUBE) + row + r.variable) * FRACTAL
            operation = isa.load(
                target, Place(homes["b"], source), k0 // CUBE, n // CUBE, transpose=True
            )
        r.body.append(operation)
        return [i, r]

    def _finish(
        self,
        sums: Place,
        ub: Buffer,
        loops: tuple[Loop, Loop, Loop, Loop],
        tile: tuple[Value, Value],
    ) -> list[Statement]:
        """C's tile out of L0C, its bias and relu, and the store."""
        t, of = self.tiling, self.of
        x, y, u, v = loops
        m0, k0 = tile
        mode = "CRMODE_F32toF16_RELU" if of.relu and not of.bias else "CRMODE_F32toF16_NONE"
        found: list[Statement] = [
            isa.cc_to_ub(Place(ub), sums, k0 // CUBE, m0 // CUBE, mode),
        ]
        row = x.variable * t.m1 + u.variable * t.m0
        column = y.variable * (t.k1 // CUBE) + v.variable * (t.k0 // CUBE)
        if of.bias:
            if min(t.m0, self.M) // 8 > MAX_REPEAT:
                raise refuse("lower-field", f"{self.name}: {t.m0} rows are more than 255 repeats")
            j = Loop("j", k0 // CUBE)
            place = Place(ub, j.variable * m0 * BLOCK)
            bias = Place(self.bias_home, (column + j.variable) * BLOCK)
            repeat = m0 // 8
            j.body.append(isa.vector("vadd", place, (place, bias), repeat, (1, 1, 0), (8, 8, 0)))
            if of.relu:
                j.body.append(isa.vector("vrelu", place, (place,), repeat, (1, 1), (8, 8)))
            found += [isa.mask_of(128, 128), j]
        at = (column * self.M + row) * BLOCK
        found.append(isa.copy(Place(self.C, at), Place(ub), k0 // CUBE, m0, 0, self.M - m0))
        return found


def _cut(extent: Value, size: int, loop: Loop) -> Value:
    """Size of a loop's tile: less at the end of an extent that it does not divide."""
    if loop.count == 1:
        return extent
    if isinstance(extent, int) and extent % size == 0:
        return size
    return least(size, extent - loop.variable * size)


def _up(size: int, granule: int) -> int:
    return -(-size // granule) * granule


def matmul(of: Matrices, tiling: Tiling, core: DaVinci, name: str = "matmul") -> Program:
    """The kernel of a product, without flags (flags.py). Raises TilewrightError where tiles do not
    fit (``plan-capacity``) or a field does not hold a number (``lower-field``)."""
    return _Matmul(of, tiling, core, name).program()
