"""DLIR as published: its order of instructions and its memory manager, beside ours.

- pair_iterations.py: the pass that lets commands run in the order of containers.py;
- best_fit.py: the pass that allocates on-chip memories by the manager of free_list.py;
- dimension.py: DLIR's Dimension, read off a tile program.

Importing this makes the grouping ``dlir`` of tile programs known (``tile.queues.GROUPINGS``).
"""

from tilewright.ir import ModulePass
from tilewright.papers.dlir.best_fit import BestFit
from tilewright.papers.dlir.containers import Unit, generate
from tilewright.papers.dlir.dimension import Dimension, dimensions_of
from tilewright.papers.dlir.free_list import FreeList, place_as_they_come
from tilewright.papers.dlir.pair_iterations import PAIRED, PairIterations

PASSES: dict[str, type[ModulePass]] = {step.name: step for step in (PairIterations, BestFit)}
"""DLIR's passes by their names on the command line."""

__all__ = [
    "PAIRED",
    "PASSES",
    "BestFit",
    "Dimension",
    "FreeList",
    "PairIterations",
    "Unit",
    "dimensions_of",
    "generate",
    "place_as_they_come",
]
