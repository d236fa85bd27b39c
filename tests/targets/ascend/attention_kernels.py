"""Kernels of attention: a planned chain of the tile program, as the compiler makes it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewright.numerics.element_types import ElementType
from tilewright.planning.chains.plans import plan_chain
from tilewright.planning.domain import Affine, Dim, Kernel, Operand, Role, Stage
from tilewright.targets.ascend.attention import LAST_DIMS, as_chain
from tilewright.targets.ascend.formats import heads
from tilewright.targets.ascend.lowering.cube import cube_kernel
from tilewright.targets.ascend.machine import ASCEND_910, DaVinci
from tilewright.targets.ascend.network import network_machine
from tilewright.targets.ascend.program import Program
from tilewright.targets.ascend.target import AscendTarget
from tilewright.tile.lower import tile


@dataclass(frozen=True)
class Heads:
    """Sizes: queries [batches][heads][rows][depth], keys [..][keys][depth], values
    [..][keys][width], each matrix in Nz."""

    batches: int
    heads: int
    rows: int
    keys: int
    depth: int
    width: int
    scale: float = 1.0
    mask: tuple[int, ...] = ()
    """The shape of the mask, of four axes; () for none."""
    free: frozenset[str] = frozenset()
    """Of ``m`` (rows) and ``t`` (keys), those of which a launch has a length."""

    def kernel(self) -> Kernel:
        """The graph's attention as planning sees it."""
        sizes = (self.batches, self.heads, self.rows, self.width, self.keys, self.depth)
        extents: dict[str, int] = dict(zip(["b0", "b1", "m", "e", "t", "d"], sizes, strict=True))

        def operand(
            name: str, *dims: str, role: Role = "input", element: ElementType = "float16"
        ) -> Operand:
            axes = tuple(Affine(((dim, 1),)) for dim in dims)
            shape = tuple(extents[dim] for dim in dims)
            return Operand(name, shape, axes, element, role, layout=heads())

        inputs = [
            operand("q", "b0", "m", "b1", "d"),
            operand("k", "b0", "t", "b1", "d"),
            operand("v", "b0", "t", "b1", "e"),
        ]
        if self.mask:
            names = ("b0", "b1", "m", "t")
            axes = tuple(
                Affine(((dim, 1),)) if size > 1 or extents[dim] == 1 else Affine()
                for dim, size in zip(names, self.mask, strict=True)
            )
            inputs.append(Operand("mask", self.mask, axes, "float16", "bias"))
        sums = operand("sums", "b0", "m", "b1", "e", role="output", element="float32")
        out = operand("out", "b0", "m", "b1", "e", role="output")
        dims = tuple(
            Dim(name, size, "reduction" if name in "td" else "parallel")
            for name, size in extents.items()
        )
        anchor = Stage("attention", dims, tuple(inputs), sums, (("scale", self.scale),))
        cast = Stage("cast", dims[:4], (replace(sums, role="input"),), out)
        return Kernel("kernel", (anchor, cast))

    def program(self, core: DaVinci = ASCEND_910) -> Program:
        """The kernel without flags, of parameters a (queries), b (keys), b2 (values), c, and
        perhaps bias, the mask."""
        machine, kernel = network_machine(core), as_chain(self.kernel())
        schedule = plan_chain(kernel, machine).schedule
        lowered = tile(kernel, schedule, machine, honours=AscendTarget.honours)
        free = frozenset(LAST_DIMS.get(dim, dim) for dim in self.free)
        return cube_kernel(lowered, core, "kernel", free=free)
