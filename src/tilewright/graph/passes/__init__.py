"""Passes over the graph, one file each."""

from __future__ import annotations

from tilewright.graph.passes.fix_numbers import FixNumbers
from tilewright.graph.passes.fold_constants import FoldConstants
from tilewright.graph.passes.fuse_batch_norm import FuseBatchNorm
from tilewright.graph.passes.fuse_pointwise import FusePointwise
from tilewright.graph.passes.partition import Partition
from tilewright.graph.passes.simplify import Simplify
from tilewright.ir import ModulePass

PASSES: dict[str, type[ModulePass]] = {
    step.name: step
    for step in (FixNumbers, FoldConstants, FuseBatchNorm, FusePointwise, Partition, Simplify)
}
"""Every graph pass by its name on the command line."""
