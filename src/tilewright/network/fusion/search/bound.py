"""A lower bound of every selection: the linear relaxation of the choice of groups."""

from __future__ import annotations

import numpy as np

from tilewright.network.fusion.search.clusters import clusters_of
from tilewright.network.fusion.search.cover import Cover

_TOLERANCE = 1e-9


def lower_bound(cover: Cover) -> float:
    """The least cost of taking parts of groups, so that every node is covered once in sum.

    That is a linear program whose integer solutions are the selections, those that wait for
    themselves included: so it is a bound. Nodes in no useful group add their cost alone.
    """
    bound = 0.0
    covered = set[int]()
    for cluster in clusters_of(cover):
        vertices = sorted({v for n in cluster for v in cover.groups[n].vertices})
        covered.update(vertices)
        place = {vertex: row for row, vertex in enumerate(vertices)}
        columns = np.zeros((len(vertices), len(cluster)))
        for column, number in enumerate(cluster):
            columns[[place[v] for v in cover.groups[number].vertices], column] = 1.0
        alone = np.array([cover.alone[vertex] for vertex in vertices])
        costs = np.array([cover.groups[number].cost for number in cluster])
        bound += _partition(columns, alone, costs)
    return bound + sum(cost for v, cost in enumerate(cover.alone) if v not in covered)


def _partition(columns: np.ndarray, alone: np.ndarray, costs: np.ndarray) -> float:
    """The least ``alone @ y + costs @ x`` with ``y + columns @ x = 1`` and nothing negative.

    The simplex method from the solution in which every node is alone, with Bland's rule, which ends
    in spite of degenerate steps.
    """
    rows = len(alone)
    table = np.hstack([np.eye(rows), columns, np.ones((rows, 1))])
    reduced = np.concatenate([np.zeros(rows), costs - alone @ columns, [-alone.sum()]])
    basis = list(range(rows))
    scale = max(1.0, float(np.abs(alone).max(initial=0.0)))
    while True:
        entering = np.flatnonzero(reduced[:-1] < -_TOLERANCE * scale)
        if not entering.size:
            return float(-reduced[-1])
        column = int(entering[0])
        positive = np.flatnonzero(table[:, column] > _TOLERANCE)
        ratios = table[positive, -1] / table[positive, column]
        tied = positive[ratios <= ratios.min() + _TOLERANCE]
        row = min(map(int, tied), key=basis.__getitem__)
        basis[row] = column
        table[row] /= table[row, column]
        others = np.arange(rows) != row
        table[others] -= np.outer(table[others, column], table[row])
        reduced -= reduced[column] * table[row]
