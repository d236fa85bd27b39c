"""The loops of a tile program in emitted C: their variables, and where tiles lie in them.

A loop over a dim has a variable of the dim's name, which is the first index of its tile; where a
dim has several loops, the outer ones are ``co_0``, ``co_1``, ..., and the innermost keeps the
dim's name. The extent of a tile that is smaller at the edge has a variable, too: ``co_n``.
Where these are members of a structure, ``at`` is what stands before their names (``at->``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tilewright.codegen.nest.span import Span, box, whole
from tilewright.codegen.nest.value import Value, variable
from tilewright.errors import refuse
from tilewright.ir import Block, Operation
from tilewright.planning.domain import Affine
from tilewright.tile.dialect import DomainOp, LoopOp, ProgramOp, Scope, enclosing_scopes


@dataclass(frozen=True)
class Bound:
    """A dim that a domain binds to what a later compute reads."""

    dim: str
    name: str
    axis: Affine
    extent: int
    """The extent of the dim, in indices."""


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
    """A loop of the program."""

    op: LoopOp
    name: str
    outer: Loop | Bound | None
    """The next loop outwards over the same dim, or what a domain binds it to."""
    extent: int
    """The extent of the dim, in indices."""

    @property
    def step(self) -> int:
        """Indices of an iteration."""
        return self.op.step_size

    @property
    def trips(self) -> int:
        """Iterations, where the loop around it is not at its edge."""
        return self._around("").trips(self.step, self.op.upper_bound)

    def start(self, at: str) -> Value:
        """The first value of the loop's variable."""
        return self._around(at).start

    def end(self, at: str) -> Value:
        """Return the exclusive upper bound of the loop's variable."""
        around = self._around(at)
        return min(self.op.upper_bound, self.extent) if self.outer is None else around.end

    def size(self, at: str) -> Value:
        """An iteration's indices, from its variable on."""
        return self._tile(at).size

    def span(self, at: str) -> Span:
        """The span of the dim within the loop."""
        return _named(self._tile(at), self.name, at)

    def _around(self, at: str) -> Span:
        if isinstance(self.outer, Loop):
            return self.outer.span(at)
        if self.outer is None:
            return Span(0, self.extent, self.extent)
        name = f"{at}{self.outer.name}"
        return Span(variable(name), variable(f"{name}_n"), self.extent)

    def _tile(self, at: str) -> Span:
        first = variable(f"{at}{self.name}")
        return self._around(at).tile(self.step, self.op.upper_bound, first)


def _named(span: Span, name: str, at: str) -> Span:
    """A span whose size has a variable where it is no number."""
    if isinstance(span.size, int):
        return span
    return Span(span.start, variable(f"{at}{name}_n"), span.most)


class Nest:
    """The loops of one program; ``new`` hands out their names, which no other has."""

    def __init__(self, program: ProgramOp, new: Callable[[str], str]) -> None:
        self.program = program
        self.loops: dict[LoopOp, Loop] = {}
        self.domains: dict[DomainOp, Domain] = {}
        self.members: list[str] = []
        """Variables of loops and domains, each with an extent beside it."""
        chain: list[tuple[LoopOp | DomainOp, str]] = []
        for op in program.walk():
            if isinstance(op, LoopOp):
                chain.append((op, op.dim.data))
            elif isinstance(op, DomainOp):
                chain += [(op, dim) for dim in op.bound]
        left, numbers = Counter(dim for _, dim in chain), Counter[str]()
        inner: dict[str, Loop | Bound] = {}
        bounds: dict[DomainOp, list[Bound]] = {}
        for op, dim in chain:
            numbers[dim] += 1
            last = numbers[dim] == left[dim]
            name = new(dim if last else f"{dim}_{numbers[dim] - 1}")
            self.members.append(name)
            outer, extent = inner.get(dim), program.extents[dim]
            if isinstance(op, DomainOp):
                bound = Bound(dim, name, op.bound[dim], extent)
                bounds.setdefault(op, []).append(bound)
                self.domains[op] = Domain(op, tuple(bounds[op]))
                inner[dim] = bound
                continue
            if op.lower_bound or (isinstance(outer, Loop) and not outer.op.is_ancestor(op)):
                raise refuse(
                    "lower-program", f"loops over {dim} are not nested, or do not begin at 0"
                )
            inner[dim] = self.loops[op] = Loop(op, name, outer, extent)

    def around(self, op: Operation) -> list[Loop | Domain]:
        """The loops and domains around an operation, outermost first."""
        return [self.scope(scope) for scope in enclosing_scopes(op)]

    def scope(self, op: Scope) -> Loop | Domain:
        """A loop or domain of the program."""
        return self.loops[op] if isinstance(op, LoopOp) else self.domains[op]

    def spans(self, block: Block, at: str) -> dict[str, Span]:
        """Every dim as it is within a block."""
        spans = whole(self.program.extents)
        parent = block.parent_op()
        if not isinstance(parent, LoopOp | DomainOp):
            return spans
        for scope in (*self.around(parent), self.scope(parent)):
            if isinstance(scope, Loop):
                spans[scope.op.dim.data] = scope.span(at)
            else:
                spans |= self._bound(scope, spans, at)
        return spans

    def _bound(self, domain: Domain, spans: Mapping[str, Span], at: str) -> dict[str, Span]:
        """The dims of a domain within it: numbers, where they do not depend on the tile."""
        bound: dict[str, Span] = {}
        for bounds, axis in zip(domain.bounds, self._intervals(domain, spans), strict=True):
            fixed = isinstance(axis.start, int) and not axis.clipped
            start = axis.start if fixed else variable(f"{at}{bounds.name}")
            bound[bounds.dim] = _named(Span(start, axis.size, bounds.extent), bounds.name, at)
        return bound

    def intervals(self, domain: Domain, at: str) -> list[Span]:
        """The intervals to which a domain binds its dims."""
        block = domain.op.parent_block()
        assert block is not None
        return self._intervals(domain, self.spans(block, at))

    def _intervals(self, domain: Domain, spans: Mapping[str, Span]) -> list[Span]:
        extents = self.program.extents
        shape = [extents[bound.dim] for bound in domain.bounds]
        return box([bound.axis for bound in domain.bounds], shape, spans, extents)
