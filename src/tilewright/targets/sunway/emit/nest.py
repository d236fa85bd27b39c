"""The loops of a tile program as a CPE's C has them, and the boxes of its buffers.

All loop variables are members of one ``struct tile at``: ``at.co`` is the first index of dim ``co``
in the tile at hand, ``at.co_n`` its extent. Where a dim has several loops, the outer ones are
``co_0``, ``co_1``, ..., and the innermost keeps the dim's name. The loops that the cores share are
one loop over parts in C, from whose number their variables are computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, prod

from tilewright.codegen.c.source import total
from tilewright.errors import refuse
from tilewright.ir import Block
from tilewright.planning.domain import Affine
from tilewright.planning.mesh import places
from tilewright.targets.sunway.emit.names import Names
from tilewright.targets.sunway.mesh import MESH
from tilewright.tile.dialect import LoopOp, ProgramOp, enclosing_loops


@dataclass(frozen=True)
class Extent:
    """A dim where an operation stands: C of its first index and of its extent."""

    start: str
    size: str

    @property
    def last(self) -> str:
        """C of its last index."""
        if self.size.isdigit():
            return total([(1, self.start)] if self.start != "0" else [], int(self.size) - 1)
        return f"{self.start} + {self.size} - 1" if self.start != "0" else f"{self.size} - 1"

    @property
    def end(self) -> str:
        """C of the index behind its last one."""
        return self.size if self.start == "0" else f"{self.start} + {self.size}"


@dataclass(frozen=True)
class Loop:
    """A loop of the program: ``name`` and ``name_n`` are its members of ``struct tile``."""

    op: LoopOp
    name: str
    outer: Loop | None
    """The next loop outwards over the same dim."""
    extent: int
    """Of the dim."""

    @property
    def step(self) -> int:
        """Indices of an iteration."""
        return self.op.step_size

    @property
    def trips(self) -> int:
        """Iterations, where the loop around it is not at its edge."""
        limit = self.extent if self.outer is None else self.outer.step
        return ceil(min(self.op.upper_bound, limit) / self.step)

    @property
    def even(self) -> bool:
        """Whether all iterations have as many indices."""
        limit = self.extent if self.outer is None else self.outer.step
        whole = self.outer is None or self.outer.even
        return whole and min(self.op.upper_bound, limit) % self.step == 0

    def start(self, at: str) -> str:
        """C of its first value."""
        return "0" if self.outer is None else f"{at}{self.outer.name}"

    def end(self, at: str) -> str:
        """C of what its values stay below."""
        if self.outer is None:
            return str(min(self.op.upper_bound, self.extent))
        size = str(self.outer.step) if self.outer.even else f"{at}{self.outer.name}_n"
        return f"{at}{self.outer.name} + {size}"

    def size(self, at: str) -> str:
        """C of an iteration's indices, from its start."""
        if self.even:
            return str(self.step)
        return f"MIN({self.step}, {self.end(at)} - {at}{self.name})"

    def extent_at(self, at: str) -> Extent:
        """The dim within the loop."""
        return Extent(f"{at}{self.name}", str(self.step) if self.even else f"{at}{self.name}_n")


