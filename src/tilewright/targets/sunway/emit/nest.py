"""The loops of a tile program as a CPE's C has them.

All loop variables are members of one ``struct tile at``: ``at.co`` is the first index of dim ``co``
in the tile at hand, ``at.co_n`` its extent. The loops that the cores share are one loop over parts
in C, from whose number their variables are computed.
"""

from __future__ import annotations

from functools import cached_property, partial
from math import prod

from tilewright.codegen.nest.nest import Domain, Loop, Nest
from tilewright.ir import Operation
from tilewright.planning.space.mesh import places
from tilewright.targets.sunway.emit.names import Names
from tilewright.targets.sunway.mesh import MESH
from tilewright.tile.dialect import ProgramOp, shared_loops


class PartNest(Nest):
    """The loops of a program of whose result each core has parts."""

    def __init__(self, program: ProgramOp) -> None:
        super().__init__(program, partial(Names().new, forms=("{}", "{}_n")))

    @cached_property
    def shared(self) -> list[Loop]:
        """The loops that the cores share, outermost first."""
        return [self.loops[op] for op in shared_loops(self.program)]

    @cached_property
    def places(self) -> tuple[int, ...]:
        """The iterations of each loop that the cores share; where CPEs exchange what they load,
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
        """True if some CPEs have no part of their own and repeat another's."""
        return any(loop.trips < count for loop, count in zip(self.shared, self.places, strict=True))

    def own(self, op: Operation) -> list[Loop | Domain]:
        """The loops and domains around an operation that each core runs for itself."""
        return [scope for scope in self.around(op) if scope not in self.shared]
