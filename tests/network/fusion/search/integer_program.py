"""The searches' problem as an integer program, which a solver of others solves (HiGHS)."""

from __future__ import annotations

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import lil_matrix

from tilewright.network.fusion.search import Cover, Selection


def solved(given: Cover) -> tuple[float, Selection]:
    """The least cost of all valid selections, and one that has it.

    There is a binary variable for each group and a time for each node. A node is in one group at
    most. Nodes of a group that is taken have one time, and any other node comes at least 1 later
    than what it reads: so groups that wait for one another have no times.
    """
    groups, nodes = len(given.groups), len(given.alone)
    latest = float(nodes)
    gains = [given.gain(number) for number in range(groups)]
    rows: list[dict[int, float]] = []
    least: list[float] = []

    def at_least(row: dict[int, float], bound: float) -> None:
        rows.append(row)
        least.append(bound)

    for node in range(nodes):
        holding = [n for n, group in enumerate(given.groups) if node in group.vertices]
        if len(holding) > 1:
            at_least(dict.fromkeys(holding, -1.0), -1)
        for source in given.graph.predecessors[node]:
            both = [n for n in holding if source in given.groups[n].vertices]
            later = dict.fromkeys(both, latest + 1)
            at_least({**later, groups + node: 1.0, groups + source: -1.0}, 1)
    for number, group in enumerate(given.groups):
        for node in group.vertices[1:]:
            first, other = groups + group.vertices[0], groups + node
            at_least({number: -latest, first: 1.0, other: -1.0}, -latest)
            at_least({number: -latest, first: -1.0, other: 1.0}, -latest)
    matrix = lil_matrix((len(rows), groups + nodes))
    for place, row in enumerate(rows):
        for column, coefficient in row.items():
            matrix[place, column] = coefficient
    outcome = milp(
        np.array([-gain for gain in gains] + [0.0] * nodes),
        constraints=LinearConstraint(matrix.tocsr(), np.array(least), np.inf),
        bounds=Bounds(0, np.array([1.0] * groups + [latest] * nodes)),
        integrality=np.array([1] * groups + [0] * nodes),
        options={"mip_rel_gap": 0},
    )
    assert outcome.success, outcome.message
    taken = tuple(number for number in range(groups) if outcome.x[number] > 0.5)
    return given.cost(taken), taken