class Nest:
    """The loops of one program."""

    def __init__(self, program: ProgramOp) -> None:
        self.program = program
        self.loops: dict[LoopOp, Loop] = {}
        chain = [op for op in program.walk() if isinstance(op, LoopOp)]
        counts: dict[str, int] = {}
        for op in chain:
            counts[op.dim.data] = counts.get(op.dim.data, 0) + 1
        seen: dict[str, int] = {}
        members = Names()
        for op in chain:
            dim = op.dim.data
            number = seen[dim] = seen.get(dim, 0) + 1
            wish = dim if number == counts[dim] else f"{dim}_{number - 1}"
            name = members.new(wish, ("{}", "{}_n"))
            around = [o for o in enclosing_loops(op) if o.dim.data == dim]
            outer = self.loops[around[-1]] if around else None
            if op.lower_bound or len(around) != number - 1:
                raise refuse("lower-program", f"a nest of loops over {dim} that is none")
            self.loops[op] = Loop(op, name, outer, program.extents[dim])

    @cached_property
    def shared(self) -> list[Loop]:
        """The loops that the cores share, outermost first."""
        if self.program.shared is None:
            return []
        count = len(self.program.shared.data.split())
        return list(self.loops.values())[:count]

    @cached_property
    def places(self) -> tuple[int, ...]:
        """Of each loop that the cores share its iterations; where CPEs exchange what they load,
        with those that a spare row or column of the mesh repeats."""
        trips = tuple(loop.trips for loop in self.shared)
        exchanged = {axis for _, axis in self.program.get("exchanged", ())}
        return places(trips, MESH.side) if exchanged & {"row", "column"} else trips

    @cached_property
    def parts(self) -> int:
        """Parts of the result, of which each core has a run; spare ones are counted."""
        return prod(self.places)

    @property
    def spare(self) -> bool:
        """Whether some CPEs go through a part that is another's."""
        return any(loop.trips < count for loop, count in zip(self.shared, self.places, strict=True))

    def around(self, block: Block) -> list[Loop]:
        """The loops around a block, outermost first."""
        parent = block.parent_op()
        if not isinstance(parent, LoopOp):
            return []
        return [self.loops[op] for op in (*enclosing_loops(parent), parent)]

    def own(self, block: Block) -> list[Loop]:
        """Those of them that each core runs for itself."""
        return [loop for loop in self.around(block) if loop not in self.shared]

    def extents(self, block: Block, at: str) -> dict[str, Extent]:
        """Every dim as it is within a block."""
        extents = {dim: Extent("0", str(size)) for dim, size in self.program.extents.items()}
        for loop in self.around(block):
            extents[loop.op.dim.data] = loop.extent_at(at)
        return extents


@dataclass(frozen=True)
class Axis:
    """One axis of a buffer's box: C of its first index and of its extent."""

    start: str
    size: str
    clipped: bool
    """Whether the box is cut at the tensor's border."""


def box_axes(
    window: Sequence[Affine],
    shape: Sequence[int],
    extents: Mapping[str, Extent],
    whole: Mapping[str, int],
) -> list[Axis]:
    """The box of a window; ``whole`` has the extents of the program's dims."""
    return [_axis(affine, size, extents, whole) for affine, size in zip(window, shape, strict=True)]


def _axis(
    affine: Affine, shape: int, extents: Mapping[str, Extent], whole: Mapping[str, int]
) -> Axis:
    low, count = affine.interval({dim: (0, whole[dim]) for dim in affine.dims})
    first = _sum(affine, extents, last=False)
    after = _sum(affine, extents, last=True)
    start = f"MAX({first}, 0)" if low < 0 else first
    clipped = low < 0 or low + count > shape
    if not clipped:
        return Axis(start, _span(affine, extents), False)
    end = f"MIN({after}, {shape})" if low + count > shape else after
    if start.isdigit() and end.isdigit():
        return Axis(start, str(int(end) - int(start)), False)
    if first.lstrip("-").isdigit() and after.isdigit():
        bounds = max(int(first), 0), min(int(after), shape)
        return Axis(str(bounds[0]), str(bounds[1] - bounds[0]), False)
    return Axis(start, end, True)


def _sum(affine: Affine, extents: Mapping[str, Extent], *, last: bool) -> str:
    """C of the least index of a window, or of what follows its greatest."""
    terms: dict[str, int] = {}
    constant = affine.offset + last
    for dim, coefficient in affine.terms:
        extent = extents[dim]
        if extent.start.isdigit():
            constant += coefficient * int(extent.start)
        else:
            terms[extent.start] = terms.get(extent.start, 0) + coefficient
        if last == (coefficient > 0):
            constant -= coefficient
            if extent.size.isdigit():
                constant += coefficient * int(extent.size)
            else:
                terms[extent.size] = terms.get(extent.size, 0) + coefficient
    return total([(c, name) for name, c in terms.items()], constant)


def _span(affine: Affine, extents: Mapping[str, Extent]) -> str:
    """C of the extent of a window that is not cut: it does not depend on where the tile lies."""
    terms: dict[str, int] = {}
    constant = 1
    for dim, coefficient in affine.terms:
        size = extents[dim].size
        constant -= abs(coefficient)
        if size.isdigit():
            constant += abs(coefficient) * int(size)
        else:
            terms[size] = terms.get(size, 0) + abs(coefficient)
    return total([(c, name) for name, c in terms.items()], constant)
