"""Matrix products with tiles of one's own: kernel, schedule, tile program, and the C of these.

C = A B, with the thesis' letters: A is M x N, B is N x K, and N is summed. All lie in main memory
in Nz; B as N x K, or as K x N (``transposed``: keys of attention, weights kept by output channel).
Networks compile by the same lowering from the schedules of a planner; here tiles are given, as the
thesis' tables ask for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tilewright.planning.domain import Affine, Dim, Kernel, Operand, Role, Stage
from tilewright.planning.schedule import Level, Schedule
from tilewright.targets.ascend.formats import nz
from tilewright.targets.ascend.lowering.cube import cube_kernel
from tilewright.targets.ascend.machine import DaVinci
from tilewright.targets.ascend.network import network_machine
from tilewright.targets.ascend.program import Program
from tilewright.targets.ascend.target import AscendTarget
from tilewright.tile.lower import tile


@dataclass(frozen=True)
class Matrices:
    """The sizes of a matrix product: A is M x N, B is N x K."""

    M: int
    N: int
    K: int
    transposed: bool = False
    """True if B is stored in main memory as K x N."""
    bias: bool = False
    relu: bool = False

    def kernel(self, name: str) -> Kernel:
        """The product as planning sees it: its dims are m, co and, summed, ci."""
        extents = {"m": self.M, "co": self.K, "ci": self.N}
        dims = tuple(
            Dim(dim, size, "reduction" if dim == "ci" else "parallel")
            for dim, size in extents.items()
        )

        def operand(symbol: str, role: Role, *axes: str, sums: bool = False) -> Operand:
            access = tuple(Affine(((axis, 1),)) for axis in axes)
            element = "float32" if sums or role == "bias" else "float16"
            shape = tuple(extents[axis] for axis in axes)
            layout = nz() if len(axes) == 2 else ""
            return Operand(symbol, shape, access, element, role, layout=layout)

        right = ("co", "ci") if self.transposed else ("ci", "co")
        inputs = [operand("a", "input", "m", "ci"), operand("b", "weight", *right)]
        inputs += [operand("bias", "bias", "co")] if self.bias else []
        sums = operand("sums", "output", "m", "co", sums=True)
        attributes = (("transpose_a", False), ("transpose_b", self.transposed))
        stages = [Stage("matmul", dims, tuple(inputs), sums, attributes)]
        if self.relu:
            rectified = operand("rectified", "output", "m", "co", sums=True)
            stages.append(Stage("relu", dims[:2], (sums,), rectified))
        result = operand("c", "output", "m", "co")
        stages.append(Stage("cast", dims[:2], (stages[-1].output,), result))
        about = f"C[{self.M} x {self.K}] = A[{self.M} x {self.N}] B[{self.N} x {self.K}]"
        return Kernel(name, tuple(stages), (about,))


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
    """The order of loops over tiles in L1, the outer first: x over rows, y over columns."""
    l1: int = 1
    l0: int = 1
    l0c: int = 1
    ub: int = 1

    def schedule(self) -> Schedule:
        """As planning says it. What a loop does not change stays in L1 while it runs."""
        outer = ("m", "co", "ci") if self.order == "xy" else ("co", "m", "ci")
        return Schedule(
            "mad",
            (
                Level("cbuf", (("m", self.m1), ("co", self.k1), ("ci", self.n1)), outer),
                Level("ca", (("m", self.m0), ("co", self.k0), ("ci", self.n0)), ("m", "co", "ci")),
            ),
            (("a", self.l0), ("b", self.l0), ("c", self.l0c)),
            staged=(("a", "cbuf", self.l1), ("b", "cbuf", self.l1), ("c", "ub", self.ub)),
        )


def matmul(of: Matrices, tiling: Tiling, core: DaVinci, name: str = "matmul") -> Program:
    """The kernel of a product, without flags (flags.py). Raises TilewrightError where tiles do not
    fit (``tile-capacity``, ``plan-capacity``) or a field does not hold a number (``lower-field``).
    """
    program = tile(
        of.kernel(name), tiling.schedule(), network_machine(core), honours=AscendTarget.honours
    )
    return cube_kernel(program, core, name)
