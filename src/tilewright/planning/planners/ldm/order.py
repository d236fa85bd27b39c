"""The order of loops over tiles: swTVM's algorithm 2.

The nest is built from the innermost loop outwards. Of the variables that are left, that one comes
next with which the tensors whose transfers have no place yet are transferred least often if it is
the innermost of them: a tensor that depends on it in every iteration of all that are left, any
other in every iteration of its own variables.

The printed SELECT compares the wrong way round (line 8) and returns nothing; read as the text has
it. Of several that are as good, SELECT takes the first; the nest keeps the given order.

As published, a loop over a reduction may come to stand outside of a loop over the result: partial
sums would be read and written again. Tile programs keep sums on the chip (place-moves refuses what
would not), so with ``reductions`` those come first, innermost.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from tilewright.planning.domain import Affine


@dataclass(frozen=True)
class Tensor:
    """A tensor of a nest: its subscripts, the lowest (contiguous) dim first."""

    name: str
    subscripts: tuple[Affine, ...]

    @property
    def dims(self) -> tuple[frozenset[str], ...]:
        """The variables of every dim."""
        return tuple(frozenset(subscript.dims) for subscript in self.subscripts)

    @property
    def variables(self) -> frozenset[str]:
        """The variables of all dims."""
        return frozenset().union(*self.dims)

    def holds(self, variable: str) -> bool:
        """Return True if its subscripts depend on a variable."""
        return variable in self.variables

    def elements(self, sizes: Mapping[str, int]) -> int:
        """Elements of the box of a tile: last index less first, plus one, of every dim.

        The paper leaves out the one: of ``yy * 2 + ry`` for 8 and 3 there are 17 indices.
        """
        return prod(subscript.span(sizes) for subscript in self.subscripts)


def transfers(
    innermost: str, tensors: Sequence[Tensor], trips: Mapping[str, int], left: Collection[str]
) -> int:
    """Transfers of the tensors if a variable is the innermost of those that are left."""
    every = prod(trips[v] for v in left)
    return sum(
        every if tensor.holds(innermost) else prod(trips[v] for v in left if tensor.holds(v))
        for tensor in tensors
    )


def select(
    variables: Sequence[str],
    tensors: Sequence[Tensor],
    trips: Mapping[str, int],
    left: Collection[str] | None = None,
) -> str:
    """Return the first variable with the fewest transfers; ``left`` are all that have no
    position."""
    outer = trips if left is None else left
    return min(variables, key=lambda v: transfers(v, tensors, trips, outer))


def loop_order(
    trips: Mapping[str, int], tensors: Sequence[Tensor], reductions: Collection[str] = ()
) -> list[str]:
    """The loops over tiles, outermost first; ``trips`` has them in the given order."""
    left = list(trips)
    order: list[str] = []
    undecided = list(tensors)
    while left:
        inner = [v for v in left if v in reductions] or left
        chosen = select(inner[::-1], undecided, trips, left)
        order.insert(0, chosen)
        left.remove(chosen)
        if trips[chosen] > 1:
            undecided = [tensor for tensor in undecided if not tensor.holds(chosen)]
    return order
