"""The forms in which the fusing passes would make one kernel of two, for searches of fusions."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.graph.operations.convolution import ConvOp
from tilewright.graph.operations.pooling import PoolOperation
from tilewright.graph.passes.pairs import KernelPair, Trial
from tilewright.graph.passes.reanchoring import anchor_operands
from tilewright.targets.cpu.passes.fuse_pools import pool_objection
from tilewright.targets.cpu.passes.fuse_separable import (
    OPERATION,
    pair_objection,
    trial_pair,
)
from tilewright.targets.cpu.passes.methods import forget, methods_of, most_scratch, rewritten
from tilewright.targets.cpu.planning.capabilities import own_of


def pair_trials(pair: KernelPair) -> Iterator[Trial] | None:
    """The trials of a pair of kernels of these kinds, or None of others."""
    first, second = pair.first.anchor, pair.second.anchor
    if isinstance(second, PoolOperation):
        return _with_pool(pair)
    if (
        isinstance(first, ConvOp)
        and isinstance(second, ConvOp)
        and pair.machine.primitives_for(OPERATION)
        and pair.first.result is pair.value
    ):
        return _separable(pair)
    return None


def _with_pool(pair: KernelPair) -> Iterator[Trial]:
    """A pool within the tiles of each method that has some."""
    first, machine = pair.first, pair.machine
    tiled = [first]
    pools = any(own_of(primitive).pools for primitive in machine.primitives)
    if isinstance(first.anchor, ConvOp) and pools:
        for method in list(methods_of(first, machine)):
            if method.form.tile and own_of(method.primitive).pools:
                trial = rewritten(first, method.form, most_scratch(machine), None)
                pair.undo.callback(forget, trial)
                tiled.append(trial)
    for trial in tiled:
        objection = pool_objection(trial, pair.second, machine)
        if objection:
            pair.refuse(trial, objection)
            continue
        for primitive in pair.serving(trial):
            yield pair.enclosed(pair.copies(trial), trial), primitive


def _separable(pair: KernelPair) -> Iterator[Trial]:
    """A depthwise convolution and one of single points."""
    objection = pair_objection(pair.first, pair.second)
    if anchor_operands(pair.second)[0] is not pair.first.result:
        objection = "the second one does not read the first one's result as its image"
    if objection:
        pair.refuse(pair.first, objection)
        return
    trial = trial_pair(pair.first, pair.second, pair.machine)
    pair.undo.callback(forget, trial)
    for primitive in pair.serving(trial):
        yield trial, primitive
