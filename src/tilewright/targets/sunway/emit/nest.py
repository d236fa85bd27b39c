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
from typing import ClassVar, TypeGuard

from tilewright.codegen.c.source import total
from tilewright.errors import refuse
from tilewright.ir import Block, Operation
from tilewright.planning.domain import Affine
from tilewright.planning.space.mesh import places
from tilewright.targets.sunway.emit.names import Names
from tilewright.targets.sunway.mesh import MESH
from tilewright.tile.dialect import (
    DomainOp,
    LoopOp,
    ProgramOp,
    Scope,
    enclosing_scopes,
    shared_loops,
)


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
class Bound:
    """A dim that a domain binds to what a later compute reads: ``name`` and ``name_n`` are its
    members of ``struct tile``."""

    dim: str
    name: str
    axis: Affine
    step: int
    """Its most indices."""

    even: ClassVar[bool] = False


@dataclass(frozen=True)
class Domain:
    """A domain of the program, which C enters by a function."""

    op: DomainOp
    bounds: tuple[Bound, ...]

    @property
    def name(self) -> str:
        """The name of the functions that enter it and step to its next run."""
        return self.bounds[0].name


@dataclass(frozen=True)
class Loop:
    """A loop of the program: ``name`` and ``name_n`` are its members of ``struct tile``."""

    op: LoopOp
    name: str
    outer: Loop | Bound | None
    """The next loop outwards over the same dim, or what a domain binds it to."""
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
        self.domains: dict[DomainOp, Domain] = {}
        chain = [
            (op, dim)
            for op in program.walk()
            for dim in (
                [op.dim.data] if isinstance(op, LoopOp) else op.bound if _is_domain(op) else ()
            )
        ]
        self.members: list[str] = []
        """The members of ``struct tile``, each with an extent beside it."""
        left: dict[str, int] = {}
        for _, dim in chain:
            left[dim] = left.get(dim, 0) + 1
        inner: dict[str, Loop | Bound] = {}
        bounds: dict[DomainOp, list[Bound]] = {}
        names, numbers = Names(), dict[str, int]()
        for op, dim in chain:
            number = numbers[dim] = numbers.get(dim, -1) + 1
            wish = dim if number == left[dim] - 1 else f"{dim}_{number}"
            name = names.new(wish, ("{}", "{}_n"))
            self.members.append(name)
            outer, extent = inner.get(dim), program.extents[dim]
            if isinstance(op, DomainOp):
                own = Bound(dim, name, op.bound[dim], extent)
                bounds.setdefault(op, []).append(own)
                self.domains[op] = Domain(op, tuple(bounds[op]))
                inner[dim] = own
            elif isinstance(op, LoopOp):
                if op.lower_bound or (isinstance(outer, Loop) and not outer.op.is_ancestor(op)):
                    raise refuse("lower-program", f"a nest of loops over {dim} that is none")
                inner[dim] = self.loops[op] = Loop(op, name, outer, extent)

    @cached_property
    def shared(self) -> list[Loop]:
        """The loops that the cores share, outermost first."""
        return [self.loops[op] for op in shared_loops(self.program)]

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

    def around(self, block: Block) -> list[Loop | Domain]:
        """The loops and domains around a block, outermost first."""
        parent = block.parent_op()
        if not isinstance(parent, LoopOp | DomainOp):
            return []
        return [self._scope(op) for op in (*enclosing_scopes(parent), parent)]

    def own(self, op: Operation) -> list[Loop | Domain]:
        """The loops and domains around an operation that each core runs for itself."""
        return [
            scope for op in enclosing_scopes(op) if (scope := self._scope(op)) not in self.shared
        ]

    def _scope(self, op: Scope) -> Loop | Domain:
        return self.loops[op] if isinstance(op, LoopOp) else self.domains[op]

    def extents(self, block: Block, at: str) -> dict[str, Extent]:
        """Every dim as it is within a block."""
        extents = {dim: Extent("0", str(size)) for dim, size in self.program.extents.items()}
        for scope in self.around(block):
            if isinstance(scope, Loop):
                extents[scope.op.dim.data] = scope.extent_at(at)
            else:
                extents |= self._bound(scope, extents, at)
        return extents

    def _bound(self, domain: Domain, extents: Mapping[str, Extent], at: str) -> dict[str, Extent]:
        """The dims of a domain within it: numbers, where they do not depend on the tile."""
        bound: dict[str, Extent] = {}
        axes = self._intervals(domain, extents)
        for own, axis in zip(domain.bounds, axes, strict=True):
            fixed = axis.start.isdigit() and not axis.clipped
            start = axis.start if fixed else f"{at}{own.name}"
            size = axis.size if axis.size.isdigit() and not axis.clipped else f"{at}{own.name}_n"
            bound[own.dim] = Extent(start, size)
        return bound

    def intervals(self, domain: Domain, at: str) -> list[Axis]:
        """The intervals to which a domain binds its dims."""
        block = domain.op.parent_block()
        assert block is not None
        return self._intervals(domain, self.extents(block, at))

    def _intervals(self, domain: Domain, extents: Mapping[str, Extent]) -> list[Axis]:
        whole = self.program.extents
        shape = [whole[own.dim] for own in domain.bounds]
        return box_axes([own.axis for own in domain.bounds], shape, extents, whole)


def _is_domain(op: Operation) -> TypeGuard[DomainOp]:
    return isinstance(op, DomainOp)


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
