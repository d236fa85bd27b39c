"""TreeEnsemble of ai.onnx.ml: all rows go down all trees together, a step for each level.

A place is a node of a tree or, after all nodes, a leaf, at which a row stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import TensorProto

from tilewright.frontends.onnx.lowering import Lowering
from tilewright.frontends.onnx.tensors import array_of
from tilewright.ir import SSAValue
from tilewright.ir.types import Array

MAX_LEVELS = 256
"""Levels of a tree, where each member of a set is a level of its own."""

_LEQ, _LT, _GTE, _GT, _EQ, _NEQ, _MEMBER = range(7)
_RELATIONS: Mapping[int, tuple[str, bool, bool]] = {
    _LEQ: ("less_equal", False, False),
    _LT: ("less", False, False),
    _GTE: ("less_equal", True, False),
    _GT: ("less", True, False),
    _EQ: ("equal", False, False),
    _NEQ: ("equal", False, True),
}
"""For each comparison of a number with a split: the relation, and whether its operands are swapped
and its result is negated."""

_FOLDS = ("sum", "sum", "min", "max")
"""Reductions over the trees by ``aggregate_function``; the first is then divided into a mean."""


@dataclass
class Nodes:
    """The table of places, a list for each column."""

    feature: list[int]
    split: list[float]
    mode: list[int]
    missing: list[int]
    """Flags, 1 where NaN takes the true branch."""
    yes: list[int]
    no: list[int]

    def add(self, *values: Any) -> None:
        """Append a place."""
        columns = (self.feature, self.split, self.mode, self.missing, self.yes, self.no)
        for column, value in zip(columns, values, strict=True):
            column.append(value)


def tree_ensemble(at: Lowering) -> SSAValue:
    """The sums, means or ends, for each target, of the leaves that rows come to: [N, targets]."""
    if len(at.shape(0)) != 2 or at.dtype(0).kind != "f":
        raise at.refuse("its rows are not of floats")
    rows, width = at.shape(0)
    roots, targets = at.integers("tree_roots") or (), at.integer("n_targets")
    weights, ids = _tensor(at, "leaf_weights"), np.array(at.integers("leaf_targetids") or ())
    if not roots or weights.size != ids.size or not all(0 <= i < targets for i in ids):
        raise at.misfit("its roots, leaves or targets do not fit together")
    nodes, heads = _nodes(at, width, weights.size)
    count = len(nodes.yes) - weights.size
    table = np.zeros((len(nodes.yes), targets), at.dtype(0))
    table[np.arange(weights.size) + count, ids] = weights
    if not all(0 <= root < len(heads) for root in roots):
        raise at.misfit("a root is no node")
    starts = [heads[root] for root in roots]
    x = at.reshape(at.tensor(0), (rows * width,))
    lead = at.weight(np.arange(rows)[:, None] * width, f"{at.node.name}.lead")
    place = at.weight(np.tile(np.array(starts), (rows, 1)), f"{at.node.name}.roots")
    for _ in range(_levels(at, nodes, starts, count)):
        place = _step(at, nodes, x, lead, place)
    leaves = at.emit("gather", at.weight(table, f"{at.node.name}.leaves"), place, axis=0)
    return _together(at, leaves, len(roots), targets)


def _tensor(at: Lowering, name: str) -> Array:
    value = at.attributes.get(name)
    return array_of(value).reshape(-1) if isinstance(value, TensorProto) else np.zeros(0)


def _nodes(at: Lowering, width: int, leaves: int) -> tuple[Nodes, list[int]]:
    """The places, and the first of each node; a node of a set has one for each member."""
    names = ("featureids", "truenodeids", "trueleafs", "falsenodeids", "falseleafs")
    lists = [at.integers(f"nodes_{name}") or () for name in names]
    modes, splits = _tensor(at, "nodes_modes"), _tensor(at, "nodes_splits")
    size = modes.size
    tracks = at.integers("nodes_missing_value_tracks_true") or (0,) * size
    if not size or {len(item) for item in (*lists, splits, tracks)} != {size}:
        raise at.misfit("its nodes have columns of different lengths")
    members = _members(at, int((modes == _MEMBER).sum()))
    sets = iter(members)
    values = [next(sets) if mode == _MEMBER else [s] for mode, s in zip(modes, splits, strict=True)]
    heads = [0, *np.cumsum([max(len(each), 1) for each in values]).tolist()]
    count = heads.pop()
    nodes = Nodes([], [], [], [], [], [])
    for number, (feature, yes, yes_leaf, no, no_leaf) in enumerate(zip(*lists, strict=True)):
        ends: list[int] = []
        for target, leaf in ((yes, yes_leaf), (no, no_leaf)):
            if not 0 <= target < (leaves if leaf else size):
                raise at.misfit(f"a branch of node {number} leads nowhere")
            ends.append(count + target if leaf else heads[target])
        mode = int(modes[number])
        if not 0 <= feature < width or not (mode in _RELATIONS or mode == _MEMBER):
            raise at.refuse(f"node {number} has the mode {mode} on column {feature}")
        each = values[number] or [np.nan]  # No number is in an empty set.
        for index, value in enumerate(each):
            last = index == len(each) - 1
            after = ends[1] if last else len(nodes.yes) + 1
            kept = _EQ if mode == _MEMBER else mode
            nodes.add(feature, float(value), kept, tracks[number], ends[0], after)
    for leaf in range(leaves):
        nodes.add(0, 0.0, nodes.mode[0], 0, count + leaf, count + leaf)
    return nodes, heads


def _members(at: Lowering, count: int) -> list[list[float]]:
    """The numbers of each set, which NaN ends."""
    sets: list[list[float]] = [[]]
    for value in _tensor(at, "membership_values"):
        if np.isnan(value):
            sets.append([])
        else:
            sets[-1].append(float(value))
    if len(sets) < count:
        raise at.misfit(f"it has {len(sets)} sets of members for {count} nodes")
    return sets[:count]


def _levels(at: Lowering, nodes: Nodes, starts: Sequence[int], count: int) -> int:
    """The most nodes on a way to a leaf."""
    level, front = 0, set(starts)
    while front := {place for place in front if place < count}:
        front = {end for place in front for end in (nodes.yes[place], nodes.no[place])}
        level += 1
        if level > MAX_LEVELS:
            raise at.refuse(f"a tree has more than {MAX_LEVELS} levels", code="onnx-too-large")
    return level


def _step(at: Lowering, nodes: Nodes, x: SSAValue, lead: SSAValue, place: SSAValue) -> SSAValue:
    """The places, [N, trees], one level down."""

    def column(values: Sequence[float], name: str, dtype: Any) -> SSAValue:
        weight = at.weight(np.array(values, dtype), f"{at.node.name}.{name}")
        return at.emit("gather", weight, place, axis=0)

    value = at.emit(
        "gather", x, at.emit("add", lead, column(nodes.feature, "feature", np.int64)), axis=0
    )
    split = column(nodes.split, "split", at.dtype(0))
    modes = sorted(set(nodes.mode))
    mode = column(nodes.mode, "mode", np.int32) if len(modes) > 1 else None
    chosen: SSAValue | None = None
    for kind in modes:
        relation, swapped, negated = _RELATIONS[kind]
        holds = at.emit(relation, *((split, value) if swapped else (value, split)))
        holds = at.emit("bit_not", holds) if negated else holds
        if mode is not None:
            holds = at.emit("bit_and", holds, at.apply("equal", mode, kind))
        chosen = holds if chosen is None else at.emit("bit_or", chosen, holds)
    assert chosen is not None
    if any(nodes.missing):
        nothing = at.emit("bit_not", at.emit("equal", value, value))
        tracks = column(nodes.missing, "missing", np.bool_)
        chosen = at.emit("bit_or", chosen, at.emit("bit_and", nothing, tracks))
    return at.emit(
        "select", chosen, column(nodes.yes, "yes", np.int64), column(nodes.no, "no", np.int64)
    )


def _together(at: Lowering, leaves: SSAValue, trees: int, targets: int) -> SSAValue:
    """The leaves [N, trees, targets] of all trees put together, and the transform after it."""
    kind, after = at.integer("aggregate_function", 1), at.integer("post_transform")
    if not 0 <= kind < len(_FOLDS) or (kind > 1 and targets > 1):
        raise at.refuse(f"the aggregate_function {kind} of {targets} targets is not computed")
    if after > 2 or after < 0:
        raise at.refuse(f"the post_transform {after} is not computed")
    value = at.emit(f"reduce_{_FOLDS[kind]}", leaves, axes=(1,), keep_dims=False)
    value = at.apply("div", value, trees) if kind == 0 else value
    if after == 0:
        return value
    return at.emit("sigmoid", value) if after == 2 else at.emit("softmax", value, axis=1)
