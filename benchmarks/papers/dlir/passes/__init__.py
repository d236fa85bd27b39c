"""DLIR as published: its order of instructions and its memory manager, beside ours.

- pair_iterations.py: the pass that lets commands run in the order of containers.py;
- best_fit.py: the pass that allocates on-chip memories by the manager of free_list.py;
- dimension.py: DLIR's Dimension, read off a tile program.

Importing this makes the grouping ``dlir`` of tile programs known (``tile.queues.GROUPINGS``).
"""

from benchmarks.papers.dlir.passes.best_fit import BestFit
from benchmarks.papers.dlir.passes.containers import Unit, generate
from benchmarks.papers.dlir.passes.dimension import Dimension, dimensions_of
from benchmarks.papers.dlir.passes.free_list import FreeList, place_as_they_come
from benchmarks.papers.dlir.passes.pair_iterations import PAIRED, PairIterations
from tilewright.ir import ModulePass

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
